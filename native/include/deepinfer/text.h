// Token ids to text: the byte table, incremental UTF-8, and stop strings.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

namespace deepinfer {

// Bytes of every token id, as they are appended to the text. Special tokens have no bytes.
class TokenTable {
 public:
  TokenTable(std::vector<std::string> bytes, std::vector<bool> special);
  int32_t size() const { return static_cast<int32_t>(offsets_.size()) - 1; }
  std::string_view bytes(int32_t token) const;  // empty for special tokens and ids out of range
  bool is_special(int32_t token) const;

 private:
  std::string data_;
  std::vector<uint32_t> offsets_;  // [size + 1] into data_
  std::vector<bool> special_;
};

class StopMatcher;

// Text of one sample, token by token: decodes UTF-8 as it comes (an invalid or incomplete piece becomes one
// U+FFFD per maximal subpart, Unicode 15 section 3.9, the same whether it came in one push or many),
// and finds the earliest-ending stop string on decoded text across tokens; of several that end at one byte,
// the longest. Linear in the text, whatever the stop strings are.
class TextState {
 public:
  // stop: UTF-8; throws Error{kBadRequest} when one is empty.
  TextState(std::vector<std::string> stop, bool include_stop);

  // Appends a token's bytes; true when a stop string is now complete. `check_stop` = false holds stops off
  // (min_tokens); a stop completed while held off does not count later.
  bool push(std::string_view bytes, bool check_stop);
  void finish();  // flushes an incomplete tail as one U+FFFD; looks for no stop

  const std::string& text() const { return text_; }
  const std::string& matched_stop() const { return matched_; }

 private:
  bool search(bool check_stop);

  std::vector<std::string> stop_;
  std::shared_ptr<const StopMatcher> matcher_;  // null when there are no stop strings
  bool include_stop_;
  std::string text_;     // decoded, valid UTF-8
  std::string pending_;  // bytes of an incomplete character
  std::string matched_;
  size_t scanned_ = 0;       // stop search resumes here ...
  uint32_t stop_state_ = 0;  // ... in this state of the matcher
};

}  // namespace deepinfer
