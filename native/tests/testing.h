// The few lines of test harness that the native tests need; no dependency, so that `make test` runs on a
// bare machine. Each *_test.cc becomes one executable, registered with ctest.
//
//   TEST(Name) { CHECK(x == y); CHECK_EQ(a, b); CHECK_THROWS(Error, call()); }
#pragma once

#include <cstdio>
#include <cstdlib>
#include <exception>
#include <iostream>
#include <sstream>
#include <string>
#include <vector>

namespace deepinfer::testing {

struct Case {
  const char* name;
  void (*body)();
};
inline std::vector<Case>& cases() {
  static std::vector<Case> all;
  return all;
}
inline int& failures() {
  static int count = 0;
  return count;
}
struct Registrar {
  Registrar(const char* name, void (*body)()) { cases().push_back({name, body}); }
};
inline void report(const char* file, int line, const std::string& what) {
  ++failures();
  std::cerr << file << ":" << line << ": " << what << "\n";
}
template <typename A, typename B>
void check_eq(const A& a, const B& b, const char* text, const char* file, int line) {
  if (a == b) return;
  std::ostringstream out;
  out << text;
  if constexpr (requires { out << a << b; }) out << ": " << a << " != " << b;
  report(file, line, out.str());
}

// argv[1], when given, is a substring that selects cases.
inline int run_all(int argc, char** argv) {
  const std::string filter = argc > 1 ? argv[1] : "";
  int ran = 0, failed = 0;
  for (const Case& c : cases()) {
    if (std::string(c.name).find(filter) == std::string::npos) continue;
    const int before = failures();
    try {
      c.body();
    } catch (const std::exception& e) {
      report(c.name, 0, std::string("threw: ") + e.what());
    }
    ++ran;
    failed += failures() != before;
  }
  std::cout << ran - failed << " passed, " << failed << " failed\n";
  return failed != 0 || ran == 0;
}

}  // namespace deepinfer::testing

#define TEST(name)                                                             \
  static void test_##name();                                                   \
  static ::deepinfer::testing::Registrar registrar_##name(#name, test_##name); \
  static void test_##name()
#define CHECK(condition)                                                            \
  do {                                                                              \
    if (!(condition)) ::deepinfer::testing::report(__FILE__, __LINE__, #condition); \
  } while (0)
#define CHECK_EQ(a, b) ::deepinfer::testing::check_eq((a), (b), #a " == " #b, __FILE__, __LINE__)
#define CHECK_THROWS(Type, ...)                                                                          \
  do {                                                                                                   \
    bool thrown = false;                                                                                 \
    try {                                                                                                \
      (void)(__VA_ARGS__);                                                                               \
    } catch (const Type&) {                                                                              \
      thrown = true;                                                                                     \
    }                                                                                                    \
    if (!thrown) ::deepinfer::testing::report(__FILE__, __LINE__, #__VA_ARGS__ " did not throw " #Type); \
  } while (0)
#define TEST_MAIN() \
  int main(int argc, char** argv) { return ::deepinfer::testing::run_all(argc, argv); }
