#pragma once

#include <string>
#include <vector>

#include "deepinfer/constraint.h"

namespace deepinfer::bindings {

// Some constraints fail only when they are used: tries the first mask, one token of it and the next mask on a
// matcher that is thrown away. Throws Error{kBadRequest} with the matcher's reason. special: [vocab_size].
void probe(ConstraintMatcher& matcher, const std::vector<bool>& special);

}  // namespace deepinfer::bindings
