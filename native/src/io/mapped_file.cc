#include "io/mapped_file.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>

#include "deepinfer/status.h"

namespace deepinfer {

// A model of a thousand files must not take all descriptors of the process.
constexpr int kMaxKept = 256;

MappedFile::MappedFile(const std::string& path) : path_(path) {
  // Not blocking: opening a named pipe must not wait for a writer.
  const int fd = open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK);
  if (fd < 0) fail(ErrorCode::kBadFile, path, ": ", std::strerror(errno));
  struct stat info{};
  const char* problem = nullptr;
  if (fstat(fd, &info) != 0) {
    problem = std::strerror(errno);
  } else if (!S_ISREG(info.st_mode)) {
    problem = "not a regular file";
  } else if (info.st_size == 0) {
    problem = "the file is empty";
  } else {
    size_ = static_cast<size_t>(info.st_size);
    void* map = mmap(nullptr, size_, PROT_READ, MAP_SHARED, fd, 0);
    if (map == MAP_FAILED) {
      problem = std::strerror(errno);
    } else {
      data_ = static_cast<const std::byte*>(map);
      is_mapped_ = true;
      if (fd < kMaxKept) fd_ = fd;
    }
  }
  const std::string message = problem == nullptr ? "" : problem;
  if (fd_ < 0) close(fd);
  if (problem != nullptr) fail(ErrorCode::kBadFile, path, ": ", message);
}

MappedFile::MappedFile(std::string path, std::span<const std::byte> borrowed)
    : path_(std::move(path)), data_(borrowed.data()), size_(borrowed.size()) {}

MappedFile::~MappedFile() {
  if (is_mapped_) munmap(const_cast<std::byte*>(data_), size_);
  if (fd_ >= 0) close(fd_);
}

void MappedFile::read(size_t begin, std::span<std::byte> into) const {
  if (fd_ < 0) {
    std::memcpy(into.data(), data_ + begin, into.size());
    return;
  }
  while (!into.empty()) {
    const ssize_t count = pread(fd_, into.data(), into.size(), static_cast<off_t>(begin));
    if (count < 0 && errno == EINTR) continue;
    if (count < 0) fail(ErrorCode::kBadFile, path_, ": ", std::strerror(errno));
    if (count == 0) fail(ErrorCode::kBadFile, path_, ": the file has become shorter than it was");
    into = into.subspan(static_cast<size_t>(count));
    begin += static_cast<size_t>(count);
  }
}

}  // namespace deepinfer
