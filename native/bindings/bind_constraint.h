#pragma once

#include <memory>

#include "deepinfer/constraint.h"

namespace deepinfer::bindings {

// What Python holds of a compiled constraint.
struct Template {
  std::shared_ptr<const ConstraintTemplate> compiled;
};

}  // namespace deepinfer::bindings
