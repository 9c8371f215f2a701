#include "base/json_keys.h"

#include <algorithm>

#include "deepinfer/status.h"

namespace deepinfer {
namespace {

uint64_t mix(uint64_t h) {
  h ^= h >> 32;
  h *= 0xd6e8feb86659fd93ull;
  return h ^ h >> 29;
}

// Not keyed and not strong: collisions cost time only, and only a logarithm of it.
uint32_t hash_bytes(std::string_view bytes) {
  uint64_t h = bytes.size() * 0x9e3779b97f4a7c15ull;
  size_t i = 0;
  for (; i + 8 <= bytes.size(); i += 8) {
    uint64_t word;
    std::memcpy(&word, bytes.data() + i, 8);
    h = mix(h ^ word);
  }
  uint64_t tail = 0;
  for (; i < bytes.size(); ++i) tail = tail << 8 | static_cast<unsigned char>(bytes[i]);
  return static_cast<uint32_t>(mix(h ^ tail));
}

constexpr size_t kPairwise = 24;  // up to this many keys, comparing all hashes beats sorting
constexpr size_t kShownBytes = 60;

}  // namespace

void JsonKeys::add(const JsonString& name, size_t offset) {
  // Decoded keys are never longer than their escapes, so decoded_ is as indexable as the text.
  size_t begin = offset + 1, length = name.raw.size();
  if (name.has_escapes) {
    begin = decoded_.size();
    decode_json_string(name.raw, decoded_);
    length = decoded_.size() - begin;
  }
  Key key{};
  key.offset = static_cast<uint32_t>(offset);
  key.begin = static_cast<uint32_t>(begin);
  key.length = static_cast<uint32_t>(length) & 0x7FFFFFFF;
  key.in_text = !name.has_escapes;
  key.hash = hash_bytes(bytes(key));
  keys_.push_back(key);
}

const JsonKeys::Key* JsonKeys::find_duplicate(size_t first) {
  Key* const begin = keys_.data() + first;
  Key* const end = keys_.data() + keys_.size();
  if (end - begin <= static_cast<ptrdiff_t>(kPairwise)) {
    for (Key* b = begin; b < end; ++b) {
      for (Key* a = begin; a < b; ++a) {
        if (a->hash == b->hash && bytes(*a) == bytes(*b)) return b;
      }
    }
    return nullptr;
  }
  std::sort(begin, end, [this](const Key& a, const Key& b) {
    if (a.hash != b.hash) return a.hash < b.hash;
    const int order = bytes(a).compare(bytes(b));
    return order != 0 ? order < 0 : a.offset < b.offset;
  });
  const Key* earliest = nullptr;
  for (Key* b = begin + 1; b < end; ++b) {
    const Key& a = b[-1];
    if (a.hash == b->hash && bytes(a) == bytes(*b) && (earliest == nullptr || b->offset < earliest->offset)) {
      earliest = b;
    }
  }
  return earliest;
}

std::string JsonKeys::describe_duplicate(const Key& key) const {
  // As written in the text: valid UTF-8 without control characters whatever the key decodes to.
  std::string_view raw = text_.substr(key.offset + 1);
  size_t length = 0;
  while (length < raw.size() && raw[length] != '"' && length < kShownBytes) {
    if (raw[length] == '\\') ++length;
    length += utf8::classify(raw.substr(length)).length;
  }
  const bool whole = length < raw.size() && raw[length] == '"';
  return str_cat("the key \"", raw.substr(0, length), whole ? "" : "...", "\" appears twice in one object");
}

}  // namespace deepinfer
