// The loop thread around EngineCore, and the bounded queues on both sides of it.
#include "deepinfer/engine.h"

#include <algorithm>
#include <chrono>
#include <condition_variable>
#include <deque>
#include <exception>
#include <mutex>
#include <thread>
#include <unordered_set>
#include <utility>

#include "deepinfer/status.h"
#include "deepinfer/threads.h"
#include "engine/engine_core.h"

namespace deepinfer {

struct Engine::Impl {
  Impl(Executor& executor, ThreadPool& pool, std::shared_ptr<const TokenTable> tokens, EngineConfig config)
      : core(executor, pool, std::move(tokens), config),
        max_waiting(config.max_waiting),
        max_finished(config.max_finished),
        stats(core.stats()) {
    thread = std::thread([this] { loop(); });
  }

  void loop();
  void run_steps();
  bool receive();
  void compute_step();
  void deliver();

  // Held while the core changes, not while a step is computed; never taken while `mutex` is held.
  mutable std::mutex core_mutex;
  EngineCore core;

  const int32_t max_waiting, max_finished;
  std::mutex mutex;  // guards everything below
  std::condition_variable work_arrived, finished_arrived;
  std::deque<Request> inbox;
  std::vector<uint64_t> aborts;
  bool abort_everything = false, abort_waiting = false;
  std::unordered_set<uint64_t> live_ids;
  std::deque<Completion> finished;
  EngineStats stats;  // as of the last step
  bool core_has_work = false;
  bool is_stopping = false;
  bool has_ended = false;      // the loop
  std::exception_ptr failure;  // what ended the loop

  std::thread thread;
};

void Engine::Impl::loop() {
  name_thread("di-engine");
  std::exception_ptr thrown;
  try {
    while (receive()) {
      compute_step();
      deliver();
    }
  } catch (...) {
    thrown = std::current_exception();
    deliver();
  }
  const std::scoped_lock lock(mutex);
  failure = thrown;
  has_ended = true;
  finished_arrived.notify_all();
}

void Engine::Impl::compute_step() {
  {
    const std::scoped_lock lock(core_mutex);
    if (!core.has_work() || !core.plan()) return;
  }
  core.compute();
  const std::scoped_lock lock(core_mutex);
  core.finish();
}

// Sleeps until there is something to do, then hands it to the core. False when the loop has to end.
bool Engine::Impl::receive() {
  std::unique_lock lock(mutex);
  work_arrived.wait(lock, [&] {
    if (is_stopping || abort_everything || abort_waiting || !aborts.empty()) return true;
    return (core_has_work || !inbox.empty()) && std::ssize(finished) < max_finished;
  });
  if (is_stopping) return false;
  stats.num_waiting += static_cast<int32_t>(inbox.size());  // until the step tells better
  std::deque<Request> arrived = std::exchange(inbox, {});
  const std::vector<uint64_t> aborted = std::exchange(aborts, {});
  const bool is_all_aborted = std::exchange(abort_everything, false);
  const bool is_queue_aborted = std::exchange(abort_waiting, false);
  lock.unlock();
  const std::scoped_lock core_lock(core_mutex);
  for (Request& request : arrived) core.add(std::move(request));
  for (const uint64_t id : aborted) core.abort(id);
  if (is_queue_aborted) core.abort_unstarted();
  if (is_all_aborted) core.abort_all();
  return true;
}

void Engine::Impl::deliver() {
  std::vector<Completion> completions;
  EngineStats new_stats;
  bool has_work = false;
  {
    const std::scoped_lock core_lock(core_mutex);
    completions = core.take_finished();
    new_stats = core.stats();
    has_work = core.has_work();
  }
  const std::scoped_lock lock(mutex);
  stats = new_stats;
  core_has_work = has_work;
  for (Completion& completion : completions) {
    live_ids.erase(completion.id);
    finished.push_back(std::move(completion));
  }
  if (!completions.empty()) finished_arrived.notify_all();
}

Engine::Engine(Executor& executor, ThreadPool& pool, std::shared_ptr<const TokenTable> tokens,
               EngineConfig config)
    : impl_(std::make_unique<Impl>(executor, pool, std::move(tokens), std::move(config))) {}

Engine::~Engine() { stop(); }

bool Engine::try_submit(Request& request) {
  impl_->core.check_request(request);
  if (request.submitted_at == RequestState::Clock::time_point{})
    request.submitted_at = RequestState::Clock::now();
  const std::scoped_lock lock(impl_->mutex);
  if (impl_->failure) std::rethrow_exception(impl_->failure);
  if (impl_->is_stopping) fail(ErrorCode::kInternal, "the engine has been stopped");
  if (std::ssize(impl_->inbox) + impl_->stats.num_waiting >= impl_->max_waiting) return false;
  if (!impl_->live_ids.insert(request.id).second)
    fail(ErrorCode::kBadRequest, "request id ", request.id, " is already in use");
  impl_->inbox.push_back(std::move(request));
  impl_->work_arrived.notify_one();
  return true;
}

std::vector<Completion> Engine::poll(int32_t max, double timeout_seconds) {
  std::unique_lock lock(impl_->mutex);
  const std::chrono::duration<double> timeout(std::clamp(timeout_seconds, 0.0, 1e6));
  impl_->finished_arrived.wait_for(
      lock, timeout, [&] { return !impl_->finished.empty() || impl_->failure || impl_->is_stopping; });
  if (impl_->finished.empty() && impl_->failure) std::rethrow_exception(impl_->failure);
  std::vector<Completion> taken;
  while (!impl_->finished.empty() && std::ssize(taken) < max) {
    taken.push_back(std::move(impl_->finished.front()));
    impl_->finished.pop_front();
  }
  impl_->work_arrived.notify_one();
  return taken;
}

void Engine::abort(uint64_t id) {
  const std::scoped_lock lock(impl_->mutex);
  impl_->aborts.push_back(id);
  impl_->work_arrived.notify_one();
}

void Engine::abort_all() {
  const std::scoped_lock lock(impl_->mutex);
  impl_->abort_everything = true;
  impl_->work_arrived.notify_one();
}

void Engine::abort_unstarted() {
  const std::scoped_lock lock(impl_->mutex);
  impl_->abort_waiting = true;
  impl_->work_arrived.notify_one();
}

void Engine::stop() {
  try_stop(0);
  if (impl_->thread.joinable()) impl_->thread.join();
}

bool Engine::try_stop(double timeout_seconds) {
  std::unique_lock lock(impl_->mutex);
  impl_->is_stopping = true;
  impl_->work_arrived.notify_one();
  impl_->finished_arrived.notify_all();
  const std::chrono::duration<double> timeout(std::clamp(timeout_seconds, 0.0, 1e6));
  if (!impl_->finished_arrived.wait_for(lock, timeout, [&] { return impl_->has_ended; })) return false;
  lock.unlock();
  if (impl_->thread.joinable()) impl_->thread.join();
  return true;
}

EngineStats Engine::stats() const {
  const std::scoped_lock lock(impl_->mutex);
  return impl_->stats;
}

std::string Engine::step_costs() const {
  const std::scoped_lock lock(impl_->core_mutex);
  return impl_->core.step_costs();
}

// In attempts: a timed mutex waits by a call that thread sanitizers do not follow, and they take its unlock
// for a mistake.
static bool lock_within_a_second(std::unique_lock<std::mutex>& lock) {
  for (int attempt = 0; attempt < 1000; ++attempt) {
    if (lock.try_lock()) return true;
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
  return false;
}

std::string Engine::describe() const {
  size_t num_arrived = 0, num_unpolled = 0;
  {
    const std::scoped_lock lock(impl_->mutex);
    num_arrived = impl_->inbox.size();
    num_unpolled = impl_->finished.size();
  }
  std::string core = "null";  // it is busy planning or advancing
  std::unique_lock lock(impl_->core_mutex, std::defer_lock);
  if (lock_within_a_second(lock)) core = impl_->core.describe();
  return str_cat("{\"submitted\":", num_arrived, ",\"unpolled\":", num_unpolled, ",\"core\":", core, "}");
}

void Engine::check_integrity() const {
  const std::scoped_lock lock(impl_->core_mutex);
  impl_->core.check_integrity();
}

}  // namespace deepinfer
