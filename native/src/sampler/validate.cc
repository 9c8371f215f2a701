#include <algorithm>
#include <cmath>
#include <limits>

#include "deepinfer/sampling.h"
#include "deepinfer/status.h"

namespace deepinfer {

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
