#include <random>
#include <string>
#include <vector>

#include "deepinfer/status.h"
#include "deepinfer/text.h"
#include "testing.h"
#include "text/utf8.h"

using deepinfer::TextState;
using deepinfer::TokenTable;

namespace {

// The definitions again, as plainly as they can be written.
std::string decode_whole(std::string_view bytes) {
  TextState state({}, false);
  state.push(bytes, true);
  state.finish();
  return state.text();
}

struct Match {
  size_t begin = std::string::npos, end = std::string::npos;
};
Match earliest_ending(const std::string& text, const std::vector<std::string>& stops) {
  for (size_t end = 1; end <= text.size(); ++end) {
    Match best;
    for (const std::string& stop : stops) {
      if (end < stop.size() || text.compare(end - stop.size(), stop.size(), stop) != 0) continue;
      if (best.begin == std::string::npos || end - stop.size() < best.begin) best = {end - stop.size(), end};
    }
    if (best.begin != std::string::npos) return best;
  }
  return {};
}

std::string random_bytes(std::mt19937& random, size_t most) {
  // Few symbols, so that stops occur; among them the parts of characters, whole and broken.
  static const std::vector<std::string> kAtoms = {
      "a",    "b",        "ab",       "\xC3", "\xA9",         "\xC3\xA9",    "\xE2\x82",
      "\xAC", "\xF0\x9F", "\x94\xA5", "\xFF", "\xED\xA0\x80", "\xEF\xBF\xBD"};
  std::string out;
  const size_t count = random() % (most + 1);
  for (size_t i = 0; i < count; ++i) out += kAtoms[random() % kAtoms.size()];
  return out;
}

std::vector<std::string> random_stops(std::mt19937& random) {
  std::vector<std::string> stops;
  const size_t count = random() % 5;
  for (size_t i = 0; i < count; ++i) {
    std::string stop = decode_whole(random_bytes(random, 4));
    if (!stop.empty()) stops.push_back(stop);
  }
  return stops;
}

}  // namespace

TEST(token_table_hides_special_tokens) {
  const TokenTable table({"a", "<s>", "", "\xFF"}, {false, true, false, false});
  CHECK_EQ(table.size(), 4);
  CHECK_EQ(table.bytes(0), "a");
  CHECK_EQ(table.bytes(1), "");
  CHECK_EQ(table.bytes(3), "\xFF");
  CHECK_EQ(table.bytes(-1), "");
  CHECK_EQ(table.bytes(4), "");
  CHECK(table.is_special(1) && !table.is_special(0) && !table.is_special(9));
}

TEST(replacement_is_by_maximal_subpart) {
  const std::string r = "\xEF\xBF\xBD";
  CHECK_EQ(decode_whole("a\xC3\xA9z"), "a\xC3\xA9z");
  CHECK_EQ(decode_whole("\xF0\x9F\x94"), r);
  CHECK_EQ(decode_whole("\xF0\x80\x80"), r + r + r);
  CHECK_EQ(decode_whole("\xED\xA0\x80"), r + r + r);
  CHECK_EQ(decode_whole("\xE2\x82x"), r + "x");
  CHECK_EQ(decode_whole("\xC3"), r);
  CHECK_EQ(decode_whole("\xF1\x80\x80\xE1\x80\xC2"), r + r + r);
}

TEST(any_split_gives_the_same_text) {
  std::mt19937 random(2);
  for (int round = 0; round < 3000; ++round) {
    const std::string bytes = random_bytes(random, 12);
    TextState state({}, false);
    for (size_t i = 0; i < bytes.size();) {
      const size_t n = std::min<size_t>(1 + random() % 4, bytes.size() - i);
      CHECK(!state.push(std::string_view(bytes).substr(i, n), true));
      i += n;
    }
    state.finish();
    CHECK_EQ(state.text(), decode_whole(bytes));
  }
}

TEST(stops_agree_with_the_plain_definition) {
  std::mt19937 random(3);
  int hits = 0;
  for (int round = 0; round < 20000; ++round) {
    const std::string bytes = random_bytes(random, 16);
    const std::vector<std::string> stops = random_stops(random);
    const bool include = random() % 2 != 0;
    TextState state(stops, include);
    bool stopped = false;
    for (size_t i = 0; i < bytes.size() && !stopped; ++i)
      stopped = state.push(std::string_view(bytes).substr(i, 1), true);
    TextState at_once(stops, include);
    CHECK_EQ(at_once.push(bytes, true), stopped);

    // An unfinished tail is not text yet; the definition is about what has been decoded.
    size_t whole = 0;
    while (whole < bytes.size()) {
      const auto piece = deepinfer::utf8::classify(std::string_view(bytes).substr(whole));
      if (piece.form == deepinfer::utf8::Form::kIncomplete) break;
      whole += piece.length;
    }
    const std::string text = decode_whole(bytes.substr(0, whole));
    const Match match = earliest_ending(text, stops);
    CHECK_EQ(stopped, match.end != std::string::npos);
    if (!stopped) continue;
    ++hits;
    CHECK_EQ(state.matched_stop(), text.substr(match.begin, match.end - match.begin));
    CHECK_EQ(state.text(), text.substr(0, include ? match.end : match.begin));
    CHECK_EQ(at_once.text(), state.text());
    state.finish();
    CHECK(state.push("more", true));
    CHECK_EQ(state.text(), at_once.text());
  }
  CHECK(hits > 3000);
}

TEST(a_stop_completed_while_held_off_does_not_count) {
  TextState state({"ab"}, false);
  CHECK(!state.push("xab", false));
  CHECK(!state.push("a", true));
  CHECK(state.push("b", true));
  CHECK_EQ(state.text(), "xab");
  TextState across({"ab"}, false);
  CHECK(!across.push("xa", false));
  CHECK(across.push("bc", true));  // begun while held off, completed after
  CHECK_EQ(across.text(), "x");
}

TEST(a_stop_inside_a_token_cuts_what_follows) {
  TextState state({"\n\n", "END"}, true);
  CHECK(state.push("one\n\ntwo\xC3", true));
  CHECK_EQ(state.text(), "one\n\n");
  CHECK_EQ(state.matched_stop(), "\n\n");
  state.finish();
  CHECK_EQ(state.text(), "one\n\n");
}

TEST(hostile_stops_stay_linear) {
  // Every prefix of a^1000 b is a stop candidate: a search that restarts per position would take 10^9 steps.
  std::vector<std::string> stops;
  for (size_t i = 1; i <= 1000; ++i) stops.push_back(std::string(i, 'a') + "b");
  TextState state(stops, false);
  const std::string piece(1000, 'a');
  for (int i = 0; i < 1000; ++i) CHECK(!state.push(piece, true));
  CHECK(state.push("b", true));
  CHECK_EQ(state.matched_stop().size(), 1001u);
  CHECK_THROWS(deepinfer::Error, TextState({"a", ""}, false));
}

TEST_MAIN()
