// Any bytes in any pieces with any stop strings, against the plain definitions.
// Input: flags, number of stops, per stop a length and its bytes; then pieces, each a length and its bytes.
#include <vector>

#include "deepinfer/text.h"
#include "fuzz.h"

using namespace deepinfer;

namespace {

std::string decode(std::string_view bytes, bool finish) {
  std::string out;
  while (!bytes.empty()) {
    const utf8::Piece piece = utf8::classify(bytes);
    if (piece.form == utf8::Form::kIncomplete && !finish) break;
    out += piece.form == utf8::Form::kComplete ? bytes.substr(0, piece.length) : utf8::kReplacement;
    bytes.remove_prefix(piece.length);
  }
  return out;
}

// The longest stop that ends at `end`, or nullptr.
const std::string* stop_ending_at(const std::string& text, size_t end,
                                  const std::vector<std::string>& stops) {
  const std::string* best = nullptr;
  for (const std::string& stop : stops) {
    if (end < stop.size() || text.compare(end - stop.size(), stop.size(), stop) != 0) continue;
    if (best == nullptr || stop.size() > best->size()) best = &stop;
  }
  return best;
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  if (size > 2000) return 0;
  fuzz::Reader reader(data, size);
  const uint8_t flags = reader.byte();
  const bool include_stop = (flags & 1) != 0;
  std::vector<std::string> stops;
  for (size_t n = reader.byte() % 6; n > 0; --n) {
    std::string stop = decode(reader.bytes(reader.byte() % 8), true);
    if (!stop.empty()) stops.push_back(std::move(stop));
  }
  TextState state(stops, include_stop);
  std::string all;      // bytes pushed so far
  size_t searched = 0;  // decoded bytes that have been judged
  bool stopped = false;
  while (!reader.rest().empty() && !stopped) {
    const uint8_t head = reader.byte();
    const bool check_stop = (head & 0x80) == 0;
    const std::string_view piece = reader.bytes(head & 7);
    all += piece;
    stopped = state.push(piece, check_stop);
    const std::string text = decode(all, false);
    const std::string* found = nullptr;
    while (searched < text.size() && found == nullptr) {
      ++searched;
      if (check_stop) found = stop_ending_at(text, searched, stops);
    }
    FUZZ_CHECK(stopped == (found != nullptr));
    if (stopped) {
      FUZZ_CHECK(state.matched_stop() == *found);
      FUZZ_CHECK(state.text() == text.substr(0, include_stop ? searched : searched - found->size()));
    } else {
      FUZZ_CHECK(state.text() == text && state.matched_stop().empty());
    }
  }
  const std::string before = state.text();
  state.finish();
  FUZZ_CHECK(state.text() == (stopped ? before : decode(all, true)));
  FUZZ_CHECK(fuzz::is_utf8(state.text()));
  return 0;
}
