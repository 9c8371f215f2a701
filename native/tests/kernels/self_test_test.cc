#include "kernels/self_test.h"

#include <cstring>

#include "deepinfer/status.h"
#include "kernels/dispatch.h"
#include "testing.h"

using namespace deepinfer;

TEST(every_level_equals_the_scalar_twin) {
  const std::vector<kernels::SelfTestResult> results = kernels::self_test_all();
  for (const kernels::SelfTestResult& result : results) {
    if (!result.ok) std::cerr << result.isa << " " << result.kernel << ": " << result.detail << "\n";
    CHECK(result.ok);
  }
  CHECK_EQ(results.size(), (kernels::available_levels().size() - 1) * (5 + 18 * 8 + 4 * 2));
}

// The comparison is worth something only if it can fail.
TEST(a_wrong_kernel_is_found) {
  kernels::KernelTable wrong = kernels::table_for("scalar");
  wrong.swiglu = [](const float*, const float*, int n, float* y) {
    std::memset(y, 0, sizeof(float) * static_cast<size_t>(n));
  };
  int failed = 0;
  for (const auto& result : kernels::self_test(wrong, kernels::table_for("scalar"))) failed += !result.ok;
  CHECK_EQ(failed, 1);
}

TEST(unknown_levels_are_named) {
  CHECK_THROWS(Error, kernels::table_for("mmx"));
  CHECK_EQ(std::string(kernels::table_for("scalar").name), "scalar");
}

TEST_MAIN()
