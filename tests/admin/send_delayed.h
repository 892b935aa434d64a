#pragma once

// send_delayed(): a record with a delay in a broker behind an admin, accepted and pending.

#include <string>
#include <utility>
#include <vector>

#include <doctest/doctest.h>

#include "protocol/error_code.h"
#include "tests/admin/client.h"

namespace tarry::admin::test {

// It has a header of its producer's own too.
inline void send_delayed(Admin& admin, const std::string& topic, PartitionIndex partition,
                         const std::string& value, const std::string& delay,
                         const std::string& id = {}) {
  std::vector<std::pair<std::string, std::string>> headers{{"x-delay", delay}, {"mine", "h"}};
  if (!id.empty()) headers.emplace_back("x-schedule-id", id);
  const auto batch = broker::test::batch_of(admin.world.clock.wall(), {{value, headers}});
  const auto answer = broker::test::produce(admin.world, topic, partition, batch);
  REQUIRE(answer.error_code == protocol::ErrorCode::none);
  REQUIRE(answer.base_offset == -1);
}

}  // namespace tarry::admin::test
