// Matchers that are Python objects (llguidance's own LLMatcher): what takes over where its C functions do not
// fit. A step takes the GIL once and makes a few calls for all of its matchers.
#pragma once

#include <nanobind/nanobind.h>

#include <memory>
#include <vector>

#include "deepinfer/constraint.h"

namespace deepinfer::bindings {

// `engine`: accept(matchers, tokens) -> which were taken, and fill_masks(matchers, address, bytes of one
// mask)
// -> which were filled; mask i goes to address + i * bytes.
std::shared_ptr<MatcherGroup> make_python_group(nanobind::object engine, size_t vocab_size);

// A template that copies what make_matcher() returns, in `group`. Takes the GIL.
std::shared_ptr<const ConstraintTemplate> make_python_template(std::shared_ptr<MatcherGroup> group,
                                                               const nanobind::callable& make_matcher);

}  // namespace deepinfer::bindings
