// Constraints: the engine that compiles them, and matchers for tests.
#include "bind_constraint.h"

#include <nanobind/nanobind.h>
#include <nanobind/stl/shared_ptr.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/unique_ptr.h>
#include <nanobind/stl/vector.h>

#include <utility>

#include "big_stack.h"
#include "bind.h"
#include "constraint_probe.h"
#include "engine/sample_constraint.h"
#include "llguidance.h"
#include "python_matchers.h"

namespace nb = nanobind;
using namespace nb::literals;

namespace deepinfer::bindings {
namespace {

std::unique_ptr<Llguidance> make_llguidance(const std::string& library, const std::vector<nb::bytes>& tokens,
                                            std::vector<bool> special, std::vector<int32_t> eos_token_ids,
                                            std::shared_ptr<BpeTokenizer> bpe) {
  ConstraintVocabulary vocabulary;
  vocabulary.tokens.reserve(tokens.size());
  for (const nb::bytes& token : tokens) vocabulary.tokens.emplace_back(token.c_str(), token.size());
  vocabulary.special = std::move(special);
  vocabulary.eos_token_ids = std::move(eos_token_ids);
  vocabulary.bpe = std::move(bpe);
  const nb::gil_scoped_release release;
  return std::make_unique<Llguidance>(library, std::move(vocabulary));
}

Template compile(const Llguidance& engine, const std::string& grammar) {
  const nb::gil_scoped_release release;
  return {engine.compile(grammar)};
}

// Matchers of the Python road share one group.
class PythonMatchers {
 public:
  PythonMatchers(nb::object engine, std::vector<bool> special)
      : special_(std::move(special)), group_(make_python_group(std::move(engine), special_.size())) {}

  Template compile(const nb::callable& make_matcher) const {
    Template made;
    const nb::gil_scoped_release release;
    on_big_stack([&] {
      made.compiled = make_python_template(group_, make_matcher);
      probe(*made.compiled->clone(), special_);
    });
    return made;
  }

 private:
  std::vector<bool> special_;
  std::shared_ptr<MatcherGroup> group_;
};

nb::bytes mask_bytes(ConstraintMatcher& matcher, int32_t vocab_size) {
  std::vector<uint32_t> mask((static_cast<size_t>(vocab_size) + 31) / 32);
  bool is_filled = false;
  {
    const nb::gil_scoped_release release;
    is_filled = matcher.fill_mask(mask);
  }
  return is_filled ? nb::bytes(reinterpret_cast<const char*>(mask.data()), mask.size() * 4)
                   : nb::bytes("", 0);
}

}  // namespace

void bind_constraint(nb::module_& m) {
  const auto no_gil = nb::call_guard<nb::gil_scoped_release>();
  nb::class_<ConstraintMatcher>(m, "ConstraintMatcher")
      .def("mask", &mask_bytes, "vocab_size"_a)
      .def("accept", &ConstraintMatcher::accept, "token"_a, no_gil)
      .def(
          "validate",
          [](ConstraintMatcher& matcher, const std::vector<int32_t>& tokens) {
            return matcher.validate(tokens);
          },
          "tokens"_a, no_gil)
      .def("rollback", &ConstraintMatcher::rollback, "num_tokens"_a, no_gil)
      .def(
          "forced",
          [](ConstraintMatcher& matcher, int32_t vocab_size, int32_t max_tokens) {
            return forced_tokens(matcher, vocab_size, max_tokens);
          },
          "vocab_size"_a, "max_tokens"_a = 64, no_gil)
      .def("can_ask", &ConstraintMatcher::can_ask, no_gil)
      .def("done", &ConstraintMatcher::done, no_gil)
      .def("is_accepting", &ConstraintMatcher::is_accepting, no_gil)
      .def("error", &ConstraintMatcher::error, no_gil);

  nb::class_<Template>(m, "ConstraintTemplate")
      .def("clone", [](const Template& t) { return t.compiled->clone(); }, no_gil);

  nb::class_<PythonMatchers>(m, "PythonMatchers")
      .def(nb::init<nb::object, std::vector<bool>>(), "engine"_a, "special"_a)
      .def("compile", &PythonMatchers::compile, "make_matcher"_a);

  nb::class_<Llguidance>(m, "Llguidance")
      .def(nb::new_(&make_llguidance), "library"_a, "tokens"_a, "special"_a, "eos_token_ids"_a,
           "bpe"_a.none() = nb::none())
      .def("compile", &compile, "grammar"_a);
  // What the Python road sets up in the same way.
  nb::list slices;
  for (const char* slice : kSlices)
    if (slice != nullptr) slices.append(slice);
  m.attr("CONSTRAINT_SLICES") = slices;
  m.attr("CONSTRAINT_LEXER_STATES") = kMaxLexerStates;
}

}  // namespace deepinfer::bindings
