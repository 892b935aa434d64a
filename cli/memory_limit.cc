#include "cli/memory_limit.h"

#include <algorithm>
#include <fstream>
#include <string>
#include <utility>

namespace tarry::cli {
namespace {

// The groups of one kind, below where they are mounted.
class Groups {
 public:
  Groups(std::filesystem::path mount, const char* file) : mount_(std::move(mount)), file_(file) {}

  // Looks at a group and at all above it.  In a container its path may be that of the machine,
  // which is not there; then the container's own limit is at the top.
  void look_at(std::string_view group) {
    std::filesystem::path at = mount_;
    take(at / file_);
    for (const auto& part : std::filesystem::path(group).relative_path()) {
      if (part.empty() || part == "." || part == "..") continue;
      at /= part;
      take(at / file_);
    }
  }
  std::optional<std::uint64_t> smallest() const { return smallest_; }

 private:
  void take(const std::filesystem::path& file) {
    std::uint64_t bytes = 0;
    std::ifstream limit(file);
    // It says "max" where there is no limit, which is no number.
    if (limit >> bytes) smallest_ = smallest_ ? std::min(*smallest_, bytes) : bytes;
  }

  const std::filesystem::path mount_;
  const char* const file_;
  std::optional<std::uint64_t> smallest_;
};

bool names_memory(std::string_view controllers) {
  return ("," + std::string(controllers) + ",").contains(",memory,");
}

}  // namespace

std::optional<std::uint64_t> memory_limit(const std::filesystem::path& root,
                                          std::string_view also) {
  Groups second(root / "sys/fs/cgroup", "memory.max");
  Groups first(root / "sys/fs/cgroup/memory", "memory.limit_in_bytes");
  second.look_at(also);
  first.look_at(also);
  std::ifstream groups(root / "proc/self/cgroup");
  for (std::string line; std::getline(groups, line);) {
    // NUMBER:CONTROLLERS:GROUP; the second version names no controllers.
    const auto controllers = line.find(':');
    if (controllers == std::string::npos) continue;
    const auto group = line.find(':', controllers + 1);
    if (group == std::string::npos) continue;
    const auto names = std::string_view(line).substr(controllers + 1, group - controllers - 1);
    const auto path = std::string_view(line).substr(group + 1);
    if (names.empty()) {
      second.look_at(path);
    } else if (names_memory(names)) {
      first.look_at(path);
    }
  }
  const auto one = first.smallest(), two = second.smallest();
  if (!one || !two) return one ? one : two;
  return std::min(*one, *two);
}

}  // namespace tarry::cli
