#include <limits>

#include "deepinfer/status.h"
#include "deepinfer/text.h"

namespace deepinfer {

TokenTable::TokenTable(std::vector<std::string> bytes, std::vector<bool> special)
    : special_(std::move(special)) {
  DI_CHECK(bytes.size() == special_.size(), bytes.size(), " tokens, ", special_.size(), " flags");
  DI_CHECK(bytes.size() < static_cast<size_t>(std::numeric_limits<int32_t>::max()));
  size_t total = 0;
  for (size_t i = 0; i < bytes.size(); ++i) total += special_[i] ? 0 : bytes[i].size();
  DI_CHECK(total <= std::numeric_limits<uint32_t>::max(), "token bytes: ", total);
  data_.reserve(total);
  offsets_.reserve(bytes.size() + 1);
  offsets_.push_back(0);
  for (size_t i = 0; i < bytes.size(); ++i) {
    if (!special_[i]) data_ += bytes[i];
    offsets_.push_back(static_cast<uint32_t>(data_.size()));
  }
}

std::string_view TokenTable::bytes(int32_t token) const {
  if (token < 0 || token >= size()) return {};
  const uint32_t begin = offsets_[static_cast<size_t>(token)];
  return std::string_view(data_).substr(begin, offsets_[static_cast<size_t>(token) + 1] - begin);
}

bool TokenTable::is_special(int32_t token) const {
  return token >= 0 && token < size() && special_[static_cast<size_t>(token)];
}

}  // namespace deepinfer
