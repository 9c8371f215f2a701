#include "deepinfer/threads.h"

#include <atomic>
#include <numeric>
#include <thread>
#include <vector>

#include "deepinfer/status.h"
#include "testing.h"

using deepinfer::ThreadPool;

namespace {

// Every task exactly once, whatever the number of threads, tasks and the grain.
void check_covers(ThreadPool& pool, int num_tasks, int grain) {
  std::vector<std::atomic<int>> runs(static_cast<size_t>(num_tasks));
  std::atomic<bool> workers_in_range{true};
  pool.parallel_for(num_tasks, grain, [&](int task, int worker) {
    runs[static_cast<size_t>(task)].fetch_add(1);
    if (worker < 0 || worker >= pool.num_threads()) workers_in_range = false;
  });
  for (const auto& count : runs) CHECK_EQ(count.load(), 1);
  CHECK(workers_in_range.load());
}

}  // namespace

TEST(covers_every_task_once) {
  for (int threads : {1, 2, 3, 7}) {
    ThreadPool pool(threads);
    CHECK_EQ(pool.num_threads(), threads);
    for (int num_tasks : {0, 1, 2, 5, 64, 1000}) {
      for (int grain : {1, 3, 64}) check_covers(pool, num_tasks, grain);
    }
  }
}

TEST(plain_writes_are_visible_to_the_caller) {
  ThreadPool pool(4);
  std::vector<int> values(257);
  for (int round = 0; round < 500; ++round) {
    pool.parallel_for(static_cast<int>(values.size()), 4,
                      [&](int task, int) { values[static_cast<size_t>(task)] = task + round; });
    const long expected = 257L * 256 / 2 + 257L * round;
    CHECK_EQ(std::accumulate(values.begin(), values.end(), 0L), expected);
  }
}

TEST(works_after_the_workers_slept) {
  ThreadPool pool(3);
  for (int round = 0; round < 5; ++round) {
    check_covers(pool, 100, 1);
    std::this_thread::sleep_for(std::chrono::milliseconds(5));
  }
}

TEST(starts_and_stops_without_work) {
  for (int round = 0; round < 50; ++round) ThreadPool pool(5);
}

TEST(refuses_no_threads) { CHECK_THROWS(deepinfer::Error, ThreadPool(0)); }

TEST_MAIN()
