// What steps cost on this machine, measured while runs go: a table from the shape of a step to CPU seconds of
// the engine's thread in the executor. Says what a step will cost, and which token budget is cheapest.
// Changes no result: it decides how much is computed in one step, never what.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <tuple>
#include <vector>

namespace deepinfer {

struct StepShape {
  int32_t num_decodes = 0;  // sequences that compute one token
  int32_t num_prefill = 0;  // tokens of all others
  int64_t context = 0;      // tokens of the cache that are read, summed over computed tokens

  int32_t num_tokens() const { return num_decodes + num_prefill; }
};

class StepCosts {
 public:
  void add(const StepShape& shape, double seconds);
  // From the steps most like it; nothing while too few are known.
  std::optional<double> predict(const StepShape& shape) const;
  int64_t num_added() const { return num_added_; }  // since it was made

  // Seconds per token of steps that had `budget` tokens and used it up.
  void add_full(int32_t budget, double seconds_per_token);
  int64_t num_full(int32_t budget) const;
  bool is_known(int32_t budget) const { return num_full(budget) >= kEnough; }
  double seconds_per_token(int32_t budget) const;

  // As text, kilobytes, with a checksum. read() takes nothing from a text that is not wholly as write() makes
  // it, and says whether it was.
  std::string write() const;
  bool read(std::string_view text);

 private:
  struct Cell {                                                         // steps of nearly one shape
    double num_decodes = 0, num_prefill = 0, context = 0, seconds = 0;  // means; later steps weigh more
    int64_t count = 0;
  };
  struct Budget {
    double seconds_per_token = 0;
    int64_t count = 0;
  };
  using Key = std::tuple<int, int, int>;

  static constexpr size_t kMaxCells = 512;
  static constexpr size_t kMaxBudgets = 32;
  static constexpr int64_t kMemory = 64;  // steps of a cell that count
  static constexpr int64_t kEnough = 3;   // full steps of a budget

  void forget_one();

  std::map<Key, Cell> cells_;
  std::map<int32_t, Budget> budgets_;
  int64_t num_added_ = 0;
};

// Tries budgets in turns in the first full steps and stays with the cheapest.
class StepBudget {
 public:
  // Budgets up to `most`; none but `most` when it is not to be tuned. least: tokens that a step must have
  // room for.
  StepBudget(int32_t most, int32_t least, bool is_tuned);

  int32_t next(const StepCosts& costs);  // of the next step
  bool is_settled() const { return settled_ > 0; }

 private:
  std::vector<int32_t> candidates_;  // largest first
  int32_t settled_ = 0;
};

}  // namespace deepinfer
