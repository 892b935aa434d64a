#pragma once

// LogRepair: finds what is damaged in the files of one partition's log, and repairs it so that a
// broker serves the partition again.
//
//   [ 400 .. 499 ][ broken batch ][ 510 .. 599 ]   00000000000000000400.log
//   [ 400 .. 499 ]                                 400.log
//                 [ hole 500 .. 509 ]              500.log: a batch without records
//                                 [ 510 .. 599 ]   510.log: the whole batches behind
//                 [ broken batch    510 .. 599 ]   400.log.POSITION.damaged: all that was cut off
//
// A segment is cut at its last whole batch.  The rest goes into a file beside it; the whole batches
// in it become segments of their own, so that only what is broken is lost.  The beginning of the
// next batch is taken from the broken one's length or from the index, never from the bytes of
// records: a client may have stored what looks like a batch.
//
// A log never ends lower than before: lost offsets at its end are a hole too, as far as anything
// tells of them; consumers pass over it (hole_batch.h).  Batches that a start has saved from the
// journal are put back wherever the log lacks them, and holes are only around them.
//
// A directory that holds another topic's log is set aside, because a start would delete it.
//
// Nothing is deleted, and nothing that is whole is touched.  The steps are in an order in which a
// kill between any two leaves the same damage or less; running it again does the rest.
//
// Blocks; one thread; no broker has the directory.

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "base/ids.h"
#include "base/result.h"
#include "storage/file.h"
#include "storage/repair_finding.h"
#include "storage/segment.h"

namespace tarry::storage {

// The facts about the log that come from elsewhere.
struct LogFacts {
  TopicId topic;
  LogConfig config;
  // The journal has the log from here on: recovery cuts the log there and appends the rest, so what
  // lies behind is no damage.
  std::optional<Offset> journal_from = {};
  // All offsets below were given to producers, say their states.
  Offset appended_end = 0;
  // All offsets below were seen by somebody; clients may tell anything, so this is no evidence of
  // damage.
  Offset seen_end = 0;
  // Files of whole batches that a start has saved from the journal, in the order of their offsets.
  std::vector<std::string> saved = {};
  // The name of a topic that is there, or empty; may be null.
  std::function<std::string(const TopicId&)> name_of = {};
};

class LogRepair {
 public:
  // Reads every batch; changes nothing.  `step`, if there is one, is called now and then with the
  // number of batches that were read.
  using OnBatches = std::function<void(std::uint64_t batches)>;
  static Result<LogRepair> inspect(Disk& disk, const std::string& directory, const LogFacts& facts,
                                   const OnBatches& step = {});

  const std::vector<RepairFinding>& findings() const { return findings_; }
  std::uint64_t batches() const { return batches_; }
  // Does what the findings say.
  Result<> run();

 private:
  friend class LogInspection;

  std::vector<RepairFinding> findings_;
  std::vector<std::function<Result<>()>> steps_;
  std::uint64_t batches_ = 0;
};

}  // namespace tarry::storage
