#include "deepinfer/id_table.h"

#include <sys/random.h>

#include <algorithm>
#include <cstdlib>
#include <random>
#include <utility>
#include <vector>

#include "deepinfer/status.h"
#include "rows/id_run.h"
#include "rows/id_slots.h"
#include "rows/siphash.h"

namespace deepinfer {
namespace {

// Runs of one level are merged when there are this many: a look-up visits at most 7 files a level, and
// an entry is rewritten once per level.
constexpr size_t kMergeWidth = 8;

std::string default_spill_dir() {
  const char* tmp = std::getenv("TMPDIR");
  return tmp != nullptr && *tmp != '\0' ? tmp : "/tmp";
}

}  // namespace

struct IdTable::Impl {
  struct LeveledRun {
    int level;
    std::unique_ptr<IdRun> run;
  };

  Impl(size_t max_memory_bytes, std::string folder)
      : slots(max_memory_bytes), spill_dir(folder.empty() ? default_spill_dir() : std::move(folder)) {
    if (getrandom(key, sizeof key, 0) != static_cast<ssize_t>(sizeof key)) {
      std::random_device device;
      for (uint64_t& word : key) word = uint64_t{device()} << 32 | device();
    }
  }

  Hash128 hash(std::string_view bytes) const { return siphash128(key, bytes); }

  std::pair<IdRun*, const unsigned char*> find_spilled(const Hash128& h) const {
    for (const LeveledRun& r : runs) {
      if (const unsigned char* entry = r.run->find(h)) return {r.run.get(), entry};
    }
    return {nullptr, nullptr};
  }

  void add(const Hash128& h, uint64_t stored) {
    if (slots.add(h, stored)) return;
    spill();
    DI_CHECK(slots.add(h, stored));
  }

  void spill() {
    IdRunWriter writer(spill_dir);
    slots.for_each([&](const unsigned char* entry) { writer.add(entry); });
    runs.push_back({0, writer.finish()});
    slots.clear();
    while (runs.size() >= kMergeWidth && runs[runs.size() - kMergeWidth].level == runs.back().level)
      merge_last();
  }

  void merge_last() {
    const size_t first = runs.size() - kMergeWidth;
    std::vector<const IdRun*> parts;
    for (size_t i = first; i < runs.size(); ++i) parts.push_back(runs[i].run.get());
    LeveledRun merged{runs.back().level + 1, merge_runs(spill_dir, parts)};
    runs.resize(first);
    runs.push_back(std::move(merged));
  }

  uint64_t key[2];
  IdSlots slots;
  std::string spill_dir;
  std::vector<LeveledRun> runs;  // oldest first, levels never rising
};

IdTable::IdTable(size_t max_memory_bytes, std::string spill_dir)
    : impl_(std::make_unique<Impl>(max_memory_bytes, std::move(spill_dir))) {}
IdTable::~IdTable() = default;

int64_t IdTable::insert(std::string_view key, int64_t value) {
  DI_CHECK(value >= 0 && value <= kMaxValue, "id table value ", value);
  const Hash128 h = impl_->hash(key);
  const unsigned char* entry = impl_->slots.find(h);
  if (entry == nullptr) entry = impl_->find_spilled(h).second;
  if (entry != nullptr) return static_cast<int64_t>(IdEntry::stored(entry)) - 1;
  impl_->add(h, static_cast<uint64_t>(value) + 1);
  return -1;
}

int64_t IdTable::increment(std::string_view key) {
  // The stored number is the count: 1 for a key seen once.
  const Hash128 h = impl_->hash(key);
  if (unsigned char* entry = impl_->slots.find(h)) {
    const uint64_t count = IdEntry::stored(entry);
    IdEntry::store_value(entry + IdEntry::kValueOffset, count + 1);
    return static_cast<int64_t>(count);
  }
  const auto [run, spilled] = impl_->find_spilled(h);
  if (run != nullptr) {
    const uint64_t count = IdEntry::stored(spilled);
    run->update(spilled, count + 1);
    return static_cast<int64_t>(count);
  }
  impl_->add(h, 1);
  return 0;
}

size_t IdTable::memory_bytes() const { return impl_->slots.bytes(); }

size_t IdTable::spilled_bytes() const {
  size_t bytes = 0;
  for (const Impl::LeveledRun& r : impl_->runs) bytes += r.run->size() * IdEntry::kBytes;
  return bytes;
}

}  // namespace deepinfer
