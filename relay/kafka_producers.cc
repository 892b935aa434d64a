#include "relay/kafka_producers.h"

#include <algorithm>
#include <cstring>
#include <iterator>
#include <set>
#include <tuple>

#include <fmt/format.h>

#include "base/log.h"

namespace tarry::relay {

using std::chrono::milliseconds;

namespace {

constexpr unsigned index_bits = 24;  // The bits of a record's number in its transaction.

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

bool is_refusal(rd_kafka_resp_err_t error) {
  return error == RD_KAFKA_RESP_ERR_MSG_SIZE_TOO_LARGE ||
         error == RD_KAFKA_RESP_ERR_RECORD_LIST_TOO_LARGE ||
         error == RD_KAFKA_RESP_ERR_INVALID_MSG || error == RD_KAFKA_RESP_ERR_INVALID_RECORD ||
         error == RD_KAFKA_RESP_ERR_INVALID_TIMESTAMP;
}

}  // namespace

bool is_of_topic(rd_kafka_resp_err_t error) {
  switch (error) {
    case RD_KAFKA_RESP_ERR_UNKNOWN_TOPIC_OR_PART:
    case RD_KAFKA_RESP_ERR_TOPIC_EXCEPTION:
    case RD_KAFKA_RESP_ERR_LEADER_NOT_AVAILABLE:
    case RD_KAFKA_RESP_ERR_NOT_LEADER_FOR_PARTITION:
    case RD_KAFKA_RESP_ERR_NOT_ENOUGH_REPLICAS:
    case RD_KAFKA_RESP_ERR_NOT_ENOUGH_REPLICAS_AFTER_APPEND:
    case RD_KAFKA_RESP_ERR_INVALID_REQUIRED_ACKS:
    case RD_KAFKA_RESP_ERR_POLICY_VIOLATION:
    case RD_KAFKA_RESP_ERR_UNSUPPORTED_FOR_MESSAGE_FORMAT:
    case RD_KAFKA_RESP_ERR_UNSUPPORTED_COMPRESSION_TYPE:
    case RD_KAFKA_RESP_ERR_KAFKA_STORAGE_ERROR:
    case RD_KAFKA_RESP_ERR__UNKNOWN_TOPIC:
    case RD_KAFKA_RESP_ERR__UNKNOWN_PARTITION:
      return true;
    default:
      return false;
  }
}

// librdkafka tries again after these until the time is over, and an attempt before the last one may
// have had no answer.
bool is_unanswered(const rd_kafka_error_t* error) {
  if (error == nullptr) return false;
  switch (rd_kafka_error_code(error)) {
    case RD_KAFKA_RESP_ERR__TIMED_OUT:
    case RD_KAFKA_RESP_ERR__TIMED_OUT_QUEUE:
    case RD_KAFKA_RESP_ERR__TRANSPORT:
    case RD_KAFKA_RESP_ERR_REQUEST_TIMED_OUT:
    case RD_KAFKA_RESP_ERR_NOT_COORDINATOR:
    case RD_KAFKA_RESP_ERR_COORDINATOR_NOT_AVAILABLE:
    case RD_KAFKA_RESP_ERR_COORDINATOR_LOAD_IN_PROGRESS:
    case RD_KAFKA_RESP_ERR_CONCURRENT_TRANSACTIONS:
    case RD_KAFKA_RESP_ERR_UNKNOWN_TOPIC_OR_PART:
      return true;
    default:
      return rd_kafka_error_is_retriable(error) != 0;
  }
}

TransactionResult unconfirmed(TransactionResult aborted) {
  aborted.outcome = Outcome::unknown;
  aborted.refused.clear();
  return aborted;
}

std::vector<std::size_t> sending_order(std::span<const ProducerRecord> records) {
  using Place = std::tuple<std::string_view, std::string_view, PartitionIndex>;
  std::set<Place> begun;
  std::vector<std::size_t> order, others;
  order.reserve(records.size());
  for (std::size_t i = 0; i < records.size(); ++i) {
    const std::string& topic = records[i].topic;
    const Source& source = records[i].source;
    // Most records stand behind one of their own kind, so most need no look-up.
    const bool is_next = i > 0 && topic == records[i - 1].topic && source == records[i - 1].source;
    const bool is_first = !is_next && begun.emplace(topic, source.topic, source.partition).second;
    (is_first ? order : others).push_back(i);
  }
  order.insert(order.end(), others.begin(), others.end());
  return order;
}

// The delivery reports of the records that are produced together, by their index.
struct KafkaProducers::Reports {
  std::span<const ProducerRecord> records{};
  std::vector<std::pair<std::size_t, std::string>> refused;
  std::map<std::string, std::string> forbidden{};  // Targets that may not be written.
  std::string failed;                              // For another reason.
  // The same, where the reason is that of a topic.
  decltype(TransactionResult::failing_targets) failing_targets{};
  decltype(TransactionResult::failing_sources) failing_sources{};
  bool is_unconfirmed = false;  // One of them has no outcome in time.
  // Kafka has refused some topic, perhaps, and all records were taken back for it.
  bool may_be_forbidden = false;
  std::vector<bool> is_there{};  // Kafka has confirmed the record.
  decltype(TransactionResult::placed) placed{};
  decltype(TransactionResult::rows_end) rows_end{};

  void add(std::size_t index, rd_kafka_resp_err_t error, Offset offset = -1) {
    if (error == RD_KAFKA_RESP_ERR_NO_ERROR) {
      const ProducerRecord& record = records[index];
      is_there.resize(records.size());
      is_there[index] = true;
      if (record.wants_place) placed.push_back({{record.source, record.offset}, offset});
      if (record.kind == ProducerRecord::Kind::row && offset >= 0) {
        Offset& end = rows_end[record.source];
        end = std::max(end, offset + 1);
      }
      return;
    }
    const auto text = fmt::format("{}: {}", rd_kafka_err2name(error), rd_kafka_err2str(error));
    // Without the right to write its own topics the relay has to wait for it.
    const bool is_forbidden = error == RD_KAFKA_RESP_ERR_TOPIC_AUTHORIZATION_FAILED;
    const bool is_target = records[index].kind == ProducerRecord::Kind::target;
    if (is_forbidden && is_target) {
      forbidden.emplace(records[index].topic, text);
    } else if (is_refusal(error)) {
      refused.emplace_back(index, text);
    } else {
      failed = text;
      if (is_forbidden || is_of_topic(error)) add_failing(records[index], text);
      may_be_forbidden = may_be_forbidden || error == RD_KAFKA_RESP_ERR__STATE;
    }
  }
  void add_failing(const ProducerRecord& record, const std::string& text) {
    auto why = fmt::format("{}: {}", record.topic, text);
    if (record.kind == ProducerRecord::Kind::target) {
      failing_targets.emplace(record.topic, std::move(why));
    } else {
      failing_sources.emplace(record.source, std::move(why));
    }
  }
  bool is_fine() const { return refused.empty() && forbidden.empty() && failed.empty(); }
  // All records for those targets: no search is needed for them.
  void refuse_forbidden(TransactionResult& done) const {
    for (std::size_t i = 0; i < records.size(); ++i) {
      const auto found = forbidden.find(records[i].topic);
      if (found != forbidden.end()) done.refused.emplace_back(i, found->second);
    }
  }
  // Names those that have not confirmed their records in time, while others have.
  void name_silent(TransactionResult& done) {
    is_there.resize(records.size());
    if (std::ranges::none_of(is_there, [](bool each) { return each; })) return;
    for (std::size_t i = 0; i < records.size(); ++i) {
      if (is_there[i]) continue;
      if (records[i].kind == ProducerRecord::Kind::target)
        done.silent_targets.insert(records[i].topic);
      if (records[i].kind == ProducerRecord::Kind::row)
        done.silent_sources.insert(records[i].source);
      if (records[i].kind == ProducerRecord::Kind::invalid)
        done.failing_sources.emplace(
            records[i].source, fmt::format("{} has confirmed no record in time", records[i].topic));
    }
  }
};

// They are a round of their own, however many are begun.
struct KafkaProducers::UnderWay {
  std::vector<ProducerRecord> records;
  Reports reports{};
  std::uintptr_t round = 0;
  std::size_t confirmed = 0;  // From the first one on.
};

// The end of several calls together: repeating one does not begin its time anew.
class KafkaProducers::Deadline {
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

KafkaProducers::KafkaProducers(const KafkaOptions& options)
    : options_(options), closer_(options.closing_limit) {}

KafkaProducers::~KafkaProducers() {
  known_topics_.clear();
  for (auto* producer : {&producers_[0], &producers_[1], &sender_}) give_up(std::move(*producer));
}

void KafkaProducers::poll() {
  for (const auto& producer : producers_)
    if (producer) rd_kafka_poll(producer.get(), 0);
}

// The functions of ours that the client calls belong to poll() and flush(), which are not called
// for it any more.
void KafkaProducers::give_up(KafkaClient client) {
  if (client) closer_.close([gone = std::move(client)]() mutable { gone.reset(); });
}

Result<KafkaClient> KafkaProducers::open_producer(const std::string& transactional_id) {
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
      "queue.buffering.max.kbytes=262144"};
  properties.insert(properties.end(), options_.properties.begin(), options_.properties.end());
  properties.emplace_back("enable.idempotence=true");
  // The Java client's partitioner.
  properties.emplace_back("partitioner=murmur2_random");
  if (!transactional_id.empty()) properties.push_back("transactional.id=" + transactional_id);
  return open_client(RD_KAFKA_PRODUCER, properties, [this](rd_kafka_conf_t* conf) {
    rd_kafka_conf_set_opaque(conf, this);
    rd_kafka_conf_set_dr_msg_cb(conf, [](rd_kafka_t*, const rd_kafka_message_t* message, void* us) {
      static_cast<KafkaProducers*>(us)->on_report(*message);
    });
  });
}

Result<> KafkaProducers::renew(milliseconds limit) {
  known_topics_.clear();
  turn_ = 0;
  const Deadline deadline(limit);
  for (std::size_t i = 0; i < producers_.size(); ++i) {
    give_up(std::move(producers_[i]));
    const auto id = fmt::format("{}-{}", options_.owner, i);
    auto opened = open_producer(id);
    if (!opened) return std::unexpected(opened.error());
    const KafkaError error(rd_kafka_init_transactions(opened->get(), deadline.left_ms()));
    if (error) {
      give_up(std::move(*opened));
      return fail(Errc::io, error_text(error.get(), "transactional.id " + id));
    }
    producers_[i] = std::move(*opened);
  }
  if (!options_.has_sender) return {};
  // A member ends them first.
  if (under_way_) under_way_->reports.failed = "the producer was replaced";
  give_up(std::move(sender_));
  auto opened = open_producer("");
  if (!opened) return std::unexpected(opened.error());
  sender_ = std::move(*opened);
  return {};
}

KafkaPartitions KafkaProducers::offsets_of(const Transaction& transaction) const {
  KafkaPartitions list(
      rd_kafka_topic_partition_list_new(static_cast<int>(transaction.offsets.size())));
  const std::string metadata = std::string(owner_mark) + options_.owner;
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
void KafkaProducers::on_report(const rd_kafka_message_t& message) {
  const auto tag = reinterpret_cast<std::uintptr_t>(message._private);
  const std::uintptr_t round = tag >> index_bits;
  Reports* reports = nullptr;
  if (under_way_ && round == under_way_->round) {
    reports = &under_way_->reports;
  } else if (round == round_) {
    reports = reports_;
  }
  if (reports != nullptr)
    reports->add(tag & ((std::uintptr_t{1} << index_bits) - 1), message.err, message.offset);
}

// librdkafka looks for the leaders of a topic that is new to a producer when its timer of a second
// expires, and the transaction would wait for that.
void KafkaProducers::learn_topics(rd_kafka_t* producer, std::span<const ProducerRecord> records,
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
bool KafkaProducers::produce(rd_kafka_t* producer, std::span<const ProducerRecord> records,
                             Reports& reports, Deadline deadline, bool is_careful) {
  reports_ = &reports;
  reports.records = records;
  ++round_;
  for (const std::size_t i : sending_order(records)) {
    const auto error = hand_over(producer, records[i], round_ << index_bits | i, deadline);
    if (error != RD_KAFKA_RESP_ERR_NO_ERROR) {
      reports.add(i, error);
      // Those before it have filled the queue until now.
      reports.is_unconfirmed = error == RD_KAFKA_RESP_ERR__QUEUE_FULL;
      return false;
    }
    if (!is_careful) continue;
    if (rd_kafka_flush(producer, deadline.left_ms()) != RD_KAFKA_RESP_ERR_NO_ERROR) {
      reports.failed = "Kafka does not answer";
      reports.is_unconfirmed = true;
    }
    if (!reports.is_fine()) return false;
  }
  return true;
}

// Waits while librdkafka's queue is full.
rd_kafka_resp_err_t KafkaProducers::hand_over(rd_kafka_t* producer, const ProducerRecord& record,
                                              std::uintptr_t tag, Deadline deadline) {
  while (true) {
    const auto error = produce_one(producer, record, tag);
    if (error != RD_KAFKA_RESP_ERR__QUEUE_FULL || deadline.is_over()) return error;
    rd_kafka_poll(producer, 10);
  }
}

rd_kafka_resp_err_t KafkaProducers::produce_one(rd_kafka_t* producer, const ProducerRecord& record,
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
  // Copied, because librdkafka may still send it when this transaction has been given up.
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

TransactionResult KafkaProducers::abort(rd_kafka_t* producer, TransactionResult done,
                                        Deadline deadline) {
  done.outcome = Outcome::aborted;
  do {
    const KafkaError error(rd_kafka_abort_transaction(producer, deadline.left_ms()));
    if (!error) return done;
    if (done.error.empty()) done.error = error_text(error.get(), "abort");
    if (!rd_kafka_error_is_retriable(error.get())) break;
  } while (!deadline.is_over());
  done.outcome = Outcome::unknown;
  done.refused.clear();
  done.silent_targets.clear();  // Kafka is silent, and not a topic.
  done.silent_sources.clear();
  done.failing_sources.clear();
  return done;
}

TransactionResult KafkaProducers::commit(rd_kafka_t* producer, Reports& reports,
                                         Deadline deadline) {
  TransactionResult done;
  // Before the commit, which would wait for these too and say nothing about them.
  if (rd_kafka_flush(producer, deadline.left_ms()) != RD_KAFKA_RESP_ERR_NO_ERROR) {
    reports.name_silent(done);
    done.error = "not all records were confirmed in time";
    // If Kafka answers this, it is the targets that are silent.
    return unconfirmed(abort(producer, std::move(done), deadline.later(options_.abort_limit)));
  }
  do {
    const KafkaError error(rd_kafka_commit_transaction(producer, deadline.left_ms()));
    if (!error) return done;
    done.error = error_text(error.get(), "commit");
    if (rd_kafka_error_txn_requires_abort(error.get())) {
      reports.may_be_forbidden =
          reports.may_be_forbidden ||
          rd_kafka_error_code(error.get()) == RD_KAFKA_RESP_ERR_TOPIC_AUTHORIZATION_FAILED;
      done.refused = std::move(reports.refused);
      return abort(producer, std::move(done), deadline.later(options_.abort_limit));
    }
    if (!rd_kafka_error_is_retriable(error.get())) break;
  } while (!deadline.is_over());
  done.outcome = Outcome::unknown;
  return done;
}

TransactionResult KafkaProducers::transact(const Transaction& transaction,
                                           const rd_kafka_consumer_group_metadata_t* group) {
  TransactionResult done;
  rd_kafka_t* producer = producers_[turn_].get();
  // In turn: Kafka still writes the markers of the last transaction while the next one begins.
  turn_ = (turn_ + 1) % producers_.size();
  const Deadline deadline(options_.transaction_limit);
  const Deadline abort_deadline = deadline.later(options_.abort_limit);
  learn_topics(producer, transaction.records, deadline);
  if (const KafkaError error(rd_kafka_begin_transaction(producer)); error) {
    done.outcome = Outcome::unknown;
    done.error = error_text(error.get(), "begin");
    return done;
  }
  // Before the records: a transaction that the group refuses leaves nothing in the logs.
  const auto offsets = offsets_of(transaction);
  if (const KafkaError error(
          rd_kafka_send_offsets_to_transaction(producer, offsets.get(), group, deadline.left_ms()));
      error) {
    done.error = error_text(error.get(), "offsets");
    done.is_fenced = true;
    done = abort(producer, std::move(done), abort_deadline);
    // Offsets that come behind the abort would be those of this producer's next transaction.
    if (is_unanswered(error.get())) return unconfirmed(std::move(done));
    if (done.outcome == Outcome::aborted &&
        rd_kafka_error_code(error.get()) == RD_KAFKA_RESP_ERR_TOPIC_AUTHORIZATION_FAILED)
      find_unreadable(producer, transaction, group, done);
    return done;
  }
  Reports reports;
  constexpr auto kind = RefusalSearch::Kind::transaction;
  if (!produce(producer, transaction.records, reports, deadline, search_.is_careful(kind))) {
    done.error = reports.failed;
    done.refused = std::move(reports.refused);
    done = abort(producer, std::move(done), abort_deadline);
    if (reports.is_unconfirmed) done = unconfirmed(std::move(done));
  } else {
    done = commit(producer, reports, deadline);
    done.placed = std::move(reports.placed);
    done.rows_end = std::move(reports.rows_end);
  }
  reports_ = nullptr;
  if (done.outcome == Outcome::aborted) {
    done.failing_targets.merge(reports.failing_targets);
    done.failing_sources.merge(reports.failing_sources);
  }
  // Kafka refuses a batch for one of its records: the next attempt finds out which.
  done.is_careful = search_.ended(kind, !done.refused.empty());
  if (done.is_careful) {
    done.error = fmt::format("a record is refused: {}", done.refused.front().second);
    done.refused.clear();
  } else if (done.outcome == Outcome::aborted && !reports.forbidden.empty()) {
    reports.refuse_forbidden(done);
  } else if (done.outcome == Outcome::aborted && reports.may_be_forbidden && !done.is_of_some()) {
    find_forbidden(producer, transaction, group, done);
  }
  return done;
}

// Kafka refuses the offsets of all sources for one that this member may not read, and librdkafka
// does not say which.  So those of each topic are sent in a transaction of their own, which is
// aborted.
void KafkaProducers::find_unreadable(rd_kafka_t* producer, const Transaction& transaction,
                                     const rd_kafka_consumer_group_metadata_t* group,
                                     TransactionResult& done) {
  std::map<std::string, Transaction> topics;
  for (const auto& each : transaction.offsets) topics[each.source.topic].offsets.push_back(each);
  const Deadline deadline(options_.transaction_limit);
  for (const auto& [topic, alone] : topics) {
    if (deadline.is_over()) return;
    TransactionResult tried;
    if (const KafkaError error(rd_kafka_begin_transaction(producer)); error) {
      tried.outcome = Outcome::unknown;
      tried.error = error_text(error.get(), "begin");
    } else {
      const auto offsets = offsets_of(alone);
      const KafkaError refused(
          rd_kafka_send_offsets_to_transaction(producer, offsets.get(), group, deadline.left_ms()));
      tried = abort(producer, std::move(tried), deadline.later(options_.abort_limit));
      if (is_unanswered(refused.get())) tried = unconfirmed(std::move(tried));
      const bool is_forbidden = refused && rd_kafka_error_code(refused.get()) ==
                                               RD_KAFKA_RESP_ERR_TOPIC_AUTHORIZATION_FAILED;
      for (const auto& each : alone.offsets)
        if (is_forbidden)
          done.failing_sources.emplace(
              each.source, error_text(refused.get(), topic + ": this member may not read it"));
    }
    if (tried.outcome == Outcome::aborted) continue;
    done.outcome = Outcome::unknown;
    done.error = std::move(tried.error);
    done.failing_sources.clear();
    return;
  }
}

// Kafka refuses all topics of a transaction for one of them, and librdkafka does not say which.  So
// one record for each topic is produced in a transaction of its own, which is aborted.
void KafkaProducers::find_forbidden(rd_kafka_t* producer, const Transaction& transaction,
                                    const rd_kafka_consumer_group_metadata_t* group,
                                    TransactionResult& done) {
  std::map<std::string, std::string> forbidden;  // By topic; empty: it is not.
  const Deadline deadline(options_.transaction_limit);
  for (std::size_t i = 0; i < transaction.records.size(); ++i) {
    const ProducerRecord& record = transaction.records[i];
    const auto [known, is_new] = forbidden.try_emplace(record.topic);
    if (is_new && !deadline.is_over()) {
      auto tried = try_record(producer, record, transaction, group, deadline);
      if (!tried) {
        done.outcome = Outcome::unknown;
        done.error = std::move(tried.error().message);
        done.refused.clear();
        done.failing_sources.clear();
        return;
      }
      known->second = std::move(*tried);
    }
    if (known->second.empty()) continue;
    done.error = fmt::format("{}: {}", record.topic, known->second);
    if (record.kind == ProducerRecord::Kind::target) {
      done.refused.emplace_back(i, known->second);
    } else {
      done.failing_sources.emplace(record.source, done.error);
    }
  }
}

// Why Kafka forbids the record's topic; empty: it does not.  The error: a new producer is needed.
Result<std::string> KafkaProducers::try_record(rd_kafka_t* producer, const ProducerRecord& record,
                                               const Transaction& transaction,
                                               const rd_kafka_consumer_group_metadata_t* group,
                                               Deadline deadline) {
  if (const KafkaError error(rd_kafka_begin_transaction(producer)); error)
    return fail(Errc::io, error_text(error.get(), "begin"));
  Reports reports;
  std::string why;
  produce(producer, {&record, 1}, reports, deadline, false);
  const bool is_confirmed =
      rd_kafka_flush(producer, deadline.left_ms()) == RD_KAFKA_RESP_ERR_NO_ERROR;
  reports_ = nullptr;
  // Only a call about the transaction says why the record has come back.
  const auto offsets = offsets_of(transaction);
  const KafkaError error(
      rd_kafka_send_offsets_to_transaction(producer, offsets.get(), group, deadline.left_ms()));
  if (error && rd_kafka_error_code(error.get()) == RD_KAFKA_RESP_ERR_TOPIC_AUTHORIZATION_FAILED)
    why = error_text(error.get(), "this member may not write to it");
  auto ended = abort(producer, {}, deadline.later(options_.abort_limit));
  if (!is_confirmed || is_unanswered(error.get())) ended = unconfirmed(std::move(ended));
  if (ended.outcome == Outcome::unknown)
    return fail(Errc::io, ended.error.empty() ? "a record was not confirmed in time" : ended.error);
  return why;
}

TransactionResult KafkaProducers::send(std::span<const ProducerRecord> records) {
  Reports reports;
  const Deadline deadline(options_.transaction_limit);
  learn_topics(sender_.get(), records, deadline);
  const bool is_produced = produce(sender_.get(), records, reports, deadline,
                                   search_.is_careful(RefusalSearch::Kind::sending));
  auto done = end_sending(reports, is_produced, deadline);
  reports_ = nullptr;
  return done;
}

void KafkaProducers::begin_send(std::vector<ProducerRecord> records) {
  if (!under_way_) {
    under_way_ = std::make_unique<UnderWay>();
    under_way_->round = ++round_;
    // Many go in a batch, so one of them that is refused would have all of them taken for refused.
    search_.give_up(RefusalSearch::Kind::sending);
  }
  UnderWay& all = *under_way_;
  const Deadline deadline(options_.transaction_limit);
  learn_topics(sender_.get(), records, deadline);
  std::size_t next = all.records.size();
  std::ranges::move(records, std::back_inserter(all.records));
  all.reports.records = all.records;
  // Behind one that has failed nothing is sent, or it would come before it.
  for (; next < all.records.size() && all.reports.is_fine(); ++next) {
    const auto error =
        hand_over(sender_.get(), all.records[next], all.round << index_bits | next, deadline);
    if (error != RD_KAFKA_RESP_ERR_NO_ERROR) all.reports.add(next, error);
  }
}

Sending KafkaProducers::sending() {
  if (!under_way_) return {};
  rd_kafka_poll(sender_.get(), 0);
  UnderWay& all = *under_way_;
  const auto& is_there = all.reports.is_there;
  while (all.confirmed < is_there.size() && is_there[all.confirmed]) ++all.confirmed;
  return {all.confirmed, !all.reports.is_fine()};
}

SendResult KafkaProducers::end_send() {
  SendResult result;
  if (!under_way_) return result;
  const bool is_whole = under_way_->reports.is_fine();
  result.done = end_sending(under_way_->reports, is_whole, Deadline(options_.transaction_limit));
  result.records = std::move(under_way_->records);
  under_way_.reset();
  return result;
}

void KafkaProducers::drain(milliseconds limit) {
  if (!under_way_ || rd_kafka_flush(sender_.get(), in_ms(limit)) == RD_KAFKA_RESP_ERR_NO_ERROR)
    return;
  rd_kafka_purge(sender_.get(), RD_KAFKA_PURGE_F_QUEUE | RD_KAFKA_PURGE_F_INFLIGHT);
  rd_kafka_flush(sender_.get(), in_ms(limit));
}

// Waits for the sender's records.  `is_produced`: it has got all of them.
TransactionResult KafkaProducers::end_sending(Reports& reports, bool is_produced,
                                              Deadline deadline) {
  TransactionResult done;
  constexpr auto kind = RefusalSearch::Kind::sending;
  if (rd_kafka_flush(sender_.get(), deadline.left_ms()) != 0) {
    // Otherwise they could arrive later, out of their order.
    // Unless Kafka as a whole is silent.
    const struct rd_kafka_metadata* raw = nullptr;
    if (rd_kafka_metadata(sender_.get(), 0, nullptr, &raw, in_ms(options_.abort_limit)) ==
        RD_KAFKA_RESP_ERR_NO_ERROR) {
      rd_kafka_metadata_destroy(raw);
      reports.name_silent(done);
    }
    rd_kafka_purge(sender_.get(), RD_KAFKA_PURGE_F_QUEUE | RD_KAFKA_PURGE_F_INFLIGHT);
    rd_kafka_flush(sender_.get(), in_ms(options_.abort_limit));
    reports.failed = "Kafka does not answer";
  }
  done.is_careful = search_.ended(kind, !reports.refused.empty());
  done.placed = std::move(reports.placed);
  if (is_produced && reports.is_fine()) return done;
  // After a fatal error this sender sends nothing more: there must be a new one.
  std::array<char, 256> why{};
  const bool is_fatal =
      rd_kafka_fatal_error(sender_.get(), why.data(), why.size()) != RD_KAFKA_RESP_ERR_NO_ERROR;
  done.outcome = is_fatal ? Outcome::unknown : Outcome::aborted;
  done.error = is_fatal ? why.data() : reports.failed;
  done.refused = std::move(reports.refused);
  if (done.outcome == Outcome::aborted) done.failing_targets.merge(reports.failing_targets);
  if (done.is_careful) {
    done.error = fmt::format("a record is refused: {}", done.refused.front().second);
    done.refused.clear();
  } else if (done.outcome == Outcome::aborted) {
    reports.refuse_forbidden(done);
  }
  return done;
}

Result<> KafkaProducers::settle(const std::string& owner) {
  // Only our own: anybody who may commit offsets could have written it.
  if (!owner.starts_with(options_.rules.group + "-")) return {};
  const Deadline deadline(options_.renewal_limit);
  for (std::size_t i = 0; i < producers_.size(); ++i) {
    const auto id = fmt::format("{}-{}", owner, i);
    auto opened = open_producer(id);
    if (!opened) return std::unexpected(opened.error());
    const KafkaError error(rd_kafka_init_transactions(opened->get(), deadline.left_ms()));
    give_up(std::move(*opened));
    if (error) return fail(Errc::io, error_text(error.get(), "transactional.id " + id));
  }
  return {};
}

}  // namespace tarry::relay
