// Finds the earliest-ending of many strings in a text that comes in pieces.
#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace deepinfer {

// Aho-Corasick over bytes: the time is linear in the text whatever the strings are. Immutable.
class StopMatcher {
 public:
  using State = uint32_t;  // 0 is the beginning
  static constexpr int32_t kNoMatch = -1;

  // Throws Error{kBadRequest} on an empty string or more than 64 MiB of them.
  explicit StopMatcher(const std::vector<std::string>& strings);

  State step(State state, unsigned char byte) const {
    while (state != 0) {
      if (const State next = child(state, byte); next != 0) return next;
      state = nodes_[state].fallback;
    }
    return root_[byte];
  }
  // The longest string that ends here (index into the constructor's list), or kNoMatch.
  int32_t match(State state) const { return nodes_[state].match; }

 private:
  struct Node {
    uint32_t first_child = 0;  // children are a list over next_sibling; 0 = none
    uint32_t next_sibling = 0;
    uint32_t fallback = 0;  // the longest proper suffix that is a prefix of some string
    int32_t match = kNoMatch;
    unsigned char byte = 0;
  };

  State child(State state, unsigned char byte) const {
    for (uint32_t c = nodes_[state].first_child; c != 0; c = nodes_[c].next_sibling) {
      if (nodes_[c].byte == byte) return c;
    }
    return 0;
  }
  void insert(std::string_view text, int32_t index);
  void link();

  std::vector<Node> nodes_;
  std::array<State, 256> root_{};
};

}  // namespace deepinfer
