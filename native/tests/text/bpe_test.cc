#include "deepinfer/bpe.h"

#include <thread>

#include "deepinfer/status.h"
#include "testing.h"
#include "text/nfc.h"

using deepinfer::BpeSpec;
using deepinfer::BpeTokenizer;

namespace {

// Ids 0-255 are the bytes; then "he", "ll", "hell", "hello", " w", and two special tokens.
BpeSpec small_spec(const std::string& pre) {
  BpeSpec spec;
  for (int b = 0; b < 256; ++b) spec.tokens.emplace_back(1, static_cast<char>(b));
  const auto add = [&](std::pair<int32_t, int32_t> merge) {
    spec.merges.push_back(merge);
    spec.tokens.push_back(spec.tokens[static_cast<size_t>(merge.first)] +
                          spec.tokens[static_cast<size_t>(merge.second)]);
  };
  add({'h', 'e'});
  add({'l', 'l'});
  add({256, 257});
  add({258, 'o'});
  add({' ', 'w'});
  spec.pre = pre;
  spec.specials = {{"<s>", 261}, {"<s>>", 262}};
  spec.tokens.resize(263);
  return spec;
}

std::string joined(const std::vector<std::string_view>& words) {
  std::string out;
  for (const std::string_view word : words) out += std::string(word) + "|";
  return out;
}

std::string nfc(std::string_view text) {
  std::string out;
  deepinfer::to_nfc(text, out);
  return out;
}

}  // namespace

TEST(merges_go_by_rank) {
  const BpeTokenizer tokenizer(small_spec("gpt-2"));
  CHECK(tokenizer.encode("hello w", false) == (std::vector<int32_t>{259, 260}));
  CHECK(tokenizer.encode("helll", false) == (std::vector<int32_t>{258, 'l'}));
  CHECK(tokenizer.encode("", true).empty());
}

TEST(special_tokens_are_leftmost_and_longest) {
  const BpeTokenizer tokenizer(small_spec("gpt-2"));
  CHECK(tokenizer.encode("a<s>>b<s>", true) == (std::vector<int32_t>{'a', 262, 'b', 261}));
  CHECK(tokenizer.encode("<s>", false) == (std::vector<int32_t>{'<', 's', '>'}));
  BpeSpec spec = small_spec("gpt-2");
  spec.added = {{"s>", 260}};
  const BpeTokenizer hidden(std::move(spec));
  CHECK(hidden.encode("<s>s>", false) == (std::vector<int32_t>{'<', 's', '>', 260}));
}

TEST(words_are_cut_as_the_patterns_say) {
  const std::string text = "I'LL 123 don't\r\n\n  x  \xC3\xA9!?\n";
  CHECK_EQ(joined(BpeTokenizer(small_spec("gpt-2")).split(text)),
           "I|'|LL| 123| don|'t|\r\n\n | x| | \xC3\xA9|!?|\n|");
  CHECK_EQ(joined(BpeTokenizer(small_spec("smollm")).split(text)),
           "I|'|LL| |1|2|3| don|'t|\r\n\n | x| | \xC3\xA9|!?|\n|");
  CHECK_EQ(joined(BpeTokenizer(small_spec("llama-bpe")).split(text)),
           "I|'LL| |123| don|'t|\r\n\n| | x| | \xC3\xA9|!?\n|");
  CHECK_EQ(joined(BpeTokenizer(small_spec("qwen2")).split("a1234 ")), "a|1|2|3|4| |");
  CHECK_EQ(joined(BpeTokenizer(small_spec("deepseek-v3")).split("a1234 !b\n \n x")),
           "a|123|4| !|b|\n \n| x|");
}

TEST(long_words_merge_as_short_ones_do) {
  const BpeTokenizer tokenizer(small_spec("gpt-2"));
  std::string text;
  std::vector<int32_t> wanted;
  for (int i = 0; i < 1000; ++i) {
    text += "hellohelhe";
    for (const int32_t token : {259, 256, static_cast<int32_t>('l'), 256}) wanted.push_back(token);
  }
  CHECK(tokenizer.encode(text, false) == wanted);
}

TEST(one_tokenizer_serves_many_threads) {
  const BpeTokenizer tokenizer(small_spec("llama-bpe"));
  const std::vector<int32_t> wanted = tokenizer.encode("hello w<s>", true);
  std::vector<std::thread> threads;
  std::vector<int> wrong(4, 0);
  for (size_t t = 0; t < wrong.size(); ++t) {
    threads.emplace_back([&, t] {
      for (int i = 0; i < 500; ++i) wrong[t] += tokenizer.encode("hello w<s>", true) != wanted;
    });
  }
  for (std::thread& thread : threads) thread.join();
  for (const int count : wrong) CHECK_EQ(count, 0);
}

TEST(nfc_composes_and_orders) {
  CHECK_EQ(nfc("abc \xC3\xA9"), "abc \xC3\xA9");
  CHECK_EQ(nfc("e\xCC\x81"), "\xC3\xA9");
  CHECK_EQ(nfc("q\xCC\x87\xCC\xA3"), "q\xCC\xA3\xCC\x87");                // marks by class
  CHECK_EQ(nfc("\xE1\x84\x80\xE1\x85\xA1\xE1\x86\xA8"), "\xEA\xB0\x81");  // a Hangul syllable
  CHECK_EQ(nfc("\xE2\x84\xAB"), "\xC3\x85");                              // Angstrom sign
  CHECK_EQ(nfc("e\xFF\xCC\x81\xE2\x82"), "e\xFF\xCC\x81\xE2\x82");        // bytes stand between
  CHECK_EQ(nfc("\xE0\xA5\x98"), "\xE0\xA4\x95\xE0\xA4\xBC");              // composition exclusion
}

TEST(what_does_not_fit_is_refused) {
  BpeSpec spec = small_spec("gpt-2");
  spec.merges.push_back({'x', 'y'});
  CHECK_THROWS(deepinfer::Error, BpeTokenizer(std::move(spec)));
  CHECK_THROWS(deepinfer::Error, BpeTokenizer(small_spec("unigram")));
  BpeSpec outside = small_spec("gpt-2");
  outside.specials = {{"<s>", 263}};
  CHECK_THROWS(deepinfer::Error, BpeTokenizer(std::move(outside)));
}

TEST_MAIN()
