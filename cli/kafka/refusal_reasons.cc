#include "cli/kafka/refusal_reasons.h"

#include <algorithm>

#include <fmt/core.h>

#include "base/ids.h"
#include "cli/kafka/error_text.h"
#include "cli/kafka/topic_lookup.h"
#include "protocol/error_code.h"

namespace tarry::cli {
namespace {

using namespace std::chrono_literals;
using std::chrono::milliseconds;

// Each is a round trip, and nobody reads more reasons.
constexpr unsigned max_asked = 1000;

// One partition without a leader or without space is reason enough; a topic may have thousands.
constexpr PartitionIndex max_partitions_asked = 16;

std::string text_of(const Refusal& refusal) {
  // A busy broker answers with this code so that every client tries again; the true reason is the
  // text.
  if (refusal.code == protocol::ErrorCode::not_leader_or_follower && !refusal.reason.empty())
    return broker_text(refusal.reason);
  return fmt::format("{}{}{}", protocol::name(refusal.code), refusal.reason.empty() ? "" : ": ",
                     broker_text(refusal.reason));
}

// The errors of a broker that cannot take records for now.
bool is_retriable(protocol::ErrorCode code) {
  return code == protocol::ErrorCode::kafka_storage_error ||
         code == protocol::ErrorCode::not_leader_or_follower ||
         code == protocol::ErrorCode::not_enough_replicas;
}

}  // namespace

std::string RefusalReasons::reason_of(const rd_kafka_message_t& message) {
  // librdkafka's own errors are below zero, and no broker knows them.
  if (message.err > 0 && asked_ < max_asked) {
    ++asked_;
    const auto refusal = ask_leader(message.rkt, record_of(message));
    // A broker that speaks TLS, for one, does not understand the next question either.
    if (!refusal) asked_ = max_asked;
    // Another answer than the first one means that another record of its batch was wrong: alone,
    // this record would have been accepted.
    if (refusal && to_int16(refusal->code) == message.err && !refusal->reason.empty())
      return text_of(*refusal);
  }
  return error_text(message.err);
}

std::optional<std::string> RefusalReasons::topic_refusal(rd_kafka_topic_t* topic) {
  for (PartitionIndex partition = 0; partition < max_partitions_asked; ++partition) {
    // A delayed one may be refused where others are not.
    for (const bool is_delayed : {false, true}) {
      ConsumedRecord record;
      record.partition = partition;
      record.timestamp = 0;
      if (is_delayed) record.headers.emplace_back("x-delay", "1m");
      const auto refusal = ask_leader(topic, record);
      // A leader that does not answer would use up the patience once for each partition.
      if (!refusal) return std::nullopt;
      if (is_retriable(refusal->code)) {
        return fmt::format("{} partition {}: {}", name_text(rd_kafka_topic_name(topic)), partition,
                           text_of(*refusal));
      }
    }
  }
  return std::nullopt;
}

std::optional<Refusal> RefusalReasons::ask_leader(rd_kafka_topic_t* topic,
                                                  const ConsumedRecord& record) {
  // The command has spent its own timeout already; a broker that is there answers at once.
  const auto patience = std::min<milliseconds>(connection_.timeout(), 2s);
  const auto found = fetch_metadata(connection_, topic, patience);
  if (!found || (*found)->topic_cnt != 1) return std::nullopt;
  const auto& known = (*found)->topics[0];
  for (int p = 0; p < known.partition_cnt; ++p) {
    if (known.partitions[p].id != record.partition) continue;
    for (int b = 0; b < (*found)->broker_cnt; ++b) {
      const auto& broker = (*found)->brokers[b];
      if (broker.id == known.partitions[p].leader)
        return dry_run(broker.host, broker.port, rd_kafka_topic_name(topic), record, patience);
    }
  }
  return std::nullopt;
}

}  // namespace tarry::cli
