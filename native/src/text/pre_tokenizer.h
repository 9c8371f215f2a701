// Cuts text into the words that BPE works on: the published patterns, written out as code.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace deepinfer {

enum class PreTokenizer { kGpt2, kSmollm, kLlama3, kQwen2, kDeepseek3 };

// By the name that GGUF files use; throws Error{kUnsupported} naming those that are known.
PreTokenizer find_pre_tokenizer(std::string_view name);
const std::vector<std::string>& pre_tokenizer_names();

// Appends the words of `text`, which together are `text`. Linear.
void pre_tokenize(PreTokenizer kind, std::string_view text, std::vector<std::string_view>& words);

}  // namespace deepinfer
