#include "base/free_memory.h"

#include <sys/resource.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>

#include "testing.h"

using namespace deepinfer;

namespace {

// A machine with 1000 kB free, in a folder of its own.
class FakeRoot {
 public:
  FakeRoot() {
    std::string name = (std::filesystem::temp_directory_path() / "free-memory-XXXXXX").string();
    path_ = mkdtemp(name.data());
    write("/proc/meminfo", "MemTotal:  9000 kB\nMemFree:  10 kB\nMemAvailable:   1000 kB\nSwapFree: 7 kB\n");
  }
  ~FakeRoot() { std::filesystem::remove_all(path_); }

  void write(const std::string& file, const std::string& text) const {
    std::filesystem::create_directories(std::filesystem::path(path_ + file).parent_path());
    std::ofstream(path_ + file) << text;
  }
  int64_t free() const { return available_memory_bytes(path_); }

 private:
  std::string path_;
};

}  // namespace

TEST(without_limits_the_machine_decides) {
  const FakeRoot root;
  CHECK_EQ(root.free(), 1000 * 1024);
  root.write("/proc/self/cgroup", "0::/\n");
  root.write("/sys/fs/cgroup/memory.max", "max\n");
  root.write("/sys/fs/cgroup/memory.current", "500\n");
  CHECK_EQ(root.free(), 1000 * 1024);
}

TEST(the_tightest_group_on_the_way_up_decides) {
  const FakeRoot root;
  root.write("/proc/self/cgroup", "0::/jobs/mine\n");
  root.write("/sys/fs/cgroup/jobs/mine/memory.max", "max\n");
  root.write("/sys/fs/cgroup/jobs/memory.max", "300000\n");
  root.write("/sys/fs/cgroup/jobs/memory.current", "100000\n");
  CHECK_EQ(root.free(), 200000);
  root.write("/sys/fs/cgroup/jobs/memory.stat", "anon 5\ninactive_file 40000\nactive_file 9\n");
  CHECK_EQ(root.free(), 240000);
  root.write("/sys/fs/cgroup/jobs/mine/memory.max", "50\n");
  root.write("/sys/fs/cgroup/jobs/mine/memory.current", "70\n");
  CHECK_EQ(root.free(), 0);
}

TEST(a_container_sees_its_own_root) {
  const FakeRoot root;
  root.write("/proc/self/cgroup", "0::/kubepods/pod1/abc\n");  // the host's path
  root.write("/sys/fs/cgroup/memory.max", "4000\n");
  root.write("/sys/fs/cgroup/memory.current", "1000\n");
  CHECK_EQ(root.free(), 3000);
}

TEST(version_1_groups) {
  const FakeRoot root;
  root.write("/proc/self/cgroup", "5:cpu,cpuacct:/x\n4:hugetlb,memory:/x\n");
  root.write("/sys/fs/cgroup/memory/x/memory.limit_in_bytes", "7000\n");
  root.write("/sys/fs/cgroup/memory/x/memory.usage_in_bytes", "6000\n");
  root.write("/sys/fs/cgroup/memory/x/memory.stat", "inactive_file 1\ntotal_inactive_file 500\n");
  root.write("/sys/fs/cgroup/memory/memory.limit_in_bytes", "9223372036854771712\n");
  CHECK_EQ(root.free(), 1500);
}

TEST(own_limits_count) {
  const FakeRoot root;
  root.write("/proc/self/status", "Name:\tx\nVmSize:\t  900 kB\nVmData:\t  100 kB\n");
  rlimit before;
  getrlimit(RLIMIT_DATA, &before);
  const rlimit limit{int64_t{1} << 40, before.rlim_max};  // far away: the test itself needs memory
  setrlimit(RLIMIT_DATA, &limit);
  rlimit in_force;
  getrlimit(RLIMIT_DATA, &in_force);  // emulators accept a new limit and ignore it
  const bool is_set = in_force.rlim_cur == limit.rlim_cur;
  root.write("/proc/meminfo", "MemAvailable: 99999999999 kB\n");
  CHECK_EQ(root.free(), is_set ? (int64_t{1} << 40) - 100 * 1024 : int64_t{99999999999} * 1024);
  setrlimit(RLIMIT_DATA, &before);
}

TEST_MAIN()
