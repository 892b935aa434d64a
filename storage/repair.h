#pragma once

// Repair: looks at every file of a data directory that no broker uses, and repairs what is damaged.
//
//   db/meta, db/pending   checksums; what is damaged there only a copy brings back
//   journal/SHARD         JournalRepair
//   logs/TOPIC-PARTITION  LogRepair, with what journals and db/meta know of each log
//
// A directory in logs/ that belongs to no topic is not looked at; without a db/meta and journals
// that can be read or repaired none is, for nothing else says where a log's files have to end.
//
// Damage is what the bytes say.  A disk that fails to read ends the work instead, and so does
// anything of a later version.
//
// Blocks; one thread; the caller has the directory's lock.

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <unordered_map>
#include <utility>
#include <vector>

#include "base/ids.h"
#include "base/result.h"
#include "storage/file.h"
#include "storage/journal_record.h"
#include "storage/journal_repair.h"
#include "storage/log_repair.h"
#include "storage/repair_finding.h"

namespace tarry::storage {

class Database;

class Repair {
 public:
  // `logs` is log.dirs.
  Repair(Disk& disk, std::string data, std::string logs)
      : disk_(disk), data_(std::move(data)), logs_(std::move(logs)) {}

  // Reads everything and changes nothing.  `step` is called now and then with the number of batches
  // that were read.
  Result<> inspect(const LogRepair::OnBatches& step);
  // Everything that inspect() has found, in the order of the picture above.
  std::vector<RepairFinding> findings() const;
  // Findings that are no damage and yet worth telling.
  const std::vector<std::string>& notes() const { return notes_; }
  std::uint64_t partitions() const { return logs_seen_; }
  std::uint64_t batches() const { return batches_; }

  // Repairs what inspect() has found and looks again at what it touched, as `step` is told. Returns
  // what is left.
  Result<std::vector<RepairFinding>> run(const LogRepair::OnBatches& step);

 private:
  struct KnownTopic {
    std::string name;
    std::int32_t partitions = 0;
    Configs configs;
  };
  struct Appended {
    std::optional<Offset> journal_from;
    Offset appended_end = 0, seen_end = 0;
  };
  struct DamagedLog {
    std::string directory;
    LogFacts facts;
    LogRepair repair;
  };
  struct DamagedJournal {
    std::string directory;
    JournalRepair repair;
  };

  Result<> read_meta(Database& meta);
  Result<> read_producers(Database& meta, const TopicPartition& partition);
  Result<> read_pending(Database* meta);  // Null: damaged.
  Result<> read_journals();
  Result<> look_at_logs(const LogRepair::OnBatches& step);
  void take(const Operation& operation);
  Result<LogFacts> facts_of(const TopicPartition& partition, const KnownTopic& topic) const;
  Result<std::vector<std::string>> saved_of(const TopicPartition& partition) const;
  Result<> add_database(const std::string& directory, const Error& error);

  Disk& disk_;
  const std::string data_;
  const std::string logs_;
  std::map<TopicId, KnownTopic> topics_;
  std::unordered_map<TopicPartition, Appended> appended_;
  std::vector<RepairFinding> databases_;
  std::vector<DamagedJournal> journals_;
  std::vector<DamagedLog> damaged_logs_;
  std::vector<std::string> notes_;
  std::uint64_t logs_seen_ = 0, batches_ = 0;
};

}  // namespace tarry::storage
