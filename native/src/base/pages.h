// Large blocks of memory straight from the kernel: zeroed on first touch, so that reserving costs nothing and
// memory lands near the thread that fills it.
#pragma once

#include <cstddef>
#include <cstdint>

namespace deepinfer {

class Pages {
 public:
  Pages() = default;
  // Throws Error{kResource} naming `what` when the kernel refuses.
  Pages(int64_t num_bytes, const char* what);
  ~Pages();
  Pages(Pages&& other) noexcept;
  Pages& operator=(Pages&& other) noexcept;
  Pages(const Pages&) = delete;
  Pages& operator=(const Pages&) = delete;

  std::byte* data() const { return data_; }
  int64_t size() const { return size_; }

 private:
  std::byte* data_ = nullptr;  // page aligned
  int64_t size_ = 0;           // bytes, as asked
  int64_t mapped_ = 0;
};

}  // namespace deepinfer
