// Wall time of one call, the best of several.
#pragma once

#include <algorithm>
#include <chrono>

namespace deepinfer {

// At least `repeats` calls and `seconds` of them.
template <typename Fn>
double best_wall_seconds(int repeats, double seconds, const Fn& fn) {
  using Clock = std::chrono::steady_clock;
  double best = 1e30, spent = 0;
  for (int i = 0; i < repeats || spent < seconds; ++i) {
    const auto start = Clock::now();
    fn();
    const double time = std::chrono::duration<double>(Clock::now() - start).count();
    best = std::min(best, time);
    spent += time;
  }
  return best;
}

}  // namespace deepinfer
