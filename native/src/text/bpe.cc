#include "deepinfer/bpe.h"

#include <array>
#include <limits>
#include <unordered_map>
#include <unordered_set>

#include "deepinfer/status.h"
#include "text/bpe_merges.h"
#include "text/nfc.h"
#include "text/pre_tokenizer.h"
#include "text/special_splitter.h"

namespace deepinfer {
namespace {

using Tokens = std::vector<std::pair<std::string, int32_t>>;

Tokens joined(Tokens a, const Tokens& b) {
  a.insert(a.end(), b.begin(), b.end());
  return a;
}

// Those that are in `late`, or those that are not.
Tokens those(const Tokens& tokens, const std::vector<std::string>& late, bool wanted) {
  const std::unordered_set<std::string> names(late.begin(), late.end());
  Tokens out;
  for (const auto& token : tokens) {
    if (names.contains(token.first) == wanted) out.push_back(token);
  }
  return out;
}

void check_ids(const Tokens& tokens, size_t vocab_size) {
  for (const auto& [text, token] : tokens) {
    if (token < 0 || static_cast<size_t>(token) >= vocab_size) {
      fail(ErrorCode::kBadFile, "special token id ", token, " is outside the vocabulary of ", vocab_size);
    }
  }
}

}  // namespace

struct BpeTokenizer::Impl {
  explicit Impl(BpeSpec from)
      : spec(std::move(from)),
        pre(find_pre_tokenizer(spec.pre)),
        splitter(those(joined(spec.added, spec.specials), spec.late, false)),
        late_splitter(those(joined(spec.added, spec.specials), spec.late, true)),
        merges(spec.merges.size()) {
    if (spec.tokens.size() > static_cast<size_t>(std::numeric_limits<int32_t>::max())) {
      fail(ErrorCode::kBadFile, "a vocabulary of ", spec.tokens.size(), " tokens");
    }
    check_ids(spec.added, spec.tokens.size());
    check_ids(spec.specials, spec.tokens.size());
    index_tokens();
    for (size_t rank = 0; rank < spec.merges.size(); ++rank) add_merge(rank);
  }

  void index_tokens() {
    is_special.assign(spec.tokens.size(), false);
    for (const auto& [text, token] : spec.specials) is_special[static_cast<size_t>(token)] = true;
    ids.reserve(spec.tokens.size());
    for (size_t i = 0; i < spec.tokens.size(); ++i) {
      if (!spec.tokens[i].empty()) ids.emplace(spec.tokens[i], static_cast<int32_t>(i));
    }
    byte_tokens.fill(-1);
    for (int byte = 0; byte < 256; ++byte) {
      const auto at = ids.find(std::string(1, static_cast<char>(byte)));
      if (at != ids.end()) byte_tokens[static_cast<size_t>(byte)] = at->second;
    }
  }

  void add_merge(size_t rank) {
    const auto [left, right] = spec.merges[rank];
    const auto in_range = [&](int32_t id) { return id >= 0 && static_cast<size_t>(id) < spec.tokens.size(); };
    if (!in_range(left) || !in_range(right)) {
      fail(ErrorCode::kBadFile, "merge ", rank, " joins tokens ", left, " and ", right,
           ", outside the vocabulary of ", spec.tokens.size());
    }
    const auto at =
        ids.find(spec.tokens[static_cast<size_t>(left)] + spec.tokens[static_cast<size_t>(right)]);
    if (at == ids.end()) {
      fail(ErrorCode::kBadFile, "merge ", rank, " of tokens ", left, " and ", right,
           " makes a text that is not in the vocabulary");
    }
    merges.add(left, right, {static_cast<uint32_t>(rank), at->second});
  }

  struct Scratch {
    std::string normalized;
    std::string word_key;
    std::vector<std::string_view> words;
    std::vector<int32_t> symbols;
  };

  // Calls on_plain(text) and on_token(id) in the order of the text.
  template <typename OnPlain, typename OnToken>
  void cut_out(const SpecialSplitter& tokens, std::string_view text, bool parse_special,
               const OnPlain& on_plain, const OnToken& on_token) const {
    size_t plain = 0;  // where text that was not yet given away begins
    for (size_t at = 0;;) {
      const SpecialSplitter::Match match = tokens.find(text, at);
      if (match.length == 0) break;
      at = match.begin + match.length;
      // Also a special token that counts as text hides the added tokens inside it, as in the library.
      if (!parse_special && is_special[static_cast<size_t>(match.token)]) continue;
      on_plain(text.substr(plain, match.begin - plain));
      on_token(match.token);
      plain = at;
    }
    on_plain(text.substr(plain));
  }

  // Text without special tokens.
  void encode_plain(std::string_view text, Scratch& scratch, std::vector<int32_t>& out) const {
    if (text.empty()) return;
    if (spec.nfc) {
      to_nfc(text, scratch.normalized);
      text = scratch.normalized;
    }
    scratch.words.clear();
    pre_tokenize(pre, text, scratch.words);
    for (const std::string_view word : scratch.words) encode_word(word, scratch, out);
  }

  void encode_word(std::string_view word, Scratch& scratch, std::vector<int32_t>& out) const {
    if (spec.ignore_merges) {
      scratch.word_key.assign(word);
      if (const auto at = ids.find(scratch.word_key); at != ids.end()) return out.push_back(at->second);
    }
    scratch.symbols.clear();
    for (const char c : word) {
      const int32_t token = byte_tokens[static_cast<unsigned char>(c)];
      if (token >= 0) scratch.symbols.push_back(token);
    }
    merges.apply(scratch.symbols);
    out.insert(out.end(), scratch.symbols.begin(), scratch.symbols.end());
  }

  BpeSpec spec;
  PreTokenizer pre;
  SpecialSplitter splitter;
  SpecialSplitter late_splitter;
  std::vector<bool> is_special;  // by id: cut out only when asked for
  BpeMerges merges;
  std::unordered_map<std::string, int32_t> ids;  // bytes of a token to its id
  std::array<int32_t, 256> byte_tokens;          // -1 = no token for this byte
};

BpeTokenizer::BpeTokenizer(BpeSpec spec) : impl_(std::make_unique<const Impl>(std::move(spec))) {}
BpeTokenizer::~BpeTokenizer() = default;

const std::vector<std::string>& BpeTokenizer::known_pre() { return pre_tokenizer_names(); }

std::vector<int32_t> BpeTokenizer::encode(std::string_view text, bool parse_special) const {
  // Symbol positions are 32 bits wide.
  if (text.size() >= UINT32_MAX)
    fail(ErrorCode::kBadRequest, "a text of ", text.size(), " bytes is too long");
  Impl::Scratch scratch;
  std::vector<int32_t> out;
  const auto on_token = [&](int32_t token) { out.push_back(token); };
  const auto on_words = [&](std::string_view words) { impl_->encode_plain(words, scratch, out); };
  const auto on_plain = [&](std::string_view plain) {
    impl_->cut_out(impl_->late_splitter, plain, parse_special, on_words, on_token);
  };
  impl_->cut_out(impl_->splitter, text, parse_special, on_plain, on_token);
  return out;
}

std::vector<std::string_view> BpeTokenizer::split(std::string_view text) const {
  std::vector<std::string_view> words;
  pre_tokenize(impl_->pre, text, words);
  return words;
}

}  // namespace deepinfer
