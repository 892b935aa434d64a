#include "cli/kafka/producer.h"

#include <algorithm>
#include <chrono>
#include <cstdlib>

#include <fmt/core.h>

#include "base/time_text.h"
#include "cli/kafka/config_lookup.h"
#include "cli/kafka/error_text.h"
#include "cli/kafka/topic_lookup.h"

namespace tarry::cli {
namespace {

using namespace std::chrono_literals;
using std::chrono::steady_clock;

// How much may be on its way to the broker at once; more would make nothing faster.
constexpr const char* queued_kilobytes = "65536";

// How long a broker may take to create a topic that a producer asks about.
constexpr auto creation_patience = 5s;

const char* acks_value(Acks acks) {
  switch (acks) {
    case Acks::none:
      return "0";
    case Acks::leader:
      return "1";
    case Acks::all:
      break;
  }
  return "all";
}

KafkaHeaders make_headers(const std::vector<KafkaHeader>& headers) {
  KafkaHeaders made;
  if (headers.empty()) return made;
  made.reset(rd_kafka_headers_new(headers.size()));
  for (const auto& [name, text] : headers) {
    rd_kafka_header_add(made.get(), name.data(), static_cast<ssize_t>(name.size()),
                        text ? text->data() : nullptr,
                        text ? static_cast<ssize_t>(text->size()) : -1);
  }
  return made;
}

}  // namespace

Acks acks_of(std::string_view word) {
  if (word == "0") return Acks::none;
  return word == "1" ? Acks::leader : Acks::all;
}

Result<std::unique_ptr<KafkaProducer>> KafkaProducer::open(const KafkaSettings& settings,
                                                           const std::string& topic, Acks acks,
                                                           Report report) {
  // Made first, because librdkafka's callbacks are given its address.
  std::unique_ptr<KafkaProducer> producer(new KafkaProducer(std::move(report)));
  auto connection = KafkaConnection::open(
      RD_KAFKA_PRODUCER, settings,
      {// With acks=all a record that is sent again is written once.
       acks == Acks::all ? "enable.idempotence=true" : "enable.idempotence=false",
       std::string("acks=") + acks_value(acks), "linger.ms=5",
       std::string("queue.buffering.max.kbytes=") + queued_kilobytes,
       // The broker says how large a record may be.
       "message.max.bytes=100000000",
       // wait_until() gives up, not librdkafka.
       "message.timeout.ms=0", "topic.metadata.propagation.max.ms=2000"},
      {.delivered = [us = producer.get()](const auto& message) { us->on_delivered(message); }});
  if (!connection) return std::unexpected(connection.error());
  producer->connection_ = std::move(*connection);
  auto& client = *producer->connection_;
  producer->reasons_.emplace(client);
  producer->topic_.reset(rd_kafka_topic_new(client.client(), topic.c_str(), nullptr));
  if (!producer->topic_) return client.error_of(name_text(topic), rd_kafka_last_error());
  const auto info = find_topic(client, topic, producer->topic_.get(), creation_patience);
  if (!info) return std::unexpected(info.error());
  producer->partition_count_ = info->partitions.size();
  return producer;
}

Result<> KafkaProducer::send(std::uint64_t number, const std::optional<std::string_view>& key,
                             const std::optional<std::string_view>& value,
                             const std::vector<KafkaHeader>& headers,
                             std::optional<PartitionIndex> partition) {
  KafkaHeaders own_headers = make_headers(headers);
  std::vector<rd_kafka_vu_t> parts;
  const auto part = [&](rd_kafka_vtype_t type) -> auto& {
    auto& added = parts.emplace_back();
    added.vtype = type;
    return added.u;
  };
  // librdkafka tells a null value from an empty one by the pointer.
  static char nothing = 0;
  const auto bytes = [&](rd_kafka_vtype_t type, const std::optional<std::string_view>& text) {
    if (!text) return;
    auto& to = part(type).mem;
    to.ptr = text->empty() ? &nothing : const_cast<char*>(text->data());
    to.size = text->size();
  };
  part(RD_KAFKA_VTYPE_RKT).rkt = topic_.get();
  part(RD_KAFKA_VTYPE_PARTITION).i32 = partition.value_or(RD_KAFKA_PARTITION_UA);
  bytes(RD_KAFKA_VTYPE_KEY, key);
  bytes(RD_KAFKA_VTYPE_VALUE, value);
  // Copied, because the caller's bytes are valid during this call only.
  part(RD_KAFKA_VTYPE_MSGFLAGS).i = RD_KAFKA_MSG_F_COPY;
  part(RD_KAFKA_VTYPE_OPAQUE).ptr = reinterpret_cast<void*>(static_cast<std::uintptr_t>(number));
  if (own_headers) part(RD_KAFKA_VTYPE_HEADERS).headers = own_headers.get();
  while (true) {
    const KafkaError error(rd_kafka_produceva(connection_->client(), parts.data(), parts.size()));
    if (!error) break;
    const auto code = rd_kafka_error_code(error.get());
    if (code != RD_KAFKA_RESP_ERR__QUEUE_FULL)
      return fail(errc_of(code), error_text(code, rd_kafka_error_string(error.get())));
    // The queue is full: each record that is answered makes room.
    const auto before = reported_;
    if (auto room = wait_until([&] { return reported_ != before; }); !room) return room;
  }
  static_cast<void>(own_headers.release());  // librdkafka owns them once it has taken the record.
  ++sent_;
  return {};
}

Result<std::vector<ConfigEntry>> KafkaProducer::configs() {
  return find_configs(*connection_, rd_kafka_topic_name(topic_.get()));
}

void KafkaProducer::poll() {
  connection_->poll();
  // A person who types records would learn only at the end of the input that none was accepted.
  if (reported_ < sent_) connection_->check_advertised();
}

Result<> KafkaProducer::finish() {
  return wait_until([this] { return reported_ == sent_; });
}

// Goes on as long as answers come, however many records are left.
Result<> KafkaProducer::wait_until(const std::function<bool()>& reached) {
  auto reported = reported_;
  auto since = steady_clock::now();
  while (!reached()) {
    connection_->poll(20ms);
    connection_->check_advertised();
    const auto now = steady_clock::now();
    if (reported_ != reported) {
      reported = reported_;
      since = now;
    } else if (now - since >= connection_->timeout()) {
      return give_up();
    }
  }
  return {};
}

// The topic's limit of pending records; empty: it has none, or nobody answers.
std::optional<std::uint64_t> KafkaProducer::max_pending() {
  // The command has spent its timeout already: it does not wait for a broker that has gone.
  if (connection_->is_disconnected()) return std::nullopt;
  if (!std::exchange(asked_max_pending_, true)) {
    const auto all = configs().value_or(std::vector<ConfigEntry>{});
    const auto found = std::ranges::find(all, "tarry.delay.max.pending", &ConfigEntry::name);
    if (found != all.end() && found->value && *found->value != "-1")
      max_pending_ = std::strtoull(found->value->c_str(), nullptr, 10);
  }
  return max_pending_;
}

// Takes back every record that was not answered, so that each is still reported.
std::unexpected<Error> KafkaProducer::give_up() {
  auto error = connection_->timeout_error();
  // A broker may answer and accept nothing for now; librdkafka sends again and again and does not
  // say so.  If no connection is possible there is no broker to ask.
  if (auto reason =
          connection_->is_unreachable() ? std::nullopt : reasons_->topic_refusal(topic_.get())) {
    error = fail(Errc::io, std::move(*reason));
  } else if (const auto limit = max_pending()) {
    // A broker that tells the topic's configs is there: it answers, and takes nothing.
    error =
        fail(Errc::io, fmt::format("{} accepted none of the last {} records within {}; its limit "
                                   "of {} pending records (tarry.delay.max.pending) may be reached",
                                   name_text(rd_kafka_topic_name(topic_.get())), sent_ - reported_,
                                   format_duration(connection_->timeout()), *limit));
  }
  given_up_ = error.error().message;
  rd_kafka_purge(connection_->client(), RD_KAFKA_PURGE_F_QUEUE | RD_KAFKA_PURGE_F_INFLIGHT);
  // Reports the records that were taken back.
  connection_->poll(100ms);
  return error;
}

void KafkaProducer::on_delivered(const rd_kafka_message_t& message) {
  // The errors of a broker are above zero, those of librdkafka below.
  if (message.err >= RD_KAFKA_RESP_ERR_NO_ERROR) connection_->mark_reached();
  Delivery delivery;
  delivery.number = reinterpret_cast<std::uintptr_t>(message._private);
  delivery.partition = message.partition;
  if (message.err != RD_KAFKA_RESP_ERR_NO_ERROR) {
    delivery.error = Error{errc_of(message.err), failure_reason(message)};
  } else if (message.offset >= 0) {
    delivery.offset = message.offset;
  }
  if (const auto us = rd_kafka_message_latency(&message); us >= 0) delivery.latency_us = us;
  ++reported_;
  report_(delivery);
}

std::string KafkaProducer::failure_reason(const rd_kafka_message_t& message) {
  const bool is_purged = message.err == RD_KAFKA_RESP_ERR__PURGE_QUEUE ||
                         message.err == RD_KAFKA_RESP_ERR__PURGE_INFLIGHT;
  if (is_purged && !given_up_.empty()) return given_up_;
  auto reason = reasons_->reason_of(message);
  // The broker was asked about this record alone, which may fit where its batch does not.
  const bool is_unexplained = message.err == RD_KAFKA_RESP_ERR_MSG_SIZE_TOO_LARGE &&
                              reason.starts_with(error_text(message.err));
  if (!is_unexplained) return reason;
  if (const auto limit = max_pending(); limit && sent_ > *limit) {
    reason += fmt::format(
        "; {} records were sent, but {} may have only {} pending (tarry.delay.max.pending)", sent_,
        name_text(rd_kafka_topic_name(topic_.get())), *limit);
  }
  return reason;
}

}  // namespace tarry::cli
