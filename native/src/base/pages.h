// Large blocks of memory straight from the kernel: zeroed on first touch, so that reserving costs nothing and
// memory lands near the thread that fills it.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

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

// Many pieces of memory that live equally long, cut from few mappings: each alone is too small for huge
// pages.
class PageArena {
 public:
  // Memory aligned to 64 bytes, zeroed, valid as long as the arena. Throws as Pages does.
  std::byte* take(int64_t num_bytes, const char* what);

 private:
  std::vector<Pages> chunks_;
  int64_t used_ = 0;  // bytes of the last chunk
};

}  // namespace deepinfer
