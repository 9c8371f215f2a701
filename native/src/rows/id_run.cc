#include "rows/id_run.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>

#include "deepinfer/status.h"

namespace deepinfer {
namespace {

constexpr size_t kBufferBytes = 12483 * IdEntry::kBytes;  // about 256 KiB of whole entries

[[noreturn]] void fail_io(const char* doing, const std::string& folder) {
  fail(ErrorCode::kResource, "cannot ", doing, " a spill file for row ids in ", folder, ": ",
       std::strerror(errno));
}

// A file without a name: it vanishes with the process, however that ends.
int open_unlinked(const std::string& folder) {
  const int fd = open(folder.c_str(), O_TMPFILE | O_RDWR | O_CLOEXEC, 0600);
  if (fd >= 0) return fd;
  std::string name = folder + "/deepinfer-ids-XXXXXX";
  const int named = mkostemp(name.data(), O_CLOEXEC);
  if (named < 0) fail_io("create", folder);
  unlink(name.c_str());
  return named;
}

bool write_all(int fd, const unsigned char* data, size_t size) {
  while (size != 0) {
    const ssize_t done = write(fd, data, size);
    if (done < 0 && errno == EINTR) continue;
    if (done < 0) return false;
    data += done;
    size -= static_cast<size_t>(done);
  }
  return true;
}

}  // namespace

IdRun::IdRun(int fd, size_t size, std::string folder) : fd_(fd), size_(size), folder_(std::move(folder)) {
  void* map = mmap(nullptr, size * IdEntry::kBytes, PROT_READ, MAP_SHARED, fd, 0);
  if (map == MAP_FAILED) {
    const int error = errno;
    close(fd_);
    errno = error;
    fail_io("map", folder_);
  }
  madvise(map, size * IdEntry::kBytes, MADV_RANDOM);
  data_ = static_cast<const unsigned char*>(map);
}

IdRun::~IdRun() {
  munmap(const_cast<unsigned char*>(data_), size_ * IdEntry::kBytes);
  close(fd_);
}

// Hashes are uniform, so a guess is off by about sqrt(size) entries: a few narrowing guesses, then halving.
const unsigned char* IdRun::find(const Hash128& h) const {
  size_t low = 0, high = size_;  // the hash, if here, is in [low, high)
  uint64_t low_hi = 0, high_hi = UINT64_MAX;
  for (int guesses = 0; low < high; ++guesses) {
    size_t middle = low + (high - low) / 2;
    if (guesses < 8 && high_hi > low_hi) {
      const uint128 share = uint128{h.hi - low_hi} * (high - low - 1) / (high_hi - low_hi);
      middle = low + static_cast<size_t>(share);
    }
    const Hash128 here = IdEntry::hash(entry(middle));
    if (here == h) return entry(middle);
    if (here < h) {
      low = middle + 1;
      low_hi = here.hi;
    } else {
      high = middle;
      high_hi = here.hi;
    }
  }
  return nullptr;
}

void IdRun::update(const unsigned char* entry, uint64_t stored) {
  // Written through the file, where a failure is an error; through the mapping it would be a signal.
  unsigned char value[IdEntry::kBytes - IdEntry::kValueOffset];
  IdEntry::store_value(value, stored);
  const off_t offset = entry - data_ + static_cast<off_t>(IdEntry::kValueOffset);
  size_t done = 0;
  while (done < sizeof value) {
    const ssize_t count = pwrite(fd_, value + done, sizeof value - done, offset + static_cast<off_t>(done));
    if (count < 0 && errno != EINTR) fail_io("update", folder_);
    if (count > 0) done += static_cast<size_t>(count);
  }
}

IdRunWriter::IdRunWriter(const std::string& folder) : folder_(folder), fd_(open_unlinked(folder)) {
  buffer_.reserve(kBufferBytes);
}

IdRunWriter::~IdRunWriter() {
  if (fd_ >= 0) close(fd_);
}

void IdRunWriter::add(const unsigned char* entry) {
  buffer_.insert(buffer_.end(), entry, entry + IdEntry::kBytes);
  ++size_;
  if (buffer_.size() >= kBufferBytes) flush();
}

void IdRunWriter::flush() {
  if (!write_all(fd_, buffer_.data(), buffer_.size())) fail_io("write", folder_);
  buffer_.clear();
}

std::unique_ptr<IdRun> IdRunWriter::finish() {
  flush();
  DI_CHECK(size_ > 0);
  const int fd = std::exchange(fd_, -1);
  return std::unique_ptr<IdRun>(new IdRun(fd, size_, folder_));
}

std::unique_ptr<IdRun> merge_runs(const std::string& folder, const std::vector<const IdRun*>& runs) {
  IdRunWriter writer(folder);
  std::vector<size_t> next(runs.size(), 0);
  for (;;) {
    const unsigned char* least = nullptr;
    size_t from = 0;
    for (size_t r = 0; r < runs.size(); ++r) {
      if (next[r] == runs[r]->size()) continue;
      const unsigned char* candidate = runs[r]->entry(next[r]);
      if (least == nullptr || IdEntry::hash(candidate) < IdEntry::hash(least)) {
        least = candidate;
        from = r;
      }
    }
    if (least == nullptr) return writer.finish();
    writer.add(least);
    ++next[from];
  }
}

}  // namespace deepinfer
