// The in-memory part of an IdTable: an array with gaps, always sorted by hash.
#pragma once

#include <cstddef>
#include <cstdint>

#include "rows/id_entry.h"

namespace deepinfer {

// Linear probing where entries stay in hash order: the home slot is monotone in the hash and there is no
// wrap-around, so the array can be written out as a sorted run as it stands, and can grow in place (push
// everything to the end, then spread it forward). Address space is reserved once, pages are used as needed.
class IdSlots {
 public:
  explicit IdSlots(size_t max_bytes);
  ~IdSlots();
  IdSlots(const IdSlots&) = delete;
  IdSlots& operator=(const IdSlots&) = delete;

  // The entry with this hash, or nullptr.
  unsigned char* find(const Hash128& h);
  // Adds a hash that find() did not find; false when the table is full and cannot grow: spill, clear, retry.
  bool add(const Hash128& h, uint64_t stored);

  size_t size() const { return size_; }
  size_t bytes() const { return (capacity_ + kSlack) * IdEntry::kBytes; }
  void clear();

  // Calls fn(const unsigned char* entry) for every entry in hash order.
  template <typename Fn>
  void for_each(const Fn& fn) const {
    for (const unsigned char* e = slots_; e != end_of_slots(); e += IdEntry::kBytes) {
      if (IdEntry::stored(e) != 0) fn(e);
    }
  }

 private:
  static constexpr size_t kFirstCapacity = 2048;
  static constexpr size_t kSlack = 512;  // slots behind the last home, for entries that were pushed along

  unsigned char* slot(size_t index) const { return slots_ + index * IdEntry::kBytes; }
  unsigned char* end_of_slots() const { return slot(capacity_ + kSlack); }
  unsigned char* lower_bound(const Hash128& h) const;
  bool grow();

  unsigned char* slots_ = nullptr;
  size_t reserved_bytes_ = 0;
  size_t max_capacity_ = 0;
  size_t capacity_ = 0;
  size_t size_ = 0;
};

}  // namespace deepinfer
