// A whole file, read-only, through the page cache.
#pragma once

#include <cstddef>
#include <span>
#include <string>
#include <string_view>

namespace deepinfer {

// A file that another process shortens while it is mapped ends this process with a signal; the model files
// of a running job must not be changed.
class MappedFile {
 public:
  explicit MappedFile(const std::string& path);  // throws Error{kBadFile}
  // Bytes that the caller keeps for longer than this object; `path` is for messages.
  MappedFile(std::string path, std::span<const std::byte> borrowed);
  ~MappedFile();
  MappedFile(const MappedFile&) = delete;
  MappedFile& operator=(const MappedFile&) = delete;

  const std::string& path() const { return path_; }
  const std::byte* data() const { return data_; }
  size_t size() const { return size_; }
  // Copies bytes that lie inside the file without mapping their pages. Throws Error{kBadFile}.
  void read(size_t begin, std::span<std::byte> into) const;
  std::string_view text() const { return {reinterpret_cast<const char*>(data_), size_}; }

 private:
  std::string path_;
  const std::byte* data_ = nullptr;
  size_t size_ = 0;
  bool is_mapped_ = false;
  int fd_ = -1;  // of a mapped file, unless many files are open
};

}  // namespace deepinfer
