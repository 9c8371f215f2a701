// Limits of the machine, and the speed of single kernels.
#include <nanobind/nanobind.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/tuple.h>
#include <nanobind/stl/vector.h>

#include <string>
#include <tuple>
#include <vector>

#include "bind.h"
#include "deepinfer/status.h"
#include "deepinfer/threads.h"
#include "measure/kernel_rate.h"
#include "measure/peak_rate.h"

namespace nb = nanobind;
using namespace nb::literals;

namespace deepinfer::bindings {
namespace {

using RateTuple = std::tuple<int, double, int64_t, double>;  // rows, seconds, bytes, operations

RateTuple as_tuple(const KernelRate& rate) { return {rate.rows, rate.seconds, rate.num_bytes, rate.num_ops}; }

DType dtype_named(const std::string& name) {
  for (int i = 0; i <= static_cast<int>(DType::kF8_E8M0); ++i)
    if (name == dtype_info(static_cast<DType>(i)).name) return static_cast<DType>(i);
  fail(ErrorCode::kBadRequest, "unknown tensor type ", name);
}

std::vector<RateTuple> linear(const std::string& dtype, int n, int k, std::vector<int> rows, ThreadPool& pool,
                              const std::string& precision, const std::string& isa, double seconds,
                              int64_t rotated_bytes) {
  const LinearCase c{dtype_named(dtype), kernels::parse_precision(precision), n, k, std::move(rows)};
  for (const int count : c.rows)
    if (count < 1) fail(ErrorCode::kBadRequest, "a product of ", count, " rows");
  std::vector<RateTuple> out;
  const nb::gil_scoped_release release;
  for (const KernelRate& rate : measure_linear(isa, c, seconds, rotated_bytes, pool))
    out.push_back(as_tuple(rate));
  return out;
}

RateTuple attention(int num_heads, int num_kv_heads, int head_dim, int num_sequences, int context,
                    int new_tokens, ThreadPool& pool, const std::string& kv_dtype, int block_tokens,
                    const std::string& isa, double seconds, int64_t rotated_bytes) {
  AttentionCase c;
  c.kv_dtype = kv_dtype;
  c.num_heads = num_heads;
  c.num_kv_heads = num_kv_heads;
  c.head_dim = head_dim;
  c.block_tokens = block_tokens;
  c.num_sequences = num_sequences;
  c.context = context;
  c.new_tokens = new_tokens;
  const nb::gil_scoped_release release;
  return as_tuple(measure_attention(isa, c, seconds, rotated_bytes, pool));
}

RateTuple rows(const std::string& kernel, int width, int num_rows, ThreadPool& pool, const std::string& isa,
               double seconds) {
  const nb::gil_scoped_release release;
  return as_tuple(measure_rows(isa, kernel, width, num_rows, seconds, pool));
}

}  // namespace

void bind_measure(nb::module_& m) {
  m.def(
      "peak_gops",
      [](const std::string& kind, double seconds, ThreadPool& pool) {
        const nb::gil_scoped_release release;
        return peak_gops(kind, seconds, pool);
      },
      "kind"_a, "seconds"_a, "pool"_a);
  m.def("measure_linear", &linear, "dtype"_a, "n"_a, "k"_a, "rows"_a, "pool"_a, nb::kw_only(),
        "precision"_a = "precise", "isa"_a = "", "seconds"_a = 0.05, "rotated_bytes"_a = 0);
  m.def("measure_attention", &attention, "num_heads"_a, "num_kv_heads"_a, "head_dim"_a, "num_sequences"_a,
        "context"_a, "new_tokens"_a, "pool"_a, nb::kw_only(), "kv_dtype"_a = "f16", "block_tokens"_a = 32,
        "isa"_a = "", "seconds"_a = 0.05, "rotated_bytes"_a = 0);
  m.def("measure_rows", &rows, "kernel"_a, "width"_a, "num_rows"_a, "pool"_a, nb::kw_only(), "isa"_a = "",
        "seconds"_a = 0.05);
}

}  // namespace deepinfer::bindings
