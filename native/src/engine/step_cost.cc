#include "engine/step_cost.h"

#include <algorithm>
#include <charconv>
#include <cmath>

#include "deepinfer/status.h"

namespace deepinfer {
namespace {

constexpr std::string_view kTitle = "deepinfer step costs 1\n";
constexpr size_t kMaxBytes = 1 << 18;
constexpr double kMaxSeconds = 1e6, kMaxTokens = 1e15;
constexpr double kGain =
    0.95;  // a smaller budget must be cheaper by more than noise and what steps differ in

// Two buckets for each doubling: inside one, the cost changes by a fifth or so.
int bucket(double x, double per_doubling) { return static_cast<int>(std::log2(1 + x) * per_doubling); }

uint64_t checksum(std::string_view text) {
  uint64_t h = 0xCBF29CE484222325ull;
  for (const char c : text) h = (h ^ static_cast<unsigned char>(c)) * 0x100000001B3ull;
  return h;
}

std::string as_text(double x) {
  char out[32];
  const auto end = std::to_chars(out, out + sizeof(out), x).ptr;
  return {out, end};
}

// The next number of `text`, which must end with `after`; takes it away.
template <typename T>
bool take(std::string_view& text, T& value, char after) {
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc() || end == text.data() + text.size() || *end != after) return false;
  text.remove_prefix(static_cast<size_t>(end - text.data()) + 1);
  return true;
}

bool is_between(double x, double low, double high) { return x >= low && x <= high; }  // no NaN is

double squared(double x) { return x * x; }

}  // namespace

void StepCosts::add(const StepShape& shape, double seconds) {
  if (shape.num_tokens() <= 0 || !is_between(seconds, 1e-9, kMaxSeconds)) return;
  ++num_added_;
  const double mean_context = static_cast<double>(shape.context) / shape.num_tokens();
  const Key key{bucket(shape.num_decodes, 2), bucket(shape.num_prefill, 2), bucket(mean_context, 1)};
  if (!cells_.contains(key) && cells_.size() >= kMaxCells) forget_one();
  Cell& cell = cells_[key];
  cell.count = std::min(cell.count + 1, kMemory);
  const double weight = 1.0 / static_cast<double>(cell.count);
  cell.num_decodes += weight * (shape.num_decodes - cell.num_decodes);
  cell.num_prefill += weight * (shape.num_prefill - cell.num_prefill);
  cell.context += weight * (mean_context - cell.context);
  cell.seconds += weight * (seconds - cell.seconds);
}

void StepCosts::forget_one() {
  cells_.erase(std::ranges::min_element(
      cells_, {}, [](const std::pair<const Key, Cell>& entry) { return entry.second.count; }));
}

// Weighted by nearness in the logarithms of tokens and context; between two cells the cost goes with the
// tokens' power that lies between a step that reads weights and one that computes.
std::optional<double> StepCosts::predict(const StepShape& shape) const {
  if (shape.num_tokens() <= 0) return std::nullopt;
  const double decodes = std::log2(1.0 + shape.num_decodes), prefill = std::log2(1.0 + shape.num_prefill);
  const double context = std::log2(1 + static_cast<double>(shape.context) / shape.num_tokens());
  const double tokens = std::log2(shape.num_tokens());
  double sum = 0, total = 0;
  for (const auto& [key, cell] : cells_) {
    const double own_tokens = std::log2(cell.num_decodes + cell.num_prefill);
    const double distance = squared(std::log2(1 + cell.num_decodes) - decodes) +
                            squared(std::log2(1 + cell.num_prefill) - prefill) +
                            0.25 * squared(std::log2(1 + cell.context) - context) +
                            4 * squared(own_tokens - tokens);
    const double certainty = static_cast<double>(cell.count) / static_cast<double>(cell.count + 2);
    const double weight = certainty / squared(0.01 + distance);
    sum += weight * (std::log2(cell.seconds) + 0.75 * (tokens - own_tokens));
    total += weight;
  }
  if (total <= 0) return std::nullopt;
  return std::exp2(sum / total);
}

void StepCosts::add_full(int32_t budget, double seconds_per_token) {
  if (budget <= 0 || !is_between(seconds_per_token, 1e-12, kMaxSeconds)) return;
  if (!budgets_.contains(budget) && budgets_.size() >= kMaxBudgets) return;
  Budget& known = budgets_[budget];
  if (known.count >= kEnough) return;  // so that all have the same chances
  // The least: what disturbs a step only adds to it.
  if (known.count++ == 0 || seconds_per_token < known.seconds_per_token)
    known.seconds_per_token = seconds_per_token;
}

int64_t StepCosts::num_full(int32_t budget) const {
  const auto it = budgets_.find(budget);
  return it == budgets_.end() ? 0 : it->second.count;
}

double StepCosts::seconds_per_token(int32_t budget) const { return budgets_.at(budget).seconds_per_token; }

std::string StepCosts::write() const {
  std::string out(kTitle);
  for (const auto& [budget, known] : budgets_)
    out += str_cat("budget ", budget, " ", as_text(known.seconds_per_token), " ",
                   std::min(known.count, kMemory), "\n");
  for (const auto& [key, cell] : cells_)
    out += str_cat("step ", as_text(cell.num_decodes), " ", as_text(cell.num_prefill), " ",
                   as_text(cell.context), " ", as_text(cell.seconds), " ", cell.count, "\n");
  return out + str_cat("sum ", checksum(out), "\n");
}

bool StepCosts::read(std::string_view text) {
  if (text.size() > kMaxBytes || !text.starts_with(kTitle)) return false;
  const size_t end = text.rfind("sum ");
  if (end == std::string_view::npos ||
      str_cat("sum ", checksum(text.substr(0, end)), "\n") != text.substr(end))
    return false;
  StepCosts found;
  for (text = text.substr(kTitle.size(), end - kTitle.size()); !text.empty();) {
    if (text.starts_with("budget ")) {
      text.remove_prefix(7);
      int32_t budget = 0;
      Budget known;
      if (!take(text, budget, ' ') || !take(text, known.seconds_per_token, ' ') ||
          !take(text, known.count, '\n') || budget <= 0 ||
          !is_between(known.seconds_per_token, 1e-12, kMaxSeconds) || known.count < 1)
        return false;
      found.budgets_[budget] = known;
    } else if (text.starts_with("step ")) {
      text.remove_prefix(5);
      Cell cell;
      if (!take(text, cell.num_decodes, ' ') || !take(text, cell.num_prefill, ' ') ||
          !take(text, cell.context, ' ') || !take(text, cell.seconds, ' ') || !take(text, cell.count, '\n') ||
          !is_between(cell.num_decodes, 0, kMaxTokens) || !is_between(cell.num_prefill, 0, kMaxTokens) ||
          !is_between(cell.num_decodes + cell.num_prefill, 0.5, kMaxTokens) ||
          !is_between(cell.context, 0, kMaxTokens) || !is_between(cell.seconds, 1e-9, kMaxSeconds) ||
          cell.count < 1 || cell.count > kMemory)
        return false;
      found.cells_[{bucket(cell.num_decodes, 2), bucket(cell.num_prefill, 2), bucket(cell.context, 1)}] =
          cell;
    } else {
      return false;
    }
  }
  if (found.cells_.size() > kMaxCells || found.budgets_.size() > kMaxBudgets) return false;
  *this = std::move(found);
  return true;
}

StepBudget::StepBudget(int32_t most, int32_t least, bool is_tuned) {
  DI_CHECK(most >= 1);
  if (is_tuned)
    for (const int divisor : {1, 2, 4})
      if (most / divisor >= std::max(2 * least, 1)) candidates_.push_back(most / divisor);
  if (candidates_.size() < 2) settled_ = most;
}

int32_t StepBudget::next(const StepCosts& costs) {
  if (settled_ > 0) return settled_;
  // In turns: what changes while a job goes on meets them all.
  const auto num_full = [&](int32_t budget) { return costs.num_full(budget); };
  const int32_t rarest = *std::ranges::min_element(candidates_, {}, num_full);
  if (!costs.is_known(rarest)) return rarest;
  int32_t best = candidates_.front();
  for (const int32_t budget : candidates_)
    if (costs.seconds_per_token(budget) < kGain * costs.seconds_per_token(best)) best = budget;
  return settled_ = best;
}

}  // namespace deepinfer
