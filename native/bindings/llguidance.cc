#include "llguidance.h"

#include <algorithm>
#include <bit>
#include <limits>
#include <mutex>
#include <string_view>
#include <utility>

#include "big_stack.h"
#include "constraint_probe.h"
#include "deepinfer/status.h"
#include "llguidance_abi.h"

namespace deepinfer::bindings {
namespace {

constexpr char kSpecialMark = '\xFF';  // in front of a spelling: the token is no part of any text

struct FreeMatcher {
  const llg::Functions* functions;
  void operator()(llg::Matcher* matcher) const { functions->free_matcher(matcher); }
};
using MatcherHandle = std::unique_ptr<llg::Matcher, FreeMatcher>;

// The first line: the rest repeats the grammar.
std::string first_line(const char* text) {
  const std::string_view all = text == nullptr ? "unknown error" : text;
  return std::string(all.substr(0, all.find('\n')));
}

bool spells(const std::vector<std::string>& pieces, const std::vector<int32_t>& tokens,
            std::string_view text) {
  for (const int32_t token : tokens) {
    const std::string& piece = pieces.at(static_cast<size_t>(token));
    if (piece.empty() || !text.starts_with(piece)) return false;
    text.remove_prefix(piece.size());
  }
  return text.empty();
}

}  // namespace

std::vector<int32_t> spell(const BpeTokenizer& bpe, const std::vector<std::string>& pieces,
                           std::string_view text) {
  std::vector<int32_t> tokens = bpe.encode(text, false);
  if (spells(pieces, tokens, text)) return tokens;
  tokens.clear();
  for (const char& byte : text) {  // up to one for which there is no token: no text can have it
    const std::vector<int32_t> one = bpe.encode({&byte, 1}, false);
    if (!spells(pieces, one, {&byte, 1})) break;
    tokens.insert(tokens.end(), one.begin(), one.end());
  }
  return tokens;
}

struct Llguidance::Impl {
  Impl(const std::string& library, ConstraintVocabulary from)
      : functions(llg::load(library)), vocabulary(std::move(from)) {
    check_vocabulary();
    make_tokenizer();
  }
  ~Impl() { functions.free_tokenizer(tokenizer); }
  Impl(const Impl&) = delete;
  Impl& operator=(const Impl&) = delete;

  void check_vocabulary() const {
    const size_t size = vocabulary.tokens.size();
    if (size == 0 || size != vocabulary.special.size())
      fail(ErrorCode::kBadRequest, size, " tokens and ", vocabulary.special.size(), " marks of special ones");
    if (vocabulary.eos_token_ids.empty())
      fail(ErrorCode::kBadRequest,
           "the model names no end-of-sequence token, so no constrained text could end");
    for (const int32_t eos : vocabulary.eos_token_ids)
      if (eos < 0 || static_cast<size_t>(eos) >= size)
        fail(ErrorCode::kBadRequest, "end-of-sequence token ", eos, " is outside the vocabulary of ", size);
  }

  // The library's validation, unlike its masks, takes a token without bytes.
  bool has_spelling(size_t id) const {
    const std::string& token = vocabulary.tokens[id];
    return !token.empty() && (vocabulary.special[id] || token[0] != kSpecialMark);
  }

  // An id without bytes is never allowed. So are special tokens, and ordinary ones that would look like them.
  std::string spelling(size_t id) const {
    const std::string& token = vocabulary.tokens[id];
    if (vocabulary.special[id]) return token.empty() ? "" : kSpecialMark + token;
    return !token.empty() && token[0] == kSpecialMark ? "" : token;
  }

  void make_tokenizer() {
    std::vector<uint32_t> lengths;
    std::string bytes;
    for (size_t id = 0; id < vocabulary.tokens.size(); ++id) {
      const std::string text = spelling(id);
      lengths.push_back(static_cast<uint32_t>(text.size()));
      bytes += text;
    }
    const std::vector<uint32_t> eos(vocabulary.eos_token_ids.begin(), vocabulary.eos_token_ids.end());
    llg::TokenizerInit init{};
    init.struct_size = sizeof(init);
    init.vocab_size = static_cast<uint32_t>(lengths.size());
    init.eos = eos[0];
    init.token_lens = lengths.data();
    init.token_bytes = reinterpret_cast<const uint8_t*>(bytes.data());
    init.tokenize_assumes_string = true;  // pieces of characters are spelled greedily, as on the Python road
    init.tokenize = vocabulary.bpe ? &tokenize : nullptr;
    init.use_greedy_tokenize = vocabulary.bpe == nullptr;
    init.tokenize_user_data = this;
    init.slices = kSlices.data();
    init.extra_eos = eos.data() + 1;
    init.num_extra_eos = static_cast<uint32_t>(eos.size() - 1);
    std::array<char, 512> error{};
    tokenizer = functions.new_tokenizer(&init, error.data(), error.size());
    if (tokenizer == nullptr)
      fail(ErrorCode::kBadRequest, "llguidance cannot use this vocabulary: ", first_line(error.data()));
  }

  // No exception may leave it, and the tokens have to spell these bytes.
  static size_t tokenize(const void* self, const uint8_t* bytes, size_t num_bytes, uint32_t* ids,
                         size_t capacity) {
    const auto& vocabulary = static_cast<const Impl*>(self)->vocabulary;
    const std::string_view text(reinterpret_cast<const char*>(bytes), num_bytes);
    try {
      const std::vector<int32_t> tokens = spell(*vocabulary.bpe, vocabulary.tokens, text);
      std::copy_n(tokens.begin(), std::min(capacity, tokens.size()), ids);
      return tokens.size();
    } catch (const std::exception&) {
      return 0;
    }
  }

  MatcherHandle new_matcher(const std::string& grammar) const {
    llg::ConstraintInit init{};
    functions.set_defaults(&init, tokenizer);
    init.log_stderr_level = 0;
    init.limits.verbose_errors = false;
    init.limits.max_lexer_states = kMaxLexerStates;
    const size_t first = grammar.find_first_not_of(" \t\r\n");
    const bool is_json = first != std::string::npos && grammar[first] == '{';
    return {functions.new_matcher(&init, is_json ? "llguidance" : "lark", grammar.c_str()), {&functions}};
  }

  size_t num_words() const { return (vocabulary.tokens.size() + 31) / 32; }

  const llg::Functions& functions;
  ConstraintVocabulary vocabulary;
  llg::Tokenizer* tokenizer = nullptr;
};

namespace {

class LlguidanceMatcher : public ConstraintMatcher {
 public:
  LlguidanceMatcher(std::shared_ptr<const Llguidance::Impl> engine, MatcherHandle matcher)
      : engine_(std::move(engine)), f_(engine_->functions), matcher_(std::move(matcher)) {}

  bool fill_mask(std::span<uint32_t> mask) override {
    const size_t num_own = engine_->num_words();
    if (mask.size() >= num_own) {  // ids beyond the tokenizer's are never allowed
      std::ranges::fill(mask.subspan(num_own), 0);
      return f_.compute_mask_into(matcher_.get(), mask.data(), num_own * 4) == 0;
    }
    std::vector<uint32_t> whole(num_own);  // a tokenizer with more ids than the model
    if (f_.compute_mask_into(matcher_.get(), whole.data(), num_own * 4) != 0) return false;
    std::copy_n(whole.begin(), mask.size(), mask.begin());
    return true;
  }

  // A token that is refused would end the matcher for good, so it is asked for first.
  bool accept(int32_t token) override {
    const auto id = static_cast<uint32_t>(token);
    if (token < 0 || id >= engine_->vocabulary.tokens.size() || f_.is_stopped(matcher_.get())) return false;
    return f_.validate_tokens(matcher_.get(), &id, 1) == 1 && f_.consume_token(matcher_.get(), id) == 0;
  }

  int validate(std::span<const int32_t> tokens) override {
    std::vector<uint32_t> ids;
    for (const int32_t token : tokens) {
      if (token < 0 || static_cast<size_t>(token) >= engine_->vocabulary.tokens.size()) break;
      if (!engine_->has_spelling(static_cast<size_t>(token))) break;
      ids.push_back(static_cast<uint32_t>(token));
    }
    return std::max(0, f_.validate_tokens(matcher_.get(), ids.data(), ids.size()));
  }

  // Where bytes are forced, the mask has their one spelling, validation takes all. The library keeps what it
  // finds here for the mask.
  bool can_ask() override {
    uint32_t first = 0;
    return !f_.is_stopped(matcher_.get()) && f_.compute_ff_tokens(matcher_.get(), &first, 1) == 0;
  }

  bool rollback(int num_tokens) override {
    if (num_tokens < 0) return false;
    return f_.rollback(matcher_.get(), static_cast<size_t>(num_tokens)) == 0;
  }

  bool done() override { return f_.is_stopped(matcher_.get()) && !f_.is_error(matcher_.get()); }
  bool is_accepting() override { return f_.is_accepting(matcher_.get()); }
  std::string error() const override {
    return f_.is_error(matcher_.get()) ? first_line(f_.get_error(matcher_.get())) : "";
  }

 private:
  std::shared_ptr<const Llguidance::Impl> engine_;
  const llg::Functions& f_;
  MatcherHandle matcher_;
};

class LlguidanceTemplate : public ConstraintTemplate {
 public:
  LlguidanceTemplate(std::shared_ptr<const Llguidance::Impl> engine, MatcherHandle matcher)
      : engine_(std::move(engine)), matcher_(std::move(matcher)) {}

  std::unique_ptr<ConstraintMatcher> clone() const override {
    const std::scoped_lock lock(mutex_);
    MatcherHandle copy{engine_->functions.clone_matcher(matcher_.get()), {&engine_->functions}};
    return std::make_unique<LlguidanceMatcher>(engine_, std::move(copy));
  }

 private:
  std::shared_ptr<const Llguidance::Impl> engine_;
  mutable std::mutex
      mutex_;  // the library does not say that one matcher may be copied by two threads at once
  MatcherHandle matcher_;
};

}  // namespace

Llguidance::Llguidance(const std::string& library, ConstraintVocabulary vocabulary)
    : impl_(std::make_shared<const Impl>(library, std::move(vocabulary))) {}
Llguidance::~Llguidance() = default;

std::shared_ptr<const ConstraintTemplate> Llguidance::compile(const std::string& grammar) const {
  if (grammar.find('\0') != std::string::npos)
    fail(ErrorCode::kBadRequest, "the grammar holds a NUL character");
  std::shared_ptr<const ConstraintTemplate> made;
  on_big_stack([&] {
    MatcherHandle matcher = impl_->new_matcher(grammar);
    if (impl_->functions.is_error(matcher.get()))
      fail(ErrorCode::kBadRequest, first_line(impl_->functions.get_error(matcher.get())));
    made = std::make_shared<const LlguidanceTemplate>(impl_, std::move(matcher));
    probe(*made->clone(), impl_->vocabulary.special);
  });
  return made;
}

}  // namespace deepinfer::bindings
