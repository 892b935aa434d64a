// A host in a screen of code: engine, near tier and store without a broker and without a journal of
// Tarry's.  Its truth is a log of records that somebody else keeps, a topic of an existing Kafka
// for example.  A host that comes back has that log, and its store or an empty one.

#include "delay/tier_replay.h"
#include "tests/delay/host.h"  // The clock, and how batches are made and read.

namespace tarry::delay {
namespace {

// The state that outlives a host.
struct Truth {
  std::vector<Buffer> records;  // Each is all of a transaction; its lsn is its index.
  Lsn checkpoint = 0;           // The records before it are in the store.
  Sequence sequences = 1;       // The numbers before it were given out, for ever.
};

class LeastHost final : public Sink {
 public:
  LeastHost(TestClock& clock, Truth& truth, storage::BucketStore& store, Lsn replay_from)
      : clock_(clock), truth_(truth), store_(store) {
    replay(replay_from);
    const auto totals = store_.totals().value();
    for (const auto& [topic, count] : totals) counts_.set(topic, count);
    Engine::Options options;
    options.wheel_start = wheel_start_;
    engine_ = std::make_unique<Engine>(
        clock_, wheel_,
        Engine::Storage{store_, background_, {0, 1}, [](const auto&) { return 0; }, counts_}, *this,
        options);
    REQUIRE(engine_->open().has_value());
    engine_->start();
  }

  std::expected<void, ScheduleErrors> produce(const TopicPartition& partition,
                                              const Buffer& bytes) {
    const auto checked = check(bytes);
    const WallTime arrived = clock_.wall();
    const auto schedules = read_schedules(checked, {}, arrived, engine_->believed(arrived));
    if (!schedules) return std::unexpected(schedules.error());
    Engine::IdRows ids;
    engine_->read_ids(partition, *schedules, [&ids](auto read) { ids = std::move(read.value()); });
    background_.run_all();
    auto accepted = engine_->accept(partition, checked, *schedules, {}, arrived, ids);
    if (!accepted) return std::unexpected(accepted.error());
    storage::JournalTransaction transaction;
    const Buffer immediate = accepted->appends_nothing() ? Buffer{}
                             : accepted->untouched()     ? bytes
                                                         : accepted->take_immediate();
    if (!immediate.empty()) transaction.add(storage::LogAppended{partition, arrived, immediate});
    engine_->add_to(transaction, std::move(*accepted), ends_[partition]);
    commit(std::move(transaction));
    return {};
  }

  // Turns the wheel, does what waits on the Background, and tells of what the log has.
  void turn() {
    do {
      for (auto& transaction : std::exchange(not_told_, {})) transaction.tell_settled({});
      background_.run_all();
      const auto since = std::chrono::floor<milliseconds>(clock_.mono() - wheel_start_).count();
      wheel_.advance(static_cast<timing::Tick>(since), 4'096);
    } while (!not_told_.empty() || background_.size() != 0);
  }

  void checkpoint() {
    turn();
    engine_->write_all([this, target = truth_.records.size()] {
      REQUIRE(store_.flush().has_value());
      truth_.checkpoint = target;
      engine_->noted(target);
    });
    turn();
  }

  std::uint64_t pending() const { return counts_.total(); }
  Engine& engine() { return *engine_; }

 private:
  // --- The sink.
  std::optional<TopicDelay> target(const TopicPartition&) override { return TopicDelay{}; }
  void deliver(const TopicPartition& partition, Buffer batch, Departures departures,
               DeliveryTold told) override {
    const Offset base = ends_[partition];
    storage::JournalTransaction transaction;
    transaction.add(storage::LogAppended{partition, clock_.wall(), batch});
    for (Offset offset = base; storage::PendingRemoved gone : departures.gone) {
      gone.offset = offset++;
      transaction.add(gone);
    }
    for (const auto& again : departures.again) transaction.add(again);
    transaction.on_appended([appended = std::move(told.appended)](Lsn lsn) mutable noexcept {
      appended({lsn, 1});
    });
    transaction.on_durable([base, done = std::move(told.done)]() mutable { done(base); });
    commit(std::move(transaction));
  }
  void commit(storage::JournalTransaction transaction) override {
    Buffer record;
    for (const Bytes piece : transaction.pieces()) append_bytes(record, piece);
    count(record);
    transaction.tell_appended(truth_.records.size());
    truth_.records.push_back(std::move(record));
    not_told_.push_back(std::move(transaction));
  }
  void request_sequences() override {
    const Sequence first = std::exchange(truth_.sequences, truth_.sequences + 1'000);
    engine_->give_sequences(first, truth_.sequences);
  }
  void store_failed(const Error& error) override { FAIL("the store failed: " << error.message); }

  // --- Its start.
  void replay(Lsn from) {
    TierReplay replay(store_, clock_.wall(), 16u << 20, [this] { return store_.flush(); });
    REQUIRE(replay.begin(0, 1).has_value());
    for (Lsn lsn = 0; lsn < truth_.records.size(); ++lsn) {
      count(truth_.records[lsn]);
      if (lsn >= from) REQUIRE(replay.record(lsn, truth_.records[lsn]).has_value());
    }
    REQUIRE(replay.end().has_value());
  }
  // The ends of the partitions: Kafka knows them.
  void count(Bytes record) {
    CHECK(storage::for_each_operation(record, [&](const storage::Operation& operation) -> Result<> {
            if (const auto* appended = std::get_if<storage::LogAppended>(&operation))
              ends_[appended->partition] += std::ssize(read_batch(appended->batches));
            return {};
          }).has_value());
  }

  TestClock& clock_;
  Truth& truth_;
  storage::BucketStore& store_;
  const MonoTime wheel_start_ = clock_.mono();
  timing::TimingWheel wheel_;
  QueuedBackground background_;
  storage::PendingCounts counts_;
  std::map<TopicPartition, Offset> ends_;
  std::vector<storage::JournalTransaction> not_told_;  // In the log, and the engine waits for it.
  std::unique_ptr<Engine> engine_;
};

// The values that a consumer of the log reads.
std::vector<std::string> delivered(const Truth& truth) {
  std::vector<std::string> out;
  for (const Buffer& record : truth.records) {
    CHECK(storage::for_each_operation(record, [&](const storage::Operation& operation) -> Result<> {
            if (const auto* appended = std::get_if<storage::LogAppended>(&operation))
              for (const auto& read : read_batch(appended->batches)) out.push_back(read.value);
            return {};
          }).has_value());
  }
  return out;
}

Buffer delayed(const TestClock& clock, const std::string& value, const std::string& delay) {
  return make_batch({{value, {{"x-delay", delay}, {"x-schedule-id", value}}}}, clock.wall());
}

using Strings = std::vector<std::string>;

struct GivenHost {
  GivenHost() { open("first"); }

  void open(const char* name) {
    stores.push_back(storage::BucketStore::make(directory.path(name), {}).value());
    start(0);
  }
  void start(Lsn replay_from) {
    host.reset();
    host = std::make_unique<LeastHost>(clock, truth, *stores.back(), replay_from);
  }
  void produce(const std::string& value, const std::string& delay) {
    REQUIRE(host->produce(orders, delayed(clock, value, delay)).has_value());
    host->turn();
  }
  void pass(milliseconds time) {
    for (; time > milliseconds{0}; time -= milliseconds{50}) {
      clock.pass(milliseconds{50});
      host->turn();
    }
  }

  TestDirectory directory;
  TestClock clock;
  Truth truth;
  std::vector<std::unique_ptr<storage::BucketStore>> stores;
  std::unique_ptr<LeastHost> host;
};

TEST_SUITE("least_host") {
  TEST_CASE(
      "without broker and journal a record is delivered when it is due, and cancelled by id") {
    GivenHost given;
    given.produce("later", "2000");
    given.produce("never", "1500");
    given.produce("now", "0");
    given.produce("soon", "1000");
    given.host->engine().cancel(
        orders, "never", [](auto told) { CHECK(told.value().outcome == ControlOutcome::done); });
    given.host->turn();
    CHECK(delivered(given.truth) == Strings{"now"});
    given.pass(milliseconds{950});
    CHECK(delivered(given.truth) == Strings{"now"});
    given.pass(milliseconds{1'100});
    CHECK(delivered(given.truth) == Strings{"now", "soon", "later"});
    CHECK(given.host->pending() == 0);
  }

  TEST_CASE(
      "the log is the truth: a host with its store, or with an empty one, delivers the rest once") {
    for (const bool has_store : {true, false}) {
      CAPTURE(has_store);
      GivenHost given;
      given.produce("a", "1000");
      given.produce("far", "90000000");  // A day and an hour.
      given.host->checkpoint();
      given.pass(milliseconds{1'100});
      given.produce("b", "500");
      CHECK(delivered(given.truth) == Strings{"a"});
      if (has_store)
        given.start(given.truth.checkpoint);
      else
        given.open("second");
      CHECK(given.host->pending() == 2);
      given.pass(milliseconds{1'000});
      CHECK(delivered(given.truth) == Strings{"a", "b"});
      given.clock.pass(std::chrono::hours{25});
      given.pass(milliseconds{2'000});
      CHECK(delivered(given.truth) == Strings{"a", "b", "far"});
      CHECK(given.host->pending() == 0);
    }
  }

  TEST_CASE("a delivery that the log did not keep is made again, and one that it kept is not") {
    for (const bool kept : {true, false}) {
      CAPTURE(kept);
      GivenHost given;
      given.produce("a", "1000");
      given.host->checkpoint();
      given.pass(milliseconds{1'100});
      CHECK(delivered(given.truth) == Strings{"a"});
      if (!kept) given.truth.records.pop_back();  // Its transaction was aborted.
      given.start(given.truth.checkpoint);
      CHECK(given.host->pending() == (kept ? 0 : 1));
      given.pass(milliseconds{1'000});
      CHECK(delivered(given.truth) == Strings{"a"});
    }
  }
}

}  // namespace
}  // namespace tarry::delay
