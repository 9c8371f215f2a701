#pragma once

#include <nanobind/nanobind.h>

namespace deepinfer::bindings {

void bind_errors(nanobind::module_& m);      // NativeError(message, code)
void bind_build_info(nanobind::module_& m);  // build_info()

}  // namespace deepinfer::bindings
