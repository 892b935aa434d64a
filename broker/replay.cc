#include "broker/replay.h"

#include <utility>

#include <fmt/core.h>

#include "base/bytes.h"
#include "base/log.h"

namespace tarry::broker {

Result<Offset> Replay::cut(const TopicPartition& tp, Offset base) {
  auto partition = open(tp);
  if (!partition) return std::unexpected(partition.error());
  return (*partition)->cut(base);
}

Result<> Replay::append(const TopicPartition& tp, Bytes batches, WallTime appended) {
  auto partition = open(tp);
  if (!partition) return std::unexpected(partition.error());
  auto replayed = (*partition)->replay(batches, appended);
  if (replayed) shard_of(tp).checkpointer().note_dirty(**partition, batches.size());
  return replayed;
}

Result<> Replay::producer_answered(const storage::ProducerAnswered& answered) {
  auto partition = open(answered.partition);
  if (!partition) return std::unexpected(partition.error());
  (*partition)->replay_producer(answered);
  return {};
}

Result<> Replay::start_moved(const TopicPartition& tp, Offset start) {
  auto partition = open(tp);
  if (!partition) return std::unexpected(partition.error());
  (*partition)->replay_start(start);
  shard_of(tp).checkpointer().note_dirty(**partition, 0);
  return {};
}

void Replay::fence(const TopicPartition& tp, const std::string& why) {
  // Its files stay as they are, and the other partitions go on.
  if (auto partition = open(tp)) return (*partition)->fence(why);
  // A partition that cannot even be opened is out of service as well.
  log_error("broker", "partition {} of topic {} is out of service; its files are kept: {}",
            tp.partition, tp.topic.text(), why);
}

Result<> Replay::keep(const TopicPartition& tp, Bytes batches) {
  auto& kept = kept_[tp];
  if (!kept.file) {
    const auto topic = shard_of(tp).topics().find(tp.topic);
    const auto directory = kept_directory();
    if (auto made = broker_.disk->make_directories(directory); !made) return made;
    // With the longest names of topics it would be longer than a file's name may be.  The id says
    // that it is not of a deleted topic of that name.
    constexpr std::size_t max_shown = 180;
    const bool shows_name = topic && topic->name.size() <= max_shown;
    kept.path = fmt::format("{}/{}{}{}-{}-{:020}.log", directory, shows_name ? topic->name : "",
                            shows_name ? "." : "", tp.topic.text(), tp.partition,
                            load_be<std::int64_t>(batches.data()));
    auto file = broker_.disk->open(
        // A file of that name holds what an earlier start has saved.
        kept.path, {.write = true, .create = storage::OpenOptions::Create::if_absent});
    if (!file) return std::unexpected(file.error());
    kept.file = std::move(*file);
  }
  auto written = kept.file->pwrite(kept.bytes, batches);
  if (written) kept.bytes += batches.size();
  return written;
}

Result<> Replay::sync_kept() {
  for (auto& [tp, kept] : kept_) {
    if (auto synced = kept.file->sync(); !synced) return synced;
    log_error("broker",
              "batches of a partition that is out of service were copied from the journal to {} "
              "({} bytes)",
              kept.path, kept.bytes);
  }
  return kept_.empty() ? Result<>() : broker_.disk->sync_directory(kept_directory());
}

Result<Partition*> Replay::open(const TopicPartition& tp) {
  // The first pass has just changed the catalog, and the shards know it by the image alone.
  if (!shard_of(tp).topics().find(tp.topic)) {
    const auto image = catalog_.image();
    for (const auto& shard : shards_) shard->set_topics(image);
  }
  return shard_of(tp).partitions().open_now(tp);
}

}  // namespace tarry::broker
