#pragma once

// Cluster: Kafka, as a member of the relay sees it.  KafkaCluster is the real one; the simulation
// of tests/relay has a small model of it.
//
//   source      orders.delayed-3                     records to be delayed, read committed
//   state       relay-pending-orders.delayed-3       compacted: handle -> pending record
//   target      orders                               what is due
//   invalid     orders.delayed.invalid-3             what cannot be understood, with x-error
//
// Everything but wake() is called on one thread, and nothing of the consumer group happens but in
// poll().  So no transaction is open while partitions come and go, and the generation with which
// transact() commits is that of the last poll().

#include <chrono>
#include <compare>
#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "base/bytes.h"
#include "base/clock.h"
#include "base/ids.h"
#include "base/result.h"

namespace tarry::relay {

// A partition of a source topic.
struct Source {
  std::string topic;
  PartitionIndex partition = 0;

  auto operator<=>(const Source&) const = default;
  std::string text() const { return topic + "-" + std::to_string(partition); }
};

// A record of a source topic.
struct SourceRecord {
  Offset offset = 0;
  WallTime timestamp{};  // The producer's, or that of the append.
  Buffer body;           // As in Kafka's format: key, value, headers (records::parse_record_body).
};

struct RecordHeader {
  std::string name;
  std::optional<Buffer> value;
};

// A record to be produced.
struct ProducerRecord {
  enum class Kind { target, invalid, row };

  Kind kind = Kind::target;
  std::string topic;
  std::optional<PartitionIndex> partition;  // Empty: by the key, as the Java client does it.
  std::optional<Buffer> key;
  std::optional<Buffer> value;
  std::vector<RecordHeader> headers;
  std::optional<WallTime> timestamp;
  Source source;       // The partition from which it comes.
  Offset offset = -1;  // Its record's offset there.
  // Somebody waits to hear at which offset it came to stand.
  bool wants_place = false;

  std::size_t bytes() const { return 64 + (key ? key->size() : 0) + (value ? value->size() : 0); }
};

struct SourceOffset {
  Source source;
  Offset next = 0;  // The first one that is not taken in.
};

struct Transaction {
  std::vector<SourceOffset> offsets;  // Sent first: they fence a member of an old generation.
  std::vector<ProducerRecord> records;

  bool empty() const { return offsets.empty(); }
};

struct StateRecord {
  Source source;
  std::string key;
  std::optional<Buffer> value;  // Empty: a tombstone.
  Offset offset = 0;            // In the state partition.
};

struct PollResult {
  std::vector<Source> lost;      // They are to be dropped before anything else.
  std::vector<Source> assigned;  // New ones.  Reading begins at their committed offsets.
  bool changed = false;          // The group has given an assignment, perhaps an empty one.
  std::vector<std::pair<Source, SourceRecord>> records;
  std::vector<SourceOffset> ends;  // Everything before it was read, and nothing more was there.
  std::vector<StateRecord> rows;
  std::vector<SourceOffset> row_ends;  // The same of state partitions, up to the stable offset.
  bool disturbed = false;              // A broker went away, or the whole process stood still.
  // For a while nothing was fetched, for want of room, so what was acknowledged meanwhile may be
  // missing.
  bool held_up = false;
  // All that was fetched by then is in here, or was in an earlier one.  A standstill before it is
  // `disturbed`; one behind it does not matter to a plan that is made for this time.
  WallTime at{};
  bool drained = false;  // Nothing in here is later than `at`.
};

struct CommittedOffset {
  bool is_stable = false;      // No transaction that would change it is open.
  bool is_open = false;        // One is.  Neither of them: it is not known.
  std::optional<Offset> next;  // Empty: nothing was committed.
  std::string owner;           // The producers of the member that committed it.
};

enum class Outcome {
  committed,
  aborted,  // Nothing of it was done.
  unknown,  // Perhaps; renew() settles it.
};

struct TransactionResult {
  Outcome outcome = Outcome::committed;
  // Records that Kafka will never take, by their index, with the reason.  The outcome is `aborted`.
  std::vector<std::pair<std::size_t, std::string>> refused;
  std::string error;  // Unless it is committed.
  // The records that wanted it: where a record comes from, and its offset in the target.
  std::vector<std::pair<std::pair<Source, Offset>, Offset>> placed;
  // Behind the last row in each state partition; one that is not known is left out.
  std::map<Source, Offset> rows_end;
  // Some record is refused, and the next attempt finds out which: it should be small.
  bool is_careful = false;
  bool is_fenced = false;  // The group did not take the offsets; no record was sent.
  // They have confirmed nothing in time while others have: a partition has no leader, or too few
  // copies.
  std::set<std::string> silent_targets;
  // The same of the state topics of these sources.
  std::set<Source> silent_sources;
  // These take nothing now, for a reason of their own: targets; and sources whose state topic or
  // NAME.invalid is the one that does not, or whose offsets Kafka does not take.
  std::map<std::string, std::string> failing_targets;
  std::map<Source, std::string> failing_sources;

  // Whether the error is that of some records or topics, without which the rest may succeed.
  bool is_of_some() const {
    return !refused.empty() || !silent_targets.empty() || !failing_targets.empty() ||
           !failing_sources.empty();
  }
};

// How far the records of begin_send() are.
struct Sending {
  std::size_t confirmed = 0;  // So many of all since the last end_send(), from the first one on.
  bool has_failed = false;    // One of them is not there; end_send() says why.
};

struct SendResult {
  TransactionResult done;               // `refused` counts by these:
  std::vector<ProducerRecord> records;  // All that were begun.
};

class Cluster {
 public:
  virtual ~Cluster() = default;

  // Returns all that has come, and waits for the first thing.  No record is read from the `paused`
  // sources.
  virtual PollResult poll(std::chrono::milliseconds wait, const std::set<Source>& paused) = 0;
  // Ends the wait of poll().  Any thread.
  virtual void wake() {}

  // Topics for the state and the records of these sources exist and are as they have to be.
  virtual Result<> prepare(std::span<const Source> sources) = 0;
  // The topic exists, or was made with as many partitions as the source has.
  virtual Result<> prepare_target(const std::string& topic, const Source& source) = 0;

  // The committed offsets, in the order of `sources`.
  virtual Result<std::vector<CommittedOffset>> committed(std::span<const Source> sources) = 0;
  // The ends of the source and of the state partition, with what is not committed: behind an open
  // transaction there may be what was acknowledged.
  virtual Result<Offset> source_end(const Source& source) = 0;
  virtual Result<Offset> state_end(const Source& source) = 0;
  // The end of the source as consumers see it: where its first open transaction begins.
  virtual Result<Offset> stable_source_end(const Source& source) = 0;
  // source_end() of several, in their order.
  virtual Result<std::vector<Offset>> source_ends(std::span<const Source> sources) {
    std::vector<Offset> ends;
    for (const auto& source : sources) {
      const auto end = source_end(source);
      if (!end) return std::unexpected(end.error());
      ends.push_back(*end);
    }
    return ends;
  }

  // The state partition is read from `from` on; poll() has the rows.
  virtual Result<> start_rows(const Source& source, Offset from) = 0;
  virtual void stop_rows(const Source& source) = 0;

  // All of it or nothing.
  virtual TransactionResult transact(const Transaction& transaction) = 0;
  // Without a transaction: `aborted` if some are not there; those that are may be there twice
  // later.
  virtual TransactionResult send(std::span<const ProducerRecord> records) = 0;
  // The same without waiting, behind those that were begun before and in their order, until
  // end_send().  When poll() gives a partition to the group, those that are under way are waited
  // for, or given up.  The error: nothing of these is sent.
  virtual Result<> begin_send(std::vector<ProducerRecord> records) = 0;
  virtual Sending sending() = 0;
  // Waits for all of them, or gives them up.
  virtual SendResult end_send() = 0;

  // Ends the open transactions of these producers, whose member may be dead.
  virtual Result<> settle(const std::string& owner) = 0;
  // Our own producers, written with each offset.
  virtual const std::string& owner() const = 0;
  // New producers in place of those that failed; when it has succeeded, no transaction of the old
  // ones is undecided.
  virtual Result<> renew() = 0;
};

}  // namespace tarry::relay
