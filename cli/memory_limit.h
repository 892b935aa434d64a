#pragma once

// The limit of memory that control groups set, as for a container or a service with MemoryMax=.
//
//   /proc/self/cgroup     0::/system.slice/x.service,  or  5:memory:/system.slice/x.service
//   /sys/fs/cgroup/...    memory.max in each group,    or  memory/.../memory.limit_in_bytes
//
// A group is limited by those above it, too: the smallest limit counts.

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string_view>

namespace tarry::cli {

// The limit of this process, and of the control group `also`, if it is there; empty: there is none.
// `root` is "/", but in tests.
std::optional<std::uint64_t> memory_limit(const std::filesystem::path& root, std::string_view also);

}  // namespace tarry::cli
