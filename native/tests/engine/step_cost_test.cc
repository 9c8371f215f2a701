#include "engine/step_cost.h"

#include <algorithm>
#include <cmath>
#include <random>
#include <string>
#include <vector>

#include "testing.h"

using namespace deepinfer;

namespace {

// Weights are read, tokens computed, the cache read.
double true_cost(const StepShape& shape) {
  return 4e-3 + 9e-4 * shape.num_tokens() + 2e-4 * shape.num_decodes +
         4e-7 * static_cast<double>(shape.context);
}

StepShape random_shape(std::mt19937& rng) {
  StepShape shape;
  shape.num_decodes = static_cast<int32_t>(rng() % 65);
  if (rng() % 3 == 0) shape.num_prefill = 1 + static_cast<int32_t>(rng() % 400);
  shape.num_decodes += shape.num_tokens() == 0;
  shape.context = int64_t{shape.num_tokens()} * (20 + static_cast<int64_t>(rng() % 500));
  return shape;
}

StepCosts measured(int num_steps) {
  std::mt19937 rng(1);
  std::normal_distribution<double> noise(0, 0.03);
  StepCosts costs;
  for (int i = 0; i < num_steps; ++i) {
    const StepShape shape = random_shape(rng);
    costs.add(shape, true_cost(shape) * std::exp(noise(rng)));
  }
  return costs;
}

}  // namespace

TEST(steps_never_seen_are_predicted) {
  const StepCosts costs = measured(400);
  std::mt19937 rng(2);
  std::vector<double> errors;
  for (int i = 0; i < 200; ++i) {
    const StepShape shape = random_shape(rng);
    errors.push_back(std::abs(*costs.predict(shape) / true_cost(shape) - 1));
  }
  std::ranges::sort(errors);
  CHECK(errors[100] < 0.15);
  CHECK(errors[190] < 0.5);
}

TEST(nothing_is_predicted_from_nothing) {
  CHECK(!StepCosts().predict({1, 0, 10}));
  CHECK(!measured(10).predict({0, 0, 0}));
}

TEST(a_table_is_read_as_it_was_written) {
  StepCosts costs = measured(300);
  costs.add_full(512, 1e-3);
  costs.add_full(512, 2e-3);
  costs.add_full(512, 3e-3);
  StepCosts again;
  CHECK(again.read(costs.write()));
  CHECK_EQ(again.write(), costs.write());
  CHECK_EQ(*again.predict({7, 0, 700}), *costs.predict({7, 0, 700}));
  CHECK(again.is_known(512) && !again.is_known(256));
  CHECK_EQ(again.seconds_per_token(512), 1e-3);
  CHECK_EQ(again.num_added(), 0);
}

TEST(damaged_tables_are_refused_and_leave_nothing) {
  const std::string text = measured(20).write();
  for (size_t i = 0; i < text.size(); ++i) {
    StepCosts costs;
    std::string damaged = text;
    damaged[i] = static_cast<char>(damaged[i] ^ 1);
    CHECK(!costs.read(damaged));
    CHECK(!costs.read(text.substr(0, i)));
    CHECK(!costs.predict({1, 0, 1}));
  }
  CHECK(!StepCosts().read(std::string(1 << 20, 'x')));
}

TEST(a_table_stays_small) {
  StepCosts costs;
  for (int32_t decodes = 0; decodes < 40; ++decodes)
    for (int32_t prefill = 1; prefill < 2000; prefill += 60)
      for (int64_t context = 1; context < 100000; context *= 3)
        costs.add({decodes, prefill, context * (decodes + prefill)}, 0.01);
  CHECK(costs.write().size() < 100000);
}

TEST(odd_costs_are_left_out) {
  StepCosts costs;
  for (const double seconds : {0.0, -1.0, std::nan(""), HUGE_VAL}) {
    costs.add({1, 0, 1}, seconds);
    costs.add_full(16, seconds);
  }
  CHECK_EQ(costs.num_added(), 0);
  CHECK(!costs.is_known(16));
}

TEST(the_cheapest_budget_is_found_and_kept) {
  StepCosts costs;
  StepBudget budget(1024, 64, true);
  for (int i = 0; i < 20; ++i) {
    const int32_t tokens = budget.next(costs);
    CHECK(tokens == 1024 || tokens == 512 || tokens == 256);
    if (!budget.is_settled()) costs.add_full(tokens, tokens == 512 ? 1e-3 : 2e-3);
  }
  CHECK_EQ(budget.next(costs), 512);
  StepBudget next_run(1024, 64, true);
  CHECK_EQ(next_run.next(costs), 512);
  StepBudget fixed(300, 64, false);
  CHECK_EQ(fixed.next(costs), 300);
  StepBudget no_choice(64, 64, true);
  CHECK_EQ(no_choice.next(costs), 64);
}

TEST_MAIN()
