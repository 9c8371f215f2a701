#include "rows/id_slots.h"

#include <sys/mman.h>

#include <algorithm>

#include "deepinfer/status.h"

namespace deepinfer {
namespace {

// Full above 24/26 of capacity, then grown by 1/22: at least 0.883 of the slots are used behind the first
// few thousand keys, which makes 21 bytes a slot less than 24 bytes a key.
constexpr size_t kFullNumerator = 24, kFullDenominator = 26;
constexpr size_t kGrowthDivisor = 22;

}  // namespace

IdSlots::IdSlots(size_t max_bytes) {
  constexpr size_t kLeast = (kFirstCapacity + kSlack) * IdEntry::kBytes;
  reserved_bytes_ = std::max(max_bytes, kLeast);
  void* memory = mmap(nullptr, reserved_bytes_, PROT_READ | PROT_WRITE,
                      MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (memory == MAP_FAILED)
    fail(ErrorCode::kResource, "no address space for an id table of ", reserved_bytes_, " bytes");
  slots_ = static_cast<unsigned char*>(memory);
  max_capacity_ = reserved_bytes_ / IdEntry::kBytes - kSlack;
  capacity_ = kFirstCapacity;
}

IdSlots::~IdSlots() { munmap(slots_, reserved_bytes_); }

void IdSlots::clear() {
  // Gives the pages back; they read as zeros, that is as empty slots, when touched again.
  madvise(slots_, reserved_bytes_, MADV_DONTNEED);
  capacity_ = kFirstCapacity;
  size_ = 0;
}

// First slot from the hash's home on that is empty or holds a hash not below it; end_of_slots() if none.
unsigned char* IdSlots::lower_bound(const Hash128& h) const {
  unsigned char* e = slot(scaled_position(h, capacity_));
  while (e != end_of_slots() && IdEntry::stored(e) != 0 && IdEntry::hash(e) < h) e += IdEntry::kBytes;
  return e;
}

unsigned char* IdSlots::find(const Hash128& h) {
  unsigned char* e = lower_bound(h);
  const bool found = e != end_of_slots() && IdEntry::stored(e) != 0 && IdEntry::hash(e) == h;
  return found ? e : nullptr;
}

bool IdSlots::add(const Hash128& h, uint64_t stored) {
  if ((size_ + 1) * kFullDenominator > capacity_ * kFullNumerator && !grow()) return false;
  for (;;) {
    unsigned char* at = lower_bound(h);
    unsigned char* gap = at;
    while (gap != end_of_slots() && IdEntry::stored(gap) != 0) gap += IdEntry::kBytes;
    if (gap != end_of_slots()) {
      std::memmove(at + IdEntry::kBytes, at, static_cast<size_t>(gap - at));
      IdEntry::store(at, h, stored);
      ++size_;
      return true;
    }
    if (!grow()) return false;  // the slack is used up, which random hashes hardly ever do
  }
}

bool IdSlots::grow() {
  if (capacity_ == max_capacity_) return false;
  const size_t capacity = std::min(capacity_ + capacity_ / kGrowthDivisor + 1, max_capacity_);
  // Push all entries to the new end. The new slots are untouched pages, hence empty.
  unsigned char* const end = slot(capacity + kSlack);
  unsigned char* packed = end;
  for (unsigned char* e = end_of_slots(); e != slots_;) {
    e -= IdEntry::kBytes;
    if (IdEntry::stored(e) == 0) continue;
    packed -= IdEntry::kBytes;
    if (packed != e) std::memcpy(packed, e, IdEntry::kBytes);
  }
  // Spread forward. An entry's place is never behind where it lies now, since what follows it fits as well:
  // random hashes leave the slack almost empty at this load.
  capacity_ = capacity;
  unsigned char* next = slots_;
  for (; packed != end; packed += IdEntry::kBytes) {
    const Hash128 h = IdEntry::hash(packed);
    const uint64_t stored = IdEntry::stored(packed);
    unsigned char* home = std::max(next, slot(scaled_position(h, capacity)));
    DI_CHECK(home <= packed, "id table: ", size_, " entries in ", capacity, " slots");
    std::memset(next, 0, static_cast<size_t>(home - next));
    IdEntry::store(home, h, stored);
    next = home + IdEntry::kBytes;
  }
  std::memset(next, 0, static_cast<size_t>(end - next));
  return true;
}

}  // namespace deepinfer
