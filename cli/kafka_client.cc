#include "cli/kafka_client.h"

#include <algorithm>
#include <array>
#include <chrono>
#include <map>
#include <set>

#include <fmt/core.h>
#include <librdkafka/rdkafka.h>

#include "base/log.h"
#include "base/log_thread.h"
#include "base/time_text.h"
#include "cli/commands/command.h"
#include "cli/dry_run.h"
#include "cli/refusal.h"
#include "protocol/consumer_protocol.h"

namespace tarry::cli {
namespace {

using namespace std::chrono_literals;
using std::chrono::milliseconds;
using std::chrono::steady_clock;

// On their way at once; more makes nothing faster.
constexpr const char* queued_kilobytes = "65536";

template <typename T, void (*destroy)(T*)>
struct Destroy {
  void operator()(T* object) const { destroy(object); }
};
template <typename T, void (*destroy)(T*)>
using Owned = std::unique_ptr<T, Destroy<T, destroy>>;

using Config = Owned<rd_kafka_conf_t, rd_kafka_conf_destroy>;
using TopicHandle = Owned<rd_kafka_topic_t, rd_kafka_topic_destroy>;
using Queue = Owned<rd_kafka_queue_t, rd_kafka_queue_destroy>;
using Event = Owned<rd_kafka_event_t, rd_kafka_event_destroy>;
using AdminOptions = Owned<rd_kafka_AdminOptions_t, rd_kafka_AdminOptions_destroy>;
using NewTopic = Owned<rd_kafka_NewTopic_t, rd_kafka_NewTopic_destroy>;
using DeleteTopic = Owned<rd_kafka_DeleteTopic_t, rd_kafka_DeleteTopic_destroy>;
using ConfigResource = Owned<rd_kafka_ConfigResource_t, rd_kafka_ConfigResource_destroy>;
using Message = Owned<rd_kafka_message_t, rd_kafka_message_destroy>;
using Headers = Owned<rd_kafka_headers_t, rd_kafka_headers_destroy>;
using KafkaError = Owned<rd_kafka_error_t, rd_kafka_error_destroy>;
using PartitionList = Owned<rd_kafka_topic_partition_list_t, rd_kafka_topic_partition_list_destroy>;

using DeleteGroup = Owned<rd_kafka_DeleteGroup_t, rd_kafka_DeleteGroup_destroy>;
using ListGroupOffsets =
    Owned<rd_kafka_ListConsumerGroupOffsets_t, rd_kafka_ListConsumerGroupOffsets_destroy>;
using AlterGroupOffsets =
    Owned<rd_kafka_AlterConsumerGroupOffsets_t, rd_kafka_AlterConsumerGroupOffsets_destroy>;

using GroupList = Owned<const struct rd_kafka_group_list, rd_kafka_group_list_destroy>;
using Metadata = Owned<const struct rd_kafka_metadata, rd_kafka_metadata_destroy>;

// While the connection is lost: how long is waited for an answer before the next look.
constexpr milliseconds between_looks{200};

int in_ms(milliseconds time) {
  return static_cast<int>(std::clamp<std::int64_t>(time.count(), 1, 3'600'000));
}

Errc code_of(rd_kafka_resp_err_t error) {
  switch (error) {
    case RD_KAFKA_RESP_ERR_UNKNOWN_TOPIC_OR_PART:
    case RD_KAFKA_RESP_ERR__UNKNOWN_TOPIC:
    case RD_KAFKA_RESP_ERR__UNKNOWN_PARTITION:
      return Errc::not_found;
    case RD_KAFKA_RESP_ERR_TOPIC_ALREADY_EXISTS:
      return Errc::exists;
    case RD_KAFKA_RESP_ERR_GROUP_ID_NOT_FOUND:
      return Errc::not_found;
    case RD_KAFKA_RESP_ERR_POLICY_VIOLATION:
    case RD_KAFKA_RESP_ERR_NON_EMPTY_GROUP:
    case RD_KAFKA_RESP_ERR_UNKNOWN_MEMBER_ID:  // Of a commit from outside: it has members.
      return Errc::in_use;
    case RD_KAFKA_RESP_ERR_MSG_SIZE_TOO_LARGE:
      return Errc::too_large;
    case RD_KAFKA_RESP_ERR__TRANSPORT:
    case RD_KAFKA_RESP_ERR__ALL_BROKERS_DOWN:
    case RD_KAFKA_RESP_ERR__TIMED_OUT:
    case RD_KAFKA_RESP_ERR__MSG_TIMED_OUT:
    case RD_KAFKA_RESP_ERR__RESOLVE:
      return Errc::io;
    default:
      return Errc::invalid;
  }
}

// librdkafka connects again by itself.
bool is_of_connection(rd_kafka_resp_err_t error) {
  return error == RD_KAFKA_RESP_ERR__TRANSPORT || error == RD_KAFKA_RESP_ERR__ALL_BROKERS_DOWN ||
         error == RD_KAFKA_RESP_ERR__RESOLVE || error == RD_KAFKA_RESP_ERR__TIMED_OUT;
}

// What a broker says, which may have made parts of it printable already.
std::string safe(std::string_view text) {
  return escape_control_characters(text.substr(0, 1000));
}

// "INVALID_RECORD: Broker failed to validate record": Kafka's name of it and the reason.
std::string reason_of(rd_kafka_resp_err_t error, const char* text = nullptr) {
  const std::string name = rd_kafka_err2name(error);
  std::string reason = text != nullptr && *text != '\0' ? text : rd_kafka_err2str(error);
  for (const std::string_view prefix : {"Broker: ", "Local: "})
    if (reason.starts_with(prefix)) reason.erase(0, prefix.size());
  return fmt::format("{}: {}", name.starts_with('_') ? name.substr(1) : name, safe(reason));
}

// "127.0.0.1:9092/bootstrap: Connect to ipv4#127.0.0.1:9092 failed: Connection refused (after 0ms
// in state CONNECT)" -> what stands between the first blank and the bracket.
std::string connection_trouble(std::string_view reason) {
  const auto colon = reason.find(": ");
  if (colon != reason.npos) reason.remove_prefix(colon + 2);
  const auto bracket = reason.find(" (after ");
  if (bracket != reason.npos) reason = reason.substr(0, bracket);
  return printable(reason, 500);
}

Result<> set_property(rd_kafka_conf_t* config, std::string_view key_value) {
  const auto equals = key_value.find('=');
  const std::string key(key_value.substr(0, equals));
  const std::string value(equals == key_value.npos ? "" : key_value.substr(equals + 1));
  std::array<char, 512> wrong{};
  if (rd_kafka_conf_set(config, key.c_str(), value.c_str(), wrong.data(), wrong.size()) ==
      RD_KAFKA_CONF_OK) {
    return {};
  }
  return fail(Errc::invalid, fmt::format("{}: {}", printable(key_value), wrong.data()));
}

// Views the message.
ConsumedRecord record_of(const rd_kafka_message_t& message) {
  ConsumedRecord record;
  record.partition = message.partition;
  record.offset = message.offset;
  rd_kafka_timestamp_type_t type;
  record.timestamp = rd_kafka_message_timestamp(&message, &type);
  const auto view = [](const void* bytes, std::size_t size) -> std::optional<std::string_view> {
    if (bytes == nullptr) return std::nullopt;
    return std::string_view(static_cast<const char*>(bytes), size);
  };
  record.key = view(message.key, message.key_len);
  record.value = view(message.payload, message.len);
  rd_kafka_headers_t* headers = nullptr;
  if (rd_kafka_message_headers(&message, &headers) == RD_KAFKA_RESP_ERR_NO_ERROR) {
    const char* name = nullptr;
    const void* value = nullptr;
    std::size_t size = 0;
    for (std::size_t i = 0;
         rd_kafka_header_get_all(headers, i, &name, &value, &size) == RD_KAFKA_RESP_ERR_NO_ERROR;
         ++i) {
      record.headers.emplace_back(name, view(value, size));
    }
  }
  return record;
}

}  // namespace

// --- What all have in common

class KafkaHandle {
 public:
  using Properties = std::vector<std::string>;

  static Result<KafkaHandlePtr> open(rd_kafka_type_t type, const KafkaSettings& settings,
                                     Properties properties) {
    if (!settings.waits_for_start && all_refused_on_loopback(settings.brokers)) {
      return fail(Errc::io, fmt::format("nobody listens at {}: is `tarry serve` running?",
                                        printable(settings.brokers)));
    }
    KafkaHandlePtr handle(new KafkaHandle);
    handle->brokers_ = settings.brokers;
    handle->timeout_ = settings.timeout;
    Config config(rd_kafka_conf_new());
    properties.insert(
        properties.begin(),
        {"client.id=tarry", "log_level=0", "broker.address.family=any", "reconnect.backoff.ms=50",
         "reconnect.backoff.max.ms=1000", "bootstrap.servers=" + settings.brokers});
    properties.insert(properties.end(), settings.properties.begin(), settings.properties.end());
    for (const auto& property : properties)
      if (auto set = set_property(config.get(), property); !set)
        return std::unexpected(set.error());
    rd_kafka_conf_set_opaque(config.get(), handle.get());
    rd_kafka_conf_set_log_cb(config.get(), nullptr);
    rd_kafka_conf_set_error_cb(
        config.get(), [](rd_kafka_t*, int error, const char* reason, void* us) {
          static_cast<KafkaHandle*>(us)->on_error(static_cast<rd_kafka_resp_err_t>(error), reason);
        });
    if (type == RD_KAFKA_CONSUMER) {
      rd_kafka_conf_set_rebalance_cb(
          config.get(),
          [](rd_kafka_t*, rd_kafka_resp_err_t what, rd_kafka_topic_partition_list_t* partitions,
             void* us) { static_cast<KafkaHandle*>(us)->on_rebalance(what, partitions); });
    } else {
      rd_kafka_conf_set_dr_msg_cb(config.get(),
                                  [](rd_kafka_t*, const rd_kafka_message_t* message, void* us) {
                                    static_cast<KafkaHandle*>(us)->on_delivery(*message);
                                  });
    }
    std::array<char, 512> wrong{};
    handle->client_ = rd_kafka_new(type, config.get(), wrong.data(), wrong.size());
    if (handle->client_ == nullptr) return fail(Errc::invalid, wrong.data());
    static_cast<void>(config.release());  // It is librdkafka's now.
    if (rd_kafka_brokers_add(handle->client_, settings.brokers.c_str()) == 0)
      return fail(Errc::invalid,
                  fmt::format("{}: no HOST:PORT in it", printable(settings.brokers)));
    return handle;
  }
  ~KafkaHandle() {
    // Without waiting for an answer to what it is asking just now.
    if (client_ != nullptr) rd_kafka_destroy_flags(client_, RD_KAFKA_DESTROY_F_NO_CONSUMER_CLOSE);
  }
  KafkaHandle(const KafkaHandle&) = delete;
  KafkaHandle& operator=(const KafkaHandle&) = delete;

  rd_kafka_t* client() { return client_; }
  milliseconds timeout() const { return timeout_; }

  void poll(milliseconds wait = 0ms) { rd_kafka_poll(client_, static_cast<int>(wait.count())); }

  // The broker did not answer.
  std::unexpected<Error> no_answer() {
    poll();
    return fail(Errc::io,
                fmt::format("no answer from {} within {}{}{}", printable(brokers_),
                            format_duration(timeout_), trouble_.empty() ? "" : ": ", trouble_));
  }
  std::unexpected<Error> failed(std::string_view thing, rd_kafka_resp_err_t error,
                                const char* text = nullptr) {
    switch (error) {
      case RD_KAFKA_RESP_ERR__TRANSPORT:
      case RD_KAFKA_RESP_ERR__ALL_BROKERS_DOWN:
      case RD_KAFKA_RESP_ERR__TIMED_OUT:
      case RD_KAFKA_RESP_ERR__RESOLVE:
        return no_answer();
      case RD_KAFKA_RESP_ERR_UNKNOWN_TOPIC_OR_PART:
      case RD_KAFKA_RESP_ERR__UNKNOWN_TOPIC:
        return fail(Errc::not_found, fmt::format("{}: there is no such topic", thing));
      case RD_KAFKA_RESP_ERR_GROUP_ID_NOT_FOUND:
        return fail(Errc::not_found, fmt::format("{}: there is no such group", thing));
      case RD_KAFKA_RESP_ERR_NON_EMPTY_GROUP:
      case RD_KAFKA_RESP_ERR_UNKNOWN_MEMBER_ID:
        return fail(Errc::in_use,
                    fmt::format("{}: the group is active; stop its consumers first", thing));
      default:
        return fail(code_of(error), fmt::format("{}: {}", thing, reason_of(error, text)));
    }
  }

  // Of all topics, or of `topic` alone, which may have its own error.
  Result<Metadata> metadata(rd_kafka_topic_t* topic) { return metadata(topic, timeout_); }
  Result<Metadata> metadata(rd_kafka_topic_t* topic, milliseconds patience) {
    const struct rd_kafka_metadata* metadata = nullptr;
    const auto error =
        rd_kafka_metadata(client_, topic == nullptr ? 1 : 0, topic, &metadata, in_ms(patience));
    if (error != RD_KAFKA_RESP_ERR_NO_ERROR) return failed("metadata", error);
    return Metadata(metadata);
  }

  // `name` as the broker knows it.  A topic, or its leader, that is not there yet is asked for
  // again for a moment: `patience`.
  Result<TopicInfo> topic(const std::string& name, rd_kafka_topic_t* topic, milliseconds patience) {
    const auto until = steady_clock::now() + std::min(patience, timeout_);
    while (true) {
      const auto found = metadata(topic);
      if (!found) return std::unexpected(found.error());
      if ((*found)->topic_cnt != 1)
        return fail(Errc::io, fmt::format("{}: the broker's answer does not name it", name));
      const auto& one = (*found)->topics[0];
      if (one.err == RD_KAFKA_RESP_ERR_NO_ERROR) return info_of(one);
      const bool may_come = one.err == RD_KAFKA_RESP_ERR_UNKNOWN_TOPIC_OR_PART ||
                            one.err == RD_KAFKA_RESP_ERR_LEADER_NOT_AVAILABLE;
      if (!may_come || steady_clock::now() >= until) return failed(cut(name), one.err);
      poll(100ms);
    }
  }

  static std::string cut(std::string_view name) { return printable(name, 249); }

  // `when`: epoch ms, log_start or log_end.  An offset of -1: there is no record from then on.
  Result<PartitionOffsets> offsets_at(const std::string& topic,
                                      const std::vector<PartitionIndex>& partitions,
                                      std::int64_t when) {
    const PartitionList list(
        rd_kafka_topic_partition_list_new(static_cast<int>(partitions.size())));
    for (const auto partition : partitions)
      rd_kafka_topic_partition_list_add(list.get(), topic.c_str(), partition)->offset = when;
    const auto error = rd_kafka_offsets_for_times(client_, list.get(), in_ms(timeout_));
    if (error != RD_KAFKA_RESP_ERR_NO_ERROR) return failed(cut(topic), error);
    PartitionOffsets offsets;
    for (int i = 0; i < list->cnt; ++i) {
      const auto& one = list->elems[i];
      if (one.err != RD_KAFKA_RESP_ERR_NO_ERROR)
        return failed(fmt::format("{} partition {}", cut(topic), one.partition), one.err);
      offsets.emplace_back(one.partition, one.offset);
    }
    return offsets;
  }

  static TopicInfo info_of(const rd_kafka_metadata_topic& topic) {
    TopicInfo info;
    info.name = topic.topic;
    for (int i = 0; i < topic.partition_cnt; ++i) {
      const auto& partition = topic.partitions[i];
      PartitionInfo& one = info.partitions.emplace_back();
      one.partition = partition.id;
      one.leader = partition.leader;
      one.replicas.assign(partition.replicas, partition.replicas + partition.replica_cnt);
      one.in_sync.assign(partition.isrs, partition.isrs + partition.isr_cnt);
    }
    std::ranges::sort(info.partitions, {}, &PartitionInfo::partition);
    return info;
  }

  // Runs one question of librdkafka's admin API: `ask(options, queue)` sends it.
  template <typename Ask>
  Result<Event> answer(rd_kafka_admin_op_t kind, Ask ask) {
    const AdminOptions options(rd_kafka_AdminOptions_new(client_, kind));
    std::array<char, 512> wrong{};
    const bool broker_waits =
        kind == RD_KAFKA_ADMIN_OP_CREATETOPICS || kind == RD_KAFKA_ADMIN_OP_DELETETOPICS;
    if (rd_kafka_AdminOptions_set_request_timeout(options.get(), in_ms(timeout_), wrong.data(),
                                                  wrong.size()) != RD_KAFKA_RESP_ERR_NO_ERROR ||
        (broker_waits &&
         rd_kafka_AdminOptions_set_operation_timeout(options.get(), in_ms(timeout_), wrong.data(),
                                                     wrong.size()) != RD_KAFKA_RESP_ERR_NO_ERROR)) {
      return fail(Errc::invalid, wrong.data());
    }
    const Queue queue(rd_kafka_queue_new(client_));
    ask(options.get(), queue.get());
    Event event(rd_kafka_queue_poll(queue.get(), in_ms(timeout_ + 1s)));
    if (!event) return no_answer();
    if (const auto error = rd_kafka_event_error(event.get()); error != RD_KAFKA_RESP_ERR_NO_ERROR)
      return failed("the broker", error, rd_kafka_event_error_string(event.get()));
    return event;
  }

  void on_error(rd_kafka_resp_err_t error, const char* reason) {
    if (error == RD_KAFKA_RESP_ERR__ALL_BROKERS_DOWN) {
      all_down_ = true;
      return;
    }
    trouble_ = connection_trouble(reason);
  }
  // For one that reads on and on: tells on stderr, once each, that no broker is reachable any more
  // and that one is again.  Called while nothing comes.
  void watch_connection(rd_kafka_topic_t* topic) {
    if (std::exchange(all_down_, false) && !is_lost_) {
      is_lost_ = true;
      complain(fmt::format("the connection to {} is lost{}{}; reading goes on when it is back",
                           printable(brokers_), trouble_.empty() ? "" : ": ", trouble_));
    }
    if (!is_lost_) return;
    const struct rd_kafka_metadata* metadata = nullptr;
    if (rd_kafka_metadata(client_, 0, topic, &metadata, in_ms(between_looks)) !=
        RD_KAFKA_RESP_ERR_NO_ERROR) {
      answers_ = 0;
      return;
    }
    const Metadata owned(metadata);
    // The caller polls between the first answer and the second, which takes in what went wrong
    // before: it would look like another loss.
    if (++answers_ == 2) connection_is_back();
  }
  void connection_is_back() {
    all_down_ = false;
    answers_ = 0;
    if (!std::exchange(is_lost_, false)) return;
    complain(fmt::format("the connection to {} is back", printable(brokers_)));
  }
  bool is_lost() const { return is_lost_; }
  // Nobody would answer now.
  bool has_no_connection() const { return is_lost_ || all_down_; }

  void on_delivery(const rd_kafka_message_t& message) {
    Delivery delivery;
    delivery.number = reinterpret_cast<std::uintptr_t>(message._private);
    delivery.partition = message.partition;
    if (message.err != RD_KAFKA_RESP_ERR_NO_ERROR) {
      delivery.error = Error{code_of(message.err), reason_of_refused(message)};
    } else if (message.offset >= 0) {
      delivery.offset = message.offset;
    }
    ++reported_;
    report_(delivery);
  }

  // A broker that answers, but takes no records: librdkafka sends them again and does not say why.
  // None: the partitions that were asked take them, or do not answer.
  std::optional<std::string> why_nothing_is_taken(rd_kafka_topic_t* topic) {
    constexpr PartitionIndex most_asked = 16;
    for (PartitionIndex partition = 0; partition < most_asked; ++partition) {
      ConsumedRecord record;
      record.partition = partition;
      record.timestamp = 0;
      const auto refusal = ask_for_reason(topic, record);
      if (!refusal) break;
      if (is_sent_again(refusal->code))
        return fmt::format("{} partition {}: {}", cut(rd_kafka_topic_name(topic)), partition,
                           text_of(*refusal));
    }
    return std::nullopt;
  }

  void on_rebalance(rd_kafka_resp_err_t what, rd_kafka_topic_partition_list_t* partitions) {
    const bool given = what == RD_KAFKA_RESP_ERR__ASSIGN_PARTITIONS;
    if (!given && losing_) {
      std::vector<PartitionIndex> lost;
      for (int i = 0; i < partitions->cnt; ++i) lost.push_back(partitions->elems[i].partition);
      losing_(lost, rd_kafka_assignment_lost(client_) == 0);
    }
    const char* protocol = rd_kafka_rebalance_protocol(client_);
    if (protocol != nullptr && std::string_view(protocol) == "COOPERATIVE") {
      const KafkaError refused(given ? rd_kafka_incremental_assign(client_, partitions)
                                     : rd_kafka_incremental_unassign(client_, partitions));
      is_assigned_ = is_assigned_ || given;
    } else {
      rd_kafka_assign(client_, given ? partitions : nullptr);
      is_assigned_ = given;
    }
  }

  KafkaProducer::Report report_;
  std::string given_up_;  // Why what is not sent will not be sent; empty: it will.
  KafkaGroupConsumer::Losing losing_;
  bool is_assigned_ = false;  // A group has given us partitions, if only none of them.
  std::uint64_t sent_ = 0;
  std::uint64_t reported_ = 0;  // reported_ <= sent_.

 private:
  KafkaHandle() = default;

  static std::string text_of(const Refusal& refusal) {
    return fmt::format("{}{}{}", protocol::name(refusal.code), refusal.reason.empty() ? "" : ": ",
                       safe(refusal.reason));
  }

  // Those of a broker that cannot take records just now.
  static bool is_sent_again(protocol::ErrorCode code) {
    return code == protocol::ErrorCode::kafka_storage_error ||
           code == protocol::ErrorCode::not_leader_or_follower ||
           code == protocol::ErrorCode::not_enough_replicas;
  }

  std::optional<Refusal> ask_for_reason(rd_kafka_topic_t* topic, const ConsumedRecord& record) {
    // The patience of the command is spent already; a broker that is there answers at once.
    const auto patience = std::min<milliseconds>(timeout_, 2s);
    const auto found = metadata(topic, patience);
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

  // Of a record that was not accepted: Kafka's name of it and what the broker says.
  std::string reason_of_refused(const rd_kafka_message_t& message) {
    const bool is_given_up = message.err == RD_KAFKA_RESP_ERR__PURGE_QUEUE ||
                             message.err == RD_KAFKA_RESP_ERR__PURGE_INFLIGHT;
    if (is_given_up && !given_up_.empty()) return given_up_;
    // Our side's own errors are below zero.
    if (message.err > 0 && reasons_asked_ < most_reasons_asked) {
      ++reasons_asked_;
      const auto refusal = ask_for_reason(message.rkt, record_of(message));
      // A broker that speaks TLS, for one, does not understand us next time either.
      if (!refusal) reasons_asked_ = most_reasons_asked;
      // Else it is another record of its batch that is wrong, or it would be taken by now.
      if (refusal && to_int16(refusal->code) == message.err && !refusal->reason.empty())
        return text_of(*refusal);
    }
    return reason_of(message.err);
  }

  // A round trip each.
  static constexpr unsigned most_reasons_asked = 1000;

  rd_kafka_t* client_ = nullptr;
  unsigned reasons_asked_ = 0;
  std::string brokers_;
  milliseconds timeout_{};
  std::string trouble_;  // Of the last connection that failed.
  bool all_down_ = false;
  bool is_lost_ = false;  // And we have said so.
  int answers_ = 0;       // While it is lost: one after the other.
};

void CloseKafka::operator()(KafkaHandle* handle) const {
  delete handle;
}

Result<> check_property(std::string_view key_value) {
  const Config config(rd_kafka_conf_new());
  return set_property(config.get(), key_value);
}

// --- Topics

namespace {

// Of one answer about one topic.
template <typename Handle>
Result<> topic_result(Handle& handle, const std::string& topic,
                      const rd_kafka_topic_result_t** results, std::size_t count) {
  if (count != 1) return fail(Errc::io, topic + ": the broker's answer does not name it");
  const auto error = rd_kafka_topic_result_error(results[0]);
  if (error == RD_KAFKA_RESP_ERR_NO_ERROR) return {};
  return handle.failed(handle.cut(topic), error, rd_kafka_topic_result_error_string(results[0]));
}

template <typename Handle>
Result<> resource_result(Handle& handle, const std::string& topic,
                         const rd_kafka_ConfigResource_t** results, std::size_t count) {
  if (count != 1) return fail(Errc::io, topic + ": the broker's answer does not name it");
  const auto error = rd_kafka_ConfigResource_error(results[0]);
  if (error == RD_KAFKA_RESP_ERR_NO_ERROR) return {};
  return handle.failed(handle.cut(topic), error, rd_kafka_ConfigResource_error_string(results[0]));
}

const char* name_of(rd_kafka_ConfigSource_t source) {
  switch (source) {
    case RD_KAFKA_CONFIG_SOURCE_DYNAMIC_TOPIC_CONFIG:
      return "topic";
    case RD_KAFKA_CONFIG_SOURCE_DYNAMIC_BROKER_CONFIG:
    case RD_KAFKA_CONFIG_SOURCE_DYNAMIC_DEFAULT_BROKER_CONFIG:
    case RD_KAFKA_CONFIG_SOURCE_STATIC_BROKER_CONFIG:
      return "broker";
    case RD_KAFKA_CONFIG_SOURCE_DEFAULT_CONFIG:
      return "default";
    default:
      return "unknown";
  }
}

}  // namespace

Result<KafkaAdmin> KafkaAdmin::open(const KafkaSettings& settings) {
  // A consumer's metadata requests make no topics.
  auto handle = KafkaHandle::open(RD_KAFKA_CONSUMER, settings, {"allow.auto.create.topics=false"});
  if (!handle) return std::unexpected(handle.error());
  return KafkaAdmin(std::move(*handle));
}

Result<std::string> KafkaAdmin::cluster_id() {
  const auto until = steady_clock::now() + handle_->timeout();
  char* text = rd_kafka_clusterid(handle_->client(), in_ms(handle_->timeout()));
  if (text == nullptr) {
    if (steady_clock::now() >= until) return handle_->no_answer();
    return fail(Errc::invalid, "the broker tells no cluster id");
  }
  std::string id = text;
  rd_kafka_mem_free(handle_->client(), text);
  return id;
}

Result<std::vector<TopicInfo>> KafkaAdmin::topics() {
  const auto metadata = handle_->metadata(nullptr);
  if (!metadata) return std::unexpected(metadata.error());
  std::vector<TopicInfo> topics;
  for (int i = 0; i < (*metadata)->topic_cnt; ++i)
    topics.push_back(KafkaHandle::info_of((*metadata)->topics[i]));
  std::ranges::sort(topics, {}, &TopicInfo::name);
  return topics;
}

Result<TopicInfo> KafkaAdmin::topic(const std::string& name) {
  const TopicHandle topic(rd_kafka_topic_new(handle_->client(), name.c_str(), nullptr));
  if (!topic) return handle_->failed(KafkaHandle::cut(name), rd_kafka_last_error());
  return handle_->topic(name, topic.get(), 0ms);
}

Result<std::vector<ConfigEntry>> KafkaAdmin::configs(const std::string& topic) {
  const ConfigResource resource(
      rd_kafka_ConfigResource_new(RD_KAFKA_RESOURCE_TOPIC, topic.c_str()));
  const auto event =
      handle_->answer(RD_KAFKA_ADMIN_OP_DESCRIBECONFIGS, [&](auto* options, auto* queue) {
        auto* one = resource.get();
        rd_kafka_DescribeConfigs(handle_->client(), &one, 1, options, queue);
      });
  if (!event) return std::unexpected(event.error());
  std::size_t count = 0;
  const auto* result = rd_kafka_event_DescribeConfigs_result(event->get());
  const auto** resources = rd_kafka_DescribeConfigs_result_resources(result, &count);
  if (const auto ok = resource_result(*handle_, topic, resources, count); !ok)
    return std::unexpected(ok.error());
  const auto** entries = rd_kafka_ConfigResource_configs(resources[0], &count);
  std::vector<ConfigEntry> configs;
  for (std::size_t i = 0; i < count; ++i) {
    const char* value = rd_kafka_ConfigEntry_value(entries[i]);
    configs.push_back({rd_kafka_ConfigEntry_name(entries[i]),
                       value == nullptr ? std::nullopt : std::optional<std::string>(value),
                       name_of(rd_kafka_ConfigEntry_source(entries[i]))});
  }
  std::ranges::sort(configs, {}, &ConfigEntry::name);
  return configs;
}

Result<> KafkaAdmin::create(const std::string& topic, std::optional<std::int32_t> partitions,
                            const ConfigList& configs) {
  std::array<char, 512> wrong{};
  const NewTopic wanted(rd_kafka_NewTopic_new(topic.c_str(), partitions.value_or(-1), -1,
                                              wrong.data(), wrong.size()));
  if (!wanted)
    return fail(Errc::invalid, fmt::format("{}: {}", KafkaHandle::cut(topic), wrong.data()));
  for (const auto& [key, value] : configs)
    rd_kafka_NewTopic_set_config(wanted.get(), key.c_str(), value.c_str());
  const auto event =
      handle_->answer(RD_KAFKA_ADMIN_OP_CREATETOPICS, [&](auto* options, auto* queue) {
        auto* one = wanted.get();
        rd_kafka_CreateTopics(handle_->client(), &one, 1, options, queue);
      });
  if (!event) return std::unexpected(event.error());
  std::size_t count = 0;
  const auto** results =
      rd_kafka_CreateTopics_result_topics(rd_kafka_event_CreateTopics_result(event->get()), &count);
  return topic_result(*handle_, topic, results, count);
}

Result<> KafkaAdmin::alter(const std::string& topic, const ConfigList& changes) {
  const auto current = configs(topic);
  if (!current) return std::unexpected(current.error());
  const ConfigResource resource(
      rd_kafka_ConfigResource_new(RD_KAFKA_RESOURCE_TOPIC, topic.c_str()));
  const auto set = [&](const std::string& key, const std::string& value) {
    rd_kafka_ConfigResource_set_config(resource.get(), key.c_str(), value.c_str());
  };
  for (const auto& entry : *current)
    if (entry.source == "topic" && entry.value) set(entry.name, *entry.value);
  for (const auto& [key, value] : changes) set(key, value);
  const auto event =
      handle_->answer(RD_KAFKA_ADMIN_OP_ALTERCONFIGS, [&](auto* options, auto* queue) {
        auto* one = resource.get();
        rd_kafka_AlterConfigs(handle_->client(), &one, 1, options, queue);
      });
  if (!event) return std::unexpected(event.error());
  std::size_t count = 0;
  const auto** results = rd_kafka_AlterConfigs_result_resources(
      rd_kafka_event_AlterConfigs_result(event->get()), &count);
  return resource_result(*handle_, topic, results, count);
}

Result<> KafkaAdmin::remove(const std::string& topic) {
  const DeleteTopic wanted(rd_kafka_DeleteTopic_new(topic.c_str()));
  const auto event =
      handle_->answer(RD_KAFKA_ADMIN_OP_DELETETOPICS, [&](auto* options, auto* queue) {
        auto* one = wanted.get();
        rd_kafka_DeleteTopics(handle_->client(), &one, 1, options, queue);
      });
  if (!event) return std::unexpected(event.error());
  std::size_t count = 0;
  const auto** results =
      rd_kafka_DeleteTopics_result_topics(rd_kafka_event_DeleteTopics_result(event->get()), &count);
  return topic_result(*handle_, topic, results, count);
}

// --- Groups

namespace {

// Of one answer about one group: what it says of partitions, which may be nothing.
template <typename Handle>
Result<const rd_kafka_topic_partition_list_t*> group_result(Handle& handle,
                                                            const std::string& group,
                                                            const rd_kafka_group_result_t** results,
                                                            std::size_t count) {
  if (count != 1) return fail(Errc::io, group + ": the broker's answer does not name it");
  if (const auto* error = rd_kafka_group_result_error(results[0])) {
    return handle.failed(handle.cut(group), rd_kafka_error_code(error),
                         rd_kafka_error_string(error));
  }
  const auto* partitions = rd_kafka_group_result_partitions(results[0]);
  for (int i = 0; partitions != nullptr && i < partitions->cnt; ++i) {
    const auto& one = partitions->elems[i];
    if (one.err == RD_KAFKA_RESP_ERR_NO_ERROR) continue;
    return handle.failed(
        fmt::format("{}: {} partition {}", handle.cut(group), handle.cut(one.topic), one.partition),
        one.err);
  }
  return partitions;
}

GroupMember member_of(const rd_kafka_MemberDescription_t* member) {
  GroupMember out;
  const auto text = [](const char* value) { return std::string(value == nullptr ? "" : value); };
  out.id = text(rd_kafka_MemberDescription_consumer_id(member));
  out.client = text(rd_kafka_MemberDescription_client_id(member));
  out.host = text(rd_kafka_MemberDescription_host(member));
  if (const char* instance = rd_kafka_MemberDescription_group_instance_id(member))
    out.instance = instance;
  const auto* assignment = rd_kafka_MemberDescription_assignment(member);
  const auto* partitions =
      assignment == nullptr ? nullptr : rd_kafka_MemberAssignment_partitions(assignment);
  for (int i = 0; partitions != nullptr && i < partitions->cnt; ++i)
    out.assigned.emplace_back(partitions->elems[i].topic, partitions->elems[i].partition);
  std::ranges::sort(out.assigned);
  return out;
}

// What librdkafka 2.0.2 can read of an assignment: more partitions of a topic are an error to it,
// and the names of all topics are put on the stack.
bool is_readable(const std::vector<protocol::AssignedTopic>& assigned) {
  constexpr std::size_t most_partitions = 100'000;
  constexpr std::size_t most_name_bytes = std::size_t{1} << 20;
  std::size_t name_bytes = 0;
  for (const auto& [topic, partitions] : assigned) {
    name_bytes += topic.size() + 1;
    if (partitions.size() > most_partitions || name_bytes > most_name_bytes) return false;
  }
  return true;
}

// The group, when somebody in it has an assignment that librdkafka does not read; who has what is
// no assignment is shown without partitions, and nobody with an instance id.
Result<std::optional<GroupInfo>> undecoded_group(KafkaHandle& handle, const std::string& name) {
  const struct rd_kafka_group_list* list = nullptr;
  const auto error = rd_kafka_list_groups(handle.client(), name.c_str(), &list,
                                          static_cast<int>(handle.timeout().count()));
  const GroupList owned(list);
  if (error != RD_KAFKA_RESP_ERR_NO_ERROR && error != RD_KAFKA_RESP_ERR__PARTIAL)
    return handle.failed(KafkaHandle::cut(name), error);
  for (int g = 0; list != nullptr && g < list->group_cnt; ++g) {
    const auto& found = list->groups[g];
    if (found.group != name || found.err != RD_KAFKA_RESP_ERR_NO_ERROR) continue;
    GroupInfo group;
    group.name = name;
    group.state = found.state;
    group.assignor = found.protocol;
    group.coordinator = fmt::format("{}:{}", found.broker.host, found.broker.port);
    bool all_read = true;
    for (int m = 0; m < found.member_cnt; ++m) {
      const auto& member = found.members[m];
      auto& shown = group.members.emplace_back(
          GroupMember{member.member_id, member.client_id, member.client_host, std::nullopt, {}});
      if (member.member_assignment_size == 0) continue;
      const auto assigned =
          protocol::assigned_partitions({static_cast<const std::uint8_t*>(member.member_assignment),
                                         static_cast<std::size_t>(member.member_assignment_size)});
      all_read = all_read && assigned && is_readable(*assigned);
      if (!assigned) continue;
      for (const auto& [topic, partitions] : *assigned)
        for (const auto partition : partitions) shown.assigned.emplace_back(topic, partition);
      std::ranges::sort(shown.assigned);
    }
    std::ranges::sort(group.members, {}, &GroupMember::id);
    if (!all_read) return group;
  }
  return std::nullopt;
}

}  // namespace

Result<PartitionOffsets> KafkaAdmin::offsets(const std::string& topic,
                                             const std::vector<PartitionIndex>& partitions,
                                             std::int64_t when) {
  auto offsets = handle_->offsets_at(topic, partitions, when);
  if (!offsets || when < 0) return offsets;
  std::vector<PartitionIndex> without;
  for (const auto& [partition, offset] : *offsets)
    if (offset < 0) without.push_back(partition);
  if (without.empty()) return offsets;
  const auto ends = handle_->offsets_at(topic, without, log_end);
  if (!ends) return ends;
  for (const auto& [partition, end] : *ends) {
    const auto place = std::ranges::find(*offsets, partition, &PartitionOffsets::value_type::first);
    if (place != offsets->end()) place->second = end;
  }
  return offsets;
}

Result<std::vector<GroupListing>> KafkaAdmin::groups() {
  const auto event =
      handle_->answer(RD_KAFKA_ADMIN_OP_LISTCONSUMERGROUPS, [&](auto* options, auto* queue) {
        rd_kafka_ListConsumerGroups(handle_->client(), options, queue);
      });
  if (!event) return std::unexpected(event.error());
  const auto* result = rd_kafka_event_ListConsumerGroups_result(event->get());
  std::size_t count = 0;
  if (const auto** errors = rd_kafka_ListConsumerGroups_result_errors(result, &count); count > 0) {
    return handle_->failed("the broker", rd_kafka_error_code(errors[0]),
                           rd_kafka_error_string(errors[0]));
  }
  std::vector<GroupListing> groups;
  const auto** listed = rd_kafka_ListConsumerGroups_result_valid(result, &count);
  for (std::size_t i = 0; i < count; ++i) {
    groups.push_back(
        {rd_kafka_ConsumerGroupListing_group_id(listed[i]),
         rd_kafka_consumer_group_state_name(rd_kafka_ConsumerGroupListing_state(listed[i]))});
  }
  std::ranges::sort(groups, {}, &GroupListing::name);
  return groups;
}

Result<GroupInfo> KafkaAdmin::group(const std::string& name) {
  // librdkafka 2.0.2 ends the process when a member's assignment is not as it expects it; of such a
  // group it is asked for less.
  const auto undecoded = undecoded_group(*handle_, name);
  if (!undecoded) return std::unexpected(undecoded.error());
  if (*undecoded) return **undecoded;
  const auto event =
      handle_->answer(RD_KAFKA_ADMIN_OP_DESCRIBECONSUMERGROUPS, [&](auto* options, auto* queue) {
        const char* one = name.c_str();
        rd_kafka_DescribeConsumerGroups(handle_->client(), &one, 1, options, queue);
      });
  if (!event) return std::unexpected(event.error());
  std::size_t count = 0;
  const auto** results = rd_kafka_DescribeConsumerGroups_result_groups(
      rd_kafka_event_DescribeConsumerGroups_result(event->get()), &count);
  if (count != 1) return fail(Errc::io, name + ": the broker's answer does not name it");
  const auto* described = results[0];
  if (const auto* error = rd_kafka_ConsumerGroupDescription_error(described)) {
    return handle_->failed(KafkaHandle::cut(name), rd_kafka_error_code(error),
                           rd_kafka_error_string(error));
  }
  GroupInfo group;
  group.name = name;
  group.state =
      rd_kafka_consumer_group_state_name(rd_kafka_ConsumerGroupDescription_state(described));
  if (const char* assignor = rd_kafka_ConsumerGroupDescription_partition_assignor(described))
    group.assignor = assignor;
  if (const auto* node = rd_kafka_ConsumerGroupDescription_coordinator(described))
    group.coordinator = fmt::format("{}:{}", rd_kafka_Node_host(node), rd_kafka_Node_port(node));
  const std::size_t members = rd_kafka_ConsumerGroupDescription_member_count(described);
  for (std::size_t i = 0; i < members; ++i)
    group.members.push_back(member_of(rd_kafka_ConsumerGroupDescription_member(described, i)));
  std::ranges::sort(group.members, {}, &GroupMember::id);
  return group;
}

Result<std::vector<CommittedOffset>> KafkaAdmin::committed(const std::string& group) {
  const ListGroupOffsets wanted(rd_kafka_ListConsumerGroupOffsets_new(group.c_str(), nullptr));
  const auto event =
      handle_->answer(RD_KAFKA_ADMIN_OP_LISTCONSUMERGROUPOFFSETS, [&](auto* options, auto* queue) {
        auto* one = wanted.get();
        rd_kafka_ListConsumerGroupOffsets(handle_->client(), &one, 1, options, queue);
      });
  if (!event) return std::unexpected(event.error());
  std::size_t count = 0;
  const auto** results = rd_kafka_ListConsumerGroupOffsets_result_groups(
      rd_kafka_event_ListConsumerGroupOffsets_result(event->get()), &count);
  const auto partitions = group_result(*handle_, group, results, count);
  if (!partitions) return std::unexpected(partitions.error());
  std::vector<CommittedOffset> offsets;
  for (int i = 0; *partitions != nullptr && i < (*partitions)->cnt; ++i) {
    const auto& one = (*partitions)->elems[i];
    if (one.offset >= 0) offsets.push_back({one.topic, one.partition, one.offset});
  }
  std::ranges::sort(offsets, {},
                    [](const auto& one) { return std::pair(one.topic, one.partition); });
  return offsets;
}

Result<> KafkaAdmin::commit(const std::string& group, const std::string& topic,
                            const PartitionOffsets& offsets) {
  const PartitionList list(rd_kafka_topic_partition_list_new(static_cast<int>(offsets.size())));
  for (const auto& [partition, offset] : offsets)
    rd_kafka_topic_partition_list_add(list.get(), topic.c_str(), partition)->offset = offset;
  const AlterGroupOffsets wanted(rd_kafka_AlterConsumerGroupOffsets_new(group.c_str(), list.get()));
  const auto event =
      handle_->answer(RD_KAFKA_ADMIN_OP_ALTERCONSUMERGROUPOFFSETS, [&](auto* options, auto* queue) {
        auto* one = wanted.get();
        rd_kafka_AlterConsumerGroupOffsets(handle_->client(), &one, 1, options, queue);
      });
  if (!event) return std::unexpected(event.error());
  std::size_t count = 0;
  const auto** results = rd_kafka_AlterConsumerGroupOffsets_result_groups(
      rd_kafka_event_AlterConsumerGroupOffsets_result(event->get()), &count);
  const auto answer = group_result(*handle_, group, results, count);
  return answer ? Result<>{} : std::unexpected(answer.error());
}

Result<> KafkaAdmin::remove_group(const std::string& name) {
  const DeleteGroup wanted(rd_kafka_DeleteGroup_new(name.c_str()));
  const auto event =
      handle_->answer(RD_KAFKA_ADMIN_OP_DELETEGROUPS, [&](auto* options, auto* queue) {
        auto* one = wanted.get();
        rd_kafka_DeleteGroups(handle_->client(), &one, 1, options, queue);
      });
  if (!event) return std::unexpected(event.error());
  std::size_t count = 0;
  const auto** results =
      rd_kafka_DeleteGroups_result_groups(rd_kafka_event_DeleteGroups_result(event->get()), &count);
  const auto answer = group_result(*handle_, name, results, count);
  return answer ? Result<>{} : std::unexpected(answer.error());
}

// --- Producing

struct KafkaProducer::Topic {
  TopicHandle handle;
};

KafkaProducer::KafkaProducer(KafkaHandlePtr handle, std::unique_ptr<Topic> topic,
                             std::size_t partitions)
    : handle_(std::move(handle)), topic_(std::move(topic)), partitions_(partitions) {}
KafkaProducer::~KafkaProducer() = default;

Result<KafkaProducer> KafkaProducer::open(const KafkaSettings& settings, const std::string& topic,
                                          Acks acks, Report report) {
  const bool all = acks == Acks::all;
  auto handle = KafkaHandle::open(
      RD_KAFKA_PRODUCER, settings,
      {// With acks=all a request that is sent again writes nothing twice.
       all ? "enable.idempotence=true" : "enable.idempotence=false",
       std::string("acks=") + (all                    ? "all"
                               : acks == Acks::leader ? "1"
                                                      : "0"),
       "linger.ms=5", std::string("queue.buffering.max.kbytes=") + queued_kilobytes,
       // How large a record may be is for the broker to say.
       "message.max.bytes=100000000",
       // wait_until() has the patience.
       "message.timeout.ms=0", "topic.metadata.propagation.max.ms=2000"});
  if (!handle) return std::unexpected(handle.error());
  (*handle)->report_ = std::move(report);
  auto own = std::make_unique<Topic>(
      Topic{TopicHandle(rd_kafka_topic_new((*handle)->client(), topic.c_str(), nullptr))});
  if (!own->handle) return (*handle)->failed(KafkaHandle::cut(topic), rd_kafka_last_error());
  // Asking makes it, where the broker makes topics; that takes a moment.
  const auto info = (*handle)->topic(topic, own->handle.get(), 5s);
  if (!info) return std::unexpected(info.error());
  return KafkaProducer(std::move(*handle), std::move(own), info->partitions.size());
}

// Until reached(), as long as answers come.
Result<> KafkaProducer::wait_until(const std::function<bool()>& reached) {
  auto reported = handle_->reported_;
  auto since = steady_clock::now();
  while (!reached()) {
    handle_->poll(20ms);
    const auto now = steady_clock::now();
    if (handle_->reported_ != reported) {
      reported = handle_->reported_;
      since = now;
    } else if (now - since >= handle_->timeout()) {
      auto error = handle_->no_answer();
      if (auto why = handle_->why_nothing_is_taken(topic_->handle.get()))
        error = fail(Errc::io, std::move(*why));
      handle_->given_up_ = error.error().message;
      rd_kafka_purge(handle_->client(), RD_KAFKA_PURGE_F_QUEUE | RD_KAFKA_PURGE_F_INFLIGHT);
      handle_->poll(100ms);
      return error;
    }
  }
  return {};
}

Result<> KafkaProducer::send(std::uint64_t number, const std::optional<std::string_view>& key,
                             const std::optional<std::string_view>& value,
                             const std::vector<KafkaHeader>& headers,
                             std::optional<PartitionIndex> partition) {
  Headers own_headers;
  if (!headers.empty()) {
    own_headers.reset(rd_kafka_headers_new(headers.size()));
    for (const auto& [name, text] : headers) {
      rd_kafka_header_add(own_headers.get(), name.data(), static_cast<ssize_t>(name.size()),
                          text ? text->data() : nullptr,
                          text ? static_cast<ssize_t>(text->size()) : -1);
    }
  }
  std::vector<rd_kafka_vu_t> parts;
  const auto part = [&](rd_kafka_vtype_t type) -> auto& {
    auto& added = parts.emplace_back();
    added.vtype = type;
    return added.u;
  };
  // librdkafka tells null from empty by the pointer.
  static char nothing = 0;
  const auto bytes = [&](rd_kafka_vtype_t type, const std::optional<std::string_view>& text) {
    if (!text) return;
    auto& to = part(type).mem;
    to.ptr = text->empty() ? &nothing : const_cast<char*>(text->data());
    to.size = text->size();
  };
  part(RD_KAFKA_VTYPE_RKT).rkt = topic_->handle.get();
  part(RD_KAFKA_VTYPE_PARTITION).i32 = partition.value_or(RD_KAFKA_PARTITION_UA);
  bytes(RD_KAFKA_VTYPE_KEY, key);
  bytes(RD_KAFKA_VTYPE_VALUE, value);
  part(RD_KAFKA_VTYPE_MSGFLAGS).i = RD_KAFKA_MSG_F_COPY;
  part(RD_KAFKA_VTYPE_OPAQUE).ptr = reinterpret_cast<void*>(static_cast<std::uintptr_t>(number));
  if (own_headers) part(RD_KAFKA_VTYPE_HEADERS).headers = own_headers.get();
  while (true) {
    const KafkaError error(rd_kafka_produceva(handle_->client(), parts.data(), parts.size()));
    if (!error) break;
    const auto code = rd_kafka_error_code(error.get());
    if (code != RD_KAFKA_RESP_ERR__QUEUE_FULL)
      return fail(code_of(code), reason_of(code, rd_kafka_error_string(error.get())));
    const auto before = handle_->reported_;
    if (auto room = wait_until([&] { return handle_->reported_ != before; }); !room) return room;
  }
  static_cast<void>(own_headers.release());  // They are librdkafka's now.
  ++handle_->sent_;
  return {};
}

void KafkaProducer::poll() {
  handle_->poll();
}

Result<> KafkaProducer::finish() {
  return wait_until([this] { return handle_->reported_ == handle_->sent_; });
}

// --- Consuming

struct KafkaConsumer::Reading {
  std::string name;
  TopicHandle topic;
  Queue queue;
  // Where each goes on; log_start and log_end until there was a record.
  std::map<PartitionIndex, Offset> next;
  std::set<PartitionIndex> read;  // Those that had a record.
  Message last;

  ~Reading() {
    last.reset();
    for (const auto& [partition, offset] : next) rd_kafka_consume_stop(topic.get(), partition);
  }
};

KafkaConsumer::KafkaConsumer(KafkaHandlePtr handle, std::unique_ptr<Reading> reading,
                             std::vector<PartitionIndex> partitions)
    : handle_(std::move(handle)),
      reading_(std::move(reading)),
      partitions_(std::move(partitions)) {}
KafkaConsumer::~KafkaConsumer() = default;

Result<KafkaConsumer> KafkaConsumer::open(const KafkaSettings& settings, const std::string& topic) {
  auto handle = KafkaHandle::open(
      RD_KAFKA_CONSUMER, settings,
      {"allow.auto.create.topics=false", "enable.partition.eof=true",
       "auto.offset.reset=error",  // A full queue makes librdkafka pause for a second.
       "queued.min.messages=500000", "queued.max.messages.kbytes=65536"});
  if (!handle) return std::unexpected(handle.error());
  auto* client = (*handle)->client();
  auto reading = std::make_unique<Reading>();
  reading->name = topic;
  reading->topic.reset(rd_kafka_topic_new(client, topic.c_str(), nullptr));
  if (!reading->topic) return (*handle)->failed(KafkaHandle::cut(topic), rd_kafka_last_error());
  reading->queue.reset(rd_kafka_queue_new(client));
  const auto info = (*handle)->topic(topic, reading->topic.get(), 0ms);
  if (!info) return std::unexpected(info.error());
  std::vector<PartitionIndex> partitions;
  for (const auto& one : info->partitions) partitions.push_back(one.partition);
  return KafkaConsumer(std::move(*handle), std::move(reading), std::move(partitions));
}

Result<std::vector<std::pair<PartitionIndex, Offset>>> KafkaConsumer::offsets_at(
    const std::vector<PartitionIndex>& partitions, std::int64_t epoch_ms) {
  return handle_->offsets_at(reading_->name, partitions, epoch_ms);
}

Result<> KafkaConsumer::start(PartitionIndex partition, Offset from) {
  if (rd_kafka_consume_start_queue(reading_->topic.get(), partition, from, reading_->queue.get()) !=
      0) {
    return handle_->failed(
        fmt::format("{} partition {}", KafkaHandle::cut(reading_->name), partition),
        rd_kafka_last_error());
  }
  reading_->next[partition] = from;
  return {};
}

bool KafkaConsumer::is_lost() const {
  return handle_->is_lost();
}

Result<KafkaConsumer::Next> KafkaConsumer::next(milliseconds wait) {
  reading_->last.reset(
      rd_kafka_consume_queue(reading_->queue.get(), static_cast<int>(wait.count())));
  const auto* message = reading_->last.get();
  if (message == nullptr) {
    handle_->poll();
    handle_->watch_connection(reading_->topic.get());
    return std::monostate{};
  }
  if (is_of_connection(message->err)) return std::monostate{};
  handle_->connection_is_back();
  if (message->err == RD_KAFKA_RESP_ERR__PARTITION_EOF) return EndOfPartition{message->partition};
  if (message->err != RD_KAFKA_RESP_ERR_NO_ERROR) {
    const std::string where =
        fmt::format("{} partition {}", KafkaHandle::cut(reading_->name), message->partition);
    if (message->err == RD_KAFKA_RESP_ERR__AUTO_OFFSET_RESET ||
        message->err == RD_KAFKA_RESP_ERR_OFFSET_OUT_OF_RANGE) {
      std::int64_t low = -1, high = -1;
      if (rd_kafka_query_watermark_offsets(
              handle_->client(), reading_->name.c_str(), message->partition, &low, &high,
              in_ms(handle_->timeout())) == RD_KAFKA_RESP_ERR_NO_ERROR) {
        const Offset next = reading_->next[message->partition];
        const auto now = fmt::format("it begins at {} and ends before {}", low, high);
        if (!reading_->read.contains(message->partition) && next >= 0) {
          return fail(Errc::not_found, fmt::format("{} does not hold the offset asked for, {}: {}",
                                                   where, next, now));
        }
        if (next >= 0 && next < low) {
          return fail(Errc::not_found,
                      fmt::format("{}: the records from offset {} on were deleted before they were "
                                  "read: {}",
                                  where, next, now));
        }
        return fail(
            Errc::not_found,
            fmt::format("{} is not what it was while it was read, {}: was the topic deleted "
                        "and made again?",
                        where, now));
      }
    }
    return handle_->failed(where, message->err, rd_kafka_message_errstr(message));
  }
  reading_->next[message->partition] = message->offset + 1;
  reading_->read.insert(message->partition);
  return record_of(*message);
}

// --- Consuming as a member of a group

struct KafkaGroupConsumer::Reading {
  std::string name;
  std::string group;
  TopicHandle topic;
  Message last;
  bool is_member = false;
};

KafkaGroupConsumer::KafkaGroupConsumer(KafkaHandlePtr handle, std::unique_ptr<Reading> reading)
    : handle_(std::move(handle)), reading_(std::move(reading)) {}

KafkaGroupConsumer::~KafkaGroupConsumer() {
  if (!reading_) return;
  reading_->last.reset();
  if (reading_->is_member && !handle_->has_no_connection())
    rd_kafka_consumer_close(handle_->client());
}

Result<KafkaGroupConsumer> KafkaGroupConsumer::open(const KafkaSettings& settings,
                                                    const std::string& topic,
                                                    const std::string& group, bool from_end,
                                                    Losing losing) {
  auto handle = KafkaHandle::open(
      RD_KAFKA_CONSUMER, settings,
      {"allow.auto.create.topics=false", "enable.partition.eof=true",
       std::string("auto.offset.reset=") + (from_end ? "latest" : "earliest"),
       // What was printed is stored, and what is stored is committed now and then.
       "enable.auto.offset.store=false", "auto.commit.interval.ms=1000",
       "queued.min.messages=100000", "queued.max.messages.kbytes=65536", "group.id=" + group});
  if (!handle) return std::unexpected(handle.error());
  (*handle)->losing_ = std::move(losing);
  auto* client = (*handle)->client();
  auto reading = std::make_unique<Reading>();
  reading->name = topic;
  reading->group = group;
  reading->topic.reset(rd_kafka_topic_new(client, topic.c_str(), nullptr));
  if (!reading->topic) return (*handle)->failed(KafkaHandle::cut(topic), rd_kafka_last_error());
  if (const auto info = (*handle)->topic(topic, reading->topic.get(), 0ms); !info)
    return std::unexpected(info.error());
  rd_kafka_poll_set_consumer(client);
  const PartitionList topics(rd_kafka_topic_partition_list_new(1));
  rd_kafka_topic_partition_list_add(topics.get(), topic.c_str(), RD_KAFKA_PARTITION_UA);
  if (const auto error = rd_kafka_subscribe(client, topics.get());
      error != RD_KAFKA_RESP_ERR_NO_ERROR) {
    return (*handle)->failed(KafkaHandle::cut(group), error);
  }
  reading->is_member = true;
  return KafkaGroupConsumer(std::move(*handle), std::move(reading));
}

std::optional<std::vector<PartitionIndex>> KafkaGroupConsumer::assigned() {
  if (!handle_->is_assigned_) return std::nullopt;
  rd_kafka_topic_partition_list_t* given = nullptr;
  std::vector<PartitionIndex> partitions;
  if (rd_kafka_assignment(handle_->client(), &given) != RD_KAFKA_RESP_ERR_NO_ERROR)
    return partitions;
  const PartitionList list(given);
  for (int i = 0; i < list->cnt; ++i) partitions.push_back(list->elems[i].partition);
  return partitions;
}

bool KafkaGroupConsumer::is_lost() const {
  return handle_->is_lost();
}

Result<KafkaGroupConsumer::Next> KafkaGroupConsumer::next(milliseconds wait) {
  reading_->last.reset(rd_kafka_consumer_poll(handle_->client(), static_cast<int>(wait.count())));
  const auto* message = reading_->last.get();
  if (message == nullptr) {
    handle_->watch_connection(reading_->topic.get());
    return std::monostate{};
  }
  if (is_of_connection(message->err)) return std::monostate{};
  handle_->connection_is_back();
  if (message->err == RD_KAFKA_RESP_ERR__PARTITION_EOF) return EndOfPartition{message->partition};
  if (message->err != RD_KAFKA_RESP_ERR_NO_ERROR) {
    return handle_->failed(KafkaHandle::cut(reading_->group), message->err,
                           rd_kafka_message_errstr(message));
  }
  return record_of(*message);
}

void KafkaGroupConsumer::done_up_to(PartitionIndex partition, Offset next) {
  const PartitionList list(rd_kafka_topic_partition_list_new(1));
  rd_kafka_topic_partition_list_add(list.get(), reading_->name.c_str(), partition)->offset = next;
  // Refused when the partition has just been taken from us: then it is another's to commit.
  static_cast<void>(rd_kafka_offsets_store(handle_->client(), list.get()));
}

Result<> KafkaGroupConsumer::close() {
  reading_->last.reset();
  // librdkafka would wait for an answer for as long as the session lasts, whatever --timeout says.
  if (handle_->has_no_connection()) {
    reading_->is_member = false;
    return fail(Errc::io, fmt::format("{}: the connection is lost, and offsets of the last records "
                                      "may not be committed: they may be read again",
                                      KafkaHandle::cut(reading_->group)));
  }
  const auto committed = rd_kafka_commit(handle_->client(), nullptr, 0);
  reading_->is_member = false;
  const auto closed = rd_kafka_consumer_close(handle_->client());
  // Nothing stored is nothing to commit.
  if (committed != RD_KAFKA_RESP_ERR_NO_ERROR && committed != RD_KAFKA_RESP_ERR__NO_OFFSET) {
    return handle_->failed(fmt::format("{}: the commit", KafkaHandle::cut(reading_->group)),
                           committed);
  }
  if (closed != RD_KAFKA_RESP_ERR_NO_ERROR)
    return handle_->failed(KafkaHandle::cut(reading_->group), closed);
  return {};
}

}  // namespace tarry::cli
