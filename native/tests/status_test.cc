#include "deepinfer/status.h"

#include "testing.h"

using deepinfer::Error;
using deepinfer::ErrorCode;

TEST(fail_joins_parts_and_keeps_the_code) {
  try {
    deepinfer::fail(ErrorCode::kBadFile, "tensor ", 3, " of ", 7);
  } catch (const Error& e) {
    CHECK_EQ(std::string(e.what()), "tensor 3 of 7");
    CHECK(e.code() == ErrorCode::kBadFile);
    return;
  }
  CHECK(false);
}

TEST(check_names_the_condition) {
  CHECK_THROWS(Error, [] { DI_CHECK(1 + 1 == 3, "sum"); }());
}

TEST_MAIN()
