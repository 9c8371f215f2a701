// A request in the engine: its samples, what was scored of its prompt, and the completion that grows.
#pragma once

#include <chrono>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "deepinfer/request.h"
#include "deepinfer/sampling.h"
#include "deepinfer/text.h"
#include "engine/sample_constraint.h"
#include "scheduler/sequence.h"

namespace deepinfer {

struct RequestState;

// One sample of a request: what the scheduler moves, and what decoding adds to it.
struct Sample : Sequence {
  explicit Sample(RequestState& owner);

  RequestState* request;
  TextState text;
  SampleConstraint constraint;
  TokenCounts counts;  // filled only when a penalty is on
  SampleResult result;
  std::optional<FinishReason> ending;  // decided, but some of its tokens have no log-probabilities yet
  bool is_closed = false;              // the result is complete
  std::string error;                   // why it ended, if that was not in good order

  void append(int32_t token);  // to result, and to tokens and counts while they are there
  // Only the first sample always holds its tokens: the others can be many.
  void load();
  void unload();
  const TokenCounts& counts_now() const;  // before the first token they are those of the first sample
  // No more tokens; what is still to be computed is what their log-probabilities need.
  void stop_growing(FinishReason reason);
  void close(FinishReason reason);
  // Skips at admission only what no score needs any more.
  void limit_cached();
  int32_t num_unscored() const;  // tokens at the end of the output whose log-probabilities are still wanted
  bool ends_with(std::span<const int32_t> tail, int32_t token) const;  // the output, once it has the token
  int32_t num_output() const { return static_cast<int32_t>(result.tokens.size()); }
};

struct RequestState {
  using Clock = std::chrono::steady_clock;

  // eos_token_ids end a sample unless the request ignores them.
  RequestState(Request&& submitted, uint64_t arrival, uint64_t rank, std::span<const int32_t> eos_token_ids);

  Request request;
  uint64_t ordinal;                              // order of arrival
  uint64_t rank;                                 // before it, see SequenceOrder
  std::vector<std::unique_ptr<Sample>> samples;  // one until the prompt is computed, then num_samples
  Completion completion;
  std::vector<int32_t> stop_tokens;  // stop tokens, then end-of-sequence tokens, in force
  size_t num_own_stops;              // of them: the request's own
  int32_t num_finished = 0;          // samples
  bool is_forked = false;            // all samples exist
  bool is_done = false;
  int num_restarts = 0;  // from nothing after a failed step, since its last token

  // Positions whose predicting logits are wanted: [next_score, end_score), in ascending order, each once.
  int32_t next_score = 0;
  int32_t end_score = 0;
  int32_t next_call = 0;       // positions before it have been given to on_logits
  std::string callback_error;  // not empty: on_logits threw

  double seconds_since_submit() const;

  int32_t num_prompt() const { return static_cast<int32_t>(request.prompt.size()); }
  bool wants_tokens() const { return request.sampling.max_tokens > 0; }
  // Creates the samples beyond the first, each with the prompt and nothing computed.
  void create_samples();
  std::span<const int32_t> held_tokens(const Sample& sample) const;  // not allowed before min_tokens
  void take_first_error();                                           // of its samples, in their order
  Completion finish();
};

}  // namespace deepinfer
