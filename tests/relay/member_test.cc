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

}  // namespace tarry::relay
