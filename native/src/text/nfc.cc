#include "text/nfc.h"

#include <algorithm>
#include <cstdint>
#include <iterator>
#include <vector>

#include "text/unicode_nfc.inc"
#include "text/utf8.h"

namespace deepinfer {
namespace {

constexpr uint32_t kRawByte = 0x80000000;  // marks a byte that is not UTF-8

// Hangul syllables are arithmetic (Unicode 3.12).
constexpr uint32_t kSyllable = 0xAC00, kLead = 0x1100, kVowel = 0x1161, kTail = 0x11A7;
constexpr uint32_t kLeads = 19, kVowels = 21, kTails = 28, kSyllables = kLeads * kVowels * kTails;

struct Mark {
  uint32_t code;
  uint32_t order;  // canonical combining class; 0 = starter
};

uint32_t order_of(uint32_t code) {
  const OrderRange* at =
      std::upper_bound(std::begin(kOrders), std::end(kOrders), code,
                       [](uint32_t c, const OrderRange& range) { return c < range.first; });
  if (at == std::begin(kOrders)) return 0;
  --at;
  return code <= at->last ? at->order : 0;
}

void decompose(uint32_t code, std::vector<Mark>& out) {
  if (code - kSyllable < kSyllables) {
    const uint32_t index = code - kSyllable;
    out.push_back({kLead + index / (kVowels * kTails), 0});
    out.push_back({kVowel + index % (kVowels * kTails) / kTails, 0});
    if (index % kTails != 0) out.push_back({kTail + index % kTails, 0});
    return;
  }
  const CanonicalStep* step = std::lower_bound(std::begin(kSteps), std::end(kSteps), code,
                                               [](const CanonicalStep& s, uint32_t c) { return s.code < c; });
  if (step == std::end(kSteps) || step->code != code) {
    out.push_back({code, order_of(code)});
    return;
  }
  decompose(step->first, out);  // at most four levels deep
  if (step->second != 0) decompose(step->second, out);
}

// What first and second compose to, or 0.
uint32_t compose(uint32_t first, uint32_t second) {
  if (first - kLead < kLeads && second - kVowel < kVowels) {
    return kSyllable + ((first - kLead) * kVowels + (second - kVowel)) * kTails;
  }
  if (first - kSyllable < kSyllables && (first - kSyllable) % kTails == 0 &&
      second - kTail - 1 < kTails - 1) {
    return first + (second - kTail);
  }
  const auto less = [](uint16_t index, const std::pair<uint32_t, uint32_t>& wanted) {
    return std::pair(kSteps[index].first, kSteps[index].second) < wanted;
  };
  const uint16_t* at =
      std::lower_bound(std::begin(kCompositions), std::end(kCompositions), std::pair(first, second), less);
  if (at == std::end(kCompositions)) return 0;
  const CanonicalStep& step = kSteps[*at];
  return step.first == first && step.second == second ? step.code : 0;
}

void sort_marks(std::vector<Mark>& marks) {
  for (auto at = marks.begin(); at != marks.end();) {
    const auto begin = std::find_if(at, marks.end(), [](const Mark& m) { return m.order != 0; });
    at = std::find_if(begin, marks.end(), [](const Mark& m) { return m.order == 0; });
    std::stable_sort(begin, at, [](const Mark& a, const Mark& b) { return a.order < b.order; });
  }
}

void compose_in_place(std::vector<Mark>& marks) {
  size_t kept = 0;
  size_t starter = SIZE_MAX;  // index of the last starter kept
  for (const Mark& mark : marks) {
    // Blocked when something of the same or a higher class stands between the starter and the mark.
    const bool adjacent = starter != SIZE_MAX && kept == starter + 1;
    const bool open = starter != SIZE_MAX && (adjacent || marks[kept - 1].order < mark.order);
    if (open) {
      if (const uint32_t joined = compose(marks[starter].code, mark.code); joined != 0) {
        marks[starter].code = joined;
        continue;
      }
    }
    marks[kept] = mark;
    if (mark.order == 0) starter = kept;
    ++kept;
  }
  marks.resize(kept);
}

}  // namespace

void to_nfc(std::string_view text, std::string& out) {
  // Nothing below U+0300, whose lead byte is 0xCC, is changed by NFC.
  const auto below = [](char c) { return static_cast<unsigned char>(c) < 0xCC; };
  if (std::all_of(text.begin(), text.end(), below)) {
    out.assign(text);
    return;
  }
  std::vector<Mark> marks;
  marks.reserve(text.size());
  while (!text.empty()) {
    const utf8::Piece piece = utf8::classify(text);
    const auto* bytes = reinterpret_cast<const unsigned char*>(text.data());
    if (piece.form == utf8::Form::kComplete) {
      decompose(utf8::decode(bytes, piece.length), marks);
      text.remove_prefix(piece.length);
    } else {
      marks.push_back({kRawByte | bytes[0], 0});
      text.remove_prefix(1);
    }
  }
  sort_marks(marks);
  compose_in_place(marks);
  out.clear();
  for (const Mark& mark : marks) {
    if ((mark.code & kRawByte) != 0) {
      out += static_cast<char>(mark.code & 0xFF);
    } else {
      utf8::append(out, mark.code);
    }
  }
}

}  // namespace deepinfer
