// The constraint of one sample, between its matcher and the step that samples under it.
#pragma once

#include <algorithm>
#include <array>
#include <chrono>
#include <cstdint>
#include <limits>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "deepinfer/constraint.h"
#include "deepinfer/sampling.h"
#include "deepinfer/threads.h"

namespace deepinfer {

inline constexpr int32_t kNeverAsk = std::numeric_limits<int32_t>::max();

// Whether the next mask is likely to allow much, so that it pays to try without: as it was after the same
// token, else as it was last, unless trying has failed too often. Results do not depend on it.
class MaskGuess {
 public:
  bool is_worth_asking() const { return now_ == kMuch && trust_ > 0; }
  void follow(int32_t token) {
    slot_ = static_cast<size_t>(token) % seen_.size();
    if (seen_[slot_] != kUnknown) now_ = seen_[slot_];
  }
  void on_mask(bool is_much) {
    seen_[slot_] = now_ = is_much ? kMuch : kLittle;
    trust_ = std::max(trust_, 1);
  }
  void on_allowed() {
    seen_[slot_] = now_ = kMuch;
    trust_ = std::min(trust_ + 1, kMostTrust);
  }
  void on_refused() {  // once its mask is made: where that allows little, it was the guess that failed
    if (now_ == kMuch) trust_ = std::max(trust_ - 1, 0);
  }

 private:
  enum Width : uint8_t { kUnknown, kLittle, kMuch };
  static constexpr int kMostTrust = 3;
  std::array<Width, 256> seen_{};  // after a token, by its id modulo their number
  size_t slot_ = 0;
  Width now_ = kUnknown;
  int trust_ = kMostTrust;
};

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
  int32_t ask_above = kNeverAsk;
  MaskGuess guess;

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
  ConstraintWork(ThreadPool& pool, double forcing_seconds) : pool_(pool), forcing_seconds_(forcing_seconds) {}

  struct Item {
    SampleConstraint* constraint = nullptr;
    int32_t token = -1;                  // that was sampled; -1 = none, only a mask is wanted
    int32_t room = 0;                    // tokens that the sample may still get after it
    int32_t max_forced = 0;              // of them that may be decided here
    int32_t ask_above = kNeverAsk;       // as in EngineConfig; only where what is allowed is sampled so or so
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
  std::vector<Item> items_;
};

}  // namespace deepinfer
