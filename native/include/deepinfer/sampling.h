// From one row of logits to one token: the host sampler, which is the specification for any other. A pure
// function of its input, whatever thread runs it.
//
// In this order: log-probabilities of the raw row; repetition, presence and frequency penalties; logit_bias;
// held-off tokens; the constraint's mask; then greedy (temperature below 1e-5) or temperature, top_k, top_p,
// min_p and Gumbel-max. Ties are decided for the lower id everywhere.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <unordered_map>
#include <vector>

#include "deepinfer/request.h"

namespace deepinfer {

inline constexpr float kMinTemperature = 1e-5f;  // below: greedy

// How often a token occurred so far, for penalties.
struct TokenCount {
  bool in_prompt = false;
  int32_t num_output = 0;
};
using TokenCounts = std::unordered_map<int32_t, TokenCount>;

// All randomness of a token is a function of this and its id.
struct NoiseKey {
  uint64_t seed = 0;
  int32_t sample = 0;
  int32_t position = 0;  // absolute position of the token to be sampled
};

struct SampleInput {
  std::span<const float> logits;  // [vocab_size] as the model gave them
  const SamplingParams* params = nullptr;
  NoiseKey key;
  const TokenCounts* counts = nullptr;  // null = no penalties
  std::span<const int32_t> held;        // tokens that may not come now (min_tokens)
  std::span<const uint32_t> mask;       // [ceil(vocab_size / 32)] bit set = allowed; empty = no constraint
};

struct SampleOutput {
  int32_t token = -1;
  int32_t best = -1;       // the token with the highest score
  TokenLogprobs logprobs;  // filled when params->top_logprobs >= 0
  std::string error;       // not empty: no token; the row ends
};

struct Candidate {
  float logit;
  int32_t id;
};

// Memory that a worker reuses from row to row.
struct SamplerScratch {
  std::vector<float> scores;  // [vocab_size] the adjusted row, when something adjusts it
  std::vector<int32_t> ids;
  std::vector<Candidate> candidates;  // tokens that may still be chosen
};

SampleOutput sample_row(const SampleInput& input, SamplerScratch& scratch);

// Scores of `token` in a row of raw logits, with the `num_top` best beside it.
TokenLogprobs score_token(std::span<const float> logits, int32_t token, int32_t num_top);

// Empty when the row can be used: no NaN, no +infinity, and something above -infinity.
std::string why_not_finite(std::span<const float> logits);

// Empty, or which parameter is wrong and what is allowed.
std::string why_invalid(const SamplingParams& params, int32_t vocab_size);

}  // namespace deepinfer
