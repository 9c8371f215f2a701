// Requests of every kind, drawn from a seed.
#pragma once

#include <array>
#include <memory>
#include <random>
#include <string>
#include <vector>

#include "deepinfer/request.h"
#include "deepinfer/text.h"
#include "engine/dfa_matcher.h"

namespace deepinfer::testing {

struct RequestRange {
  int32_t vocab_size = 40;
  int32_t eos = 0;
  int32_t max_prompt = 40;
  int32_t max_tokens = 24;
  int32_t max_samples = 5;
};

class Draw {
 public:
  explicit Draw(uint64_t seed) : rng_(seed) {}
  int32_t below(int32_t n) { return static_cast<int32_t>(rng_() % static_cast<uint64_t>(n)); }
  int32_t between(int32_t low, int32_t high) { return low + below(high - low + 1); }
  bool one_in(int32_t n) { return below(n) == 0; }
  template <typename T, size_t N>
  T pick(const std::array<T, N>& values) {
    return values[static_cast<size_t>(below(static_cast<int32_t>(N)))];
  }
  uint64_t bits() { return rng_(); }

 private:
  std::mt19937_64 rng_;
};

// Tokens are letters, halves of a two-byte character, and an invalid byte.
inline std::shared_ptr<const TokenTable> odd_tokens(int32_t vocab_size) {
  std::vector<std::string> bytes;
  std::vector<bool> special;
  for (int32_t t = 0; t < vocab_size; ++t) {
    const std::array<const char*, 8> pieces = {"a", "b", "ab", "c", "\xC3", "\xA9", "\xFF", "ba"};
    bytes.emplace_back(pieces[static_cast<size_t>(t) % pieces.size()]);
    special.push_back(t == 0);
  }
  return std::make_shared<TokenTable>(std::move(bytes), std::move(special));
}

// Many states have one way out, so that tokens are forced.
inline std::shared_ptr<const ConstraintTemplate> random_constraint(
    Draw& draw, const RequestRange& range, std::shared_ptr<DfaGroup> group = nullptr) {
  Dfa dfa;
  dfa.eos = range.eos;
  const int num_states = draw.between(2, 12);
  const int forced_in = draw.between(1, 4);
  for (int state = 0; state < num_states; ++state) {
    const bool is_end = state == num_states - 1;
    const bool is_forced = !is_end && !draw.one_in(forced_in);
    if (is_end || (!is_forced && draw.one_in(3))) dfa.accepting.insert(state);
    for (int i = 0; i < (is_forced ? 1 : 4) && !(is_end && draw.one_in(2)); ++i)
      dfa.next[{state, draw.between(1, range.vocab_size - 1)}] =
          is_forced || draw.one_in(2) ? std::min(state + 1, num_states - 1) : draw.below(num_states);
  }
  if (draw.one_in(6)) dfa.fail_after = draw.between(1, 4);
  return std::make_shared<DfaTemplate>(std::move(dfa), std::move(group));
}

// Prompts begin with one of a few headers, so that many share a prefix.
inline std::vector<int32_t> random_prompt(Draw& draw, const RequestRange& range, int32_t length) {
  std::vector<int32_t> prompt;
  Draw header(static_cast<uint64_t>(draw.below(3)) + 1000);
  const int32_t num_shared = draw.one_in(3) ? 0 : draw.between(0, length);
  for (int32_t i = 0; i < length; ++i)
    prompt.push_back((i < num_shared ? header : draw).between(1, range.vocab_size - 1));
  return prompt;
}

inline SamplingParams random_sampling(Draw& draw, const RequestRange& range) {
  SamplingParams p;
  p.max_tokens = draw.between(1, range.max_tokens);
  p.temperature = draw.pick(std::array{0.0f, 0.7f, 1.0f, 2.0f});
  if (draw.one_in(4)) p.top_k = draw.between(1, 20);
  if (draw.one_in(4)) p.top_p = 0.8f;
  if (draw.one_in(6)) p.min_p = 0.05f;
  if (draw.one_in(5)) p.repetition_penalty = 1.2f;
  if (draw.one_in(5)) p.presence_penalty = 0.5f;
  if (draw.one_in(5)) p.frequency_penalty = 0.3f;
  if (draw.one_in(5))
    p.logit_bias = {{draw.below(range.vocab_size), 2.0f}, {draw.below(range.vocab_size), -4.0f}};
  if (draw.one_in(3)) p.stop = {draw.pick(std::array<std::string, 4>{"aa", "bab", "\xC3\xA9", "abc"}), "ccc"};
  p.include_stop = draw.one_in(2);
  if (draw.one_in(4)) p.stop_token_ids = {draw.below(range.vocab_size)};
  if (draw.one_in(4)) p.min_tokens = draw.between(0, p.max_tokens);
  p.ignore_eos = draw.one_in(3);
  if (draw.one_in(2)) p.top_logprobs = draw.between(0, 4);
  return p;
}

inline Request random_request(Draw& draw, const RequestRange& range, uint64_t id,
                              const std::shared_ptr<DfaGroup>& group = nullptr) {
  Request r;
  r.id = id;
  const int32_t length =
      draw.one_in(5) ? draw.between(1, range.max_prompt) : draw.between(1, range.max_prompt / 3);
  r.prompt = random_prompt(draw, range, length);
  r.sampling = random_sampling(draw, range);
  r.seed = draw.bits() >> 1;
  if (draw.one_in(3)) r.num_samples = draw.between(1, range.max_samples);
  if (draw.one_in(4)) r.prompt_logprobs = draw.between(0, 3);
  if (draw.one_in(4)) {
    r.score_begin = draw.between(1, length);
    r.score_end = draw.between(r.score_begin + 1, length + 1);
  }
  if (draw.one_in(3)) {
    r.constraint = random_constraint(draw, range, draw.one_in(3) ? group : nullptr);
    if (draw.one_in(4)) {  // likely to come up soon, or perhaps never
      for (int i = draw.between(1, 2); i > 0; --i)
        r.constraint_after.push_back(draw.between(1, range.vocab_size - 1));
      for (const int32_t token : r.constraint_after) r.sampling.logit_bias.emplace_back(token, 9.0f);
    }
  }
  const bool has_scores = r.prompt_logprobs >= 0 || r.score_begin < r.score_end;
  if (has_scores && draw.one_in(3)) r.sampling.max_tokens = r.sampling.min_tokens = 0;
  return r;
}

}  // namespace deepinfer::testing
