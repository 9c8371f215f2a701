// The pool behind include/deepinfer/threads.h.
//
// Steps are short (tens of microseconds between barriers), so a thread that runs dry spins for a moment
// before it sleeps: pure spinning would burn the time of neighbours, pure sleeping would pay a wake-up at
// every barrier. The caller never waits for a worker that claimed nothing, so a worker that the operating
// system has descheduled costs nothing.
#include "deepinfer/threads.h"

#if defined(__linux__)
#include <pthread.h>
#endif

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdint>
#include <thread>
#include <vector>

#include "deepinfer/status.h"

namespace deepinfer {
namespace {

constexpr auto kSpinTime = std::chrono::microseconds(60);
constexpr int kPausesPerCheck = 32;

void cpu_pause() {
#if defined(__x86_64__)
  __builtin_ia32_pause();
#elif defined(__aarch64__)
  asm volatile("yield");
#endif
}

// Spins until ready() or until the spin time is over; returns what ready() said last.
template <typename Ready>
bool spin_until(const Ready& ready) {
  for (int i = 0; i < kPausesPerCheck; ++i) {
    if (ready()) return true;
    cpu_pause();
  }
  const auto deadline = std::chrono::steady_clock::now() + kSpinTime;
  do {
    for (int i = 0; i < kPausesPerCheck; ++i) {
      if (ready()) return true;
      cpu_pause();
    }
  } while (std::chrono::steady_clock::now() < deadline);
  return ready();
}

}  // namespace

void name_thread(const char* name) {
#if defined(__linux__)
  pthread_setname_np(pthread_self(), name);
#else
  static_cast<void>(name);
#endif
}

struct ThreadPool::Impl {
  // The job's progress in one word: next unclaimed chunk (high half) and number of chunks (low half). A
  // successful compare-and-swap is therefore always a valid claim on the job that is current at that moment.
  std::atomic<uint64_t> claims{0};
  std::atomic<int> tasks_done{0};
  std::atomic<bool> stopping{false};
  std::atomic<uint64_t> num_calls{0};
  // The job; written before `claims` is published, read only after a successful claim.
  const std::function<void(int, int)>* fn = nullptr;
  int num_tasks = 0;
  int grain = 1;
  std::vector<std::thread> workers;

  static bool exhausted(uint64_t state) { return (state >> 32) >= (state & 0xffffffffu); }

  // Claims and runs chunks until none is left.
  void work(int worker) {
    uint64_t state = claims.load(std::memory_order_acquire);
    while (!exhausted(state)) {
      if (!claims.compare_exchange_weak(state, state + (uint64_t{1} << 32), std::memory_order_acq_rel,
                                        std::memory_order_acquire)) {
        continue;
      }
      const int begin = static_cast<int>(state >> 32) * grain;
      const int end = std::min(begin + grain, num_tasks);
      const int total = num_tasks;
      for (int task = begin; task < end; ++task) (*fn)(task, worker);
      if (tasks_done.fetch_add(end - begin, std::memory_order_acq_rel) + (end - begin) == total) {
        tasks_done.notify_one();
      }
      state = claims.load(std::memory_order_acquire);
    }
  }

  void worker_loop(int worker) {
    name_thread("di-worker");
    while (true) {
      uint64_t state = claims.load(std::memory_order_acquire);
      const auto ready = [&] {
        state = claims.load(std::memory_order_acquire);
        return !exhausted(state) || stopping.load(std::memory_order_acquire);
      };
      if (!spin_until(ready)) claims.wait(state, std::memory_order_acquire);
      if (stopping.load(std::memory_order_acquire)) return;
      work(worker);
    }
  }
};

ThreadPool::ThreadPool(int num_threads) : impl_(std::make_unique<Impl>()) {
  DI_CHECK(num_threads >= 1 && num_threads <= 4096, num_threads);
  for (int worker = 1; worker < num_threads; ++worker) {
    impl_->workers.emplace_back([this, worker] { impl_->worker_loop(worker); });
  }
}

ThreadPool::~ThreadPool() {
  impl_->stopping.store(true, std::memory_order_release);
  // An exhausted value that differs from every finished job's, so that no sleeper misses it.
  impl_->claims.store(~uint64_t{0} << 32, std::memory_order_release);
  impl_->claims.notify_all();
  for (std::thread& worker : impl_->workers) worker.join();
}

uint64_t ThreadPool::num_calls() const { return impl_->num_calls.load(std::memory_order_relaxed); }

int ThreadPool::num_threads() const { return static_cast<int>(impl_->workers.size()) + 1; }

void ThreadPool::parallel_for(int num_tasks, int grain, const std::function<void(int, int)>& fn) {
  DI_CHECK(grain >= 1);
  if (num_tasks <= 0) return;
  impl_->num_calls.fetch_add(1, std::memory_order_relaxed);
  if (impl_->workers.empty() || num_tasks <= grain) {
    for (int task = 0; task < num_tasks; ++task) fn(task, 0);
    return;
  }
  Impl& pool = *impl_;
  pool.fn = &fn;
  pool.num_tasks = num_tasks;
  pool.grain = grain;
  pool.tasks_done.store(0, std::memory_order_relaxed);
  const uint64_t num_chunks = (static_cast<uint64_t>(num_tasks) + grain - 1) / grain;
  pool.claims.store(num_chunks, std::memory_order_release);
  pool.claims.notify_all();
  pool.work(0);
  int done = 0;
  const auto finished = [&] {
    done = pool.tasks_done.load(std::memory_order_acquire);
    return done == num_tasks;
  };
  while (!spin_until(finished)) pool.tasks_done.wait(done, std::memory_order_acquire);
}

}  // namespace deepinfer
