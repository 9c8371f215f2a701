// The part of llguidance's C interface that is used here, as version 1.9.1 lays it out.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>

namespace deepinfer::bindings::llg {

inline constexpr const char* kVersion = "llguidance@1.9.1";

struct Tokenizer;  // opaque
struct Matcher;    // opaque

// Called by any thread. Writes at most `capacity` ids and returns how many there are.
using TokenizeFn = size_t (*)(const void* user_data, const uint8_t* bytes, size_t num_bytes, uint32_t* ids,
                              size_t capacity);

struct TokenizerInit {
  size_t struct_size;  // sizeof(TokenizerInit)
  uint32_t vocab_size;
  uint32_t eos;
  const uint32_t* token_lens;  // [vocab_size]
  const uint8_t* token_bytes;  // all of them, one after the other
  const char* tokenizer_json;  // instead of the two above
  bool tokenize_assumes_string;
  TokenizeFn tokenize;
  bool use_greedy_tokenize;
  const void* tokenize_user_data;
  const char* const* slices;
  const uint32_t* extra_eos;
  uint32_t num_extra_eos;
};

struct Limits {
  size_t max_items_in_row;
  uint64_t initial_lexer_fuel;
  uint64_t step_lexer_fuel;
  size_t step_max_items;
  size_t max_lexer_states;
  size_t max_grammar_size;
  bool precompute_large_lexemes;
  bool verbose_errors;
};

struct ConstraintInit {
  const Tokenizer* tokenizer;
  uint32_t log_buffer_level;
  uint32_t log_stderr_level;
  bool ff_tokens_ok;
  bool backtrack_ok;
  Limits limits;
};

// Functions return 0 or a count, and -1 when the matcher is in error, unless said otherwise.
struct Functions {
  const char* (*get_version)();
  void (*set_defaults)(ConstraintInit*, const Tokenizer*);
  Tokenizer* (*new_tokenizer)(const TokenizerInit*, char* error, size_t error_size);  // null on error
  void (*free_tokenizer)(Tokenizer*);
  Matcher* (*new_matcher)(const ConstraintInit*, const char* kind, const char* data);  // perhaps in error
  Matcher* (*clone_matcher)(const Matcher*);
  void (*free_matcher)(Matcher*);
  int32_t (*compute_mask_into)(Matcher*, uint32_t* mask, size_t num_bytes);
  size_t (*get_mask_byte_size)(const Matcher*);
  int32_t (*consume_token)(Matcher*, uint32_t);
  int32_t (*validate_tokens)(Matcher*, const uint32_t*, size_t);
  int32_t (*compute_ff_tokens)(Matcher*, uint32_t* ids, size_t capacity);  // what is forced, spelled one way
  int32_t (*rollback)(Matcher*, size_t);
  bool (*is_accepting)(Matcher*);
  bool (*is_stopped)(const Matcher*);
  bool (*is_error)(const Matcher*);
  const char* (*get_error)(Matcher*);  // null while healthy
};

// Opens the library and looks up every function; it stays loaded. Throws Error{kUnsupported} naming what is
// missing or differs.
const Functions& load(const std::string& path);

}  // namespace deepinfer::bindings::llg
