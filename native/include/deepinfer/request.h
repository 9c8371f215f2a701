// What goes into the engine and what comes out, as plain data. The engine knows token ids and bytes of
// text; rows, templates and JSON belong to the caller.
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "deepinfer/constraint.h"

namespace deepinfer {

struct SamplingParams {
  float temperature = 1.0f;                           // 0 = greedy
  int32_t top_k = 0;                                  // 0 = off
  float top_p = 1.0f;                                 // (0, 1]; 1 = off
  float min_p = 0.0f;                                 // [0, 1]; 0 = off
  float repetition_penalty = 1.0f;                    // > 0; over prompt and output, 1 = off
  float presence_penalty = 0.0f;                      // [-2, 2]; over output
  float frequency_penalty = 0.0f;                     // [-2, 2]; over output
  std::vector<std::pair<int32_t, float>> logit_bias;  // (token id, added to its logit)
  std::vector<std::string> stop;                      // UTF-8, matched on decoded text across tokens
  std::vector<int32_t> stop_token_ids;
  bool include_stop = false;  // keep the matched stop string in the text
  // End of sequence and all stops are held off before this many tokens. A constraint goes before it: a text
  // that the constraint completes, or that it lets only end, ends.
  int32_t min_tokens = 0;
  int32_t max_tokens = 0;     // 0 = score the prompt only
  bool ignore_eos = false;    // end-of-sequence is a token like any other (not under a constraint)
  int32_t top_logprobs = -1;  // -1 none, 0 the chosen token's, k also the k best
};

struct Request {
  uint64_t id = 0;              // the caller's ordinal, unique among live requests
  std::vector<int32_t> prompt;  // token ids, not empty
  SamplingParams sampling;
  int32_t num_samples = 1;       // n: samples that share one prefill
  uint64_t seed = 0;             // effective seed: randomness is f(seed, sample, position, token)
  int32_t prompt_logprobs = -1;  // -1 none, else like top_logprobs for every prompt token but the first
  // May be null. A token that is the only one allowed, and no stop, is taken whatever the logits say:
  // penalties and biases do not matter there, and the row need not even be finite unless its
  // log-probabilities are asked.
  std::shared_ptr<const ConstraintTemplate> constraint;
  // The constraint holds from the token after these on, the first time the output has them in a row (the end
  // of thinking); empty = from the first token on.
  std::vector<int32_t> constraint_after;
  bool wants_token_times = false;  // fill SampleResult::token_times
  // When the caller handed it over; all times below count from here. Engine::try_submit sets it.
  std::chrono::steady_clock::time_point submitted_at{};

  // Scoring path: called on the engine thread with the logits that predict position `position` (the
  // token at `position` is scored by them), for every position in [score_begin, score_end), each once, in
  // ascending order. 1 <= score_begin, score_end <= prompt.size() + 1. When it throws, the request ends as
  // an error. Positions that are scored are computed, also when the cache knows them.
  int32_t score_begin = 0;
  int32_t score_end = 0;  // empty range = no scoring
  std::function<void(int32_t position, const float* logits, int32_t vocab_size)> on_logits;
};

// Log-probabilities of one position, of the model's own distribution: before temperature, penalties,
// bias and masks. Non-finite values are kept here and become null in rows.
struct TokenLogprobs {
  int32_t token = 0;
  float logprob = 0.0f;
  int32_t rank = 0;                            // 1-based rank of `token`
  std::vector<std::pair<int32_t, float>> top;  // best first; ties by lower id
};

enum class FinishReason : uint8_t { kStop, kLength, kContext, kError, kAborted };

// How far the constraint of a sample came.
enum class ConstraintState : uint8_t {
  kNone,        // there is no constraint
  kNotStarted,  // the output never had Request::constraint_after
  kIncomplete,  // the text does not fit as it is: cut short by a limit, a stop string, an error
  kComplete,    // the text fits
};

struct SampleResult {
  std::vector<int32_t> tokens;  // without the end-of-sequence or stop token
  std::string text;             // valid UTF-8, cut exactly at the stop string
  FinishReason finish_reason = FinishReason::kStop;
  std::string stop_string;  // the stop string that matched, if one did
  int32_t stop_token = -1;  // the end-of-sequence or stop token that ended it, if one did
  ConstraintState constraint_state = ConstraintState::kNone;
  std::vector<TokenLogprobs> logprobs;  // [tokens.size()] when asked
  // [tokens.size()] when asked: seconds on the steady clock at the end of the step that made each token, so
  // tokens of one step have the same time and differences are times between steps, not between deliveries.
  std::vector<double> token_times;
};

struct Completion {
  uint64_t id = 0;
  std::vector<SampleResult> samples;           // [num_samples], sample order
  std::vector<TokenLogprobs> prompt_logprobs;  // [prompt.size() - 1], positions 1.., when asked
  std::string error;                           // not empty: the request failed, samples hold what there was
  bool error_retryable = false;
  int32_t num_prompt_tokens = 0;
  int32_t num_cached_tokens = 0;  // prompt tokens taken from the prefix cache at first admission
  int32_t num_preemptions = 0;
  double submit_time = 0;          // seconds on the steady clock
  double queue_seconds = 0;        // submit to first admission
  double first_token_seconds = 0;  // submit to first sampled token
  double total_seconds = 0;        // submit to completion
};

}  // namespace deepinfer
