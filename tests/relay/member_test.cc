// One member and a model of Kafka, without disturbances but those of the test.

#include <doctest/doctest.h>

#include <map>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "base/log.h"
#include "records/batch_builder.h"
#include "relay/member.h"
#include "tests/relay/kafka_model.h"

namespace tarry::relay {
namespace {

using std::chrono::milliseconds;

// A Kafka that refuses what the test says.
class RefusingCluster final : public ModelCluster {
 public:
  RefusingCluster(KafkaModel& kafka, const Rules& rules)
      : ModelCluster(
            kafka, 1, rules, [] {}, [](int) { return false; }) {}

  Result<> prepare(std::span<const Source> sources) override {
    for (const auto& source : sources)
      if (bad_sources.contains(source.topic)) return fail(Errc::invalid, source.topic + " is bad");
    return {};
  }
  Result<> prepare_target(const std::string& topic, const Source&) override {
    if (bad_targets.contains(topic)) return fail(Errc::invalid, topic + " cannot be made");
    return {};
  }
  Result<Offset> source_end(const Source& source) override {
    if (!without_leader.contains(source)) return ModelCluster::source_end(source);
    ++asked_in_vain;
    return fail(Errc::io, "no leader");
  }

  std::set<std::string> bad_sources, bad_targets;
  std::set<Source> without_leader;
  int asked_in_vain = 0;
};

class OneMember {
 public:
  explicit OneMember(std::vector<Source> sources = {{"o.delayed", 0}}) {
    set_log_level(LogLevel::off);
    for (const auto& source : sources) kafka.targets[source] = -1;
    kafka.rebalance();
  }
  ~OneMember() { set_log_level(LogLevel::info); }

  void send(const Source& source, const std::string& value,
            const std::vector<std::pair<std::string, std::string>>& headers = {}) {
    Outgoing record;
    record.value.emplace();
    records::append_key_value(*record.value, as_bytes("k"), as_bytes(value));
    records::append_varint(*record.value, static_cast<std::int64_t>(headers.size()));
    for (const auto& [name, text] : headers)
      records::append_header(*record.value, name, as_bytes(text));
    record.timestamp = kafka.now;
    kafka.append({source.topic, source.partition}, std::move(record), -1);
  }
  void step() {
    member.step(milliseconds{0});
    kafka.now += milliseconds(20);
    kafka.tick([] { return true; });
  }
  void steps(int count) {
    for (int i = 0; i < count; ++i) step();
  }
  // The values in all partitions of a topic, as consumers see them.
  std::string in(const std::string& topic) {
    std::string text;
    for (const auto& [log, entries] : kafka.logs) {
      if (log.first != topic) continue;
      for (const auto& entry : entries) {
        if (!kafka.is_committed(entry)) continue;
        if (!text.empty()) text += ' ';
        const auto& value = entry.record.value;
        text += value ? std::string(value->begin(), value->end()) : "null";
      }
    }
    return text;
  }

  class SteppedClock final : public Clock {
   public:
    explicit SteppedClock(const KafkaModel& kafka) : kafka_(kafka) {}
    WallTime wall() const override { return kafka_.now; }
    MonoTime mono() const override { return MonoTime{kafka_.now.time_since_epoch()}; }

   private:
    const KafkaModel& kafka_;
  };

  KafkaModel kafka{{}};
  SteppedClock clock{kafka};
  Rules rules{"g", "*", false};
  RefusingCluster cluster{kafka, rules};
  Member member{cluster, clock, [this] {
                  MemberOptions options;
                  options.rules = rules;
                  return options;
                }()};
};

}  // namespace

TEST_CASE("a partition is owned and delivers while its source never rests") {
  OneMember one;
  for (int i = 0; i < 20; ++i) {
    one.send({"o.delayed", 0}, std::to_string(i));
    one.step();
  }
  CHECK(one.member.is_ready());
  CHECK(one.in("o").starts_with("0 1 2"));
}

TEST_CASE(
    "a source whose topics are wrong is alone in waiting, and is taken over when they are right") {
  OneMember one({{"bad.delayed", 0}, {"o.delayed", 0}});
  one.cluster.bad_sources = {"bad.delayed"};
  for (int i = 0; i < 100; ++i) {
    one.send({"o.delayed", 0}, std::to_string(i));
    one.step();
  }
  CHECK(one.in("o").ends_with("98 99"));
  CHECK(one.member.status().transactions > 90);
  CHECK(one.member.status().stalled == "bad.delayed is bad");
  CHECK_FALSE(one.member.is_ready());
  one.cluster.bad_sources.clear();
  one.send({"bad.delayed", 0}, "x");
  one.steps(600);
  CHECK(one.in("bad") == "x");
  CHECK(one.member.status().stalled == "");
}

TEST_CASE("records to a target that cannot be made go to NAME.invalid, and the others leave") {
  OneMember one;
  one.cluster.bad_targets = {"forbidden"};
  one.send({"o.delayed", 0}, "a", {{"x-deliver-to", "forbidden"}});
  one.send({"o.delayed", 0}, "b");
  one.send({"o.delayed", 0}, "c", {{"x-deliver-to", "forbidden"}});
  one.steps(20);
  CHECK(one.in("o.delayed.invalid") == "a c");
  CHECK(one.in("o") == "b");
}

TEST_CASE("of the partitions without a leader one is asked in a step, and the others go on") {
  OneMember one({{"o.delayed", 0}, {"o.delayed", 1}, {"o.delayed", 2}});
  one.cluster.without_leader = {{"o.delayed", 0}, {"o.delayed", 1}};
  one.send({"o.delayed", 2}, "x");
  for (int i = 0; i < 100; ++i) {
    const int before = one.cluster.asked_in_vain;
    one.step();
    CHECK(one.cluster.asked_in_vain <= before + 1);
  }
  CHECK(one.in("o") == "x");
  CHECK(one.cluster.asked_in_vain < 20);
}

TEST_CASE("a source whose offset is gone waits while its state has rows") {
  OneMember one;
  Outgoing row;
  row.key.emplace();
  one.kafka.append({"g-pending-o.delayed", 0}, std::move(row), -1);
  one.send({"o.delayed", 0}, "x");
  one.steps(50);
  CHECK(one.in("o") == "");
  CHECK(one.member.status().stalled.contains("has no offset"));
}

TEST_CASE("a partition with a row of a newer version is not owned") {
  OneMember one;
  Outgoing row;
  row.key.emplace();
  append_bytes(*row.key, as_bytes(handle_of({"o.delayed", 0}, 7)));
  row.value.emplace(30, std::uint8_t{9});
  one.kafka.append({"g-pending-o.delayed", 0}, std::move(row), -1);
  one.kafka.committed[{"o.delayed", 0}] = {true, 0, ""};
  one.send({"o.delayed", 0}, "x");
  one.steps(50);
  CHECK(one.in("o") == "");
  CHECK(one.member.status().stalled.contains("newer"));
}

}  // namespace tarry::relay
