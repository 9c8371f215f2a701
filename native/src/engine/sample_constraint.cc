#include "engine/sample_constraint.h"

#include <algorithm>
#include <bit>
#include <exception>
#include <utility>

#include "deepinfer/status.h"

namespace deepinfer {

int32_t only_token(std::span<const uint32_t> mask, int32_t vocab_size) {
  int32_t found = -1;
  for (size_t w = 0; w < mask.size(); ++w) {
    if (mask[w] == 0) continue;
    if (found >= 0 || !std::has_single_bit(mask[w])) return -1;
    found = static_cast<int32_t>(w * 32) + std::countr_zero(mask[w]);
  }
  return found < vocab_size ? found : -1;
}

bool allows_only(std::span<const uint32_t> mask, std::span<const int32_t> tokens) {
  bool is_any = false;
  for (size_t w = 0; w < mask.size(); ++w) {
    for (uint32_t bits = mask[w]; bits != 0; bits &= bits - 1) {
      const int32_t token = static_cast<int32_t>(w * 32) + std::countr_zero(bits);
      if (std::ranges::find(tokens, token) == tokens.end()) return false;
      is_any = true;
    }
  }
  return is_any;
}

std::vector<int32_t> forced_tokens(ConstraintMatcher& matcher, int32_t vocab_size, int32_t max_tokens) {
  std::vector<uint32_t> mask((static_cast<size_t>(vocab_size) + 31) / 32);
  std::vector<int32_t> forced;
  while (std::ssize(forced) < max_tokens && !matcher.done() && matcher.fill_mask(mask)) {
    const int32_t token = only_token(mask, vocab_size);
    if (token < 0 || !matcher.accept(token)) break;
    forced.push_back(token);
  }
  if (!forced.empty()) matcher.rollback(static_cast<int>(forced.size()));
  return forced;
}

namespace {

using Item = ConstraintWork::Item;
using Clock = std::chrono::steady_clock;
using Time = Clock::time_point;

void begin(const Item& item, int32_t vocab_size) {
  SampleConstraint& c = *item.constraint;
  if (c.is_asked) c.guess.on_allowed();
  c.has_mask = c.is_asked = false;
  c.ask_above = item.ask_above;
  c.only = -1;
  c.forced.clear();
  c.mask.resize((static_cast<size_t>(vocab_size) + 31) / 32);
  if (!c.matcher) c.matcher = c.compiled->clone();
}

void fail_item(const Item& item, const char* what) {
  const std::string why = item.constraint->matcher ? item.constraint->matcher->error() : "";
  item.constraint->error = str_cat("the constraint failed: ", why.empty() ? what : why);
}

int count_allowed(std::span<const uint32_t> mask) {
  int num_allowed = 0;
  for (const uint32_t word : mask) num_allowed += std::popcount(word);
  return num_allowed;
}

// After a token: whether a mask is wanted.
bool on_accepted(const Item& item, bool is_ok) {
  SampleConstraint& c = *item.constraint;
  if (!is_ok) {
    fail_item(item, "it refuses a token that it allowed");
    return false;
  }
  c.is_done = c.matcher->done();
  c.guess.follow(c.forced.empty() ? item.token : c.forced.back());
  return !c.is_done && item.room > std::ssize(c.forced);
}

// After a mask: the token that it forces, or -1 when the mask is the one to sample under.
int32_t on_mask(const Item& item, bool is_ok, int32_t vocab_size, Time deadline) {
  SampleConstraint& c = *item.constraint;
  if (!is_ok) {
    fail_item(item, "there is no mask");
    return -1;
  }
  const int32_t only = only_token(c.mask, vocab_size);
  const bool is_forced = only >= 0 && std::ranges::find(item.ends, only) == item.ends.end();
  if (is_forced && std::ssize(c.forced) < item.max_forced && Clock::now() < deadline) return only;
  c.has_mask = true;
  c.only = is_forced ? only : -1;
  c.guess.on_mask(count_allowed(c.mask) > c.ask_above);
  return -1;
}

}  // namespace

bool allows_sampled(SampleConstraint& constraint, const SampleOutput& output) {
  const auto allows = [&](int32_t token) { return constraint.matcher->validate({&token, 1}) == 1; };
  return output.error.empty() && allows(output.token) && (output.best == output.token || allows(output.best));
}

void make_refused_mask(SampleConstraint& constraint, std::span<const int32_t> ends, int32_t vocab_size) {
  const Item item{.constraint = &constraint, .ask_above = constraint.ask_above, .ends = ends};
  constraint.is_asked = false;
  on_mask(item, constraint.matcher->fill_mask(constraint.mask), vocab_size, Time::max());
  constraint.guess.on_refused();
}

ConstraintWork::Time ConstraintWork::deadline(size_t num_items) const {
  const double seconds = forcing_seconds_ * static_cast<double>(num_items);
  return Clock::now() + std::chrono::duration_cast<Clock::duration>(std::chrono::duration<double>(seconds));
}

void ConstraintWork::run(int32_t vocab_size) {
  const auto group_of = [](const Item& item) { return item.constraint->compiled->group(); };
  std::ranges::stable_sort(items_, std::ranges::less{}, group_of);
  size_t begin = 0;
  while (begin < items_.size()) {
    MatcherGroup* const group = group_of(items_[begin]);
    size_t end = begin + 1;
    while (end < items_.size() && group_of(items_[end]) == group) ++end;
    const std::span<Item> items(items_.data() + begin, end - begin);
    if (group == nullptr) {
      pool_.parallel_for(static_cast<int>(items.size()), 1,
                         [&](int i, int) { run_alone(items[static_cast<size_t>(i)], vocab_size); });
    } else {
      run_group(*group, items, vocab_size);
    }
    begin = end;
  }
  items_.clear();
}

void ConstraintWork::run_alone(const Item& item, int32_t vocab_size) const {
  SampleConstraint& c = *item.constraint;
  const Time until = deadline(1);
  try {
    begin(item, vocab_size);
    bool goes_on = item.token < 0 || on_accepted(item, c.matcher->accept(item.token));
    while (goes_on) {
      c.is_asked = c.ask_above != kNeverAsk && c.guess.is_worth_asking() && c.matcher->can_ask();
      if (c.is_asked) break;
      const int32_t token = on_mask(item, c.matcher->fill_mask(c.mask), vocab_size, until);
      if (token < 0) break;
      const bool is_ok = c.matcher->accept(token);
      if (is_ok) c.forced.push_back(token);
      goes_on = on_accepted(item, is_ok);
    }
  } catch (const std::exception& e) {  // a matcher of somebody else, or no memory
    c.error = str_cat("the constraint failed: ", e.what());
  }
}

// The same as run_alone() for each, a round of tokens and a round of masks at a time.
void ConstraintWork::run_group(MatcherGroup& group, std::span<Item> items, int32_t vocab_size) const {
  const Time until = deadline(items.size());
  struct Next {
    const Item* item;
    int32_t token;
    bool is_forced;
  };
  std::vector<Next> tokens;         // to be accepted
  std::vector<const Item*> masked;  // that want a mask
  std::vector<MatcherCall> calls;
  const auto accept_all = [&] {
    calls.clear();
    for (const Next& next : tokens)
      calls.push_back({next.item->constraint->matcher.get(), next.token, {}, false});
    if (!calls.empty()) group.accept(calls);
    for (size_t i = 0; i < tokens.size(); ++i) {
      const auto& [item, token, is_forced] = tokens[i];
      if (is_forced && calls[i].is_ok) item->constraint->forced.push_back(token);
      if (on_accepted(*item, calls[i].is_ok)) masked.push_back(item);
    }
    tokens.clear();
  };
  const auto fill_all = [&] {
    calls.clear();
    for (const Item* item : masked)
      calls.push_back({item->constraint->matcher.get(), -1, item->constraint->mask, false});
    if (!calls.empty()) group.fill_masks(calls);
    for (size_t i = 0; i < calls.size(); ++i)
      if (const int32_t token = on_mask(*masked[i], calls[i].is_ok, vocab_size, until); token >= 0)
        tokens.push_back({masked[i], token, true});
    masked.clear();
  };
  const auto rounds = [&] {
    for (const Item& item : items) {
      try {
        begin(item, vocab_size);
      } catch (const std::exception& e) {
        fail_item(item, e.what());
        continue;
      }
      if (item.token >= 0) tokens.push_back({&item, item.token, false});
      if (item.token < 0) masked.push_back(&item);
    }
    while (!tokens.empty() || !masked.empty()) {
      accept_all();
      fill_all();
    }
  };
  try {
    group.in_one_go(rounds);
  } catch (const std::exception& e) {  // whose fault it is cannot be told
    for (const Item& item : items) fail_item(item, e.what());
  }
}

}  // namespace deepinfer
