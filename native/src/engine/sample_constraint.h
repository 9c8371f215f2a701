// The constraint of one sample, between its matcher and the step that samples under it.
#pragma once

#include <chrono>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "deepinfer/constraint.h"
#include "deepinfer/sampling.h"
#include "deepinfer/threads.h"

namespace deepinfer {

struct SampleConstraint {
  const ConstraintTemplate* compiled = nullptr;  // null: free text
  bool has_started = false;                      // else the text is still free
  std::unique_ptr<ConstraintMatcher> matcher;    // made when it is first needed
  std::string error;                             // not empty: the next token cannot be known

  // What may come next. A mask that leaves one token, which ends nothing, needs no logits: `only` is it.
  bool has_mask = false;
  std::vector<uint32_t> mask;  // [ceil(vocab_size / 32)]
  int32_t only = -1;

  // No mask is made unless the token that would be sampled without one is refused.
  bool is_asked = false;
  int num_allowed = 0;  // by the last mask that forced nothing; 0 after a refusal

  // Tokens that follow the one just sampled, accepted but not yet part of the result; the mask is for the
  // token after them.
  std::vector<int32_t> forced;
  bool is_done = false;  // the text is complete with them

  bool is_active() const { return compiled != nullptr && has_started; }
};

// The one token that the mask allows among the first `vocab_size`; -1 when there is none, or more than one.
int32_t only_token(std::span<const uint32_t> mask, int32_t vocab_size);

// Whether the mask allows some token, and none but `tokens`.
bool allows_only(std::span<const uint32_t> mask, std::span<const int32_t> tokens);

// Whether the matcher allows the token that was sampled without a mask, and the one with the highest score.
// It takes both: scores are measured from the highest, and only then are they the same bits under the mask.
bool allows_sampled(SampleConstraint& constraint, const SampleOutput& output);

// The mask of a constraint that refused what was sampled without. `ends`: as in ConstraintWork.
void make_refused_mask(SampleConstraint& constraint, std::span<const int32_t> ends, int32_t vocab_size);

// Up to `max_tokens` tokens of which each is the only one allowed after those before it. The matcher is left
// as it was, unless it fails on the way.
std::vector<int32_t> forced_tokens(ConstraintMatcher& matcher, int32_t vocab_size, int32_t max_tokens);

// The matchers' work of a step: in parallel over the pool, or in one go where a group is cheaper.
class ConstraintWork {
 public:
  // forcing_seconds: how long a matcher is asked for forced tokens in one run(); masks of long forced texts
  // are slow. What is not found now is found later, with the same results.
  // ask_above: as in EngineConfig.
  ConstraintWork(ThreadPool& pool, double forcing_seconds, int32_t ask_above)
      : pool_(pool), forcing_seconds_(forcing_seconds), ask_above_(ask_above) {}

  struct Item {
    SampleConstraint* constraint = nullptr;
    int32_t token = -1;                  // that was sampled; -1 = none, only a mask is wanted
    int32_t room = 0;                    // tokens that the sample may still get after it
    int32_t max_forced = 0;              // of them that may be decided here
    bool can_ask = false;                // a token sampled without a mask is the same if it is allowed
    std::span<const int32_t> ends = {};  // tokens that end the sample: never forced
  };
  void add(const Item& item) { items_.push_back(item); }
  bool is_empty() const { return items_.empty(); }
  // Makes matchers, accepts the tokens, finds what they force and the masks after that. Empty afterwards.
  void run(int32_t vocab_size);

 private:
  using Time = std::chrono::steady_clock::time_point;
  void run_alone(const Item& item, int32_t vocab_size) const;
  void run_group(MatcherGroup& group, std::span<Item> items, int32_t vocab_size) const;
  Time deadline(size_t num_items) const;  // to stop forcing so many of them

  ThreadPool& pool_;
  double forcing_seconds_;
  int32_t ask_above_;
  std::vector<Item> items_;
};

}  // namespace deepinfer
