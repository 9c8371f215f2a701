// deepinfer::Error becomes deepinfer_cli._native.NativeError with args (message, code name).
#include "bind.h"
#include "deepinfer/status.h"

namespace nb = nanobind;

namespace deepinfer::bindings {
namespace {

PyObject* native_error = nullptr;  // owned by the module for the life of the process

const char* code_name(ErrorCode code) {
  switch (code) {
    case ErrorCode::kBadFile: return "bad_file";
    case ErrorCode::kUnsupported: return "unsupported";
    case ErrorCode::kBadRequest: return "bad_request";
    case ErrorCode::kResource: return "resource";
    case ErrorCode::kInternal: return "internal";
  }
  return "internal";
}

}  // namespace

void bind_errors(nb::module_& m) {
  native_error = PyErr_NewException("deepinfer_cli._native.NativeError", PyExc_RuntimeError, nullptr);
  m.attr("NativeError") = nb::borrow(native_error);
  nb::register_exception_translator([](const std::exception_ptr& p, void*) {
    try {
      std::rethrow_exception(p);
    } catch (const Error& e) {
      nb::object args = nb::make_tuple(e.what(), code_name(e.code()));
      PyErr_SetObject(native_error, args.ptr());
    }
  });
}

}  // namespace deepinfer::bindings
