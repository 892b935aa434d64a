#include "relay/kafka_cluster.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <condition_variable>
#include <cstdlib>
#include <cstring>
#include <iterator>
#include <mutex>

#include <fmt/format.h>

#include "base/glob.h"
#include "base/log.h"
#include "records/batch_builder.h"

namespace tarry::relay {

using namespace std::chrono_literals;
using std::chrono::milliseconds;

namespace {

// A broker that is silent for so long although it was asked is away, whatever its connection says.
// librdkafka looks once in a second, so a source's leader that hangs is noticed after 7 s at most;
// with its default of 60 s the partition would look idle, and cancellations in it would come late.
constexpr auto max_silence = 6s;
// The limits of one answer, and of one partition in it unless its first record is larger.
constexpr std::int64_t fetch_bytes = 4 << 20;
constexpr std::int64_t partition_fetch_bytes = 512 << 10;
// A fetch waits for so many bytes, but not longer than that; another one of the same broker waits
// behind it.  Nearly all records come long before they are due.  With an answer for each few of
// them the lag's p50 was 39 to 54 ms where it is 22 to 30 (docs/relay.md, two cores with Kafka).
constexpr std::int64_t fetch_least_bytes = 64 << 10;
constexpr milliseconds fetch_wait{25};
// A thread of librdkafka that finds nothing to fetch may sleep so long (fetch.queue.backoff.ms, and
// before it had a name the same).
constexpr milliseconds max_block{1'000};
// For the request itself, and for threads that have to wait for a processor.
constexpr milliseconds first_fetch_margin{200};
// For records that are under way when the group takes a partition: it waits for this member.
constexpr milliseconds drain_limit{1'000};
// The work of a member between two polls takes less (member.h), unless librdkafka hangs.
constexpr auto longest_poll_interval = 30s;
// librdkafka counts from the middle of a poll, and looks once in a second.
constexpr auto poll_interval_margin = 2s;
constexpr std::size_t max_polled = 5'000;  // For each second since the last poll.
// The bytes of a transaction: what is left in librdkafka's queue holds up its fetches, and more
// would be held up here.
constexpr std::size_t max_polled_bytes = 8u << 20;
constexpr std::size_t max_rows_polled = 20'000;
constexpr std::size_t max_row_bytes_polled = 16u << 20;  // And one batch of the queue.
// How many partitions are asked for one by one when some offset is not stable, and for how long
// after the first question another one is begun.
constexpr std::size_t max_single_questions = 10;
constexpr milliseconds max_single_time{3'000};
// Librdkafka's threads have not fetched for so long: then a cancellation may not have come.
constexpr milliseconds max_standstill{500};

// librdkafka takes what begins with ^ for a regular expression.
std::string regex_of(std::string_view glob) {
  std::string regex = "^";
  for (std::size_t i = 0; i < glob.size(); ++i) {
    const char c = glob[i];
    if (const auto end = glob_class_end(glob, i); end != 0) {
      // A class of a pattern is one of POSIX, which has one sign only for any other character.
      regex += glob[i + 1] == '!' ? "[^" : std::string{'[', glob[i + 1]};
      regex += glob.substr(i + 2, end - i - 2);
      i = end - 1;
    } else if (c == '*') {
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

// The largest of `least` and what `properties` give for the one that begins with `key`.
std::int64_t largest_given(std::span<const std::string> properties, std::string_view key,
                           std::int64_t least) {
  for (const std::string_view each : properties) {
    if (!each.starts_with(key)) continue;
    std::int64_t given = 0;
    std::from_chars(each.data() + key.size(), each.data() + each.size(), given);
    least = std::max(least, given);
  }
  return least;
}

}  // namespace

std::string poll_interval_property(std::span<const std::string> properties) {
  return fmt::format("max.poll.interval.ms={}",
                     largest_given(properties, "session.timeout.ms=",
                                   std::chrono::milliseconds(longest_poll_interval).count()));
}

std::vector<std::string> fetch_properties(std::span<const std::string> properties) {
  return {fmt::format("fetch.max.bytes={}",
                      largest_given(properties, "message.max.bytes=", fetch_bytes)),
          fmt::format("max.partition.fetch.bytes={}", partition_fetch_bytes)};
}

std::chrono::milliseconds longest_first_fetch(std::span<const std::string> properties) {
  return milliseconds(largest_given(properties, "fetch.queue.backoff.ms=", max_block.count()) +
                      largest_given(properties, "fetch.wait.max.ms=", fetch_wait.count())) +
         first_fetch_margin;
}

bool may_be_source(const std::string& glob, const std::string& topic) {
  // The relay's own topics, and those of Kafka, would feed it what it has written.
  return matches_glob(glob, topic) && !topic.contains(state_mark) &&
         !topic.ends_with(invalid_suffix) && !topic.starts_with("__");
}

bool is_outage(rd_kafka_resp_err_t error) {
  return error == RD_KAFKA_RESP_ERR__ALL_BROKERS_DOWN || error == RD_KAFKA_RESP_ERR__TRANSPORT ||
         error == RD_KAFKA_RESP_ERR__TIMED_OUT;
}

KafkaCluster::KafkaCluster(KafkaOptions options)
    : options_(std::move(options)), producers_(options_) {
  ticking_ = std::jthread([this](const std::stop_token& stop) {
    std::mutex mutex;
    std::condition_variable_any ended;
    std::unique_lock lock(mutex);
    while (!ended.wait_for(lock, stop, Standstill::tick_interval, [] { return false; }) &&
           !stop.stop_requested())
      standstill_.tick(std::chrono::steady_clock::now());
  });
}

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
      "reconnect.backoff.max.ms=1000", "topic.metadata.refresh.interval.ms=10000",
      "metadata.max.age.ms=30000", "session.timeout.ms=10000",
      // A member hears of a rebalance in the answer to a heartbeat: so soon after another one was
      // given up it asks for the partitions.
      "heartbeat.interval.ms=1000", "queued.max.messages.kbytes=32768"};
  properties.push_back(fmt::format("fetch.min.bytes={}", fetch_least_bytes));
  properties.push_back(fmt::format("fetch.wait.max.ms={}", fetch_wait.count()));
  properties.push_back(fmt::format("socket.timeout.ms={}", milliseconds(max_silence).count()));
  properties.push_back(poll_interval_property(options_.properties));
  std::ranges::move(fetch_properties(options_.properties), std::back_inserter(properties));
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
      if (is_outage(static_cast<rd_kafka_resp_err_t>(error))) cluster.polled_.disturbed = true;
      log_debug("relay", "kafka: {}", printable(reason, 400));
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
  if (const auto topics = KafkaTopics(looker_.get(), options_.start_limit).list(); !topics) {
    return fail(topics.error().code,
                fmt::format("--brokers {}: no answer within {} s ({})", printable(options_.brokers),
                            options_.start_limit.count() / 1'000, topics.error().message));
  }
  if (const auto renewed = producers_.renew(options_.first_limit); !renewed) return renewed;
  rows_.reset(rd_kafka_queue_new(reader_.get()));
  rd_kafka_poll_set_consumer(group_.get());
  polled_queue_.reset(rd_kafka_queue_get_consumer(group_.get()));
  poll_interval_ = milliseconds(number_of("max.poll.interval.ms"));
  marks_ =
      QueueMarks(std::chrono::floor<milliseconds>(std::chrono::system_clock::now()),
                 QueueMarks::QueueBound::below(number_of("queued.min.messages"),
                                               number_of("queued.max.messages.kbytes") * 1'024));
  polled_at_ = std::chrono::steady_clock::now();
  if (const auto error = subscribe(); error != RD_KAFKA_RESP_ERR_NO_ERROR)
    return fail(Errc::invalid, error_text(error, "--source " + options_.source));
  return {};
}

// A property of the group's client.
std::size_t KafkaCluster::number_of(const char* property) const {
  std::array<char, 32> text{};
  std::size_t size = text.size();
  rd_kafka_conf_get(rd_kafka_conf(group_.get()), property, text.data(), &size);
  return std::strtoull(text.data(), nullptr, 10);
}

rd_kafka_resp_err_t KafkaCluster::subscribe() {
  KafkaPartitions wanted(rd_kafka_topic_partition_list_new(1));
  rd_kafka_topic_partition_list_add(wanted.get(), regex_of(options_.source).c_str(),
                                    RD_KAFKA_PARTITION_UA);
  return rd_kafka_subscribe(group_.get(), wanted.get());
}

Result<std::map<std::string, int>> KafkaCluster::sources() {
  auto topics = KafkaTopics(looker_.get(), options_.start_limit).list();
  if (topics)
    std::erase_if(*topics,
                  [this](const auto& each) { return !may_be_source(options_.source, each.first); });
  return topics;
}

std::string KafkaCluster::cluster_id() {
  char* id = rd_kafka_clusterid(looker_.get(), in_ms(options_.start_limit));
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
    assigned_.insert(sources.begin(), sources.end());
    polled_.changed = was_assigned_ = true;
    // A partition that is new is read at once, whatever pause() was told when it was here before.
    rd_kafka_resume_partitions(group_.get(), partitions);
    for (const auto& source : sources) paused_.erase(source);
  } else {
    // Before another member has them, and sends what is due there: the order is kept.
    producers_.drain(drain_limit);
    error.reset(rd_kafka_incremental_unassign(group_.get(), partitions));
    const auto is_lost = [&](const Source& source) {
      return std::ranges::count(sources, source) > 0;
    };
    // The next owner plans the records that this poll has brought from them.
    std::erase_if(polled_.assigned, is_lost);
    std::erase_if(polled_.records, [&](const auto& each) { return is_lost(each.first); });
    std::erase_if(polled_.ends, [&](const auto& each) { return is_lost(each.source); });
    polled_.lost.insert(polled_.lost.end(), sources.begin(), sources.end());
    for (const auto& source : sources) assigned_.erase(source);
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

void KafkaCluster::pause(const std::set<Source>& paused) {
  std::vector<Source> begin, end;
  std::ranges::set_difference(paused, paused_, std::back_inserter(begin));
  std::ranges::set_difference(paused_, paused, std::back_inserter(end));
  if (!begin.empty()) rd_kafka_pause_partitions(group_.get(), list_of(begin).get());
  if (!end.empty()) rd_kafka_resume_partitions(group_.get(), list_of(end).get());
  paused_ = paused;
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

// librdkafka leaves the group of a member that has not polled for max.poll.interval.ms.  If a
// rebalance was waiting for that poll, it then revokes the partitions of this rebalance alone and
// takes the others into the next generation, though another member has owned them meanwhile.  Kafka
// would accept what is done with them, so all are given up, and the group is joined anew.
void KafkaCluster::join_anew() {
  log_warn("relay", "this member has not polled group {} for {} ms: it gives up all partitions",
           options_.rules.group, poll_interval_.count());
  polled_.assigned.clear();
  polled_.records.clear();
  polled_.ends.clear();
  polled_.lost.insert(polled_.lost.end(), assigned_.begin(), assigned_.end());
  assigned_.clear();
  rd_kafka_unsubscribe(group_.get());
  if (const auto error = subscribe(); error != RD_KAFKA_RESP_ERR_NO_ERROR)
    log_error("relay", "{}", error_text(error, "--source " + options_.source));
}

// Takes what there is, and waits for the first one; false: there may be more.
bool KafkaCluster::take_messages(milliseconds wait, std::size_t most) {
  std::size_t count = 0, bytes = 0;
  const auto take = [&](milliseconds longest) {
    const KafkaMessage message(rd_kafka_consumer_poll(group_.get(), in_ms(longest)));
    if (!message) return false;
    const std::size_t size = message->len + message->key_len;
    take_message(*message);
    marks_.took(size);
    bytes += size;
    ++count;
    return true;
  };
  // The time comes before the look at the queue: this thread may stand still between them, and what
  // came meanwhile is later than the time.
  const auto look = [this] {
    const auto now = std::chrono::floor<milliseconds>(std::chrono::system_clock::now());
    marks_.look(now, rd_kafka_queue_length(polled_queue_.get()));
  };
  look();
  take(wait);
  while (count < most && bytes < max_polled_bytes) {
    look();
    const std::size_t before = count;
    while (count < most && bytes < max_polled_bytes && take(milliseconds{0})) {
    }
    if (count > before) continue;
    marks_.found_nothing();
    return true;
  }
  return false;
}

PollResult KafkaCluster::poll(milliseconds wait, const std::set<Source>& paused) {
  polled_ = {};
  const auto gap = std::chrono::steady_clock::now() - polled_at_;
  // By our own clock: librdkafka's word for it comes behind all records that wait in its queue.
  if (gap > poll_interval_ - poll_interval_margin) was_expelled_ = true;
  pause(paused);
  // After a long transaction a cancellation may be behind all that came meanwhile.
  const std::size_t most = max_polled * static_cast<std::size_t>(1 + gap / 1s);
  const bool is_drained = take_messages(wait, most);
  polled_at_ = std::chrono::steady_clock::now();
  if (standstill_.longest(polled_at_) > max_standstill) polled_.disturbed = true;
  polled_.at = marks_.at();
  polled_.drained = is_drained;
  polled_.held_up = marks_.take_was_full();
  producers_.poll();
  rd_kafka_poll(reader_.get(), 0);
  rd_kafka_poll(looker_.get(), 0);
  take_rows();
  note_generation();
  if (was_expelled_) {
    generation_ = -1;  // The known one may be of partitions that are not ours.
    was_expelled_ = !is_drained;
    if (is_drained) join_anew();
  }
  return std::exchange(polled_, {});
}

void KafkaCluster::wake() {
  rd_kafka_queue_yield(polled_queue_.get());
}

// --- Rows.

void KafkaCluster::take_rows() {
  if (reading_rows_.empty()) return;
  const std::string front = options_.rules.group + std::string(state_mark);
  std::vector<rd_kafka_message_t*> messages(100);
  for (std::size_t count = 0, bytes = 0; count < max_rows_polled && bytes < max_row_bytes_polled;) {
    // poll() has waited already: no longer than rows may (take_over.cc), where they are waited for.
    // With warm copies alone a wait would be in the way of each transaction.
    const auto got = rd_kafka_consume_batch_queue(rows_.get(), 0, messages.data(), messages.size());
    if (got <= 0) return;
    for (std::size_t i = 0; i < static_cast<std::size_t>(got); ++i) {
      const KafkaMessage message(messages[i]);
      bytes += message->len + message->key_len;
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
        if (const auto payload = bytes_of(message->payload, message->len)) {
          value.emplace();
          append_bytes(*value, *payload);
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
  KafkaTopics topics(looker_.get(), options_.question_limit);
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
  return KafkaTopics(looker_.get(), options_.question_limit)
      .ensure(topic, source.topic, options_.rules.same_partition);
}

bool KafkaCluster::read_committed(rd_kafka_t* client, std::span<const Source> sources,
                                  milliseconds timeout, std::span<CommittedOffset> to) {
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
    if (metadata.starts_with(owner_mark)) to[i].owner = metadata.substr(owner_mark.size());
  }
  return true;
}

// A question for stable offsets has no answer while one of them is not stable, and none in time
// when Kafka is slow.  The same question for offsets that need not be stable tells these apart.
Result<std::vector<CommittedOffset>> KafkaCluster::committed(std::span<const Source> sources) {
  using Steady = std::chrono::steady_clock;
  const auto begun = Steady::now();
  const auto since = [](Steady::time_point then) {
    return std::chrono::ceil<milliseconds>(Steady::now() - then);
  };
  std::vector<CommittedOffset> all(sources.size());
  if (read_committed(reader_.get(), sources, for_stable_.wait(), all)) return all;
  const auto asked = Steady::now();
  if (!read_committed(looker_.get(), sources, options_.question_limit, all))
    return fail(Errc::io, fmt::format("the offsets of group {}: Kafka does not answer",
                                      options_.rules.group));
  for (auto& each : all) each.is_stable = false;
  const auto took = since(asked);
  const bool was_quick = for_stable_.is_well_inside(took);
  for_stable_.answered(took);
  if (!was_quick) return all;
  // One that is not stable holds up the answer for all.  Those that are not asked for here are in a
  // later call.
  std::size_t questions = 0;
  for (std::size_t i = 0; i < sources.size(); ++i) {
    if (questions >= max_single_questions || since(begun) > max_single_time) break;
    CommittedOffset stable;
    if (read_committed(reader_.get(), sources.subspan(i, 1), for_stable_.wait(), {&stable, 1})) {
      all[i] = std::move(stable);
    } else {
      all[i].is_open = true;
      ++questions;
    }
  }
  return all;
}

Result<Offset> KafkaCluster::end_of(rd_kafka_t* client, const std::string& topic,
                                    PartitionIndex partition) {
  std::int64_t low = 0, high = 0;
  const auto begun = std::chrono::steady_clock::now();
  const auto error = rd_kafka_query_watermark_offsets(client, topic.c_str(), partition, &low, &high,
                                                      in_ms(for_end_.wait()));
  note_end_answer(error, begun);
  // librdkafka's word for it, "Local: Timed out", says nothing of what was asked.
  if (error == RD_KAFKA_RESP_ERR__TIMED_OUT)
    return fail(Errc::io, fmt::format("the leader of {}-{} does not answer", topic, partition));
  if (error != RD_KAFKA_RESP_ERR_NO_ERROR)
    return fail(Errc::io, error_text(error, fmt::format("{}-{}", topic, partition)));
  return high;
}

// A leader that is away does not answer, however long it is waited for.
void KafkaCluster::note_end_answer(rd_kafka_resp_err_t error,
                                   std::chrono::steady_clock::time_point begun) {
  if (error == RD_KAFKA_RESP_ERR_NO_ERROR) {
    for_end_.answered(std::chrono::ceil<milliseconds>(std::chrono::steady_clock::now() - begun));
  } else {
    for_end_.not_answered();
  }
}

Result<Offset> KafkaCluster::source_end(const Source& source) {
  return end_of(looker_.get(), source.topic, source.partition);
}

Result<Offset> KafkaCluster::stable_source_end(const Source& source) {
  return end_of(reader_.get(), source.topic, source.partition);
}

// In one request to each leader: a time of -1 means the end.
Result<std::vector<Offset>> KafkaCluster::source_ends(std::span<const Source> sources) {
  const auto list = list_of(sources);
  for (int i = 0; i < list->cnt; ++i) list->elems[i].offset = RD_KAFKA_OFFSET_END;
  const auto begun = std::chrono::steady_clock::now();
  const auto error = rd_kafka_offsets_for_times(looker_.get(), list.get(), in_ms(for_end_.wait()));
  note_end_answer(error, begun);
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

TransactionResult KafkaCluster::not_in_group() const {
  TransactionResult done;
  done.outcome = Outcome::aborted;
  done.is_fenced = true;
  done.error = fmt::format("this member is not in group {} now", options_.rules.group);
  return done;
}

TransactionResult KafkaCluster::transact(const Transaction& transaction) {
  if (generation_ < 0) return not_in_group();
  return producers_.transact(transaction, metadata_.get());
}

TransactionResult KafkaCluster::send(std::span<const ProducerRecord> records) {
  // The transaction that follows would fail, and all would be sent again.
  if (generation_ < 0) return not_in_group();
  return producers_.send(records);
}

Result<> KafkaCluster::begin_send(std::vector<ProducerRecord> records) {
  if (generation_ < 0) return fail(Errc::io, not_in_group().error);
  producers_.begin_send(std::move(records));
  return {};
}

}  // namespace tarry::relay
