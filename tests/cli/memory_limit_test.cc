#include "cli/memory_limit.h"

#include <stdlib.h>

#include <cstdint>
#include <filesystem>
#include <fstream>
#include <optional>
#include <string>

#include <doctest/doctest.h>

namespace tarry::cli {
namespace {

// A machine's files about control groups.
class GroupFiles {
 public:
  GroupFiles() {
    std::string name = (std::filesystem::temp_directory_path() / "tarry-groups-XXXXXX").string();
    REQUIRE(::mkdtemp(name.data()) != nullptr);
    root_ = name;
  }
  GroupFiles(const GroupFiles&) = delete;
  GroupFiles& operator=(const GroupFiles&) = delete;
  ~GroupFiles() { std::filesystem::remove_all(root_); }

  void write(const std::string& file, const std::string& text) const {
    const auto path = root_ / file;
    std::filesystem::create_directories(path.parent_path());
    std::ofstream(path) << text << '\n';
    REQUIRE(std::filesystem::exists(path));
  }
  std::optional<std::uint64_t> limit(const char* also = "") const {
    return memory_limit(root_, also);
  }

 private:
  std::filesystem::path root_;
};

TEST_CASE("the smallest limit of a control group and of those above it counts") {
  const GroupFiles files;
  files.write("proc/self/cgroup", "0::/big.slice/tarry.service");
  files.write("sys/fs/cgroup/big.slice/tarry.service/memory.max", "4000");
  CHECK(files.limit() == 4000);
  files.write("sys/fs/cgroup/big.slice/memory.max", "3000");
  CHECK(files.limit() == 3000);
  files.write("sys/fs/cgroup/big.slice/memory.max", "max");
  CHECK(files.limit() == 4000);
  files.write("sys/fs/cgroup/other.slice/memory.max", "1000");
  CHECK(files.limit() == 4000);
}

TEST_CASE("control groups of the first version limit the memory, too") {
  const GroupFiles files;
  files.write("proc/self/cgroup", "11:cpu,cpuacct:/cpus\n5:memory:/a/b\n0::/");
  files.write("sys/fs/cgroup/memory/memory.limit_in_bytes", "9223372036854771712");
  files.write("sys/fs/cgroup/memory/a/memory.limit_in_bytes", "2000");
  files.write("sys/fs/cgroup/memory/a/b/memory.limit_in_bytes", "3000");
  files.write("sys/fs/cgroup/memory/cpus/memory.limit_in_bytes", "1");
  CHECK(files.limit() == 2000);
}

TEST_CASE("in a container that has the group's path of the machine, the limit at the top counts") {
  const GroupFiles files;
  files.write("proc/self/cgroup", "0::/../machine.slice/box");
  files.write("sys/fs/cgroup/memory.max", "5000");
  CHECK(files.limit() == 5000);
}

TEST_CASE("the group of a service counts, if it is there; without limits there is none") {
  const GroupFiles files;
  CHECK_FALSE(files.limit().has_value());
  CHECK_FALSE(files.limit("/system.slice/tarry.service").has_value());
  files.write("proc/self/cgroup", "0::/user.slice");
  files.write("sys/fs/cgroup/user.slice/memory.max", "max");
  CHECK_FALSE(files.limit().has_value());
  files.write("sys/fs/cgroup/system.slice/tarry.service/memory.max", "700");
  CHECK_FALSE(files.limit().has_value());
  CHECK(files.limit("/system.slice/tarry.service") == 700);
}

}  // namespace
}  // namespace tarry::cli
