// Preloaded into a run (LD_PRELOAD): writes down what the run asks of the file system in one folder, and
// makes chosen calls fail. Only files below TORTURE_FOLDER count.
//
//   TORTURE_FOLDER  absolute path
//   TORTURE_LOG     file that every successful call is appended to; see Entry
//   TORTURE_FAULT   CALL:NTH:WHAT[:on], with CALL of write, fsync, rename, ftruncate, open, NTH counted from
//   0,
//                   WHAT an error's name, "short" (half is written) or "torn" (half is written, then ENOSPC);
//                   "on" = also every later such call
#include <dlfcn.h>
#include <fcntl.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <cstdarg>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string>

namespace {

// One call in the log, followed by `num_first` and `num_second` bytes. Fields in the machine's byte order.
struct __attribute__((packed)) Entry {
  char call;  // o: file made, w: written, t: truncated, f: synced, d: folder synced, r: renamed, u: unlinked
  uint64_t inode;
  int64_t place;        // w: offset; t: new length
  uint32_t num_first;   // w: data; o, u: path; r: old path
  uint32_t num_second;  // r: new path
};

struct Fault {
  std::string call;
  long nth = -1;
  int error = 0;
  bool is_short = false, is_torn = false, goes_on = false;
};

const std::string& folder() {
  static const std::string path = [] {
    const char* given = std::getenv("TORTURE_FOLDER");
    return std::string(given ? given : "");
  }();
  return path;
}

int error_named(const std::string& name) {
  if (name == "ENOSPC") return ENOSPC;
  if (name == "EDQUOT") return EDQUOT;
  return EIO;
}

const Fault& fault() {
  static const Fault parsed = [] {
    Fault result;
    const char* given = std::getenv("TORTURE_FAULT");
    std::string text = given ? given : "";
    std::string parts[4];
    for (int i = 0; i < 4 && !text.empty(); ++i) {
      const size_t end = std::min(text.find(':'), text.size());
      parts[i] = text.substr(0, end);
      text.erase(0, std::min(end + 1, text.size()));
    }
    result.call = parts[0];
    result.nth = parts[1].empty() ? -1 : std::atol(parts[1].c_str());
    result.is_short = parts[2] == "short" || parts[2] == "torn";
    result.is_torn = parts[2] == "torn";
    result.error = result.is_torn ? ENOSPC : error_named(parts[2]);
    result.goes_on = parts[3] == "on";
    return result;
  }();
  return parsed;
}

// What this call is to do: 0 = its work, -1 = half of it, otherwise the error.
int verdict(const char* call) {
  static std::atomic<long> num_calls{0};
  const Fault& chosen = fault();
  if (chosen.call != call) return 0;
  const long number = num_calls++;
  if (number < chosen.nth) return 0;
  if (number == chosen.nth) return chosen.is_short ? -1 : chosen.error;
  return chosen.goes_on || (chosen.is_torn && number == chosen.nth + 1) ? chosen.error : 0;
}

bool is_ours(const char* path) {
  const std::string& root = folder();
  return !root.empty() && std::strncmp(path, root.c_str(), root.size()) == 0 &&
         (path[root.size()] == '/' || path[root.size()] == '\0');
}

bool is_ours(int fd) {
  if (folder().empty()) return false;
  char link[64], target[4096];
  std::snprintf(link, sizeof link, "/proc/self/fd/%d", fd);
  const ssize_t size = readlink(link, target, sizeof target - 1);
  if (size < 0) return false;
  target[size] = '\0';
  return is_ours(target);
}

uint64_t inode_of(int fd, bool* is_folder = nullptr) {
  struct stat info{};
  if (fstat(fd, &info) != 0) return 0;
  if (is_folder) *is_folder = S_ISDIR(info.st_mode);
  return info.st_ino;
}

void note(char call, uint64_t inode, int64_t place, const void* first, size_t num_first,
          const char* second = "") {
  static const int log = [] {
    const char* path = std::getenv("TORTURE_LOG");
    if (!path) return -1;
    return static_cast<int>(
        syscall(SYS_openat, AT_FDCWD, path, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0644));
  }();
  if (log < 0) return;
  const int saved = errno;
  const size_t num_second = std::strlen(second);
  const Entry entry{call, inode, place, static_cast<uint32_t>(num_first), static_cast<uint32_t>(num_second)};
  std::string record(reinterpret_cast<const char*>(&entry), sizeof entry);
  record.append(static_cast<const char*>(first), num_first).append(second, num_second);
  if (syscall(SYS_write, log, record.data(), record.size()) != static_cast<ssize_t>(record.size())) abort();
  errno = saved;
}

template <typename Function>
Function real(const char* name) {
  return reinterpret_cast<Function>(dlsym(RTLD_NEXT, name));
}

int refuse(int error) {
  errno = error;
  return -1;
}

using OpenAt = int (*)(int, const char*, int, ...);

int open_at(int folder_fd, const char* path, int flags, mode_t mode) {
  static const auto next = real<OpenAt>("openat64");
  const bool writes = (flags & O_ACCMODE) != O_RDONLY && is_ours(path);
  if (writes) {
    if (const int error = verdict("open"); error > 0) return refuse(error);
  }
  const int fd = next(folder_fd, path, flags, mode);
  // O_TMPFILE has no name, so nothing of it outlives the process.
  if (fd < 0 || !writes || (flags & O_TMPFILE) == O_TMPFILE) return fd;
  if (flags & O_CREAT) note('o', inode_of(fd), 0, path, std::strlen(path));
  if (flags & O_TRUNC) note('t', inode_of(fd), 0, "", 0);
  return fd;
}

int truncate_to(int fd, off64_t length) {
  static const auto next = real<int (*)(int, off64_t)>("ftruncate64");
  const bool ours = is_ours(fd);
  if (ours) {
    if (const int error = verdict("ftruncate"); error > 0) return refuse(error);
  }
  const int result = next(fd, length);
  if (result == 0 && ours) note('t', inode_of(fd), length, "", 0);
  return result;
}

int sync(int fd, const char* name) {
  const bool ours = is_ours(fd);
  if (ours) {
    if (const int error = verdict("fsync"); error > 0) return refuse(error);
  }
  const int result = real<int (*)(int)>(name)(fd);
  if (result == 0 && ours) {
    bool is_folder = false;
    const uint64_t inode = inode_of(fd, &is_folder);
    note(is_folder ? 'd' : 'f', inode, 0, "", 0);
  }
  return result;
}

mode_t mode_of(int flags, va_list& rest) {
  return flags & (O_CREAT | O_TMPFILE) ? static_cast<mode_t>(va_arg(rest, int)) : 0;
}

}  // namespace

extern "C" {

ssize_t write(int fd, const void* data, size_t size) {
  static const auto next = real<ssize_t (*)(int, const void*, size_t)>("write");
  const bool ours = is_ours(fd);
  if (ours && size > 0) {
    const int error = verdict("write");
    if (error > 0) return refuse(error);
    if (error < 0) size = (size + 1) / 2;
  }
  const ssize_t result = next(fd, data, size);
  if (result > 0 && ours)
    note('w', inode_of(fd), lseek(fd, 0, SEEK_CUR) - result, data, static_cast<size_t>(result));
  return result;
}

int open(const char* path, int flags, ...) {
  va_list rest;
  va_start(rest, flags);
  const mode_t mode = mode_of(flags, rest);
  va_end(rest);
  return open_at(AT_FDCWD, path, flags, mode);
}

int open64(const char* path, int flags, ...) {
  va_list rest;
  va_start(rest, flags);
  const mode_t mode = mode_of(flags, rest);
  va_end(rest);
  return open_at(AT_FDCWD, path, flags, mode);
}

int openat(int folder_fd, const char* path, int flags, ...) {
  va_list rest;
  va_start(rest, flags);
  const mode_t mode = mode_of(flags, rest);
  va_end(rest);
  return open_at(folder_fd, path, flags, mode);
}

int openat64(int folder_fd, const char* path, int flags, ...) {
  va_list rest;
  va_start(rest, flags);
  const mode_t mode = mode_of(flags, rest);
  va_end(rest);
  return open_at(folder_fd, path, flags, mode);
}

int ftruncate(int fd, off_t length) { return truncate_to(fd, length); }
int ftruncate64(int fd, off64_t length) { return truncate_to(fd, length); }
int fsync(int fd) { return sync(fd, "fsync"); }
int fdatasync(int fd) { return sync(fd, "fdatasync"); }

int rename(const char* from, const char* to) {
  static const auto next = real<int (*)(const char*, const char*)>("rename");
  const bool ours = is_ours(to);
  if (ours) {
    if (const int error = verdict("rename"); error > 0) return refuse(error);
  }
  const int result = next(from, to);
  if (result == 0 && ours) note('r', 0, 0, from, std::strlen(from), to);
  return result;
}

int unlink(const char* path) {
  static const auto next = real<int (*)(const char*)>("unlink");
  const int result = next(path);
  if (result == 0 && is_ours(path)) note('u', 0, 0, path, std::strlen(path));
  return result;
}

}  // extern "C"
