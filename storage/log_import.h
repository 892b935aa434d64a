#pragma once

// LogImport: takes topics from log directories of Apache Kafka into a data directory that no broker
// uses.
//
//   logs/TOPIC-PARTITION   partition.metadata with a new id, segments with the kept batches, synced
//   db/meta                the topic under that id, and what groups have committed of it: one flush
//
// The flush is what makes the topic appear.  Until then its directories belong to an id that nobody
// knows: a broker that starts sees nothing of the topic, and the next import, or a topic of that
// name, removes them.  An import removes no directory that an import has not made.
//
// The id is a new one: the catalog must never see one again that was deleted.  Kafka's is noted in
// the file imported-from, by which a second run recognizes what it has imported already.
//
// Batches stay as they are, with their offsets, timestamps and compression; only the leader epoch,
// which no checksum covers, is that of this broker.  Parts that were left out are holes; a log that
// would end in one ends in a batch without records.
//
// Blocks; one thread.

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "base/ids.h"
#include "base/random.h"
#include "base/result.h"
#include "storage/catalog.h"
#include "storage/data_directory.h"
#include "storage/database.h"
#include "storage/directory_lock.h"
#include "storage/file.h"
#include "storage/journal_record.h"
#include "storage/kafka_log.h"

namespace tarry::storage {

struct ImportedPartition {
  KafkaLog* log = nullptr;  // After its survey.
  KafkaLog::Survey survey;
};

// An offset of the topic that a group has committed.
struct ImportedOffset {
  std::string group;
  PartitionIndex partition = 0;
  Offset offset = 0;
  std::string metadata;
};

struct ImportedTopic {
  std::string name;
  std::string kafka_id;  // As partition.metadata has it; may be empty.
  Configs configs;
  std::vector<ImportedPartition> partitions;  // By their numbers.
  std::vector<ImportedOffset> offsets;
};

class LogImport {
 public:
  // Makes the data directory if it is not there, and locks it.  Errc::invalid when its journals
  // hold what is nowhere else: the broker was not stopped in order.
  static Result<LogImport> open(Disk& disk, const std::string& data, const std::string& logs,
                                Random& random);
  // For a look at what open() would find, with find() alone: changes nothing, and keeps brokers
  // away until it is destroyed.  Empty where there is no data directory yet.
  static Result<std::optional<LogImport>> look(Disk& disk, const std::string& data,
                                               const std::string& logs);

  // A topic of this name, and whether it is what an earlier run has imported.
  struct Present {
    bool is_same = false;
  };
  Result<std::optional<Present>> find(const std::string& name, const std::string& kafka_id) const;
  // `committed` is the time of the offsets; `step` gets the bytes of each batch that was copied.
  // When it fails nothing of the topic is left.
  Result<TopicId> add(const ImportedTopic& topic, WallTime committed,
                      const std::function<void(std::uint64_t bytes)>& step);

 private:
  LogImport(Disk& disk, std::string data, std::string logs)
      : disk_(&disk),
        data_(std::move(data)),
        logs_(logs.empty() ? data_ + "/logs" : std::move(logs)) {}

  Result<> open_stores();
  Result<> load_catalog(Result<std::unique_ptr<Database>> meta);
  Result<> must_be_settled() const;
  Result<> must_be_open() const;
  Result<> make_room(const std::string& directory) const;
  Result<> copy(const ImportedTopic& topic, const TopicId& id, std::size_t partition,
                const std::function<void(std::uint64_t)>& step) const;
  Result<> publish(const ImportedTopic& topic, const TopicId& id, WallTime committed);
  std::string directory_of_partition(const std::string& topic, std::size_t partition) const;

  Disk* disk_;
  std::string data_, logs_;
  std::optional<DataDirectory> directory_;  // Set by open().
  Random* random_ = nullptr;
  std::optional<DirectoryLock> lock_;       // Taken by look().
  std::optional<DirectoryLock> logs_lock_;  // Empty: logs_ is below data_.
  std::unique_ptr<Database> meta_;
  std::unique_ptr<Catalog> catalog_;  // Null after an error that meta_ was not opened again from.
};

}  // namespace tarry::storage
