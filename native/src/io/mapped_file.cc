#include "io/mapped_file.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>

#include "deepinfer/status.h"

namespace deepinfer {

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
    }
  }
  const std::string message = problem == nullptr ? "" : problem;
  close(fd);
  if (problem != nullptr) fail(ErrorCode::kBadFile, path, ": ", message);
}

MappedFile::MappedFile(std::string path, std::span<const std::byte> borrowed)
    : path_(std::move(path)), data_(borrowed.data()), size_(borrowed.size()) {}

MappedFile::~MappedFile() {
  if (is_mapped_) munmap(const_cast<std::byte*>(data_), size_);
}

}  // namespace deepinfer
