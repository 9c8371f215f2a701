// Penalties, biases and masks: from the model's row to the scores that are sampled.
#pragma once

#include <span>
#include <vector>

#include "deepinfer/sampling.h"
#include "sampler/row_ops.h"

namespace deepinfer {

// True when the scores differ from the logits; then they are in `scores`.
bool adjust_row(const RowOps& ops, const SampleInput& input, std::vector<float>& scores);

}  // namespace deepinfer
