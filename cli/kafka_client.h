#pragma once

// The Kafka protocol as our commands need it, by librdkafka: so they work with any broker that
// speaks it.
//
//   KafkaAdmin          topics and their configs, groups and their offsets
//   KafkaProducer       sends records, and tells of each what became of it
//   KafkaConsumer       reads partitions from given offsets, without a group
//   KafkaGroupConsumer  reads what its group gives it, and commits
//
// What always holds: nothing waits longer than `timeout` for a broker that does not answer, but a
// consumer that has begun to read; the error says what the last connection failed with.  Errors
// name topic or partition and carry Kafka's name of what is wrong; codes: not_found, exists, in_use
// (POLICY_VIOLATION, or a group that has members), too_large, invalid, io.
//
// librdkafka has threads of its own; all that is ours runs in the thread that calls.

#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <variant>
#include <vector>

#include "base/ids.h"
#include "base/result.h"
#include "cli/consumed_record.h"

namespace tarry::cli {

struct KafkaSettings {
  std::string brokers;
  std::chrono::milliseconds timeout;
  std::vector<std::string> properties;  // key=value of librdkafka's; they win over ours.
  // Also for a broker that is starting; else one on loopback that refuses connections is an error
  // at once.
  bool waits_for_start = false;
};

// Whether librdkafka knows the property and takes the value.
Result<> check_property(std::string_view key_value);

// Where a partition's next fetch begins, besides offsets: Kafka's numbers.
inline constexpr Offset log_start = -2;
inline constexpr Offset log_end = -1;

struct PartitionInfo {
  PartitionIndex partition = 0;
  std::int32_t leader = -1;  // -1: none.
  std::vector<std::int32_t> replicas;
  std::vector<std::int32_t> in_sync;
};

struct TopicInfo {
  std::string name;
  std::vector<PartitionInfo> partitions;  // Ascending.
};

struct ConfigEntry {
  std::string name;
  std::optional<std::string> value;  // Sensitive ones have none.
  std::string source;                // "topic", "broker", "default", ...
};

struct GroupMember {
  std::string id;
  std::string client;
  std::string host;                     // "/127.0.0.1"
  std::optional<std::string> instance;  // group.instance.id
  std::vector<std::pair<std::string, PartitionIndex>> assigned;
};

struct GroupInfo {
  std::string name;
  std::string state;     // Kafka's: "Stable", "Empty", "Dead": there is none of that name.
  std::string assignor;  // Of the partitions; empty: none yet.
  std::string coordinator;
  std::vector<GroupMember> members;

  bool is_active() const { return !members.empty(); }
};

struct GroupListing {
  std::string name;
  std::string state;
};

// What a group has committed; none where it has not.
struct CommittedOffset {
  std::string topic;
  PartitionIndex partition = 0;
  std::optional<Offset> offset;
};

using PartitionOffsets = std::vector<std::pair<PartitionIndex, Offset>>;

using ConfigList = std::vector<std::pair<std::string, std::string>>;

// What the three have in common; hides librdkafka.
class KafkaHandle;
struct CloseKafka {
  void operator()(KafkaHandle* handle) const;
};
using KafkaHandlePtr = std::unique_ptr<KafkaHandle, CloseKafka>;

class KafkaAdmin {
 public:
  static Result<KafkaAdmin> open(const KafkaSettings& settings);

  // Which broker this is, or which cluster of them.
  Result<std::string> cluster_id();

  Result<std::vector<TopicInfo>> topics();
  Result<TopicInfo> topic(const std::string& name);
  Result<std::vector<ConfigEntry>> configs(const std::string& topic);

  // Without a number: as many partitions as the broker gives by itself.
  Result<> create(const std::string& topic, std::optional<std::int32_t> partitions,
                  const ConfigList& configs);
  // Sets these, keeps the topic's others: they are read and written again.
  Result<> alter(const std::string& topic, const ConfigList& configs);
  Result<> remove(const std::string& topic);

  // Where each partition of a topic is at `when`: log_start, log_end, or epoch ms for its first
  // record from then on (log_end where there is none).
  Result<PartitionOffsets> offsets(const std::string& topic,
                                   const std::vector<PartitionIndex>& partitions,
                                   std::int64_t when);

  Result<std::vector<GroupListing>> groups();
  // One that is not there has the state "Dead".  Members whose assignment cannot be read have none.
  Result<GroupInfo> group(const std::string& name);
  // By topic and partition.
  Result<std::vector<CommittedOffset>> committed(const std::string& group);
  // in_use when the group has members.
  Result<> commit(const std::string& group, const std::string& topic,
                  const PartitionOffsets& offsets);
  Result<> remove_group(const std::string& name);

 private:
  explicit KafkaAdmin(KafkaHandlePtr handle) : handle_(std::move(handle)) {}
  KafkaHandlePtr handle_;
};

enum class Acks { none, leader, all };

// Name and value; no value is null.
using KafkaHeader = std::pair<std::string, std::optional<std::string>>;

// What became of a record.
struct Delivery {
  std::uint64_t number = 0;  // As send() was given it.
  PartitionIndex partition = -1;
  std::optional<Offset> offset;  // None: delayed (it has none yet), or nobody was asked (acks 0).
  std::optional<Error> error;    // It was not accepted.
};

class KafkaProducer {
 public:
  using Report = std::function<void(const Delivery&)>;

  // `report` is called once for each record, within the calls below.  A topic that is not there is
  // made when the broker does so by itself.
  static Result<KafkaProducer> open(const KafkaSettings& settings, const std::string& topic,
                                    Acks acks, Report report);
  ~KafkaProducer();
  KafkaProducer(KafkaProducer&&) = default;

  std::size_t partition_count() const { return partitions_; }

  // Copies what it is given.  Waits while too much is on its way.  Without a partition the key, or
  // chance, chooses one.  Errors: too_large, and io when nothing was answered for too long.
  Result<> send(std::uint64_t number, const std::optional<std::string_view>& key,
                const std::optional<std::string_view>& value,
                const std::vector<KafkaHeader>& headers, std::optional<PartitionIndex> partition);
  void poll();  // Reports what has been answered.
  // Until every record is reported.
  Result<> finish();

 private:
  struct Topic;
  KafkaProducer(KafkaHandlePtr handle, std::unique_ptr<Topic> topic, std::size_t partitions);
  Result<> wait_until(const std::function<bool()>& reached);

  KafkaHandlePtr handle_;
  std::unique_ptr<Topic> topic_;  // Goes before the handle.
  std::size_t partitions_;
};

struct EndOfPartition {  // Everything there was has been read.
  PartitionIndex partition = 0;
};

class KafkaConsumer {
 public:
  static Result<KafkaConsumer> open(const KafkaSettings& settings, const std::string& topic);
  ~KafkaConsumer();
  KafkaConsumer(KafkaConsumer&&) = default;

  const std::vector<PartitionIndex>& partitions() const { return partitions_; }

  // The first offset whose timestamp is not before `epoch_ms`, in each of these partitions.
  Result<std::vector<std::pair<PartitionIndex, Offset>>> offsets_at(
      const std::vector<PartitionIndex>& partitions, std::int64_t epoch_ms);

  Result<> start(PartitionIndex partition, Offset from);

  // Empty when nothing came for `wait`.  A connection that is lost is no error: one line on stderr
  // says so, one that it is back, and reading goes on.  Errors: the offset is not there.
  using Next = std::variant<std::monostate, ConsumedRecord, EndOfPartition>;
  Result<Next> next(std::chrono::milliseconds wait);
  bool is_lost() const;  // The connection, and we have said so.

 private:
  struct Reading;
  KafkaConsumer(KafkaHandlePtr handle, std::unique_ptr<Reading> reading,
                std::vector<PartitionIndex> partitions);

  KafkaHandlePtr handle_;
  std::unique_ptr<Reading> reading_;  // Goes before the handle.
  std::vector<PartitionIndex> partitions_;
};

// Reads a topic as a member of a group.
class KafkaGroupConsumer {
 public:
  // Where nothing is committed it begins at the start, or at the end.
  // Partitions are taken from us, unless they were already (`still_ours` is false): the last moment
  // to say done_up_to() of them.
  using Losing =
      std::function<void(const std::vector<PartitionIndex>& partitions, bool still_ours)>;

  // `losing` is called within the calls below.
  static Result<KafkaGroupConsumer> open(const KafkaSettings& settings, const std::string& topic,
                                         const std::string& group, bool from_end, Losing losing);
  // Leaves the group; what was not committed is read again by somebody.
  ~KafkaGroupConsumer();
  KafkaGroupConsumer(KafkaGroupConsumer&&) = default;

  // As KafkaConsumer::next().
  using Next = KafkaConsumer::Next;
  Result<Next> next(std::chrono::milliseconds wait);
  bool is_lost() const;  // The connection, and we have said so.

  // The partitions that the group gave us, which may be none of them; nothing while it is about to.
  std::optional<std::vector<PartitionIndex>> assigned();

  // All before `next` is done with: it is committed soon, and by close().
  void done_up_to(PartitionIndex partition, Offset next);
  // Commits and leaves the group.
  Result<> close();

 private:
  struct Reading;
  KafkaGroupConsumer(KafkaHandlePtr handle, std::unique_ptr<Reading> reading);

  KafkaHandlePtr handle_;
  std::unique_ptr<Reading> reading_;  // Goes before the handle.
};

}  // namespace tarry::cli
