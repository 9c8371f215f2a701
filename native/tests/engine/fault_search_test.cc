// The search alone: which requests run, which one is blamed, after how many steps.
#include "engine/fault_search.h"

#include <algorithm>
#include <set>

#include "engine/random_requests.h"
#include "testing.h"

using namespace deepinfer;
using namespace deepinfer::testing;

namespace {

// One step of those who may run; returns who was blamed.
std::optional<uint64_t> step(FaultSearch& search, const std::set<uint64_t>& live,
                             const std::set<uint64_t>& poison) {
  std::vector<uint64_t> running;
  for (const uint64_t id : live)
    if (search.suspects().empty() || search.is_suspect(id)) running.push_back(id);
  const bool fails = std::ranges::any_of(running, [&](uint64_t id) { return poison.contains(id); });
  if (fails) return search.on_failure(running);
  search.on_success();
  return std::nullopt;
}

}  // namespace

TEST(poisonous_requests_are_found_and_nobody_else) {
  for (uint64_t seed = 0; seed < 300; ++seed) {
    Draw draw(seed);
    std::set<uint64_t> live, poison;
    const int32_t num_requests = draw.between(1, 64);
    for (int32_t i = 0; i < num_requests; ++i) live.insert(static_cast<uint64_t>(i * 3));
    const int32_t num_poison = draw.between(0, std::min(num_requests, 4));
    while (std::ssize(poison) < num_poison)
      poison.insert(static_cast<uint64_t>(draw.below(num_requests) * 3));
    FaultSearch search;
    std::set<uint64_t> blamed;
    for (int steps = 0; steps < 20 * (num_poison + 1); ++steps)
      if (const auto found = step(search, live, poison)) {
        CHECK(blamed.insert(*found).second);
        live.erase(*found);
      }
    CHECK(blamed == poison);
    CHECK(search.suspects().empty());
  }
}

TEST(a_failure_that_goes_away_blames_nobody) {
  FaultSearch search;
  const std::vector<uint64_t> all = {1, 2, 3};
  CHECK(!search.on_failure(all));
  CHECK(search.suspects().empty());  // the same step again
  search.on_success();
  CHECK(!search.on_failure(all));
  CHECK(!search.on_failure(all));
  CHECK_EQ(search.suspects().size(), 2u);
  search.on_success();
  CHECK_EQ(search.suspects().size(), 1u);
  search.on_success();
  CHECK(search.suspects().empty());
  CHECK_EQ(search.num_blamed(), 0);
}

TEST(blame_without_success_is_counted) {
  FaultSearch search;
  for (uint64_t id = 1; id <= 3; ++id) {
    const std::vector<uint64_t> alone = {id};
    CHECK(!search.on_failure(alone));
    CHECK(search.on_failure(alone) == id);
  }
  CHECK_EQ(search.num_blamed(), 3);
  search.on_success();
  CHECK_EQ(search.num_blamed(), 0);
}

TEST_MAIN()
