#include "delay/engine.h"

namespace tarry::delay {

bool Engine::visit_near(std::size_t& cursor, std::size_t limit, const NearSeen& seen) const {
  return near_.visit(cursor, limit, [&](const NearEntry& entry) {
    const Partition& partition = partitions_[entry.partition()];
    if (!partition.deleted) seen(partition.id, entry.key().due);
  });
}

}  // namespace tarry::delay
