// Time of the process in CPU seconds, which other jobs on the machine disturb least.
#pragma once

#include <algorithm>
#include <ctime>

namespace deepinfer::bench {

inline double cpu_seconds() {
  timespec now;
  clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &now);
  return static_cast<double>(now.tv_sec) + static_cast<double>(now.tv_nsec) * 1e-9;
}

// Best time of one call, over at least `repeats` calls and `seconds` of them.
template <typename Fn>
double best_seconds(int repeats, double seconds, const Fn& fn) {
  double best = 1e30, spent = 0;
  for (int i = 0; i < repeats || spent < seconds; ++i) {
    const double start = cpu_seconds();
    fn();
    const double time = cpu_seconds() - start;
    best = std::min(best, time);
    spent += time;
  }
  return best;
}

}  // namespace deepinfer::bench
