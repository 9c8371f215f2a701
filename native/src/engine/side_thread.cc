#include "engine/side_thread.h"

#include <utility>

#include "deepinfer/status.h"
#include "deepinfer/threads.h"

namespace deepinfer {

SideThread::SideThread() : thread_([this] { loop(); }) {}

SideThread::~SideThread() {
  {
    const std::scoped_lock lock(mutex_);
    is_stopping_ = true;
  }
  changed_.notify_all();
  thread_.join();
}

void SideThread::start(std::function<void()> work) {
  {
    const std::scoped_lock lock(mutex_);
    DI_CHECK(!work_, "the side thread is busy");
    work_ = std::move(work);
  }
  changed_.notify_all();
}

void SideThread::join() {
  std::unique_lock lock(mutex_);
  changed_.wait(lock, [&] { return !work_; });
  if (thrown_) std::rethrow_exception(std::exchange(thrown_, nullptr));
}

void SideThread::loop() {
  name_thread("di-side");
  std::unique_lock lock(mutex_);
  while (true) {
    changed_.wait(lock, [&] { return work_ || is_stopping_; });
    if (!work_) return;
    lock.unlock();
    std::exception_ptr thrown;
    try {
      work_();
    } catch (...) {
      thrown = std::current_exception();
    }
    lock.lock();
    thrown_ = thrown;
    work_ = nullptr;
    changed_.notify_all();
  }
}

}  // namespace deepinfer
