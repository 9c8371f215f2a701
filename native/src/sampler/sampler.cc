#include <algorithm>
#include <cmath>
#include <limits>

#include "deepinfer/sampling.h"
#include "deepinfer/status.h"

namespace deepinfer {
namespace {

constexpr float kInfinity = std::numeric_limits<float>::infinity();

int32_t argmax(std::span<const float> scores) {
  return static_cast<int32_t>(std::max_element(scores.begin(), scores.end()) - scores.begin());
}

}  // namespace

std::string why_not_finite(std::span<const float> logits) {
  bool is_any_finite = false;
  for (const float x : logits) {
    if (!(x <= std::numeric_limits<float>::max())) return "the model gave logits that are not finite";
    is_any_finite = is_any_finite || x != -kInfinity;
  }
  return is_any_finite ? "" : "the model gave no token a finite logit";
}

TokenLogprobs score_token(std::span<const float> logits, int32_t token, int32_t num_top) {
  const double max = logits[static_cast<size_t>(argmax(logits))];
  double sum = 0;
  for (const float x : logits) sum += std::exp(x - max);
  const double log_sum = std::log(sum) + max;
  const auto logprob = [&](int32_t t) {
    return static_cast<float>(logits[static_cast<size_t>(t)] - log_sum);
  };
  const auto is_better = [&](int32_t a, int32_t b) {
    const float x = logits[static_cast<size_t>(a)], y = logits[static_cast<size_t>(b)];
    return x > y || (x == y && a < b);
  };
  TokenLogprobs result;
  result.token = token;
  result.logprob = logprob(token);
  result.rank = 1;
  std::vector<int32_t> order;
  for (int32_t t = 0; t < static_cast<int32_t>(logits.size()); ++t) {
    result.rank += is_better(t, token);
    order.push_back(t);
  }
  const size_t num = std::min(order.size(), static_cast<size_t>(std::max(num_top, 0)));
  std::partial_sort(order.begin(), order.begin() + static_cast<std::ptrdiff_t>(num), order.end(), is_better);
  for (size_t i = 0; i < num; ++i) result.top.emplace_back(order[i], logprob(order[i]));
  return result;
}

SampleOutput sample_row(const SampleInput& input, SamplerScratch& scratch) {
  SampleOutput output;
  output.error = why_not_finite(input.logits);
  if (!output.error.empty()) return output;
  scratch.scores.assign(input.logits.begin(), input.logits.end());
  for (const int32_t token : input.held) scratch.scores[static_cast<size_t>(token)] = -kInfinity;
  output.token = argmax(scratch.scores);
  if (input.params->top_logprobs >= 0)
    output.logprobs = score_token(input.logits, output.token, input.params->top_logprobs);
  return output;
}

std::string why_invalid(const SamplingParams& p, int32_t vocab_size) {
  const auto check = [](bool ok, const char* what, auto value, const char* allowed) -> std::string {
    return ok ? "" : str_cat(what, " is ", value, ", it must be ", allowed);
  };
  const float inf = std::numeric_limits<float>::infinity();
  std::string why;
  const auto also = [&](std::string next) {
    if (why.empty()) why = std::move(next);
  };
  also(check(p.temperature >= 0 && p.temperature < inf, "temperature", p.temperature, "at least 0"));
  also(check(p.top_k >= 0, "top_k", p.top_k, "at least 0 (0 = off)"));
  also(check(p.top_p > 0 && p.top_p <= 1, "top_p", p.top_p, "above 0 and at most 1"));
  also(check(p.min_p >= 0 && p.min_p <= 1, "min_p", p.min_p, "from 0 to 1"));
  also(check(p.repetition_penalty > 0 && p.repetition_penalty < inf, "repetition_penalty",
             p.repetition_penalty, "above 0"));
  also(check(std::abs(p.presence_penalty) <= 2, "presence_penalty", p.presence_penalty, "from -2 to 2"));
  also(check(std::abs(p.frequency_penalty) <= 2, "frequency_penalty", p.frequency_penalty, "from -2 to 2"));
  also(check(p.max_tokens >= 0, "max_tokens", p.max_tokens, "at least 0"));
  also(check(p.min_tokens >= 0, "min_tokens", p.min_tokens, "at least 0"));
  also(check(p.max_tokens == 0 || p.min_tokens <= p.max_tokens, "min_tokens", p.min_tokens,
             "at most max_tokens"));
  for (const auto& [token, bias] : p.logit_bias) {
    also(check(token >= 0 && token < vocab_size, "a token id of logit_bias", token, "inside the vocabulary"));
    also(check(std::abs(bias) < inf, "a value of logit_bias", bias, "finite"));
  }
  for (const std::string& stop : p.stop)
    also(check(!stop.empty(), "a stop string", "empty", "one byte or longer"));
  for (const int32_t token : p.stop_token_ids)
    also(check(token >= 0 && token < vocab_size, "a stop token id", token, "inside the vocabulary"));
  return why;
}

}  // namespace deepinfer
