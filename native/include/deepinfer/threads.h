// The one thread pool of a process: created once, passed by reference, no OpenMP.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>

namespace deepinfer {

// Names the calling thread (15 characters at most) for top, ps and our own measurements. No effect elsewhere
// than on Linux.
void name_thread(const char* name);

class ThreadPool {
 public:
  // num_threads counts the caller: 1 means no worker threads at all.
  explicit ThreadPool(int num_threads);
  ~ThreadPool();
  ThreadPool(const ThreadPool&) = delete;
  ThreadPool& operator=(const ThreadPool&) = delete;

  int num_threads() const;
  // Calls of parallel_for() so far: a sign of life inside a long step. Any thread may ask.
  uint64_t num_calls() const;

  // Calls fn(task, worker) for every task in [0, num_tasks), claimed dynamically in chunks of `grain`;
  // returns when all are done. worker is in [0, num_threads()). fn must give the same results whoever
  // runs a task, must not throw and must not call back into the pool.
  void parallel_for(int num_tasks, int grain, const std::function<void(int task, int worker)>& fn);

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace deepinfer
