// What the measurements count; how fast anything is, no test can say.
#include <string>

#include "deepinfer/status.h"
#include "deepinfer/threads.h"
#include "kernels/dispatch.h"
#include "measure/kernel_rate.h"
#include "measure/peak_rate.h"
#include "testing.h"

using namespace deepinfer;

TEST(a_product_counts_its_weights_and_operations) {
  ThreadPool pool(2);
  for (const std::string& isa : kernels::available_levels()) {
    const auto rates =
        measure_linear(isa, {DType::kQ8_0, kernels::Precision::kFast, 48, 64, {1, 8}}, 0.0, 0, pool);
    CHECK_EQ(rates.size(), 2u);
    CHECK_EQ(rates[0].num_ops, 2.0 * 48 * 64);
    CHECK_EQ(rates[1].num_ops, 8 * rates[0].num_ops);
    CHECK(rates[0].num_bytes >= 48 * 64 && rates[0].num_bytes == rates[1].num_bytes);
    CHECK(rates[0].seconds > 0 && rates[1].seconds > 0);
  }
}

TEST(attention_counts_what_each_new_token_sees) {
  ThreadPool pool(2);
  AttentionCase c;
  c.num_heads = 4;
  c.num_kv_heads = 2;
  c.head_dim = 32;
  c.num_sequences = 3;
  c.context = 40;
  const KernelRate decode = measure_attention("", c, 0.0, 1 << 20, pool);
  CHECK_EQ(decode.rows, 3);
  CHECK_EQ(decode.num_ops, 4.0 * 128 * 3 * 40);
  CHECK_EQ(decode.num_bytes, 3 * 40 * 2 * 2 * 32 * 2);  // sequences, tokens, heads, keys and values, f16
  c.new_tokens = 40;
  CHECK_EQ(measure_attention("", c, 0.0, 0, pool).num_ops, 4.0 * 128 * 3 * (40 * 41 / 2));
}

TEST(row_kernels_run_at_every_level) {
  ThreadPool pool(2);
  for (const std::string& isa : kernels::available_levels())
    for (const char* kernel :
         {"rms_norm", "swiglu", "prepare_int8", "prepare_residual", "prepare_bf16", "prepare_fp32"})
      CHECK(measure_rows(isa, kernel, 64, 9, 0.0, pool).seconds > 0);
}

TEST(impossible_measurements_are_refused) {
  ThreadPool pool(1);
  CHECK_THROWS(Error, peak_gops("int4", 0.0, pool));
  CHECK_THROWS(Error, measure_rows("", "softmax", 64, 1, 0.0, pool));
  CHECK_THROWS(Error, measure_rows("", "swiglu", 63, 1, 0.0, pool));
  CHECK_THROWS(Error, measure_attention("", {}, 0.0, 0, pool));
  CHECK_THROWS(Error,
               measure_linear("", {DType::kQ8_0, kernels::Precision::kFast, 16, 40, {1}}, 0.0, 0, pool));
}

TEST(the_peak_of_each_arithmetic_is_known_on_x86) {
  ThreadPool pool(1);
  for (const char* kind : {"int8", "bf16", "fp32"}) CHECK(peak_gops(kind, 0.0, pool) >= 0);
}

TEST_MAIN()
