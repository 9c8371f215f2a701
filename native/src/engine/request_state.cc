#include "engine/request_state.h"

#include <algorithm>
#include <limits>
#include <utility>

namespace deepinfer {
namespace {

bool has_penalties(const SamplingParams& p) {
  return p.repetition_penalty != 1.0f || p.presence_penalty != 0.0f || p.frequency_penalty != 0.0f;
}

// All samples of a request share one matcher of its stop strings.
TextState empty_text(const RequestState& owner) {
  if (!owner.samples.empty()) return owner.samples[0]->text;
  return {owner.request.sampling.stop, owner.request.sampling.include_stop};
}

}  // namespace

Sample::Sample(RequestState& owner) : request(&owner), text(empty_text(owner)) {
  order = {owner.rank, owner.ordinal, static_cast<int32_t>(owner.samples.size())};
  if (order.sample == 0) load();
  num_wanted = owner.wants_tokens() ? owner.num_prompt() : owner.end_score - 1;
  constraint.compiled = owner.request.constraint.get();
  constraint.has_started = owner.request.constraint_after.empty();
  limit_cached();
}

void Sample::load() {
  tokens = request->request.prompt;
  tokens.insert(tokens.end(), result.tokens.begin(), result.tokens.end());
  counts.clear();
  if (!has_penalties(request->request.sampling)) return;
  for (const int32_t token : request->request.prompt) counts[token].in_prompt = true;
  for (const int32_t token : result.tokens) ++counts[token].num_output;
}

void Sample::unload() {
  tokens = {};
  counts = {};
  blocks.hashes = {};
}

const TokenCounts& Sample::counts_now() const {
  return tokens.empty() ? request->samples[0]->counts : counts;
}

void Sample::append(int32_t token) {
  result.tokens.push_back(token);
  num_wanted = request->num_prompt() + num_output();
  if (tokens.empty()) return;
  tokens.push_back(token);
  if (has_penalties(request->request.sampling)) ++counts[token].num_output;
}

int32_t Sample::num_unscored() const {
  if (request->request.sampling.top_logprobs < 0) return 0;
  return static_cast<int32_t>(result.tokens.size() - result.logprobs.size());
}

bool Sample::ends_with(std::span<const int32_t> tail, int32_t token) const {
  if (tail.empty() || tail.back() != token || tail.size() > result.tokens.size() + 1) return false;
  return std::equal(tail.begin(), tail.end() - 1, result.tokens.end() - (std::ssize(tail) - 1));
}

void Sample::limit_cached() {
  // Logits that predict a position come from computing the token before it.
  max_cached = std::numeric_limits<int32_t>::max();
  if (order.sample == 0 && request->next_score < request->end_score) max_cached = request->next_score - 1;
  const int32_t num_tokens = request->num_prompt() + num_output();
  if (num_unscored() > 0) max_cached = std::min(max_cached, num_tokens - num_unscored() - 1);
}

void Sample::stop_growing(FinishReason reason) {
  ending = reason;
  num_wanted = request->num_prompt() + num_output() - 1;
}

void Sample::close(FinishReason reason) {
  is_closed = true;
  text.finish();
  result.text = text.text();
  result.finish_reason = reason;
  if (constraint.compiled == nullptr) return;
  const bool is_whole =
      result.stop_string.empty() &&
      (reason == FinishReason::kStop || reason == FinishReason::kLength || reason == FinishReason::kContext);
  const bool fits = is_whole && constraint.matcher && constraint.matcher->is_accepting();
  result.constraint_state = !constraint.has_started ? ConstraintState::kNotStarted
                            : fits                  ? ConstraintState::kComplete
                                                    : ConstraintState::kIncomplete;
  constraint = {};
}

RequestState::RequestState(Request&& submitted, uint64_t arrival, uint64_t order_rank,
                           std::span<const int32_t> eos_token_ids)
    : request(std::move(submitted)),
      ordinal(arrival),
      rank(order_rank),
      stop_tokens(request.sampling.stop_token_ids),
      num_own_stops(stop_tokens.size()) {
  if (!request.sampling.ignore_eos || request.constraint)  // only the constraint knows when its text may end
    stop_tokens.insert(stop_tokens.end(), eos_token_ids.begin(), eos_token_ids.end());
  if (request.submitted_at == Clock::time_point{}) request.submitted_at = Clock::now();
  completion.id = request.id;
  completion.submit_time = std::chrono::duration<double>(request.submitted_at.time_since_epoch()).count();
  completion.num_prompt_tokens = num_prompt();
  int32_t begin = std::numeric_limits<int32_t>::max();
  if (request.prompt_logprobs >= 0 && num_prompt() > 1) {
    begin = 1;
    end_score = num_prompt();
    completion.prompt_logprobs.reserve(request.prompt.size() - 1);
  }
  if (request.score_begin < request.score_end) {
    begin = std::min(begin, request.score_begin);
    end_score = std::max(end_score, request.score_end);
  }
  next_score = std::min(begin, end_score);
  samples.push_back(std::make_unique<Sample>(*this));
}

std::span<const int32_t> RequestState::held_tokens(const Sample& sample) const {
  if (sample.num_output() >= request.sampling.min_tokens) return {};
  const std::span<const int32_t> eos = std::span(stop_tokens).subspan(num_own_stops);
  const bool can_only_end = sample.constraint.has_mask && allows_only(sample.constraint.mask, eos);
  return can_only_end ? std::span<const int32_t>() : stop_tokens;
}

void RequestState::create_samples() {
  if (is_forked) return;
  is_forked = true;
  while (std::ssize(samples) < request.num_samples) samples.push_back(std::make_unique<Sample>(*this));
}

double RequestState::seconds_since_submit() const {
  return std::chrono::duration<double>(Clock::now() - request.submitted_at).count();
}

void RequestState::take_first_error() {
  for (const std::unique_ptr<Sample>& sample : samples)
    if (completion.error.empty()) completion.error = sample->error;
}

Completion RequestState::finish() {
  is_done = true;
  completion.total_seconds = seconds_since_submit();
  completion.num_cached_tokens = std::max(0, samples[0]->num_cached);
  for (const std::unique_ptr<Sample>& sample : samples) {
    completion.num_preemptions += sample->num_preemptions;
    if (wants_tokens()) completion.samples.push_back(std::move(sample->result));
  }
  if (wants_tokens() && !is_forked) {  // ended before its first token
    SampleResult same;
    same.finish_reason = completion.samples[0].finish_reason;
    same.constraint_state = completion.samples[0].constraint_state;
    completion.samples.resize(static_cast<size_t>(request.num_samples), same);
  }
  return std::move(completion);
}

}  // namespace deepinfer
