// TokenTable, TextState and BpeTokenizer for Python.
#include <nanobind/nanobind.h>
#include <nanobind/stl/pair.h>
#include <nanobind/stl/shared_ptr.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/unique_ptr.h>
#include <nanobind/stl/vector.h>

#include "bind.h"
#include "deepinfer/bpe.h"
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

std::vector<std::pair<std::string, int32_t>> token_map(const nb::dict& tokens) {
  std::vector<std::pair<std::string, int32_t>> out;
  for (const auto& [text, id] : tokens) {
    out.emplace_back(view(nb::cast<nb::bytes>(text)), nb::cast<int32_t>(id));
  }
  return out;
}

std::unique_ptr<BpeTokenizer> make_bpe(const std::vector<nb::bytes>& tokens,
                                       std::vector<std::pair<int32_t, int32_t>> merges, std::string pre,
                                       const nb::dict& specials, const nb::dict& added, bool ignore_merges,
                                       bool nfc, const std::vector<nb::bytes>& late) {
  BpeSpec spec;
  spec.tokens.reserve(tokens.size());
  for (const nb::bytes& t : tokens) spec.tokens.emplace_back(view(t));
  spec.merges = std::move(merges);
  spec.pre = std::move(pre);
  spec.specials = token_map(specials);
  spec.added = token_map(added);
  spec.ignore_merges = ignore_merges;
  spec.nfc = nfc;
  for (const nb::bytes& token : late) spec.late.emplace_back(view(token));
  return std::make_unique<BpeTokenizer>(std::move(spec));
}

// The bytes of a str or bytes argument, borrowed from it.
std::string_view text_view(const nb::handle& text) {
  if (PyBytes_Check(text.ptr())) {
    return {PyBytes_AS_STRING(text.ptr()), static_cast<size_t>(PyBytes_GET_SIZE(text.ptr()))};
  }
  if (!PyUnicode_Check(text.ptr())) throw nb::type_error("text must be str or bytes");
  Py_ssize_t size = 0;
  const char* data = PyUnicode_AsUTF8AndSize(text.ptr(), &size);
  if (data == nullptr) throw nb::python_error();
  return {data, static_cast<size_t>(size)};
}

std::vector<int32_t> encode(const BpeTokenizer& tokenizer, const nb::object& text, bool parse_special) {
  const std::string_view bytes = text_view(text);
  nb::gil_scoped_release release;
  return tokenizer.encode(bytes, parse_special);
}

nb::list split(const BpeTokenizer& tokenizer, const nb::object& text) {
  nb::list out;
  for (const std::string_view word : tokenizer.split(text_view(text)))
    out.append(nb::bytes(word.data(), word.size()));
  return out;
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

  nb::class_<BpeTokenizer>(m, "BpeTokenizer")
      .def(nb::new_(&make_bpe), "tokens"_a, "merges"_a, "pre"_a, "specials"_a, "added"_a = nb::dict(),
           "ignore_merges"_a = false, "nfc"_a = false, "late"_a = std::vector<nb::bytes>())
      .def("encode", &encode, "text"_a, "parse_special"_a)
      .def("split", &split, "text"_a)
      .def_static("known_pre", &BpeTokenizer::known_pre);
}

}  // namespace deepinfer::bindings
