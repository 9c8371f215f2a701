#include "base/pages.h"

#include <sys/mman.h>

#include <algorithm>
#include <ctime>
#include <utility>

#include "base/free_memory.h"
#include "deepinfer/status.h"

namespace deepinfer {
namespace {

constexpr int64_t kHugePage = 2 << 20;
constexpr int64_t kChunk = 32 * kHugePage;  // of an arena; what is not touched costs nothing

// CPU time of this thread: a fault's own work, without the waiting for a busy machine.
double thread_seconds() {
  timespec now;
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
  return static_cast<double>(now.tv_sec) + static_cast<double>(now.tv_nsec) * 1e-9;
}

// Huge pages speed up streaming by some percent, but a first touch can cost milliseconds when the kernel has
// to compact memory for it. One measured fault decides for the whole process.
bool huge_pages_are_cheap() {
  static const bool cheap = [] {
    void* probe = mmap(nullptr, 2 * kHugePage, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (probe == MAP_FAILED) return false;
    const auto address = reinterpret_cast<uintptr_t>(probe);
    auto* aligned = reinterpret_cast<volatile char*>((address + kHugePage - 1) / kHugePage * kHugePage);
    madvise(probe, 2 * kHugePage, MADV_HUGEPAGE);
    const double start = thread_seconds();
    *aligned = 1;
    const double spent = thread_seconds() - start;
    munmap(probe, 2 * kHugePage);
    return spent < 1e-3;
  }();
  return cheap;
}

}  // namespace

Pages::Pages(int64_t num_bytes, const char* what) : size_(num_bytes) {
  DI_CHECK(num_bytes >= 0, num_bytes);
  if (num_bytes == 0) return;
  mapped_ = (num_bytes + 4095) / 4096 * 4096;
  void* memory = mmap(nullptr, static_cast<size_t>(mapped_), PROT_READ | PROT_WRITE,
                      MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (memory == MAP_FAILED) {
    fail(ErrorCode::kResource, "no memory for ", what, ": ", num_bytes / (1 << 20), " MiB needed, ",
         available_memory_bytes() / (1 << 20), " MiB available");
  }
  data_ = static_cast<std::byte*>(memory);
  if (mapped_ >= 2 * kHugePage && huge_pages_are_cheap()) {
    madvise(memory, static_cast<size_t>(mapped_), MADV_HUGEPAGE);
  }
}

Pages::~Pages() {
  if (data_ != nullptr) munmap(data_, static_cast<size_t>(mapped_));
}

Pages::Pages(Pages&& other) noexcept { *this = std::move(other); }

Pages& Pages::operator=(Pages&& other) noexcept {
  std::swap(data_, other.data_);
  std::swap(size_, other.size_);
  std::swap(mapped_, other.mapped_);
  return *this;
}

std::byte* PageArena::take(int64_t num_bytes, const char* what) {
  if (chunks_.empty() || used_ + num_bytes > chunks_.back().size()) {
    chunks_.emplace_back(std::max(num_bytes, kChunk), what);
    used_ = 0;
  }
  std::byte* memory = chunks_.back().data() + used_;
  used_ += (num_bytes + 63) / 64 * 64;
  return memory;
}

}  // namespace deepinfer
