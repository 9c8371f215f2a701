// Keys of the objects that are open, and the search for equal ones.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "base/json_lexer.h"

namespace deepinfer {

class JsonKeys {
 public:
  // 16 bytes, since a hostile document may be nothing but keys.
  struct Key {
    uint32_t hash;    // of the decoded bytes
    uint32_t offset;  // of the opening quote in the text
    uint32_t begin;   // decoded bytes: in the text, or in decoded_ when the key has escapes
    uint32_t length : 31;
    uint32_t in_text : 1;
  };

  explicit JsonKeys(std::string_view text) : text_(text) {}

  bool can_index_text() const { return text_.size() < size_t{1} << 31; }
  size_t size() const { return keys_.size(); }
  void add(const JsonString& name, size_t offset);

  // Among the keys from index `first` on: the earliest one that repeats another, or nullptr. Reorders them.
  // O(n log n) whatever the keys are: equal hashes are told apart by sorting on the bytes.
  const Key* find_duplicate(size_t first);
  std::string describe_duplicate(const Key& key) const;

  void truncate(size_t first) {
    keys_.resize(first);
    if (first == 0) decoded_.clear();
  }

 private:
  std::string_view bytes(const Key& key) const {
    return std::string_view(key.in_text ? text_ : std::string_view(decoded_)).substr(key.begin, key.length);
  }

  std::string_view text_;
  std::vector<Key> keys_;
  std::string decoded_;
};

}  // namespace deepinfer
