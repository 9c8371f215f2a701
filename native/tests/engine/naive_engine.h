// What the engine promises, in its plainest form: one request at a time, one sample at a time, the whole
// history computed again for every token, no cache, the sampler's slow twin. Works on any executor.
#pragma once

#include <algorithm>
#include <cstring>
#include <map>
#include <memory>
#include <numeric>
#include <string>
#include <vector>

#include "deepinfer/engine.h"
#include "deepinfer/sampling.h"
#include "deepinfer/status.h"
#include "sampler/reference_sampler.h"

namespace deepinfer::testing {

// One executor of its own, with room for one sequence.
class NaiveModel : private LogitsSink {
 public:
  NaiveModel(Executor& executor, int32_t max_tokens) : executor_(executor) {
    std::vector<int32_t> num_blocks;
    for (const CacheGroupSpec& group : executor.cache_groups())
      num_blocks.push_back(group.kind == CacheKind::kPaged ? max_tokens / group.block_tokens + 1 : 1);
    executor.allocate_cache(num_blocks);
    executor.reserve(max_tokens);
  }

  // Row p holds the logits that predict position p + 1: [tokens.size()][vocab_size].
  const std::vector<std::vector<float>>& all_logits(const std::vector<int32_t>& tokens) {
    const auto size = static_cast<int32_t>(tokens.size());
    Batch batch;
    batch.tokens = tokens;
    batch.positions.resize(tokens.size());
    std::iota(batch.positions.begin(), batch.positions.end(), 0);
    batch.logit_tokens = batch.positions;
    batch.token_sequences.assign(tokens.size(), 0);
    batch.sequences = {{0, size, 0}};
    for (const CacheGroupSpec& group : executor_.cache_groups()) {
      BlockTables tables;
      tables.blocks.resize(
          group.kind == CacheKind::kPaged ? static_cast<size_t>((size - 1) / group.block_tokens + 1) : 1);
      std::iota(tables.blocks.begin(), tables.blocks.end(), 0);
      tables.offsets = {0, static_cast<int32_t>(tables.blocks.size())};
      batch.groups.push_back(std::move(tables));
    }
    rows_.clear();
    executor_.forward(batch, *this);
    return rows_;
  }

  const ModelInfo& info() const { return executor_.info(); }

 private:
  void consume(int, int num_rows, const float* logits) override {
    for (int row = 0; row < num_rows; ++row, logits += executor_.info().vocab_size)
      rows_.emplace_back(logits, logits + executor_.info().vocab_size);
  }

  Executor& executor_;
  std::vector<std::vector<float>> rows_;
};

struct NaiveEngine {
  NaiveModel& model;
  std::shared_ptr<const TokenTable> tokens;
  int32_t max_context;
  std::vector<int32_t> eos;

  Completion run(const Request& request) const {
    Completion completion;
    completion.id = request.id;
    completion.num_prompt_tokens = static_cast<int32_t>(request.prompt.size());
    if (request.prompt_logprobs >= 0 || request.score_begin < request.score_end) score(request, completion);
    for (int32_t s = 0; s < request.num_samples && request.sampling.max_tokens > 0; ++s) {
      if (!completion.error.empty()) break;
      completion.samples.push_back(sample(request, s, completion.error));
    }
    return completion;
  }

 private:
  void score(const Request& request, Completion& completion) const {
    const std::vector<std::vector<float>> rows = model.all_logits(request.prompt);
    for (size_t p = 1; p <= request.prompt.size(); ++p) {
      const auto position = static_cast<int32_t>(p);
      const bool is_wanted = position >= request.score_begin && position < request.score_end;
      const bool is_scored = is_wanted || (request.prompt_logprobs >= 0 && p < request.prompt.size());
      if (is_scored && !why_not_finite(rows[p - 1]).empty()) {
        completion.error = "not finite";
        return;
      }
      if (is_wanted && request.on_logits)
        request.on_logits(position, rows[p - 1].data(), model.info().vocab_size);
      if (request.prompt_logprobs >= 0 && p < request.prompt.size())
        completion.prompt_logprobs.push_back(
            score_token(rows[p - 1], request.prompt[p], request.prompt_logprobs));
    }
  }

  static std::unique_ptr<ConstraintMatcher> make_matcher(const ConstraintTemplate* compiled) {
    if (compiled == nullptr) return nullptr;
    if (compiled->group() == nullptr) return compiled->clone();
    std::unique_ptr<ConstraintMatcher> made;
    compiled->group()->in_one_go([&] { made = compiled->clone(); });
    return made;
  }

  SampleResult sample(const Request& request, int32_t index, std::string& error) const {
    const SamplingParams& params = request.sampling;
    SampleResult result;
    TextState text(params.stop, params.include_stop);
    std::vector<int32_t> history = request.prompt, stops = params.stop_token_ids;
    if (!params.ignore_eos || request.constraint) stops.insert(stops.end(), eos.begin(), eos.end());
    TokenCounts counts;
    for (const int32_t token : history) counts[token].in_prompt = true;
    const std::unique_ptr<ConstraintMatcher> made = make_matcher(request.constraint.get());
    ConstraintMatcher* matcher = request.constraint_after.empty() ? made.get() : nullptr;
    const auto end = [&] {
      text.finish();
      result.text = text.text();
      if (made) result.constraint_state = ConstraintState::kNotStarted;
      if (matcher != nullptr)
        result.constraint_state = result.stop_string.empty() && matcher->is_accepting()
                                      ? ConstraintState::kComplete
                                      : ConstraintState::kIncomplete;
      return result;
    };
    result.finish_reason = FinishReason::kLength;
    while (static_cast<int32_t>(result.tokens.size()) < params.max_tokens) {
      if (static_cast<int32_t>(history.size()) >= max_context) {
        result.finish_reason = FinishReason::kContext;
        break;
      }
      const std::vector<float> row = model.all_logits(history).back();
      SampleInput input{row,     &params, {request.seed, index, static_cast<int32_t>(history.size())},
                        &counts, {},      {}};
      if (static_cast<int32_t>(result.tokens.size()) < params.min_tokens) input.held = stops;
      std::vector<uint32_t> mask((row.size() + 31) / 32);
      std::vector<int32_t> allowed;
      if (matcher != nullptr) {
        if (!matcher->fill_mask(mask)) {
          error = matcher->error();
          break;
        }
        input.mask = mask;
        for (size_t t = 0; t < row.size(); ++t)
          if ((mask[t / 32] >> (t % 32) & 1) != 0) allowed.push_back(static_cast<int32_t>(t));
        const auto is_eos = [&](int32_t t) { return std::ranges::count(eos, t) > 0; };
        if (!allowed.empty() && std::ranges::all_of(allowed, is_eos)) input.held = {};
      }
      const bool is_forced = allowed.size() == 1 && std::ranges::count(stops, allowed[0]) == 0;
      const bool needs_row = !is_forced || params.top_logprobs >= 0;
      const bool has_row = why_not_finite(row).empty();
      if (needs_row && (!has_row || (!is_forced && !why_not_finite(reference_scores(input)).empty()))) {
        error = "not finite";
        break;
      }
      const int32_t token = is_forced ? allowed[0] : reference_sample(input);
      result.finish_reason = FinishReason::kStop;
      if (std::ranges::find(stops, token) != stops.end()) {
        result.stop_token = token;
        break;
      }
      history.push_back(token);
      result.tokens.push_back(token);
      if (params.top_logprobs >= 0) result.logprobs.push_back(score_token(row, token, params.top_logprobs));
      ++counts[token].num_output;
      if (matcher != nullptr) matcher->accept(token);
      const std::vector<int32_t>& after = request.constraint_after;
      if (made && matcher == nullptr && result.tokens.size() >= after.size() &&
          std::equal(after.begin(), after.end(), result.tokens.end() - std::ssize(after)))
        matcher = made.get();
      if (text.push(tokens->bytes(token), static_cast<int32_t>(result.tokens.size()) >= params.min_tokens)) {
        result.stop_string = text.matched_stop();
        break;
      }
      if (matcher != nullptr && matcher->done()) break;
      result.finish_reason = FinishReason::kLength;
    }
    return end();
  }
};

inline std::string print(const TokenLogprobs& l) {
  std::string out = str_cat("(", l.token, " ", std::bit_cast<uint32_t>(l.logprob), " #", l.rank);
  for (const auto& [token, logprob] : l.top)
    out += str_cat(" ", token, ":", std::bit_cast<uint32_t>(logprob));
  return out + ")";
}

// Everything that a row may show, with the bits of every float.
inline std::string print(const Completion& c) {
  std::string out = str_cat(c.id, " prompt ", c.num_prompt_tokens);
  if (!c.error.empty()) return out + " failed";  // which samples came how far depends on the schedule
  for (const TokenLogprobs& l : c.prompt_logprobs) out += print(l);
  for (const SampleResult& s : c.samples) {
    out += "\n  ";
    for (const int32_t token : s.tokens) out += str_cat(token, " ");
    out += str_cat("'", s.text, "' ", static_cast<int>(s.finish_reason), " '", s.stop_string, "' ",
                   s.stop_token, " ", static_cast<int>(s.constraint_state));
    for (const TokenLogprobs& l : s.logprobs) out += print(l);
  }
  return out;
}

}  // namespace deepinfer::testing
