// TensorFile for Python: what is in a model file, without its weights.
#include <nanobind/nanobind.h>
#include <nanobind/stl/shared_ptr.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>

#include "bind.h"
#include "deepinfer/tensor_file.h"

namespace nb = nanobind;
using namespace nb::literals;

namespace deepinfer::bindings {
namespace {

// Text from files need not be UTF-8; bytes that are not become lone surrogates, which encode back.
nb::object text(const std::string& s) {
  PyObject* out = PyUnicode_DecodeUTF8(s.data(), static_cast<Py_ssize_t>(s.size()), "surrogateescape");
  if (out == nullptr) throw nb::python_error();
  return nb::steal(out);
}

nb::object to_python(const std::string& value) { return text(value); }
template <typename T>
nb::object to_python(const T& value) {
  return nb::cast(value);
}
template <typename T>
nb::object to_python(const std::vector<T>& values) {
  nb::list out;
  for (const auto& value : values) out.append(to_python(static_cast<T>(value)));
  return out;
}

nb::dict metadata(const TensorFile& file) {
  nb::dict out;
  for (const auto& [key, value] : file.metadata()) {
    out[text(key)] = std::visit([](const auto& v) { return to_python(v); }, value);
  }
  return out;
}

nb::list tensors(const TensorFile& file) {
  nb::list out;
  for (const TensorInfo& t : file.tensors()) {
    out.append(nb::make_tuple(text(t.name), dtype_info(t.dtype).name, nb::tuple(nb::cast(t.shape)),
                              t.num_bytes, t.file_index, t.file_offset));
  }
  return out;
}

nb::list files(const TensorFile& file) {
  nb::list out;
  for (const std::string& path : file.files()) out.append(text(path));
  return out;
}

std::shared_ptr<const TensorFile> open(const nb::object& path) {
  nb::object bytes = nb::steal(PyOS_FSPath(path.ptr()));
  if (!bytes.is_valid()) throw nb::python_error();
  if (PyUnicode_Check(bytes.ptr())) bytes = nb::steal(PyUnicode_EncodeFSDefault(bytes.ptr()));
  if (!bytes.is_valid()) throw nb::python_error();
  const std::string name(PyBytes_AsString(bytes.ptr()), static_cast<size_t>(PyBytes_Size(bytes.ptr())));
  nb::gil_scoped_release release;
  return TensorFile::open(name);
}

}  // namespace

void bind_files(nb::module_& m) {
  nb::class_<TensorFile>(m, "TensorFile")
      .def_prop_ro(
          "format",
          [](const TensorFile& f) { return f.format() == FileFormat::kGguf ? "gguf" : "safetensors"; })
      .def_prop_ro("files", &files)
      .def_prop_ro("metadata", &metadata)
      .def_prop_ro("tensors", &tensors);
  m.def(
      "open_tensor_file",
      [](const nb::object& path) { return std::const_pointer_cast<TensorFile>(open(path)); }, "path"_a);
}

}  // namespace deepinfer::bindings
