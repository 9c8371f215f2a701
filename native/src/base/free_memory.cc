#include "base/free_memory.h"

#if defined(__linux__)
#include <malloc.h>
#endif
#include <sys/resource.h>

#include <algorithm>
#include <fstream>
#include <limits>

namespace deepinfer {
namespace {

constexpr int64_t kUnlimited = std::numeric_limits<int64_t>::max();

// The number in a one-number file, or `otherwise` ("max", or no such file).
int64_t read_number(const std::string& path, int64_t otherwise) {
  std::ifstream file(path);
  int64_t value = 0;
  return file >> value ? value : otherwise;
}

// The number after `key` in a file of lines "key number", or `otherwise`.
int64_t read_field(const std::string& path, const std::string& key, int64_t otherwise) {
  std::ifstream file(path);
  std::string word, rest;
  int64_t value = 0;
  while (file >> word) {
    if (word == key) return file >> value ? value : otherwise;
    std::getline(file, rest);
  }
  return otherwise;
}

struct GroupFiles {
  const char* limit;
  const char* used;
  const char* reclaimable;  // key in memory.stat
};

constexpr GroupFiles kVersion2{"/memory.max", "/memory.current", "inactive_file"};
constexpr GroupFiles kVersion1{"/memory.limit_in_bytes", "/memory.usage_in_bytes", "total_inactive_file"};

// What a control group and all above it leave.
int64_t left_in_group(const std::string& mount, std::string path, const GroupFiles& files) {
  int64_t left = kUnlimited;
  while (true) {
    const std::string folder = mount + (path == "/" ? "" : path);
    const int64_t limit = read_number(folder + files.limit, -1);
    if (limit >= 0) {
      // Page cache counts as used but is given back before anybody is refused.
      const int64_t used =
          read_number(folder + files.used, 0) - read_field(folder + "/memory.stat", files.reclaimable, 0);
      left = std::min(left, std::max<int64_t>(0, limit - std::max<int64_t>(0, used)));
    }
    const size_t slash = path.rfind('/');
    if (path.empty() || slash == std::string::npos) return left;
    path.resize(slash);
  }
}

// Lines are "0::/path" (version 2) and "9:memory:/path" (version 1). In a container the path may be that of
// the host, which is not there; the walk then ends at the container's own root, which is.
int64_t left_in_groups(const std::string& root) {
  int64_t left = kUnlimited;
  std::ifstream file(root + "/proc/self/cgroup");
  std::string line;
  while (std::getline(file, line)) {
    const size_t first = line.find(':'), second = line.find(':', first + 1);
    if (first == std::string::npos || second == std::string::npos) continue;
    const std::string controllers = line.substr(first + 1, second - first - 1),
                      path = line.substr(second + 1);
    if (controllers.empty()) left = std::min(left, left_in_group(root + "/sys/fs/cgroup", path, kVersion2));
    if (("," + controllers + ",").find(",memory,") != std::string::npos)
      left = std::min(left, left_in_group(root + "/sys/fs/cgroup/memory", path, kVersion1));
  }
  return left;
}

// Of a resource limit: `used_key` is a line of /proc/self/status, in kB.
int64_t left_of_limit(const std::string& root, int resource, const char* used_key) {
  rlimit limit;
  if (getrlimit(static_cast<__rlimit_resource>(resource), &limit) != 0 || limit.rlim_cur == RLIM_INFINITY)
    return kUnlimited;
  const int64_t used = read_field(root + "/proc/self/status", used_key, 0) * 1024;
  const auto most = static_cast<int64_t>(std::min<rlim_t>(limit.rlim_cur, static_cast<rlim_t>(kUnlimited)));
  return std::max<int64_t>(0, most - used);
}

}  // namespace

int64_t available_memory_bytes(const std::string& root) {
  const int64_t machine = read_field(root + "/proc/meminfo", "MemAvailable:", -1);
  return std::min({machine < 0 ? kUnlimited : machine * 1024, left_in_groups(root),
                   left_of_limit(root, RLIMIT_DATA, "VmData:"), left_of_limit(root, RLIMIT_AS, "VmSize:")});
}

void return_free_memory() {
#if defined(__GLIBC__)
  malloc_trim(0);
#endif
}

}  // namespace deepinfer
