#include "storage/log_import.h"

#include <algorithm>
#include <limits>
#include <map>
#include <string_view>

#include <fmt/core.h>

#include "records/record_batch.h"
#include "storage/bucket_store.h"
#include "storage/journal_recovery.h"
#include "storage/log_directory.h"
#include "storage/offset_store.h"
#include "storage/retention.h"
#include "storage/segment.h"
#include "storage/segment_writer.h"

namespace tarry::storage {
namespace {

constexpr std::string_view imported_from_name = "imported-from";
constexpr std::size_t max_imported_from_bytes = 4096;
constexpr Offset max_index_reach = std::numeric_limits<std::int32_t>::max();

// The broker's own leader epoch.
constexpr std::int32_t imported_leader_epoch = 0;

std::string imported_from_text(const std::string& kafka_id) {
  return fmt::format("version: 0\nkafka_topic_id: {}\n", kafka_id);
}

// Writes kept batches one after the other, in segments that begin where Kafka's did, as far as they
// have any.
class ImportedLog {
 public:
  ImportedLog(Disk& disk, const std::string& directory) : writer_(disk, directory, config_) {}

  Result<> begin(Offset base) { return writer_.begin(base); }

  Result<> add(std::size_t segment, Offset segment_base, const records::BatchView& batch) {
    // The first segment's base is the log's start, and its index may not reach this batch.
    if (writer_.state().empty() && batch.last_offset() - writer_.state().base > max_index_reach) {
      if (auto filled = writer_.append_hole(writer_.state().base + 1); !filled) return filled;
    }
    const bool rolls = segment != segment_ && !writer_.state().empty();
    segment_ = segment;
    if (rolls || must_roll(writer_.state(), config_, batch.size(), batch.last_offset(), {})) {
      if (auto finished = writer_.finish(); !finished) return finished;
      const Offset base = rolls ? segment_base : batch.base_offset();
      if (auto begun = writer_.begin(base); !begun) return begun;
    }
    bytes_.assign(batch.bytes().begin(), batch.bytes().end());
    records::set_leader_epoch(bytes_, imported_leader_epoch);
    return writer_.append(bytes_, batch.base_offset(), batch.last_offset(),
                          to_ms(batch.max_timestamp()));
  }

  Result<> end(Offset end) {
    if (auto filled = writer_.append_hole(end); !filled) return filled;
    return writer_.finish();
  }

 private:
  const LogConfig config_;
  SegmentWriter writer_;
  std::size_t segment_ = 0;
  Buffer bytes_;
};

}  // namespace

std::string LogImport::directory_of_partition(const std::string& topic,
                                              std::size_t partition) const {
  return fmt::format("{}/{}-{}", logs_, topic, partition);
}

Result<LogImport> LogImport::open(Disk& disk, const std::string& data, const std::string& logs,
                                  Random& random) {
  auto directory = DataDirectory::open(disk, data, random);
  if (!directory) return std::unexpected(directory.error());
  LogImport out(disk, directory->path(), logs);
  out.directory_.emplace(std::move(*directory));
  out.random_ = &random;
  auto logs_lock = take_log_directory(disk, out.data_, out.logs_, random);
  if (!logs_lock) return std::unexpected(logs_lock.error());
  if (*logs_lock) out.logs_lock_.emplace(std::move(**logs_lock));
  if (auto opened = out.open_stores(); !opened) return std::unexpected(opened.error());
  if (auto made = disk.make_directories(out.logs_); !made) return std::unexpected(made.error());
  return out;
}

Result<std::optional<LogImport>> LogImport::look(Disk& disk, const std::string& data,
                                                 const std::string& logs) {
  if (const auto there = disk.list(data); !there && there.error().code == Errc::not_found)
    return std::nullopt;
  const auto whole = DataDirectory::must_be_whole(disk, data, true);
  if (!whole && whole.error().code == Errc::not_found) return std::nullopt;
  if (!whole) return std::unexpected(whole.error());
  auto lock = DirectoryLock::take(data, DirectoryLock::For::reading, "stop it first");
  if (!lock) return std::unexpected(lock.error());
  std::optional<LogImport> out(LogImport(disk, data, logs));
  out->lock_.emplace(std::move(*lock));
  auto logs_lock = lock_log_directory(disk, out->data_, out->logs_, DirectoryLock::For::reading,
                                      "stop it first");
  if (!logs_lock) return std::unexpected(logs_lock.error());
  if (*logs_lock) out->logs_lock_.emplace(std::move(**logs_lock));
  if (auto settled = out->must_be_settled(); !settled) return std::unexpected(settled.error());
  if (auto loaded = out->load_catalog(Database::open_to_read(data + "/db/meta")); !loaded)
    return std::unexpected(loaded.error());
  return out;
}

Result<> LogImport::load_catalog(Result<std::unique_ptr<Database>> meta) {
  if (!meta) return std::unexpected(meta.error());
  meta_ = std::move(*meta);
  auto catalog = std::make_unique<Catalog>(*meta_);
  if (auto loaded = catalog->load(); !loaded) return loaded;
  catalog_ = std::move(catalog);
  return {};
}

Result<> LogImport::must_be_open() const {
  if (catalog_) return {};
  return fail(Errc::io, fmt::format("{}/db/meta could not be opened again after an error; run this "
                                    "again",
                                    data_));
}

Result<> LogImport::open_stores() {
  if (!directory_->is_new()) {
    if (auto settled = must_be_settled(); !settled) return settled;
    return load_catalog(Database::open(directory_->meta_database()));
  }
  // Closed again: nothing is pending, and the first start opens it.
  if (auto made = BucketStore::make(directory_->pending_store(), {}); !made)
    return std::unexpected(made.error());
  if (auto loaded = load_catalog(Database::make(directory_->meta_database())); !loaded)
    return loaded;
  return directory_->created();
}

// A journal that has something to replay could undo what is written beside it.
Result<> LogImport::must_be_settled() const {
  const std::string root = data_ + "/journal";
  const auto shards = journal_shards(*disk_, root);
  if (!shards) return std::unexpected(shards.error());
  for (const auto shard : *shards) {
    const auto read = recover_journal(*disk_, fmt::format("{}/{}", root, shard),
                                      [](Lsn, Bytes) { return Result<>(); });
    if (!read) return std::unexpected(read.error());
    if (read->records == 0) continue;
    return fail(Errc::invalid,
                fmt::format("data directory {}: the broker did not stop cleanly, and its journals "
                            "hold {} records that are nowhere else; start the broker, stop it, and "
                            "then import",
                            data_, read->records));
  }
  return {};
}

Result<std::optional<LogImport::Present>> LogImport::find(const std::string& name,
                                                          const std::string& kafka_id) const {
  if (auto usable = must_be_open(); !usable) return std::unexpected(usable.error());
  const auto image = catalog_->image();
  if (!image->find(name)) return std::nullopt;
  const auto text =
      read_file(*disk_, fmt::format("{}/{}", directory_of_partition(name, 0), imported_from_name),
                max_imported_from_bytes);
  if (!text && text.error().code != Errc::not_found) return std::unexpected(text.error());
  return Present{text && !kafka_id.empty() && as_text(*text) == imported_from_text(kafka_id)};
}

// Removes what an import that was killed has left.
Result<> LogImport::make_room(const std::string& directory) const {
  const auto whose = topic_of_log(*disk_, directory);
  if (!whose) return std::unexpected(whose.error());
  if (*whose) {
    if (catalog_->has_topic(**whose)) {
      return fail(Errc::exists,
                  fmt::format("{} belongs to another topic of this data directory, with the id {}",
                              directory, (*whose)->text()));
    }
  }
  const auto entries = disk_->list(directory);
  if (!entries && entries.error().code == Errc::not_found) return {};
  if (!entries) return std::unexpected(entries.error());
  const auto has = [&](const auto& matches) { return std::ranges::any_of(*entries, matches); };
  if (*whose) {
    // Our own files tell of their origin before they have records.  Those beside the data directory
    // may be another one's, also when an import made them.
    const bool is_ours =
        (directory.starts_with(data_ + "/") &&
         has([](const auto& entry) { return entry.name == imported_from_name; })) ||
        !has([](const auto& entry) { return segment_base(entry.name).has_value(); });
    if (is_ours) return LogRemoval(*disk_, directory, **whose).run();
    return fail(Errc::exists,
                fmt::format("{} has records of the topic id {}, which this data directory does not "
                            "know; move it away if nobody needs it",
                            directory, (*whose)->text()));
  }
  // An import that was killed before its first file had its name.
  const auto is_begun = [](const auto& entry) {
    return entry.name == fmt::format("{}.tmp", partition_metadata_name);
  };
  if (std::ranges::all_of(*entries, is_begun)) return {};
  return fail(Errc::exists,
              fmt::format("{} is not empty and belongs to no topic; move it away", directory));
}

Result<> LogImport::copy(const ImportedTopic& topic, const TopicId& id, std::size_t partition,
                         const std::function<void(std::uint64_t)>& step) const {
  const auto directory = directory_of_partition(topic.name, partition);
  const auto& [log, survey] = topic.partitions[partition];
  if (auto made = disk_->make_directories(directory); !made) return made;
  const auto write = [&](std::string_view name, const std::string& text) {
    return replace_file(*disk_, fmt::format("{}/{}", directory, name), as_bytes(text));
  };
  // First: without it nobody knows whose the files are.
  if (auto done =
          write(partition_metadata_name, fmt::format("version: 0\ntopic_id: {}\n", id.text()));
      !done)
    return done;
  if (auto done = write(imported_from_name, imported_from_text(topic.kafka_id)); !done) return done;

  const Offset base = log->segments().empty() ? survey.start : log->segments().front();
  if (survey.start > base) {
    if (auto done =
            write(start_offset_name, fmt::format("version: 0\nstart_offset: {}\n", survey.start));
        !done)
      return done;
  }
  ImportedLog imported(*disk_, directory);
  if (auto begun = imported.begin(base); !begun) return begun;
  const auto copied =
      log->for_each_kept([&](std::size_t segment, const records::BatchView& batch) -> Result<> {
        if (step) step(batch.size());
        return imported.add(segment, log->segments()[segment], batch);
      });
  return copied ? imported.end(survey.end) : copied;
}

Result<TopicId> LogImport::add(const ImportedTopic& topic, WallTime committed,
                               const std::function<void(std::uint64_t)>& step) {
  if (auto usable = must_be_open(); !usable) return std::unexpected(usable.error());
  const TopicId id = random_->topic_id();
  const auto write = [&]() -> Result<> {
    for (std::size_t i = 0; i < topic.partitions.size(); ++i)
      if (auto copied = copy(topic, id, i, step); !copied) return copied;
    return disk_->sync_directory(logs_);
  };
  for (std::size_t i = 0; i < topic.partitions.size(); ++i) {
    if (auto free = make_room(directory_of_partition(topic.name, i)); !free)
      return std::unexpected(free.error());
  }
  const auto remove = [&] {
    for (std::size_t i = 0; i < topic.partitions.size(); ++i) {
      // The next run removes what cannot be removed now.
      static_cast<void>(LogRemoval(*disk_, directory_of_partition(topic.name, i), id).run());
    }
  };
  if (auto written = write(); !written) {
    remove();
    return std::unexpected(written.error());
  }
  if (auto published = publish(topic, id, committed); !published) {
    // The rows are in memory, and the next topic's flush would publish them.
    catalog_.reset();
    meta_.reset();
    const auto again = load_catalog(Database::open(directory_->meta_database()));
    if (again && catalog_->has_topic(id)) return id;  // The flush did reach the disk.
    // Without a look at what is there, the logs may be those of a topic.
    if (again) remove();
    return std::unexpected(published.error());
  }
  return id;
}

// One flush for all of it, which is there wholly or not at all.
Result<> LogImport::publish(const ImportedTopic& topic, const TopicId& id, WallTime committed) {
  OffsetStore store(*meta_);
  std::map<std::string, OffsetsCommitted> groups;
  for (const auto& offset : topic.offsets) {
    auto& group = groups[offset.group];
    group.group = offset.group;
    group.offsets.push_back({.partition = {id, offset.partition},
                             .offset = offset.offset,
                             .committed = committed,
                             .metadata = offset.metadata});
  }
  for (const auto& [name, offsets] : groups)
    if (auto applied = store.apply(offsets); !applied) return applied;
  if (auto applied = catalog_->apply(TopicCreated{
          id, static_cast<std::int32_t>(topic.partitions.size()), topic.name, topic.configs});
      !applied)
    return applied;
  return meta_->flush();
}

}  // namespace tarry::storage
