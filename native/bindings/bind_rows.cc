// RowScan and IdTable for Python.
#include <nanobind/nanobind.h>
#include <nanobind/stl/optional.h>
#include <nanobind/stl/string.h>

#include <optional>

#include "bind.h"
#include "deepinfer/id_table.h"
#include "deepinfer/row_scanner.h"

namespace nb = nanobind;
using namespace nb::literals;

namespace deepinfer::bindings {
namespace {

std::string_view view(const nb::bytes& bytes) { return {bytes.c_str(), bytes.size()}; }

RowScan scan(const nb::bytes& line, int max_depth) {
  constexpr size_t kWorthReleasing = 64 << 10;  // below, handing the GIL over costs more than the scan
  if (line.size() < kWorthReleasing) return scan_row(view(line), max_depth);
  const std::string_view text = view(line);
  nb::gil_scoped_release release;
  return scan_row(text, max_depth);
}

nb::list fields(const RowScan& scan) {
  nb::list out;
  for (const RowField& field : scan.fields) out.append(nb::make_tuple(field.key, field.start, field.end));
  return out;
}

nb::object error(const RowScan& scan) {
  if (scan.error == RowErrorCode::kNone) return nb::none();
  return nb::str(row_error_name(scan.error));
}

}  // namespace

void bind_rows(nb::module_& m) {
  nb::class_<RowScan>(m, "RowScan")
      .def_prop_ro("error", &error)
      .def_ro("message", &RowScan::message)
      .def_ro("column", &RowScan::column)
      .def_prop_ro("fields", &fields)
      .def_prop_ro("has_lone_surrogate", [](const RowScan& s) { return s.lone_surrogate_column != 0; })
      .def_ro("lone_surrogate_column", &RowScan::lone_surrogate_column);
  m.def("scan_row", &scan, "line"_a, "max_depth"_a = 128);

  nb::class_<IdTable>(m, "IdTable")
      .def(
          "__init__",
          [](IdTable* self, size_t max_memory_bytes, const std::optional<std::string>& spill_dir) {
            new (self) IdTable(max_memory_bytes, spill_dir.value_or(""));
          },
          "max_memory_bytes"_a = IdTable::kDefaultMemoryBytes, "spill_dir"_a = nb::none())
      .def(
          "insert",
          [](IdTable& t, const nb::bytes& key, int64_t value) { return t.insert(view(key), value); }, "key"_a,
          "value"_a)
      .def(
          "increment", [](IdTable& t, const nb::bytes& key) { return t.increment(view(key)); }, "key"_a)
      .def_prop_ro("memory_bytes", &IdTable::memory_bytes)
      .def_prop_ro("spilled_bytes", &IdTable::spilled_bytes);
}

}  // namespace deepinfer::bindings
