// Penalties, biases and masks: from the model's row to the scores that are sampled.
#pragma once

#include <span>
#include <vector>

#include "deepinfer/sampling.h"
#include "sampler/row_ops.h"

namespace deepinfer {

// What is sampled from: the model's row, or an edited copy of it in `scores`.
struct AdjustedRow {
  std::span<const float> scores;
  RowMax raw;  // of the model's row; its index may be missing
  RowMax top;  // of the scores
};
AdjustedRow adjust_row(const RowOps& ops, const SampleInput& input, std::vector<float>& scores);

// True when the mask allows a few tokens only: they and their scores are all that matters of the row.
bool gather_few(const SampleInput& input, std::vector<Candidate>& candidates);

}  // namespace deepinfer
