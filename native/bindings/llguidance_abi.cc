#include "llguidance_abi.h"

#include <dlfcn.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <map>
#include <mutex>
#include <string_view>

#include "deepinfer/status.h"

namespace deepinfer::bindings::llg {
namespace {

template <typename Function>
void look_up(void* library, const std::string& path, const char* name, Function*& function) {
  void* const symbol = dlsym(library, name);
  if (symbol == nullptr) fail(ErrorCode::kUnsupported, path, " does not export ", name);
  function = reinterpret_cast<Function*>(symbol);
}

Functions look_up_all(void* library, const std::string& path) {
  Functions f{};
  look_up(library, path, "llg_get_version", f.get_version);
  look_up(library, path, "llg_constraint_init_set_defaults", f.set_defaults);
  look_up(library, path, "llg_new_tokenizer_v2", f.new_tokenizer);
  look_up(library, path, "llg_free_tokenizer", f.free_tokenizer);
  look_up(library, path, "llg_new_matcher", f.new_matcher);
  look_up(library, path, "llg_clone_matcher", f.clone_matcher);
  look_up(library, path, "llg_free_matcher", f.free_matcher);
  look_up(library, path, "llg_matcher_compute_mask_into", f.compute_mask_into);
  look_up(library, path, "llg_matcher_get_mask_byte_size", f.get_mask_byte_size);
  look_up(library, path, "llg_matcher_consume_token", f.consume_token);
  look_up(library, path, "llg_matcher_validate_tokens", f.validate_tokens);
  look_up(library, path, "llg_matcher_compute_ff_tokens", f.compute_ff_tokens);
  look_up(library, path, "llg_matcher_rollback", f.rollback);
  look_up(library, path, "llg_matcher_is_accepting", f.is_accepting);
  look_up(library, path, "llg_matcher_is_stopped", f.is_stopped);
  look_up(library, path, "llg_matcher_is_error", f.is_error);
  look_up(library, path, "llg_matcher_get_error", f.get_error);
  return f;
}

void check_version(const Functions& f, const std::string& path) {
  const std::string_view found = f.get_version();
  if (found.substr(0, found.find(' ')) != kVersion)
    fail(ErrorCode::kUnsupported, path, " is ", found, "; wanted ", kVersion);
}

// The library fills in its defaults; they must land in the fields that we know, and nowhere else.
void check_layout(const Functions& f, const std::string& path) {
  struct Guarded {
    ConstraintInit init;
    std::array<uint8_t, 64> guard;
  } guarded;
  std::memset(&guarded, 0x5A, sizeof(guarded));
  const auto* const mark = reinterpret_cast<const Tokenizer*>(&guarded);  // only stored
  f.set_defaults(&guarded.init, mark);
  const Limits& limits = guarded.init.limits;
  const bool is_known = guarded.init.tokenizer == mark && guarded.init.log_buffer_level == 0 &&
                        guarded.init.log_stderr_level == 1 && !guarded.init.ff_tokens_ok &&
                        !guarded.init.backtrack_ok && limits.max_items_in_row == 2000 &&
                        limits.initial_lexer_fuel == 1'000'000 && limits.step_lexer_fuel == 200'000 &&
                        limits.step_max_items == 50'000 && limits.max_lexer_states == 250'000 &&
                        limits.max_grammar_size == 500'000 && limits.precompute_large_lexemes &&
                        limits.verbose_errors &&
                        std::ranges::all_of(guarded.guard, [](uint8_t byte) { return byte == 0x5A; });
  if (!is_known) fail(ErrorCode::kUnsupported, path, " lays out its settings in another way than ", kVersion);
}

}  // namespace

const Functions& load(const std::string& path) {
  static std::mutex mutex;
  static std::map<std::string, Functions> loaded;
  const std::scoped_lock lock(mutex);
  if (const auto at = loaded.find(path); at != loaded.end()) return at->second;
  void* const library = dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL);
  if (library == nullptr) fail(ErrorCode::kUnsupported, "cannot load ", path, ": ", dlerror());
  const Functions functions = look_up_all(library, path);
  check_version(functions, path);
  check_layout(functions, path);
  return loaded.emplace(path, functions).first->second;
}

}  // namespace deepinfer::bindings::llg
