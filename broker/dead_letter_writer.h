#pragma once

// write_dead_letters(): takes a partition's dead letters to the topic NAME.invalid
// (partitions/dead_letters.h), which is created when there is none yet.
//
//   partition 3 of orders --> partition 3 of orders.invalid, on its own shard --> durable --> done
//              shard 0: create the topic, or add the partitions that it lacks

#include <functional>

#include "base/bytes.h"
#include "base/ids.h"
#include "base/result.h"

namespace tarry::broker {

class Shard;
class Topics;

// The parts of the broker that the way there needs.
struct DeadLetterRoutes {
  Shard& first;    // Shard 0, on whose thread
  Topics& topics;  // topics are created.
  std::function<Shard&(const TopicPartition&)> shard_of;
};

// On the thread of `here`, which owns `from`; `done` comes there too, never inside this call, when
// the batch is durable or the reason is known why it will not be.  It does not come if the broker
// ends first.
void write_dead_letters(DeadLetterRoutes routes, Shard& here, TopicPartition from, Buffer batch,
                        std::move_only_function<void(Result<>)> done);

}  // namespace tarry::broker
