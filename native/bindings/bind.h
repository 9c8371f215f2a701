#pragma once

#include <nanobind/nanobind.h>

namespace deepinfer::bindings {

void bind_errors(nanobind::module_& m);  // NativeError(message, code)

}  // namespace deepinfer::bindings
