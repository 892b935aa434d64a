// A member of the relay that lacks one mechanism: with_kafka.py --control has to see it.
//
//   relay_control CONTROL BROKERS SOURCE GROUP DATA
//
//   none         nothing is taken away
//   no-fencing   offsets are committed as by a consumer outside the group, which Kafka accepts
//   tombstones   rows are removed before the transaction that delivers their records
//   no-waiting   each offset counts as stable, and a state partition ends where it is stable
//   waiting      nothing is taken away, with the transactions of no-waiting
//
// Each transaction begins 100 ms late, so that a signal often comes between a plan and its
// transaction.  For no-waiting it has to come inside the transaction, behind the offsets, and the
// member has to commit when the group has long moved on.  So its producers have a queue of one
// record, which waits in it for a while: a transaction of a few records takes a second or two from
// its offsets to its commit, and it may take longer than in the product.  There is no admin.

#include <algorithm>
#include <atomic>
#include <chrono>
#include <csignal>
#include <cstdio>
#include <set>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include <unistd.h>

#include "base/clock.h"
#include "relay/kafka_cluster.h"
#include "relay/member.h"
#include "storage/disk_rows.h"

namespace tarry::relay {
namespace {

using std::chrono::milliseconds;

constexpr milliseconds late_by{100};
constexpr std::size_t store_memory = 64u << 20;
// no-waiting: the time of each record but the last between the offsets and the commit, and how many
// of each kind a transaction has, so that it ends well before transaction.timeout.ms.
constexpr milliseconds record_takes{150};
constexpr std::size_t few_records = 4;
// A member that stood still in a transaction for longer than a session still commits it.
constexpr milliseconds long_transaction{20'000};

std::atomic<bool> is_told_to_end = false;

class RealClock final : public Clock {
 public:
  WallTime wall() const override {
    return std::chrono::floor<milliseconds>(std::chrono::system_clock::now());
  }
  MonoTime mono() const override { return std::chrono::steady_clock::now(); }
};

class LamedCluster final : public Cluster {
 public:
  LamedCluster(KafkaCluster& kafka, KafkaOptions options, std::string control)
      : kafka_(kafka),
        control_(std::move(control)),
        options_(std::move(options)),
        stateless_(rd_kafka_consumer_group_metadata_new(options_.rules.group.c_str())) {
    // The other ones have the names of the cluster's own.
    options_.owner += "-lamed";
    if (control_ == "no-fencing" && !producers_.renew(options_.first_limit)) std::exit(1);
    auto opened = open_client(
        RD_KAFKA_CONSUMER, {"bootstrap.servers=" + options_.brokers,
                            "isolation.level=read_committed", "group.id=" + options_.rules.group});
    if (!opened) std::exit(1);
    reader_ = std::move(*opened);
  }

  PollResult poll(milliseconds wait, const std::set<Source>& paused) override {
    return kafka_.poll(wait, paused);
  }
  Result<> prepare(std::span<const Source> sources) override { return kafka_.prepare(sources); }
  Result<> prepare_target(const std::string& topic, const Source& source) override {
    return kafka_.prepare_target(topic, source);
  }
  Result<std::vector<CommittedOffset>> committed(std::span<const Source> sources) override {
    auto all = kafka_.committed(sources);
    if (all && control_ == "no-waiting")
      for (auto& each : *all) each.is_stable = true;
    return all;
  }
  Result<Offset> source_end(const Source& source) override { return kafka_.source_end(source); }
  Result<Offset> stable_source_end(const Source& source) override {
    return kafka_.stable_source_end(source);
  }
  Result<Offset> state_end(const Source& source) override {
    if (control_ != "no-waiting") return kafka_.state_end(source);
    const std::string topic = options_.rules.state_topic(source.topic);
    std::int64_t low = 0, high = 0;
    const auto error = rd_kafka_query_watermark_offsets(reader_.get(), topic.c_str(),
                                                        source.partition, &low, &high, 4'000);
    if (error != RD_KAFKA_RESP_ERR_NO_ERROR) return fail(Errc::io, error_text(error, topic));
    return high;
  }
  Result<> start_rows(const Source& source, Offset from) override {
    return kafka_.start_rows(source, from);
  }
  void stop_rows(const Source& source) override { kafka_.stop_rows(source); }
  TransactionResult transact(const Transaction& transaction) override {
    if (control_ != "tombstones") std::this_thread::sleep_for(late_by);
    if (control_ == "no-fencing") return producers_.transact(transaction, stateless_.get());
    if (control_ != "tombstones") return kafka_.transact(transaction);
    const auto is_tombstone = [](const ProducerRecord& record) {
      return record.kind == ProducerRecord::Kind::row && !record.value;
    };
    Transaction rest{transaction.offsets, {}};
    std::vector<ProducerRecord> tombstones;
    for (const auto& record : transaction.records)
      (is_tombstone(record) ? tombstones : rest.records).push_back(record);
    if (!tombstones.empty()) {
      auto sent = kafka_.send(tombstones);
      if (sent.outcome != Outcome::committed) return sent;
    }
    std::this_thread::sleep_for(late_by);
    return kafka_.transact(rest);
  }
  TransactionResult send(std::span<const ProducerRecord> records) override {
    return kafka_.send(records);
  }
  Result<> begin_send(std::vector<ProducerRecord> records) override {
    return kafka_.begin_send(std::move(records));
  }
  Sending sending() override { return kafka_.sending(); }
  SendResult end_send() override { return kafka_.end_send(); }
  Result<> settle(const std::string& owner) override { return kafka_.settle(owner); }
  const std::string& owner() const override {
    return control_ == "no-fencing" ? options_.owner : kafka_.owner();
  }
  Result<> renew() override {
    return control_ == "no-fencing" ? producers_.renew(options_.renewal_limit) : kafka_.renew();
  }

 private:
  KafkaCluster& kafka_;
  const std::string control_;
  KafkaOptions options_;
  KafkaProducers producers_{options_};
  const KafkaGroupMetadata stateless_;
  KafkaClient reader_;
};

int run(const std::string& control, const std::string& brokers, const std::string& source,
        const std::string& group, const std::string& data) {
  const RealClock clock;
  KafkaOptions options;
  options.brokers = brokers;
  options.source = source;
  options.rules = {group, "", true};
  // By a moment and a process: each incarnation has names of its own.
  options.owner =
      group + "-" + std::to_string(::getpid()) + "-" + std::to_string(to_ms(clock.wall()));
  options.client_id = options.member_id = "relay-control";
  options.has_sender = true;
  MemberOptions with;
  with.rules = options.rules;
  if (control == "no-waiting" || control == "waiting") {
    options.properties = {"queue.buffering.max.messages=1",
                          "linger.ms=" + std::to_string(record_takes.count()),
                          "session.timeout.ms=6000", "heartbeat.interval.ms=1000"};
    options.transaction_limit = long_transaction;
    with.limits.arrivals = with.limits.deliveries = few_records;
  }
  const auto store = storage::DiskRows::open(data, "control " + group, store_memory);
  auto kafka = KafkaCluster::open(options);
  if (!store || !kafka) {
    std::fprintf(stderr, "%s\n", (store ? kafka.error() : store.error()).message.c_str());
    return 1;
  }
  LamedCluster cluster(**kafka, options, control);
  Member member(cluster, clock, **store, with);
  while (!is_told_to_end) member.step(milliseconds(100));
  (*kafka)->leave();
  return 0;
}

}  // namespace
}  // namespace tarry::relay

int main(int count, char** arguments) {
  const std::vector<std::string> given(arguments + 1, arguments + count);
  const std::vector<std::string> controls{"none", "no-fencing", "tombstones", "no-waiting",
                                          "waiting"};
  if (given.size() != 5 || std::ranges::find(controls, given[0]) == controls.end()) {
    std::fprintf(
        stderr,
        "usage: relay_control none|no-fencing|tombstones|no-waiting|waiting BROKERS SOURCE GROUP "
        "DATA\n");
    return 2;
  }
  std::signal(SIGTERM, [](int) { tarry::relay::is_told_to_end = true; });
  return tarry::relay::run(given[0], given[1], given[2], given[3], given[4]);
}
