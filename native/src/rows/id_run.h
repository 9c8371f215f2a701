// A sorted run of id entries in an unlinked temporary file, read through a mapping.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "rows/id_entry.h"

namespace deepinfer {

class IdRun {
 public:
  ~IdRun();
  IdRun(const IdRun&) = delete;
  IdRun& operator=(const IdRun&) = delete;

  size_t size() const { return size_; }
  const unsigned char* entry(size_t index) const { return data_ + index * IdEntry::kBytes; }
  const unsigned char* find(const Hash128& h) const;  // nullptr when absent
  // Overwrites the value of an entry of this run, in the file.
  void update(const unsigned char* entry, uint64_t stored);

 private:
  friend class IdRunWriter;
  IdRun(int fd, size_t size, std::string folder);

  int fd_;
  size_t size_;
  std::string folder_;  // for messages
  const unsigned char* data_ = nullptr;
};

// Takes entries in hash order, then turns into a run. A write that fails throws Error{kResource}.
class IdRunWriter {
 public:
  explicit IdRunWriter(const std::string& folder);
  ~IdRunWriter();
  IdRunWriter(const IdRunWriter&) = delete;
  IdRunWriter& operator=(const IdRunWriter&) = delete;

  void add(const unsigned char* entry);
  std::unique_ptr<IdRun> finish();

 private:
  void flush();

  std::string folder_;
  int fd_ = -1;
  size_t size_ = 0;
  std::vector<unsigned char> buffer_;
};

// One run out of several; no hash is in two of them.
std::unique_ptr<IdRun> merge_runs(const std::string& folder, const std::vector<const IdRun*>& runs);

}  // namespace deepinfer
