#include <doctest/doctest.h>

#include "base/json.h"
#include "relay/admin_json.h"

namespace tarry::relay {

TEST_CASE("/status says for each partition why it waits, and null if it does not wait") {
  MemberStatus status;
  PartitionStatus partition;
  partition.source = {"a.delayed", 0};
  partition.waits = "its topic takes nothing";
  status.partitions.push_back(partition);
  partition.source.partition = 1;
  partition.waits.clear();
  status.partitions.push_back(partition);
  const Json json = status_json({}, status, true, WallTime{}, MonoTime{});
  const Json& partitions = json["relay"]["partitions"];
  REQUIRE(partitions.size() == 2);
  CHECK(text_in(partitions[0], "waits") == "its topic takes nothing");
  CHECK(partitions[1].contains("waits"));
  CHECK(partitions[1]["waits"].is_null());
}

}  // namespace tarry::relay
