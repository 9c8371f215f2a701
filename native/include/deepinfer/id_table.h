// Exact duplicate detection over more ids than fit in memory.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>

namespace deepinfer {

// A map from byte strings to numbers that only ever answers "was it here before?".
//
// A key is kept as a 128-bit SipHash under a random key of this table, which nobody outside can aim
// collisions at. "Exact" means: for a billion keys the chance that any two of them collide is about 1e-21,
// far below that of a memory error; equal keys are always found.
//
// At most 24 bytes a key in memory (from 100,000 keys on), up to max_memory_bytes; then the entries go,
// sorted, to an unlinked file in the spill folder, and are found there by interpolation, about two pages a
// look-up. Growth happens in place, so the bound holds at every moment.
//
// One table is used either with insert() or with increment(), not with both. Not thread-safe.
class IdTable {
 public:
  static constexpr int64_t kMaxValue = (int64_t{1} << 40) - 2;
  static constexpr size_t kDefaultMemoryBytes = size_t{64} << 20;

  // spill_dir: empty = $TMPDIR, else /tmp. It is touched only when something has to be spilled.
  explicit IdTable(size_t max_memory_bytes = kDefaultMemoryBytes, std::string spill_dir = {});
  ~IdTable();
  IdTable(const IdTable&) = delete;
  IdTable& operator=(const IdTable&) = delete;

  // -1 when the key is new (it now has this value, 0 .. kMaxValue); else the value it got first, unchanged.
  // Throws Error{kResource} when the spill folder cannot take a file; the table is then as before.
  int64_t insert(std::string_view key, int64_t value);

  // How often this key was counted before.
  int64_t increment(std::string_view key);

  size_t memory_bytes() const;   // in use now, without spilled files
  size_t spilled_bytes() const;  // in files now

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace deepinfer
