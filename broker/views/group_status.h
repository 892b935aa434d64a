#pragma once

// The status of consumer groups, for the admin's pages and the CLI.
//
//   group_summaries()  every group in a line
//   group_status()     one in full: members, what they are assigned, offsets with their lag
//
// The copies are of one moment in each shard, not of one moment in all; a group with very many
// members or offsets is copied in steps, and may change in between.  Everything here starts and
// ends on the thread of `here`; nothing looks into another shard from outside.

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include <boost/asio/awaitable.hpp>

#include "base/bytes.h"
#include "base/clock.h"
#include "base/ids.h"
#include "protocol/consumer_protocol.h"

namespace tarry::broker {

class Broker;
class Shard;

struct GroupSummary {
  std::string id;
  std::string_view state;     // Kafka's: "Empty", "PreparingRebalance" ..., constant.
  std::string protocol_type;  // "consumer"; empty: nobody has ever joined, it only has offsets.
  std::uint32_t shard = 0;
  std::int32_t generation = 0;
  WallTime changed;  // Since when it is in this state.
  std::size_t members = 0;
  std::size_t offsets = 0;  // Partitions with a committed offset.
};

// The cost of one of them in a step (broker/context/yield_budget.h), which has 250 of these: each
// lies anywhere in memory.
inline constexpr std::size_t summary_microseconds = 4;

// In the order of their ids.
boost::asio::awaitable<std::vector<GroupSummary>> group_summaries(Broker& broker, Shard& here);

// So many topics and partitions of all members together are listed; the lists of members beyond
// stay empty.  A leader may assign millions, whether they exist or not.
inline constexpr std::size_t max_elements_listed = 100'000;

struct MemberStatus {
  std::string id;
  std::optional<std::string> instance_id;
  std::string client_id;
  std::string client_host;
  std::chrono::milliseconds session_timeout{0};
  bool is_leader = false;
  SharedBytes assignment;  // As the leader gave it.
  // The subscription that it states, if its protocol is that of consumers.
  std::vector<std::string> subscribed;
  std::vector<protocol::AssignedTopic> assigned;
};

struct OffsetStatus {
  std::string topic;
  TopicPartition partition;
  std::string member;  // The id of the member that has it; empty: none.
  // Empty: assigned, and nothing is committed yet.
  std::optional<Offset> committed;
  std::int32_t leader_epoch = -1;
  WallTime committed_at;
  std::string metadata;
  // The log's bounds; empty if it cannot be opened.
  std::optional<Offset> log_start;
  std::optional<Offset> high_watermark;
  // The number of offsets that a consumer still has to read: from its offset, or from the log's
  // start when that is later or nothing is committed.
  std::optional<std::int64_t> lag;
};

struct GroupStatus {
  GroupSummary summary;
  std::string protocol_name;          // The assignor of this generation: "range".
  std::vector<MemberStatus> members;  // In the order of their ids.
  // By topic's name and partition: what is committed, and what is assigned without that.
  std::vector<OffsetStatus> offsets;
};

// Empty when there is no such group.  The first `open_up_to` partitions are opened when they are
// not, to know their end; of the others that are not open the lag stays empty.
boost::asio::awaitable<std::optional<GroupStatus>> group_status(Broker& broker, Shard& here,
                                                                std::string id,
                                                                std::size_t open_up_to = 10'000);

}  // namespace tarry::broker
