#pragma once

// MemberOptions: what a member does, and its bounds.

#include <chrono>
#include <cstddef>

#include "relay/partition.h"

namespace tarry::relay {

enum class Delivery { exactly_once, at_least_once };

struct MemberOptions {
  Rules rules;
  Delivery delivery = Delivery::exactly_once;
  Limits limits{};
  // Arrived records that are not taken in yet; above it no more are read.
  std::size_t arrived_bytes = 64u << 20;
  // A member that stood still longer reads the sources to their ends before it delivers.  The time
  // that Kafka takes for an answer does not count: records are fetched meanwhile.
  std::chrono::milliseconds stall{500};
  std::chrono::milliseconds stuck_after{1'000};
  // The same for rows.  A transaction whose offset is stable has ended, and its markers are on
  // their way; rows that come late say nothing more than that Kafka is slow.
  std::chrono::milliseconds stuck_rows_after{5'000};
  // Behind a pause, or a full queue, nothing may be fetched from a source for so long
  // (longest_first_fetch()).
  std::chrono::milliseconds first_fetch{1'300};
  // At least once: for so long records are sent ahead of the transaction that forgets them.  A
  // member that dies meanwhile has them sent again.
  std::chrono::milliseconds ahead{100};
  std::size_t waiting_orders = 10'000;
  // The ids of delivered records, of all partitions together: each has an equal share.
  std::size_t delivered_ids = 100'000;
  // After a failure; doubled with each that follows.
  std::chrono::milliseconds retry{200};
  std::chrono::milliseconds longest_retry{10'000};
  std::chrono::milliseconds longest_transact_retry{2'000};  // For transactions and new producers.
  // For a target that took nothing in time, and for a source of which a topic takes nothing: each
  // attempt costs all others its time.
  std::chrono::milliseconds silent_retry{10'000};
  std::chrono::milliseconds longest_silent_retry{60'000};
  // After it a step asks Kafka nothing more: the group may wait for the next poll.
  std::chrono::milliseconds longest_turn{3'000};
  // A question to Kafka that takes longer is shown as a stall.
  std::chrono::milliseconds shown_after{3'000};
};

}  // namespace tarry::relay
