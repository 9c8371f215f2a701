// TokenTable and TextState for Python.
#include <nanobind/nanobind.h>
#include <nanobind/stl/shared_ptr.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>

#include "bind.h"
#include "deepinfer/text.h"

namespace nb = nanobind;
using namespace nb::literals;

namespace deepinfer::bindings {
namespace {

std::string_view view(const nb::bytes& bytes) { return {bytes.c_str(), bytes.size()}; }

std::shared_ptr<TokenTable> make_token_table(const std::vector<nb::bytes>& bytes,
                                             const std::vector<bool>& special) {
  if (bytes.size() != special.size())
    throw nb::value_error("bytes and special must have one entry per token");
  std::vector<std::string> copies;
  copies.reserve(bytes.size());
  for (const nb::bytes& b : bytes) copies.emplace_back(view(b));
  return std::make_shared<TokenTable>(std::move(copies), special);
}

}  // namespace

void bind_text(nb::module_& m) {
  nb::class_<TokenTable>(m, "TokenTable")
      .def(nb::new_(&make_token_table), "bytes"_a, "special"_a)
      .def("__len__", &TokenTable::size)
      .def(
          "bytes",
          [](const TokenTable& t, int32_t token) {
            const std::string_view b = t.bytes(token);
            return nb::bytes(b.data(), b.size());
          },
          "token"_a)
      .def("is_special", &TokenTable::is_special, "token"_a);

  nb::class_<TextState>(m, "TextState")
      .def(nb::init<std::vector<std::string>, bool>(), "stop"_a, "include_stop"_a)
      .def(
          "push",
          [](TextState& s, const nb::bytes& bytes, bool check_stop) {
            return s.push(view(bytes), check_stop);
          },
          "bytes"_a, "check_stop"_a = true)
      .def("finish", &TextState::finish)
      .def_prop_ro("text", [](const TextState& s) { return s.text(); })
      .def_prop_ro("matched_stop", [](const TextState& s) { return s.matched_stop(); });
}

}  // namespace deepinfer::bindings
