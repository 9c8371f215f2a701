// One thread beside the engine's: takes a piece of host work while a step is computed.
#pragma once

#include <condition_variable>
#include <exception>
#include <functional>
#include <mutex>
#include <thread>

namespace deepinfer {

class SideThread {
 public:
  SideThread();
  ~SideThread();
  SideThread(const SideThread&) = delete;
  SideThread& operator=(const SideThread&) = delete;

  void start(std::function<void()> work);  // after join() of what came before
  void join();                             // until it is done; throws what it threw

 private:
  void loop();

  std::mutex mutex_;
  std::condition_variable changed_;
  std::function<void()> work_;  // empty: there is none
  bool is_stopping_ = false;
  std::exception_ptr thrown_;
  std::thread thread_;
};

}  // namespace deepinfer
