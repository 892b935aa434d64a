#include "cli/kafka/refusal_reasons.h"

#include <algorithm>
#include <string_view>
#include <utility>

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

std::string leader_text(std::string_view host, int port) {
  // An address of IPv6 has colons of its own.
  return host.contains(':') ? fmt::format("[{}]:{}", host, port) : fmt::format("{}:{}", host, port);
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
    // A login that a WireClient does not know, for one, fails for the next question too.
    if (!refusal) asked_ = max_asked;
    // Another answer than the first one means that another record of its batch was wrong: alone,
    // this record would have been accepted.
    if (refusal && to_int16(refusal->code) == message.err && !refusal->reason.empty())
      return text_of(*refusal);
    if (refusal) return error_text(message.err);
  }
  // Without an answer here, the broker's log has the only reason.
  return error_text(message.err) + (message.err > 0 ? "; the broker's log has the reason" : "");
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
  const auto found = fetch_metadata(connection_, topic, patience());
  if (!found || (*found)->topic_cnt != 1) return std::nullopt;
  const auto& known = (*found)->topics[0];
  for (int p = 0; p < known.partition_cnt; ++p) {
    if (known.partitions[p].id != record.partition) continue;
    for (int b = 0; b < (*found)->broker_cnt; ++b) {
      const auto& broker = (*found)->brokers[b];
      if (broker.id == known.partitions[p].leader)
        return ask_at(leader_text(broker.host, broker.port), rd_kafka_topic_name(topic), record);
    }
  }
  return std::nullopt;
}

std::optional<Refusal> RefusalReasons::ask_at(const std::string& address, const std::string& topic,
                                              const ConsumedRecord& record) {
  // A login for each of many questions would take longer than they do.  A broker may have closed
  // the connection meanwhile, and then a new one is tried.
  if (leader_ && leader_address_ == address)
    if (auto refusal = dry_run(*leader_, topic, record)) return refusal;
  leader_.reset();
  KafkaSettings settings = connection_.settings();
  settings.brokers = address;
  settings.timeout = patience();
  auto opened = WireClient::open(settings);
  if (!opened) return std::nullopt;
  leader_.emplace(std::move(*opened));
  leader_address_ = address;
  return dry_run(*leader_, topic, record);
}

milliseconds RefusalReasons::patience() const {
  return std::min<milliseconds>(connection_.timeout(), 2s);
}

}  // namespace tarry::cli
