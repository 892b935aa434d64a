#pragma once

// How much memory a broker may need, for whoever sizes a machine or a container (`tarry doctor`,
// docs/operating.md).
//
//   limits   what the settings of memory allow together
//   beside   what no setting counts: the program, pieces that are kept for reuse, the databases,
//            and what is on its way while much falls due at once
//
// Records of producers that a slow disk has not written yet are in neither: the journals bound
// them (tarry.journal.max.bytes).

#include <cstdint>

#include "broker/settings/broker_config.h"

namespace tarry::server {

struct MemoryBounds {
  std::uint64_t limits = 0;
  std::uint64_t beside = 0;
};

MemoryBounds memory_bounds(const broker::BrokerConfig& config, std::uint32_t shards);

}  // namespace tarry::server
