#include "big_stack.h"

#include <pthread.h>

#include <cstddef>
#include <exception>

namespace deepinfer::bindings {
namespace {

constexpr size_t kLargest = size_t{512} << 20, kSmallest = size_t{16} << 20;  // bytes

struct Call {
  const std::function<void()>& work;
  std::exception_ptr thrown;
};

void* run(void* pointer) {
  Call& call = *static_cast<Call*>(pointer);
  try {
    call.work();
  } catch (...) {
    call.thrown = std::current_exception();
  }
  return nullptr;
}

}  // namespace

void on_big_stack(const std::function<void()>& work) {
  Call call{work, nullptr};
  for (size_t size = kLargest; size >= kSmallest; size /= 2) {
    pthread_attr_t attributes;
    pthread_attr_init(&attributes);
    pthread_t thread;
    const bool is_started = pthread_attr_setstacksize(&attributes, size) == 0 &&
                            pthread_create(&thread, &attributes, &run, &call) == 0;
    pthread_attr_destroy(&attributes);
    if (!is_started) continue;
    pthread_join(thread, nullptr);
    if (call.thrown) std::rethrow_exception(call.thrown);
    return;
  }
  work();
}

}  // namespace deepinfer::bindings
