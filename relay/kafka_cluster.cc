#include "relay/kafka_cluster.h"

#include <algorithm>
#include <cstring>
#include <thread>

#include <fmt/format.h>

#include "base/glob.h"
#include "base/log.h"
#include "records/batch_builder.h"

namespace tarry::relay {

using namespace std::chrono_literals;
using std::chrono::milliseconds;

namespace {

constexpr std::size_t max_polled = 5'000;
constexpr std::size_t max_rows_polled = 20'000;
constexpr milliseconds stable_offset_wait{300};
// For the end of a partition, whose leader may be away: less than what Member takes for a stall.
constexpr milliseconds end_wait{800};
// How many partitions are asked for one by one when some offset is not stable.
constexpr std::size_t max_single_questions = 10;
constexpr unsigned index_bits = 24;  // The bits of a record's number in its transaction.
constexpr std::string_view metadata_mark = "tarry-relay/1 ";

// librdkafka takes what begins with ^ for a regular expression.
std::string regex_of(std::string_view glob) {
  std::string regex = "^";
  for (const char c : glob) {
    if (c == '*') {
      regex += ".*";
    } else if (c == '?') {
      regex += '.';
    } else {
      if (std::strchr(".+()[]{}|^$\\", c) != nullptr) regex += '\\';
      regex += c;
    }
  }
  return regex + "$";
}

KafkaPartitions list_of(std::span<const Source> sources) {
  KafkaPartitions list(rd_kafka_topic_partition_list_new(static_cast<int>(sources.size())));
  for (const auto& each : sources)
    rd_kafka_topic_partition_list_add(list.get(), each.topic.c_str(), each.partition);
  return list;
}

std::optional<Bytes> bytes_of(const void* data, std::size_t size) {
  if (data == nullptr) return std::nullopt;
  return Bytes{static_cast<const std::uint8_t*>(data), size};
}

Buffer body_of(const rd_kafka_message_t& message) {
  Buffer body;
  body.reserve(message.len + message.key_len + 64);
  records::append_key_value(body, bytes_of(message.key, message.key_len),
                            bytes_of(message.payload, message.len));
  rd_kafka_headers_t* headers = nullptr;
  std::int64_t count = 0;
  if (rd_kafka_message_headers(&message, &headers) == RD_KAFKA_RESP_ERR_NO_ERROR)
    count = static_cast<std::int64_t>(rd_kafka_header_cnt(headers));
  records::append_varint(body, count);
  const char* name = nullptr;
  const void* value = nullptr;
  std::size_t size = 0;
  for (std::size_t i = 0; i < static_cast<std::size_t>(count); ++i) {
    if (rd_kafka_header_get_all(headers, i, &name, &value, &size) == RD_KAFKA_RESP_ERR_NO_ERROR)
      records::append_header(body, name, bytes_of(value, size));
  }
  return body;
}

// librdkafka takes a null pointer for null, and an empty buffer may have one.
struct Part {
  void* data = nullptr;
  std::size_t size = 0;
};
Part part_of(const std::optional<Buffer>& bytes) {
  static const std::uint8_t nothing = 0;
  if (!bytes) return {};
  return {const_cast<std::uint8_t*>(bytes->empty() ? &nothing : bytes->data()), bytes->size()};
}

bool is_refusal(rd_kafka_resp_err_t error, Outgoing::Kind kind) {
  // Without the right to write its own topics the relay has to wait for it.
  if (error == RD_KAFKA_RESP_ERR_TOPIC_AUTHORIZATION_FAILED) return kind == Outgoing::Kind::target;
  return error == RD_KAFKA_RESP_ERR_MSG_SIZE_TOO_LARGE ||
         error == RD_KAFKA_RESP_ERR_RECORD_LIST_TOO_LARGE ||
         error == RD_KAFKA_RESP_ERR_INVALID_MSG || error == RD_KAFKA_RESP_ERR_INVALID_RECORD ||
         error == RD_KAFKA_RESP_ERR_INVALID_TIMESTAMP;
}

}  // namespace

// The delivery reports of the records that are produced together, by their index.
struct KafkaCluster::Reports {
  std::span<const Outgoing> records{};
  std::vector<std::pair<std::size_t, std::string>> refused;
  std::string failed;  // For another reason.
  decltype(Transacted::placed) placed{};
  decltype(Transacted::rows_end) rows_end{};

  void add(std::size_t index, rd_kafka_resp_err_t error, Offset offset = -1) {
    if (error == RD_KAFKA_RESP_ERR_NO_ERROR) {
      const Outgoing& record = records[index];
      if (record.wants_place) placed.push_back({{record.source, record.offset}, offset});
      if (record.kind == Outgoing::Kind::row && offset >= 0) {
        Offset& end = rows_end[record.source];
        end = std::max(end, offset + 1);
      }
      return;
    }
    const auto text = fmt::format("{}: {}", rd_kafka_err2name(error), rd_kafka_err2str(error));
    if (is_refusal(error, records[index].kind)) {
      refused.emplace_back(index, text);
    } else {
      failed = text;
    }
  }
};

// The end of several calls together: repeating one does not begin its time anew.
class KafkaCluster::Deadline {
 public:
  explicit Deadline(milliseconds limit) : at_(std::chrono::steady_clock::now() + limit) {}

  bool is_over() const { return std::chrono::steady_clock::now() >= at_; }
  // For librdkafka, to which 0 would mean "at once" and -1 "however long".
  int left_ms() const {
    return std::max(1,
                    in_ms(std::chrono::ceil<milliseconds>(at_ - std::chrono::steady_clock::now())));
  }
  Deadline later(milliseconds by) const {
    Deadline copy(*this);
    copy.at_ += by;
    return copy;
  }

 private:
  std::chrono::steady_clock::time_point at_;
};

bool may_be_source(const std::string& glob, const std::string& topic) {
  // The relay's own topics, and those of Kafka, would feed it what it has written.
  return matches_glob(glob, topic) && !topic.contains(state_mark) &&
         !topic.ends_with(invalid_suffix) && !topic.starts_with("__");
}

KafkaCluster::KafkaCluster(KafkaOptions options) : options_(std::move(options)) {}

KafkaCluster::~KafkaCluster() {
  // A client whose partitions are still read does not end.
  for (auto& [source, topic] : reading_rows_) rd_kafka_consume_stop(topic.get(), source.partition);
  reading_rows_.clear();
  rows_.reset();
  polled_queue_.reset();
  metadata_.reset();
  // Before its first assignment librdkafka (before 2.3) ends the process by an assertion instead of
  // destroying the group's client.  The process ends anyhow.
  if (!was_assigned_) static_cast<void>(group_.release());
  // They have left the group, or are to leave it as a crash does: nothing of ours is called now.
  for (auto* client : {&group_, &reader_, &looker_})
    if (*client) rd_kafka_destroy_flags(client->release(), RD_KAFKA_DESTROY_F_NO_CONSUMER_CLOSE);
}

Result<std::unique_ptr<KafkaCluster>> KafkaCluster::open(const KafkaOptions& options) {
  std::unique_ptr<KafkaCluster> cluster(new KafkaCluster(options));
  if (const auto connected = cluster->connect(); !connected)
    return std::unexpected(connected.error());
  return cluster;
}

Result<KafkaClient> KafkaCluster::open_consumer(const std::string& isolation) {
  std::vector<std::string> properties{
      "client.id=" + options_.client_id, "bootstrap.servers=" + options_.brokers,
      "reconnect.backoff.max.ms=1000",   "topic.metadata.refresh.interval.ms=10000",
      "metadata.max.age.ms=30000",       "fetch.wait.max.ms=100",
      "session.timeout.ms=10000",        "queued.max.messages.kbytes=32768"};
  properties.insert(properties.end(), options_.properties.begin(), options_.properties.end());
  for (const char* fixed :
       // Behind the operator's properties, because the last one wins: the relay's guarantees rest
       // on these.
       {"enable.auto.commit=false", "enable.auto.offset.store=false", "enable.partition.eof=true",
        "auto.offset.reset=earliest", "allow.auto.create.topics=false",
        "partition.assignment.strategy=cooperative-sticky"})
    properties.emplace_back(fixed);
  properties.push_back("group.id=" + options_.rules.group);
  properties.push_back("isolation.level=" + isolation);
  // connect() opens the group's client first.
  const bool is_member = !group_;
  if (is_member) properties.push_back("client.id=" + options_.member_id);
  if (is_member)
    // A glob may match the topics that the relay makes, and the group would be given their
    // partitions.
    properties.emplace_back("topic.blacklist=" + std::string(state_mark) + ",\\.invalid$,^__");
  return open_client(RD_KAFKA_CONSUMER, properties, [this, is_member](rd_kafka_conf_t* conf) {
    rd_kafka_conf_set_opaque(conf, this);
    if (!is_member) return;
    rd_kafka_conf_set_rebalance_cb(
        conf, [](rd_kafka_t*, rd_kafka_resp_err_t what, rd_kafka_topic_partition_list_t* partitions,
                 void* us) { static_cast<KafkaCluster*>(us)->on_rebalance(what, partitions); });
    rd_kafka_conf_set_error_cb(conf, [](rd_kafka_t*, int error, const char* reason, void* us) {
      auto& cluster = *static_cast<KafkaCluster*>(us);
      if (error == RD_KAFKA_RESP_ERR__ALL_BROKERS_DOWN || error == RD_KAFKA_RESP_ERR__TRANSPORT)
        cluster.polled_.disturbed = true;
      log_debug("relay", "kafka: {}", printable(reason, 400));
    });
  });
}

Result<KafkaClient> KafkaCluster::open_producer(const std::string& transactional_id) {
  std::vector<std::string> properties{
      "client.id=" + options_.client_id, "bootstrap.servers=" + options_.brokers,
      "reconnect.backoff.max.ms=1000", "transaction.timeout.ms=15000",
      // A producer's next transaction waits for the markers of its last one; with the default of
      // 100 ms that is most of the lag.
      "retry.backoff.ms=5",
      // The first record of a topic waits for its leader.
      "topic.metadata.refresh.fast.interval.ms=20",
      // So is the first one of a new partition.
      "topic.metadata.refresh.interval.ms=5000", "linger.ms=2", "message.max.bytes=100000000",
      "compression.type=lz4", "queue.buffering.max.messages=200000",
      "queue.buffering.max.kbytes=262144"};
  properties.insert(properties.end(), options_.properties.begin(), options_.properties.end());
  properties.emplace_back("enable.idempotence=true");
  // The Java client's partitioner.
  properties.emplace_back("partitioner=murmur2_random");
  if (!transactional_id.empty()) properties.push_back("transactional.id=" + transactional_id);
  return open_client(RD_KAFKA_PRODUCER, properties, [this](rd_kafka_conf_t* conf) {
    rd_kafka_conf_set_opaque(conf, this);
    rd_kafka_conf_set_dr_msg_cb(conf, [](rd_kafka_t*, const rd_kafka_message_t* message, void* us) {
      static_cast<KafkaCluster*>(us)->on_report(*message);
    });
  });
}

Result<> KafkaCluster::connect() {
  for (auto [client, isolation] : {std::pair{&group_, "read_committed"},
                                   {&reader_, "read_committed"},
                                   {&looker_, "read_uncommitted"}}) {
    auto opened = open_consumer(isolation);
    if (!opened) return std::unexpected(opened.error());
    *client = std::move(*opened);
  }
  // librdkafka connects in the background, so this is the first call that notices a wrong address.
  if (const auto topics = KafkaTopics(looker_.get(), options_.timeout).list(); !topics) {
    return fail(topics.error().code,
                fmt::format("--brokers {}: no answer within {} s ({})", printable(options_.brokers),
                            options_.timeout.count() / 1'000, topics.error().message));
  }
  if (const auto renewed = renew(); !renewed) return renewed;
  rows_.reset(rd_kafka_queue_new(reader_.get()));
  rd_kafka_poll_set_consumer(group_.get());
  polled_queue_.reset(rd_kafka_queue_get_consumer(group_.get()));
  KafkaPartitions wanted(rd_kafka_topic_partition_list_new(1));
  rd_kafka_topic_partition_list_add(wanted.get(), regex_of(options_.source).c_str(),
                                    RD_KAFKA_PARTITION_UA);
  if (const auto error = rd_kafka_subscribe(group_.get(), wanted.get());
      error != RD_KAFKA_RESP_ERR_NO_ERROR)
    return fail(Errc::invalid, error_text(error, "--source " + options_.source));
  return {};
}

namespace {

// The end of a client that has failed may take long, or not come: nobody waits for it.  The
// functions of ours that it calls belong to poll() and flush(), which are not called for it any
// more.
void give_up(KafkaClient client) {
  if (client) std::thread([gone = std::move(client)]() mutable { gone.reset(); }).detach();
}

}  // namespace

Result<> KafkaCluster::renew() {
  // Its handles belong to the producers that are given up, and a new one may get the same address.
  known_topics_.clear();
  turn_ = 0;
  const Deadline deadline(options_.renewal_limit);
  for (std::size_t i = 0; i < producers_.size(); ++i) {
    give_up(std::move(producers_[i]));
    const auto id = fmt::format("{}-{}", options_.owner, i);
    auto opened = open_producer(id);
    if (!opened) return std::unexpected(opened.error());
    // This fences an older producer with the id, and ends the transaction that it left open.
    const KafkaError error(rd_kafka_init_transactions(opened->get(), deadline.left_ms()));
    if (error) {
      give_up(std::move(*opened));
      return fail(Errc::io, error_text(error.get(), "transactional.id " + id));
    }
    producers_[i] = std::move(*opened);
  }
  if (!options_.has_sender) return {};
  give_up(std::move(sender_));
  auto opened = open_producer("");
  if (!opened) return std::unexpected(opened.error());
  sender_ = std::move(*opened);
  return {};
}

Result<std::map<std::string, int>> KafkaCluster::sources() {
  auto topics = KafkaTopics(looker_.get(), options_.timeout).list();
  if (topics)
    std::erase_if(*topics,
                  [this](const auto& each) { return !may_be_source(options_.source, each.first); });
  return topics;
}

std::string KafkaCluster::cluster_id() {
  char* id = rd_kafka_clusterid(looker_.get(), in_ms(options_.timeout));
  if (id == nullptr) return {};
  std::string copy(id);
  rd_kafka_mem_free(looker_.get(), id);
  return copy;
}

void KafkaCluster::leave() {
  rd_kafka_consumer_close(group_.get());
}

// --- The group.

void KafkaCluster::on_rebalance(rd_kafka_resp_err_t what,
                                rd_kafka_topic_partition_list_t* partitions) {
  std::vector<Source> sources;
  for (int i = 0; i < partitions->cnt; ++i)
    sources.push_back({partitions->elems[i].topic, partitions->elems[i].partition});
  KafkaError error;
  if (what == RD_KAFKA_RESP_ERR__ASSIGN_PARTITIONS) {
    error.reset(rd_kafka_incremental_assign(group_.get(), partitions));
    polled_.assigned.insert(polled_.assigned.end(), sources.begin(), sources.end());
    polled_.changed = was_assigned_ = true;
    // A partition that is new is read at once, whatever pause() was told before it came.
    (is_paused_ ? rd_kafka_pause_partitions : rd_kafka_resume_partitions)(group_.get(), partitions);
  } else {
    error.reset(rd_kafka_incremental_unassign(group_.get(), partitions));
    const auto is_lost = [&](const Source& source) {
      return std::ranges::count(sources, source) > 0;
    };
    // Whatever this poll has brought from them is the next owner's to plan.
    std::erase_if(polled_.assigned, is_lost);
    std::erase_if(polled_.records, [&](const auto& each) { return is_lost(each.first); });
    std::erase_if(polled_.ends, [&](const auto& each) { return is_lost(each.source); });
    polled_.lost.insert(polled_.lost.end(), sources.begin(), sources.end());
    polled_.changed = true;
  }
  if (error) log_error("relay", "{}", error_text(error.get(), "the assignment"));
}

void KafkaCluster::take_message(const rd_kafka_message_t& message) {
  const char* topic = message.rkt == nullptr ? "" : rd_kafka_topic_name(message.rkt);
  if (message.err == RD_KAFKA_RESP_ERR__PARTITION_EOF) {
    polled_.ends.push_back({{topic, message.partition}, message.offset});
    return;
  }
  if (message.err != RD_KAFKA_RESP_ERR_NO_ERROR) {
    const char* text = rd_kafka_message_errstr(&message);
    const auto error =
        fmt::format("{}: {}: {}", *topic == '\0' ? options_.source : topic,
                    rd_kafka_err2name(message.err), printable(text == nullptr ? "" : text, 400));
    // librdkafka repeats an error until its cause is gone.
    if (error != last_error_) log_warn("relay", "{}", error);
    last_error_ = error;
    return;
  }
  polled_.records.emplace_back(
      Source{topic, message.partition},
      SourceRecord{message.offset, from_ms(rd_kafka_message_timestamp(&message, nullptr)),
                   body_of(message)});
}

void KafkaCluster::pause(bool is_paused) {
  if (is_paused == is_paused_) return;
  rd_kafka_topic_partition_list_t* raw = nullptr;
  if (rd_kafka_assignment(group_.get(), &raw) != RD_KAFKA_RESP_ERR_NO_ERROR) return;
  const KafkaPartitions assignment(raw);
  if (is_paused) {
    rd_kafka_pause_partitions(group_.get(), assignment.get());
  } else {
    rd_kafka_resume_partitions(group_.get(), assignment.get());
  }
  is_paused_ = is_paused;
}

// The generation is in no function of librdkafka but this one; its bytes begin with a mark.
void KafkaCluster::note_generation() {
  metadata_.reset(rd_kafka_consumer_group_metadata(group_.get()));
  generation_ = -1;
  if (!metadata_) return;
  void* bytes = nullptr;
  std::size_t size = 0;
  const KafkaError error(rd_kafka_consumer_group_metadata_write(metadata_.get(), &bytes, &size));
  if (error) return;
  constexpr std::string_view mark = "CGMDv2:";
  const std::string_view written(static_cast<const char*>(bytes), size);
  if (written.starts_with(mark) && size >= mark.size() + sizeof generation_) {
    std::memcpy(&generation_, written.data() + mark.size(), sizeof generation_);
  } else {
    generation_ = 0;  // Another librdkafka: Kafka alone refuses what is too old.
  }
  rd_kafka_mem_free(nullptr, bytes);
}

Polled KafkaCluster::poll(milliseconds wait, bool take_records) {
  polled_ = {};
  pause(!take_records);
  // Only the first call waits, so that a record that is there is not held back for others.
  for (std::size_t count = 0; count < max_polled; ++count) {
    const KafkaMessage message(rd_kafka_consumer_poll(group_.get(), count == 0 ? in_ms(wait) : 0));
    if (!message) break;
    take_message(*message);
  }
  // The errors and reports of idle clients pile up until somebody polls them.
  for (const auto& producer : producers_)
    if (producer) rd_kafka_poll(producer.get(), 0);
  rd_kafka_poll(reader_.get(), 0);
  rd_kafka_poll(looker_.get(), 0);
  take_rows();
  note_generation();
  return std::exchange(polled_, {});
}

void KafkaCluster::wake() {
  rd_kafka_queue_yield(polled_queue_.get());
}

// --- Rows.

void KafkaCluster::take_rows() {
  if (reading_rows_.empty()) return;
  const std::string front = options_.rules.group + std::string(state_mark);
  std::vector<rd_kafka_message_t*> messages(1'000);
  for (std::size_t count = 0; count < max_rows_polled;) {
    const auto got = rd_kafka_consume_batch_queue(rows_.get(), count == 0 ? 1 : 0, messages.data(),
                                                  messages.size());
    if (got <= 0) return;
    for (std::size_t i = 0; i < static_cast<std::size_t>(got); ++i) {
      const KafkaMessage message(messages[i]);
      if (message->rkt == nullptr) continue;
      const std::string topic = rd_kafka_topic_name(message->rkt);
      Source source{topic.substr(std::min(front.size(), topic.size())), message->partition};
      // The queue may still have rows of a partition that stop_rows() has ended.
      if (!reading_rows_.contains(source)) continue;
      if (message->err == RD_KAFKA_RESP_ERR__PARTITION_EOF) {
        polled_.row_ends.push_back({std::move(source), message->offset});
      } else if (message->err == RD_KAFKA_RESP_ERR_NO_ERROR) {
        const auto key = bytes_of(message->key, message->key_len);
        std::optional<Buffer> value;
        if (const auto bytes = bytes_of(message->payload, message->len)) {
          value.emplace();
          append_bytes(*value, *bytes);
        }
        polled_.rows.push_back({std::move(source),
                                std::string(key ? as_text(*key) : std::string_view{}),
                                std::move(value), message->offset});
      } else {
        log_warn("relay", "{}", error_text(message->err, topic));
      }
    }
    count += static_cast<std::size_t>(got);
  }
}

Result<> KafkaCluster::start_rows(const Source& source, Offset from) {
  const std::string name = options_.rules.state_topic(source.topic);
  KafkaTopic topic(rd_kafka_topic_new(reader_.get(), name.c_str(), nullptr));
  if (!topic) return fail(Errc::invalid, error_text(rd_kafka_last_error(), name));
  const Offset first = from > 0 ? from : Offset{RD_KAFKA_OFFSET_BEGINNING};
  if (rd_kafka_consume_start_queue(topic.get(), source.partition, first, rows_.get()) != 0)
    return fail(Errc::io, error_text(rd_kafka_last_error(), name));
  reading_rows_.insert_or_assign(source, std::move(topic));
  return {};
}

void KafkaCluster::stop_rows(const Source& source) {
  const auto found = reading_rows_.find(source);
  if (found == reading_rows_.end()) return;
  rd_kafka_consume_stop(found->second.get(), source.partition);
  reading_rows_.erase(found);
}

// --- Topics and offsets.

Result<> KafkaCluster::prepare(std::span<const Source> sources) {
  KafkaTopics topics(looker_.get(), options_.timeout);
  std::set<std::string> names;
  for (const auto& source : sources) names.insert(source.topic);
  for (const auto& name : names) {
    if (auto made = topics.ensure_state(options_.rules.state_topic(name), name); !made) return made;
    if (auto made = topics.ensure(name + std::string(invalid_suffix), name, true); !made)
      return made;
  }
  return {};
}

Result<> KafkaCluster::prepare_target(const std::string& topic, const Source& source) {
  return KafkaTopics(looker_.get(), options_.timeout)
      .ensure(topic, source.topic, options_.rules.same_partition);
}

bool KafkaCluster::read_committed(rd_kafka_t* client, std::span<const Source> sources,
                                  milliseconds timeout, std::span<Committed> to) {
  const auto list = list_of(sources);
  if (rd_kafka_committed(client, list.get(), in_ms(timeout)) != RD_KAFKA_RESP_ERR_NO_ERROR)
    return false;
  for (std::size_t i = 0; i < sources.size(); ++i) {
    const auto& each = list->elems[i];
    if (each.err != RD_KAFKA_RESP_ERR_NO_ERROR) return false;
    to[i] = {};
    to[i].is_stable = true;
    if (each.offset >= 0) to[i].next = each.offset;
    const std::string_view metadata(static_cast<const char*>(each.metadata), each.metadata_size);
    if (metadata.starts_with(metadata_mark)) to[i].owner = metadata.substr(metadata_mark.size());
  }
  return true;
}

Result<std::vector<Committed>> KafkaCluster::committed(std::span<const Source> sources) {
  std::vector<Committed> all(sources.size());
  if (read_committed(reader_.get(), sources, stable_offset_wait, all)) return all;
  // One that is not stable holds up the answer for all.
  std::size_t questions = 0;
  for (std::size_t i = 0; i < sources.size(); ++i) {
    const auto source = sources.subspan(i, 1);
    const std::span<Committed> to(&all[i], 1);
    all[i] = {};
    // The rest counts as not stable and is asked for again: each question may take its whole time.
    if (questions >= max_single_questions) continue;
    if (read_committed(reader_.get(), source, stable_offset_wait, to)) continue;
    ++questions;
    // It reads uncommitted offsets too, so it is not held up and shows whose transaction it is.
    if (!read_committed(looker_.get(), source, options_.timeout, to))
      return fail(Errc::io, fmt::format("the offsets of group {}: Kafka does not answer",
                                        options_.rules.group));
    all[i].is_stable = false;
  }
  return all;
}

Result<Offset> KafkaCluster::end_of(rd_kafka_t* client, const std::string& topic,
                                    PartitionIndex partition) {
  std::int64_t low = 0, high = 0;
  const auto error = rd_kafka_query_watermark_offsets(client, topic.c_str(), partition, &low, &high,
                                                      in_ms(end_wait));
  if (error != RD_KAFKA_RESP_ERR_NO_ERROR)
    return fail(Errc::io, error_text(error, fmt::format("{}-{}", topic, partition)));
  return high;
}

Result<Offset> KafkaCluster::source_end(const Source& source) {
  return end_of(reader_.get(), source.topic, source.partition);
}

// In one request to each leader: a time of -1 means the end.
Result<std::vector<Offset>> KafkaCluster::source_ends(std::span<const Source> sources) {
  const auto list = list_of(sources);
  for (int i = 0; i < list->cnt; ++i) list->elems[i].offset = RD_KAFKA_OFFSET_END;
  const auto error = rd_kafka_offsets_for_times(reader_.get(), list.get(), in_ms(end_wait));
  if (error != RD_KAFKA_RESP_ERR_NO_ERROR)
    return fail(Errc::io, error_text(error, "the ends of the sources"));
  std::vector<Offset> ends;
  for (int i = 0; i < list->cnt; ++i) {
    const auto& each = list->elems[i];
    if (each.err != RD_KAFKA_RESP_ERR_NO_ERROR || each.offset < 0) {
      return fail(Errc::io, error_text(each.err, fmt::format("{}-{}", each.topic, each.partition)));
    }
    ends.push_back(each.offset);
  }
  return ends;
}

Result<Offset> KafkaCluster::state_end(const Source& source) {
  return end_of(looker_.get(), options_.rules.state_topic(source.topic), source.partition);
}

// --- Transactions.

KafkaPartitions KafkaCluster::offsets_of(const Transaction& transaction) const {
  KafkaPartitions list(
      rd_kafka_topic_partition_list_new(static_cast<int>(transaction.offsets.size())));
  const std::string metadata = std::string(metadata_mark) + options_.owner;
  for (const auto& [source, next] : transaction.offsets) {
    auto* each =
        rd_kafka_topic_partition_list_add(list.get(), source.topic.c_str(), source.partition);
    each->offset = next;
    // The list frees it.
    each->metadata = ::strdup(metadata.c_str());
    each->metadata_size = metadata.size();
  }
  return list;
}

// A record carries the number of its round and its index through librdkafka: a report may come when
// its round is over.
void KafkaCluster::on_report(const rd_kafka_message_t& message) {
  const auto tag = reinterpret_cast<std::uintptr_t>(message._private);
  if (reports_ != nullptr && tag >> index_bits == round_)
    reports_->add(tag & ((std::uintptr_t{1} << index_bits) - 1), message.err, message.offset);
}

// librdkafka looks for the leaders of a topic that is new to a producer when its timer of a second
// expires, and the transaction would wait for that.
void KafkaCluster::learn_topics(rd_kafka_t* producer, std::span<const Outgoing> records,
                                Deadline deadline) {
  auto& known = known_topics_[producer];
  for (const auto& record : records) {
    if (known.contains(record.topic)) continue;
    KafkaTopic topic(rd_kafka_topic_new(producer, record.topic.c_str(), nullptr));
    if (!topic) continue;  // To produce says why.
    const struct rd_kafka_metadata* raw = nullptr;
    const auto error = rd_kafka_metadata(producer, 0, topic.get(), &raw, deadline.left_ms());
    if (error != RD_KAFKA_RESP_ERR_NO_ERROR) return;
    rd_kafka_metadata_destroy(raw);
    known.emplace(record.topic, std::move(topic));
  }
}

// Hands all records over; false: one of them could not be, and `reports` says why.
bool KafkaCluster::produce(rd_kafka_t* producer, std::span<const Outgoing> records,
                           Reports& reports, Deadline deadline) {
  reports_ = &reports;
  reports.records = records;
  ++round_;
  for (std::size_t i = 0; i < records.size(); ++i) {
    rd_kafka_resp_err_t error = RD_KAFKA_RESP_ERR_NO_ERROR;
    while ((error = produce_one(producer, records[i], round_ << index_bits | i)) ==
               RD_KAFKA_RESP_ERR__QUEUE_FULL &&
           !deadline.is_over())
      // Records leave the queue with their reports, which come in a poll.
      rd_kafka_poll(producer, 10);
    if (error != RD_KAFKA_RESP_ERR_NO_ERROR) {
      reports.add(i, error);
      return false;
    }
    // One by one, because Kafka refuses a batch without saying for which of its records.
    if (!is_careful_) continue;
    if (rd_kafka_flush(producer, deadline.left_ms()) != 0) reports.failed = "Kafka does not answer";
    if (!reports.failed.empty() || !reports.refused.empty()) return false;
  }
  return true;
}

rd_kafka_resp_err_t KafkaCluster::produce_one(rd_kafka_t* producer, const Outgoing& record,
                                              std::uintptr_t tag) {
  KafkaHeaders headers(rd_kafka_headers_new(record.headers.size()));
  for (const auto& [name, value] : record.headers) {
    const auto part = part_of(value);
    rd_kafka_header_add(headers.get(), name.data(), static_cast<ssize_t>(name.size()), part.data,
                        static_cast<ssize_t>(part.size));
  }
  const auto key = part_of(record.key), value = part_of(record.value);
  std::array<rd_kafka_vu_t, 8> fields{};
  fields[0].vtype = RD_KAFKA_VTYPE_TOPIC;
  fields[0].u.cstr = record.topic.c_str();
  fields[1].vtype = RD_KAFKA_VTYPE_PARTITION;
  fields[1].u.i32 = record.partition.value_or(RD_KAFKA_PARTITION_UA);
  fields[2].vtype = RD_KAFKA_VTYPE_MSGFLAGS;
  // librdkafka may keep the record longer than the plan lives that has it.
  fields[2].u.i = RD_KAFKA_MSG_F_COPY;
  fields[3].vtype = RD_KAFKA_VTYPE_KEY;
  fields[3].u.mem = {key.data, key.size};
  fields[4].vtype = RD_KAFKA_VTYPE_VALUE;
  fields[4].u.mem = {value.data, value.size};
  fields[5].vtype = RD_KAFKA_VTYPE_HEADERS;
  fields[5].u.headers = headers.get();
  fields[6].vtype = RD_KAFKA_VTYPE_TIMESTAMP;  // 0: now.
  fields[6].u.i64 = record.timestamp ? std::max<std::int64_t>(0, to_ms(*record.timestamp)) : 0;
  fields[7].vtype = RD_KAFKA_VTYPE_OPAQUE;
  fields[7].u.ptr = reinterpret_cast<void*>(tag);
  if (const KafkaError error(rd_kafka_produceva(producer, fields.data(), fields.size())); error)
    return rd_kafka_error_code(error.get());
  static_cast<void>(headers.release());  // They are the message's now.
  return RD_KAFKA_RESP_ERR_NO_ERROR;
}

Transacted KafkaCluster::abort(rd_kafka_t* producer, Transacted done, Deadline deadline) {
  done.outcome = Outcome::aborted;
  do {
    const KafkaError error(rd_kafka_abort_transaction(producer, deadline.left_ms()));
    if (!error) return done;
    if (done.error.empty()) done.error = error_text(error.get(), "abort");
    if (!rd_kafka_error_is_retriable(error.get())) break;
  } while (!deadline.is_over());
  done.outcome = Outcome::unknown;
  // The take-over that follows plans all records anew.
  done.refused.clear();
  return done;
}

Transacted KafkaCluster::commit(rd_kafka_t* producer, Reports& reports, Deadline deadline) {
  Transacted done;
  do {
    const KafkaError error(rd_kafka_commit_transaction(producer, deadline.left_ms()));
    if (!error) return done;
    done.error = error_text(error.get(), "commit");
    if (rd_kafka_error_txn_requires_abort(error.get())) {
      done.refused = std::move(reports.refused);
      return abort(producer, std::move(done), deadline.later(options_.abort_limit));
    }
    if (!rd_kafka_error_is_retriable(error.get())) break;
  } while (!deadline.is_over());
  done.outcome = Outcome::unknown;
  return done;
}

Transacted KafkaCluster::not_in_group() const {
  Transacted done;
  done.outcome = Outcome::aborted;
  done.is_fenced = true;
  done.error = fmt::format("this member is not in group {} now", options_.rules.group);
  return done;
}

Transacted KafkaCluster::transact(const Transaction& transaction) {
  if (generation_ < 0) return not_in_group();
  Transacted done;
  rd_kafka_t* producer = producers_[turn_].get();
  turn_ = (turn_ + 1) % producers_.size();
  const Deadline deadline(options_.transaction_limit);
  // The abort needs time of its own: a transaction that stays open holds up all readers of its
  // logs.
  const Deadline abort_deadline = deadline.later(options_.abort_limit);
  learn_topics(producer, transaction.records, deadline);
  if (const KafkaError error(rd_kafka_begin_transaction(producer)); error) {
    done.outcome = Outcome::unknown;
    done.error = error_text(error.get(), "begin");
    return done;
  }
  // Before the records: a transaction that the group refuses leaves nothing in the logs.
  const auto offsets = offsets_of(transaction);
  if (const KafkaError error(rd_kafka_send_offsets_to_transaction(
          producer, offsets.get(), metadata_.get(), deadline.left_ms()));
      error) {
    done.error = error_text(error.get(), "offsets");
    done.is_fenced = true;
    return abort(producer, std::move(done), abort_deadline);
  }
  Reports reports;
  const bool was_careful = is_careful_;
  if (!produce(producer, transaction.records, reports, deadline)) {
    done.error = reports.failed;
    done.refused = std::move(reports.refused);
    done = abort(producer, std::move(done), abort_deadline);
  } else {
    done = commit(producer, reports, deadline);
    done.placed = std::move(reports.placed);
    done.rows_end = std::move(reports.rows_end);
  }
  reports_ = nullptr;
  // Kafka refuses a batch for one of its records: the next attempt finds out which.
  is_careful_ = done.is_careful = !done.refused.empty() && !was_careful;
  if (is_careful_) {
    done.error = fmt::format("Kafka refuses a record: {}", done.refused.front().second);
    done.refused.clear();
  }
  return done;
}

Transacted KafkaCluster::send(std::span<const Outgoing> records) {
  // The transaction that follows would fail, and all would be sent again.
  if (generation_ < 0) return not_in_group();
  Transacted done;
  Reports reports;
  const bool was_careful = is_careful_;
  const Deadline deadline(options_.transaction_limit);
  learn_topics(sender_.get(), records, deadline);
  const bool is_produced = produce(sender_.get(), records, reports, deadline);
  if (rd_kafka_flush(sender_.get(), deadline.left_ms()) != 0) {
    // Otherwise they could arrive later, out of their order.
    rd_kafka_purge(sender_.get(), RD_KAFKA_PURGE_F_QUEUE | RD_KAFKA_PURGE_F_INFLIGHT);
    rd_kafka_flush(sender_.get(), in_ms(options_.abort_limit));
    reports.failed = "Kafka does not answer";
  }
  reports_ = nullptr;
  is_careful_ = false;
  done.placed = std::move(reports.placed);
  if (is_produced && reports.refused.empty() && reports.failed.empty()) return done;
  // After a fatal error this sender sends nothing more: there must be a new one.
  std::array<char, 256> why{};
  const bool is_fatal =
      rd_kafka_fatal_error(sender_.get(), why.data(), why.size()) != RD_KAFKA_RESP_ERR_NO_ERROR;
  done.outcome = is_fatal ? Outcome::unknown : Outcome::aborted;
  done.error = is_fatal ? why.data() : reports.failed;
  done.refused = std::move(reports.refused);
  if (!done.refused.empty() && !was_careful) {
    is_careful_ = done.is_careful = true;
    done.error = fmt::format("Kafka refuses a record: {}", done.refused.front().second);
    done.refused.clear();
  }
  return done;
}

Result<> KafkaCluster::settle(const std::string& owner) {
  // Only our own: anybody who may commit offsets could have written it.
  if (!owner.starts_with(options_.rules.group + "-")) return {};
  const Deadline deadline(options_.renewal_limit);
  for (std::size_t i = 0; i < producers_.size(); ++i) {
    const auto id = fmt::format("{}-{}", owner, i);
    auto opened = open_producer(id);
    if (!opened) return std::unexpected(opened.error());
    // This ends what the last owner left open, without waiting for its transaction.timeout.ms.
    const KafkaError error(rd_kafka_init_transactions(opened->get(), deadline.left_ms()));
    give_up(std::move(*opened));
    if (error) return fail(Errc::io, error_text(error.get(), "transactional.id " + id));
  }
  return {};
}

}  // namespace tarry::relay
