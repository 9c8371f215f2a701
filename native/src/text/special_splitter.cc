#include "text/special_splitter.h"

#include "deepinfer/status.h"

namespace deepinfer {

SpecialSplitter::SpecialSplitter(const std::vector<std::pair<std::string, int32_t>>& tokens) : nodes_(1) {
  for (const auto& [text, token] : tokens) {
    if (text.empty() || text.size() > kMaxBytes) {
      fail(ErrorCode::kBadFile, "special token ", token, " has ", text.size(), " bytes, wanted 1 to ",
           kMaxBytes);
    }
    uint32_t at = 0;
    for (const char c : text) {
      const auto byte = static_cast<unsigned char>(c);
      uint32_t next = child(at, byte);
      if (next == 0) {
        next = static_cast<uint32_t>(nodes_.size());
        nodes_.push_back({0, nodes_[at].first_child, -1, byte});
        nodes_[at].first_child = next;
      }
      at = next;
    }
    nodes_[at].token = token;
    starts_[static_cast<unsigned char>(text[0])] = true;
  }
}

uint32_t SpecialSplitter::child(uint32_t node, unsigned char byte) const {
  for (uint32_t c = nodes_[node].first_child; c != 0; c = nodes_[c].next_sibling) {
    if (nodes_[c].byte == byte) return c;
  }
  return 0;
}

SpecialSplitter::Match SpecialSplitter::find(std::string_view text, size_t from) const {
  for (size_t begin = from; begin < text.size(); ++begin) {
    if (!starts_[static_cast<unsigned char>(text[begin])]) continue;
    Match match;
    uint32_t at = 0;
    for (size_t i = begin; i < text.size(); ++i) {
      at = child(at, static_cast<unsigned char>(text[i]));
      if (at == 0) break;
      if (nodes_[at].token >= 0) match = {begin, i + 1 - begin, nodes_[at].token};
    }
    if (match.length != 0) return match;
  }
  return {};
}

}  // namespace deepinfer
