// Finds special tokens in text: leftmost, then longest.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace deepinfer {

class SpecialSplitter {
 public:
  static constexpr size_t kMaxBytes = 1024;  // of one token: bounds the look-ahead at each position

  // Throws Error{kBadFile} when a token is empty or longer than kMaxBytes.
  explicit SpecialSplitter(const std::vector<std::pair<std::string, int32_t>>& tokens);

  struct Match {
    size_t begin = 0;
    size_t length = 0;  // 0 = none
    int32_t token = -1;
  };
  // The first match at or after `from`.
  Match find(std::string_view text, size_t from) const;

 private:
  struct Node {
    uint32_t first_child = 0;  // a list over next_sibling; 0 = none
    uint32_t next_sibling = 0;
    int32_t token = -1;
    unsigned char byte = 0;
  };
  uint32_t child(uint32_t node, unsigned char byte) const;

  std::vector<Node> nodes_;
  bool starts_[256] = {};  // bytes that some token begins with
};

}  // namespace deepinfer
