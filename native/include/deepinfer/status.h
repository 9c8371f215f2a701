// Errors that cross the edge of the core, and the checks that guard its inside.
#pragma once

#include <sstream>
#include <stdexcept>
#include <string>
#include <utility>

namespace deepinfer {

// What went wrong, in the terms of the command line's exit codes and row errors.
enum class ErrorCode {
  kBadFile,      // a model file is missing, truncated, corrupt or hostile
  kUnsupported,  // well formed, but nothing here can run it; the message says what is supported
  kBadRequest,   // one request is wrong; its neighbours are not
  kResource,     // memory, disk or another limit; the message says what is needed and what is there
  kInternal,     // a broken invariant: our bug
};

class Error : public std::runtime_error {
 public:
  Error(ErrorCode code, const std::string& message) : std::runtime_error(message), code_(code) {}
  ErrorCode code() const { return code_; }

 private:
  ErrorCode code_;
};

template <typename... Parts>
std::string str_cat(const Parts&... parts) {
  std::ostringstream out;
  (out << ... << parts);
  return out.str();
}

template <typename... Parts>
[[noreturn]] void fail(ErrorCode code, const Parts&... parts) {
  throw Error(code, str_cat(parts...));
}

// Always on: misuse or a broken invariant ends the run with file and line, never silently.
#define DI_CHECK(condition, ...)                                                          \
  do {                                                                                    \
    if (!(condition)) [[unlikely]]                                                        \
      ::deepinfer::fail(::deepinfer::ErrorCode::kInternal, __FILE__, ":", __LINE__, ": ", \
                        #condition __VA_OPT__(, ": ", ) __VA_ARGS__);                     \
  } while (0)

}  // namespace deepinfer
