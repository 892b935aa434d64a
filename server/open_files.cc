#include "server/open_files.h"

#include <sys/resource.h>

#include <algorithm>
#include <limits>

namespace tarry::server {

std::size_t connections_within(std::uint64_t open_files, std::size_t max_connections,
                               std::uint32_t shards) {
  const std::uint64_t reserve = reserved_files + reserved_files_per_shard * shards;
  // Under a low limit connections get half of it; the whole reserve would leave them none.
  const std::uint64_t room = open_files - std::min(reserve, open_files / 2);
  return static_cast<std::size_t>(
      std::min<std::uint64_t>(max_connections, std::max<std::uint64_t>(room, 1)));
}

std::uint64_t open_files_limit() {
  rlimit limit{};
  if (::getrlimit(RLIMIT_NOFILE, &limit) != 0 || limit.rlim_cur == RLIM_INFINITY)
    return std::numeric_limits<std::uint64_t>::max();
  return limit.rlim_cur;
}

}  // namespace tarry::server
