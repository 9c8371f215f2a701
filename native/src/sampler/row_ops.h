// The passes over a whole row of logits. Integer results and maxima do not depend on any order; the one sum
// of floats has 16 lanes, flushed into doubles every 64 steps, and a written-out tree. Every width of vectors
// gives the same bits, so the choice of instructions is free.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "sampler/noise.h"

namespace deepinfer {

struct RowMax {
  float max = 0.0f;
  int32_t index = 0;       // the lowest id that has it
  bool is_finite = false;  // no NaN and no +infinity anywhere, and max is above -infinity
};

// Weights of tokens in fixed point, so that sums of them have no order: exp(x) * 2^30, x <= 0.
inline constexpr float kWeightScale = 0x1p30f;
uint32_t weight_of(float x);

// A leading part of the order "higher logit, then lower id": all tokens up to and including this one.
struct Border {
  float logit = 0.0f;
  int32_t id = 0;
  bool includes(float other_logit, int32_t other_id) const {
    return other_logit > logit || (other_logit == logit && other_id <= id);
  }
};

struct RowOps {
  static constexpr size_t kNumSteps = 8;  // thresholds of sum_weights

  const char* name;

  RowMax (*find_max)(const float* row, size_t size);
  // Sum of exp(row[i] - max).
  double (*sum_exp)(const float* row, size_t size, float max);
  // sums[j] = sum of weight_of((row[i] - max) * scale) over row[i] >= thresholds[j], for 2 thresholds ...
  void (*sum_two_weights)(const float* row, size_t size, float max, float scale, const float* thresholds,
                          uint64_t* sums);
  // ... or for kNumSteps.
  void (*sum_weights)(const float* row, size_t size, float max, float scale, const float* thresholds,
                      uint64_t* sums);
  // Appends the ids with low <= row[i] < high, ascending.
  void (*collect)(const float* row, size_t size, float low, float high, std::vector<int32_t>& ids);
  // Ids that come before (value, id) in the order (higher logit, lower id).
  int32_t (*count_better)(const float* row, size_t size, float value, int32_t id);
  // maxima[j] = max of row[j], row[j + num_maxima], ...; num_maxima is a multiple of 16.
  void (*strided_maxima)(const float* row, size_t size, float* maxima, size_t num_maxima);
  // argmax of (row[i] - max) * scale + gumbel(noise, i) over the tokens that `border` includes; `first` is
  // where the search starts, any of them.
  int32_t (*gumbel_argmax)(const float* row, size_t size, float max, float scale, const Border& border,
                           const TokenNoise& noise, int32_t first);
  // to[i] = from[i], or -infinity where bit i of mask is not set; may be the same row. Returns to's maximum;
  // `raw` is from's, without its index.
  RowMax (*mask_row)(const float* from, float* to, size_t size, const uint32_t* mask, RowMax& raw);
};

// What this processor runs fastest.
const RowOps& row_ops();
// All that this processor can run, the plainest first: for tests.
std::vector<const RowOps*> all_row_ops();

}  // namespace deepinfer
