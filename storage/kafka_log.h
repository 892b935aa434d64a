#pragma once

// KafkaLog: the log directory of one partition of an Apache Kafka broker, read while that broker
// does not run.
//
//   orders-0/  00000000000000000000.log .txnindex   00000000000000001042.log ...
//              partition.metadata                   Kafka's id of the topic
//
//   survey()         checks every batch, and finds out what each transaction came to
//   for_each_kept()  the batches that a consumer of committed records gets, in their order
//
// Left out are control batches, the batches of aborted transactions (by their markers in the log,
// and by .txnindex), and those of transactions that were not finished: nobody will finish them.
// Their offsets stay a hole.
//
// Only format 2 is read.  Errc::unsupported and Errc::corrupt name file, position and offset.
//
// Files *.cleaned and *.deleted, which a compaction leaves that was cut short, are not read: Kafka
// removes them when it starts.  With a *.swap, which it would put in the place of segments,
// survey() fails (Errc::invalid) and names the way out.
//
// Blocks; one thread.

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <unordered_map>
#include <vector>

#include "base/bytes.h"
#include "base/ids.h"
#include "base/result.h"
#include "records/record_batch.h"
#include "storage/file.h"
#include "storage/segment.h"

namespace tarry::storage {

class KafkaLog {
 public:
  struct Survey {
    Offset start = 0, end = 0;  // As Kafka tells them to its consumers.
    std::uint64_t kept_batches = 0, kept_records = 0, kept_bytes = 0;
    std::uint64_t control_batches = 0;
    std::uint64_t aborted_batches = 0, aborted_records = 0;
    std::uint64_t unfinished_batches = 0, unfinished_records = 0;
    std::uint64_t bytes = 0;  // Read.
  };

  // `start` is what log-start-offset-checkpoint says.
  KafkaLog(Disk& disk, std::string directory, std::optional<Offset> start)
      : disk_(disk), directory_(std::move(directory)), start_(start) {}

  const std::string& directory() const { return directory_; }
  // The first call.  `step` gets the bytes that were read since it was called last.
  Result<Survey> survey(const std::function<void(std::uint64_t bytes)>& step);
  // The bases of the segments that have anything from the start on.
  const std::vector<Offset>& segments() const { return bases_; }

  // Batches from the log's start on, those of `segments()[i]` with `i`; an error of `take` ends it.
  using TakeBatch = std::function<Result<>(std::size_t segment, const records::BatchView& batch)>;
  Result<> for_each_kept(const TakeBatch& take);

 private:
  // Offsets of one producer.
  struct Range {
    Offset from = 0, until = 0;
  };
  enum class Fate { kept, before_start, control, aborted, unfinished };

  Result<> list_segments();
  Result<> read_aborted(Offset base);
  Result<> for_each_batch(
      const std::function<Result<>(std::size_t, const records::BatchView&)>& take);
  Result<> note_batch(const records::BatchView& batch);
  void merge_ranges();
  Fate fate_of(const records::BatchView& batch) const;

  Disk& disk_;
  const std::string directory_;
  const std::optional<Offset> start_;
  Offset log_start_ = 0;
  std::vector<Offset> bases_;
  std::unordered_map<ProducerId, std::vector<Range>> aborted_;
  std::unordered_map<ProducerId, Offset> last_marker_;
};

// A file of lines "TOPIC PARTITION OFFSET" behind a version and their number, as
// log-start-offset-checkpoint; empty without the file, or when nothing is in it yet.
struct CheckpointedOffset {
  std::string topic;
  PartitionIndex partition = 0;
  Offset offset = 0;
};
Result<std::vector<CheckpointedOffset>> read_offset_checkpoint(Disk& disk, const std::string& path);

// "orders-0" -> orders, 0; empty for anything else, as a partition that is being deleted.
struct PartitionName {
  std::string topic;
  PartitionIndex partition = 0;
};
std::optional<PartitionName> parse_partition_directory(std::string_view name);

}  // namespace tarry::storage
