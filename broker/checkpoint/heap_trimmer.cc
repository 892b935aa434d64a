#include "broker/checkpoint/heap_trimmer.h"

#include "base/background.h"
#include "base/memory.h"
#include "broker/context/shard_context.h"

namespace tarry::broker {
namespace {

// So much must have come in since memory was given back, to make another time worth it.
constexpr std::size_t worth_trimming_bytes = 16 << 20;

}  // namespace

void HeapTrimmer::checkpoint_made(std::size_t bytes, bool more) {
  untrimmed_bytes_ += bytes;
  const bool idle = bytes < worth_trimming_bytes / 4 || !more;
  if (untrimmed_bytes_ < worth_trimming_bytes || !idle) return;
  untrimmed_bytes_ = 0;
  shard_.background().run(give_back_memory, [] {});
}

}  // namespace tarry::broker
