#pragma once

#include <nanobind/nanobind.h>

namespace deepinfer::bindings {

void bind_errors(nanobind::module_& m);      // NativeError(message, code)
void bind_build_info(nanobind::module_& m);  // build_info()
void bind_rows(nanobind::module_& m);        // scan_row, RowScan, IdTable
void bind_files(nanobind::module_& m);       // open_tensor_file, TensorFile
void bind_text(nanobind::module_& m);        // TokenTable, TextState
void bind_constraint(nanobind::module_& m);  // Llguidance, ConstraintTemplate, ConstraintMatcher
void bind_engine(nanobind::module_& m);      // ThreadPool, Executor, FakeExecutor, Engine and their data
void bind_cpu(nanobind::module_& m);         // CpuExecutor, kernel levels, self-test, decoding
void bind_quality(nanobind::module_& m);     // logit_divergence
void bind_measure(nanobind::module_& m);     // peak_gops, measure_linear, measure_attention, measure_rows

}  // namespace deepinfer::bindings
