#include "text/stop_matcher.h"

#include "deepinfer/status.h"

namespace deepinfer {

StopMatcher::StopMatcher(const std::vector<std::string>& strings) {
  constexpr size_t kMaxBytes = size_t{64} << 20;
  size_t num_bytes = 0;
  for (const std::string& s : strings) {
    if (s.empty()) fail(ErrorCode::kBadRequest, "a stop string is empty");
    num_bytes += s.size();
  }
  if (num_bytes > kMaxBytes) {
    fail(ErrorCode::kBadRequest, "the stop strings have ", num_bytes, " bytes, at most ", kMaxBytes,
         " are taken");
  }
  nodes_.resize(1);
  for (size_t i = 0; i < strings.size(); ++i) insert(strings[i], static_cast<int32_t>(i));
  link();
}

void StopMatcher::insert(std::string_view text, int32_t index) {
  State at = 0;
  for (const char c : text) {
    const auto byte = static_cast<unsigned char>(c);
    State next = at == 0 ? root_[byte] : child(at, byte);
    if (next == 0) {
      next = static_cast<State>(nodes_.size());
      nodes_.push_back({0, nodes_[at].first_child, 0, kNoMatch, byte});
      nodes_[at].first_child = next;
      if (at == 0) root_[byte] = next;
    }
    at = next;
  }
  if (nodes_[at].match == kNoMatch) nodes_[at].match = index;
}

// Breadth first, so that a node's fallback, which is shorter, is finished before the node. A node without a
// string of its own takes over the one of its fallback: the longest that ends there.
void StopMatcher::link() {
  std::vector<State> queue;
  queue.reserve(nodes_.size());
  for (uint32_t c = nodes_[0].first_child; c != 0; c = nodes_[c].next_sibling) queue.push_back(c);
  for (size_t i = 0; i < queue.size(); ++i) {
    const State parent = queue[i];
    for (uint32_t c = nodes_[parent].first_child; c != 0; c = nodes_[c].next_sibling) {
      const State fallback = step(nodes_[parent].fallback, nodes_[c].byte);
      nodes_[c].fallback = fallback;
      if (nodes_[c].match == kNoMatch) nodes_[c].match = nodes_[fallback].match;
      queue.push_back(c);
    }
  }
}

}  // namespace deepinfer
