// The CPU executor, kernel levels and their self-test, weight decoding, memory read rate.
#include <nanobind/nanobind.h>
#include <nanobind/stl/shared_ptr.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/tuple.h>
#include <nanobind/stl/unique_ptr.h>
#include <nanobind/stl/vector.h>

#include <memory>
#include <optional>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "base/free_memory.h"
#include "base/read_rate.h"
#include "bind.h"
#include "deepinfer/status.h"
#include "executor/cpu_executor.h"
#include "kernels/dispatch.h"
#include "kernels/formats/formats.h"
#include "kernels/self_test.h"
#include "models/model.h"

namespace nb = nanobind;
using namespace nb::literals;

namespace deepinfer::bindings {
namespace {

std::unique_ptr<CpuExecutor> make_executor(const std::shared_ptr<TensorFile>& file, ThreadPool& pool,
                                           const std::string& precision, const std::string& kv_dtype,
                                           float residual_threshold, nb::object isa, int block_tokens) {
  CpuExecutorConfig config;
  config.precision = precision;
  config.residual_threshold = residual_threshold;
  config.kv_dtype = kv_dtype;
  if (!isa.is_none()) config.isa = nb::cast<std::string>(isa);
  config.block_tokens = block_tokens;
  const nb::gil_scoped_release release;  // packing takes a while
  return_free_memory();                  // what reading a vocabulary and its merges has left
  return std::make_unique<CpuExecutor>(file, pool, config);
}

nb::dict info_dict(const CpuExecutor& executor) {
  const ModelInfo& info = executor.info();
  nb::dict d;
  d["family"] = info.family;
  d["name"] = info.name;
  d["vocab_size"] = info.vocab_size;
  d["max_positions"] = info.max_positions;
  d["num_layers"] = info.num_layers;
  d["num_parameters"] = info.num_parameters;
  d["weight_bytes"] = info.weight_bytes;
  d["isa"] = executor.isa();
  return d;
}

std::vector<std::tuple<std::string, std::string, bool, std::string>> run_self_test() {
  const nb::gil_scoped_release release;
  std::vector<std::tuple<std::string, std::string, bool, std::string>> out;
  for (kernels::SelfTestResult& r : kernels::self_test_all()) {
    out.emplace_back(std::move(r.kernel), std::move(r.isa), r.ok, std::move(r.detail));
  }
  return out;
}

// A tensor type's bytes as fp32 bytes.
nb::bytes dequantise(const std::string& dtype_name, nb::bytes blocks) {
  for (int i = 0; i <= static_cast<int>(DType::kF8_E8M0); ++i) {
    const auto dtype = static_cast<DType>(i);
    const DTypeInfo& info = dtype_info(dtype);
    if (dtype_name != info.name) continue;
    if (blocks.size() % static_cast<size_t>(info.block_bytes) != 0) {
      fail(ErrorCode::kBadRequest, blocks.size(), " bytes are not whole blocks of ", info.name, " (",
           info.block_bytes, " bytes)");
    }
    const auto count = static_cast<int64_t>(blocks.size()) / info.block_bytes * info.block_elems;
    std::vector<float> values(static_cast<size_t>(count));
    formats::dequantise(dtype, reinterpret_cast<const std::byte*>(blocks.c_str()), count, values.data());
    return nb::bytes(reinterpret_cast<const char*>(values.data()), values.size() * sizeof(float));
  }
  fail(ErrorCode::kBadRequest, "unknown tensor type ", dtype_name);
}

}  // namespace

void bind_cpu(nb::module_& m) {
  const CpuExecutorConfig defaults;
  nb::class_<CpuExecutor, Executor>(m, "CpuExecutor")
      .def(nb::new_(&make_executor), nb::keep_alive<0, 3>(), "tensor_file"_a, "pool"_a, nb::kw_only(),
           "precision"_a = defaults.precision, "kv_dtype"_a = defaults.kv_dtype,
           "residual_threshold"_a = defaults.residual_threshold, "isa"_a.none() = nb::none(),
           "block_tokens"_a = defaults.block_tokens)
      .def_prop_ro("info", &info_dict);
  m.def("cpu_isa_levels", &kernels::available_levels);
  m.def("default_isa", &kernels::default_level);
  m.def("kernel_self_test", &run_self_test);
  m.def("supported_architectures", &models::supported_architectures);
  m.def("available_memory_bytes", [] { return available_memory_bytes(); });
  m.def(
      "dram_read_gbps",
      [](double seconds, ThreadPool& pool) {
        const nb::gil_scoped_release release;
        return dram_read_gbps(seconds, pool);
      },
      "seconds"_a, "pool"_a);
  m.def("dequantize", &dequantise, "dtype"_a, "blocks"_a);
}

}  // namespace deepinfer::bindings
