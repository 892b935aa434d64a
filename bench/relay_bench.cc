// The processor time that a member of the relay needs for a pending record, without Kafka: what
// plans transactions and the store that the rows go to (relay/partition.h, storage/sorted_rows.h).
//
//   cmake --preset release -DTARRY_BENCH=ON && ninja -C build/release relay_bench
//   TMPDIR=/on/the/disk/in/question build/release/bench/relay_bench 1000000
//
//   RECORDS [--bytes N] [--minutes N] [--ids] [--drain]
//
// Four partitions take 1 000 records each in a transaction, as a busy member does.  Due times are
// uniformly random over --minutes (43200), values are --bytes (100) random bytes, which do not
// compress. With --ids each record has an x-schedule-id of its own.  Then the rows are read into an
// empty store, as a new owner does, and with --drain everything is delivered.
//
//   plan    deciding what a transaction does, on the member's thread
//   apply   memory and store after its commit, on the same thread
//   behind  RocksDB's threads, and the kernel for them: flushes and compaction

#include <fmt/core.h>
#include <stdlib.h>
#include <sys/resource.h>
#include <time.h>

#include <algorithm>
#include <charconv>
#include <chrono>
#include <cstdlib>
#include <deque>
#include <filesystem>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/log.h"
#include "records/batch_builder.h"
#include "relay/partition.h"
#include "storage/disk_rows.h"
#include "tests/given.h"

namespace tarry::relay {
namespace {

namespace fs = std::filesystem;

constexpr PartitionIndex partitions = 4;
constexpr std::size_t records_at_once = 1'000;  // From each partition.
constexpr std::size_t memory = 256u << 20;
const WallTime begin_time = from_ms(1'800'000'000'000);

struct Settings {
  std::size_t records = 0;
  std::size_t bytes = 100;
  int minutes = 43'200;
  bool has_ids = false;
  bool drains = false;
};

double seconds_of(const timeval& time) {
  return static_cast<double>(time.tv_sec) + static_cast<double>(time.tv_usec) / 1e6;
}
double process_seconds() {
  rusage used{};
  ::getrusage(RUSAGE_SELF, &used);
  return seconds_of(used.ru_utime) + seconds_of(used.ru_stime);
}
double thread_seconds() {
  timespec time{};
  ::clock_gettime(CLOCK_THREAD_CPUTIME_ID, &time);
  return static_cast<double>(time.tv_sec) + static_cast<double>(time.tv_nsec) / 1e9;
}

// What one part of a run has cost.
class Costs {
 public:
  explicit Costs(std::string name) : name_(std::move(name)) {}

  template <typename Work>
  void plan(const Work& work) {
    add(plan_, work);
  }
  template <typename Work>
  void apply(const Work& work) {
    add(apply_, work);
  }
  void print(std::size_t records) const {
    const double behind = process_seconds() - process_begun_ - (thread_seconds() - thread_begun_);
    const auto each = [&](double seconds) { return seconds * 1e6 / static_cast<double>(records); };
    fmt::print(
        "{:7} {:>9} records  us each: plan {:5.2f}  apply {:5.2f}  behind {:5.2f}  all {:5.2f}\n",
        name_, records, each(plan_), each(apply_), each(behind), each(plan_ + apply_ + behind));
  }

 private:
  template <typename Work>
  static void add(double& to, const Work& work) {
    const double begun = thread_seconds();
    work();
    to += thread_seconds() - begun;
  }

  const std::string name_;
  double plan_ = 0, apply_ = 0;
  const double process_begun_ = process_seconds(), thread_begun_ = thread_seconds();
};

class Records {
 public:
  explicit Records(const Settings& settings) : settings_(settings) {}

  SourceRecord next(Offset offset) {
    const auto span = static_cast<std::uint64_t>(settings_.minutes) * 60'000;
    const auto due = to_ms(begin_time) + 3'600'000 + static_cast<std::int64_t>(random_.below(span));
    Buffer value(settings_.bytes);
    for (auto& byte : value) byte = static_cast<std::uint8_t>(random_.u64());
    const std::string key = fmt::format("key-{}", offset), at = std::to_string(due);
    const std::string id = fmt::format("order-{:016x}", random_.u64());
    SourceRecord record{offset, begin_time, {}};
    records::append_key_value(record.body, as_bytes(key), value);
    records::append_varint(record.body, settings_.has_ids ? 2 : 1);
    records::append_header(record.body, "x-deliver-at", as_bytes(at));
    if (settings_.has_ids) records::append_header(record.body, "x-schedule-id", as_bytes(id));
    return record;
  }

 private:
  const Settings& settings_;
  SeededRandom random_{1};
};

// The rows as they stand in the state topics.
struct StateRow {
  std::size_t partition = 0;
  std::string key;
  std::optional<Buffer> value;
};

std::unique_ptr<storage::DiskRows> open_rows(const std::string& directory) {
  auto rows = storage::DiskRows::open(directory, "bench", memory);
  if (rows) return std::move(*rows);
  fmt::print(stderr, "relay_bench: {}\n", rows.error().message);
  std::exit(1);
}

std::deque<Partition> make_partitions(const Rules& rules, storage::SortedRows& store) {
  std::deque<Partition> all;
  for (PartitionIndex i = 0; i < partitions; ++i) {
    all.emplace_back(Source{"orders.delayed", i}, rules, store);
    all.back().rows_from(begin_time, 0);
  }
  return all;
}

std::vector<StateRow> take_in(const Settings& settings, const Rules& rules,
                              storage::DiskRows& store) {
  auto all = make_partitions(rules, store);
  for (auto& each : all) each.begin(0, begin_time);
  Records records(settings);
  std::vector<StateRow> rows;
  Costs costs("intake");
  std::size_t taken = 0;
  for (Offset from = 0; taken < settings.records; from += records_at_once) {
    std::vector<Work> works(all.size());
    for (auto& each : all)
      for (std::size_t i = 0; i < records_at_once; ++i)
        each.arrive(records.next(from + static_cast<Offset>(i)));
    for (std::size_t i = 0; i < all.size(); ++i) {
      costs.plan([&] { works[i] = all[i].plan(begin_time, true, {}); });
      for (auto& row : works[i].records)
        rows.push_back({i, std::string(as_text(*row.key)), std::move(row.value)});
      taken += works[i].taken;
      works[i].records.clear();
    }
    for (std::size_t i = 0; i < all.size(); ++i)
      costs.apply([&] { all[i].apply(std::move(works[i]), from); });
  }
  costs.print(taken);
  return rows;
}

void load(const std::vector<StateRow>& rows, const Rules& rules, storage::DiskRows& store) {
  auto all = make_partitions(rules, store);
  Costs costs("load");
  constexpr std::size_t rows_polled = 20'000;
  for (std::size_t at = 0; at < rows.size();) {
    const std::size_t end = std::min(rows.size(), at + rows_polled);
    costs.apply([&] {
      for (; at < end; ++at)
        if (!all[rows[at].partition].load_row(rows[at].key, rows[at].value,
                                              static_cast<Offset>(at)))
          std::exit(1);
      for (auto& each : all) each.loaded(static_cast<Offset>(end), begin_time);
    });
  }
  costs.print(rows.size());
}

void drain(const Settings& settings, const Rules& rules, storage::DiskRows& store) {
  std::deque<Partition> all;
  for (PartitionIndex i = 0; i < partitions; ++i) {
    all.emplace_back(Source{"orders.delayed", i}, rules, store);
    all.back().begin(static_cast<Offset>(settings.records), begin_time);
  }
  const WallTime last = begin_time + std::chrono::minutes(settings.minutes + 120);
  Costs costs("drain");
  std::size_t delivered = 0;
  for (bool is_over = false; !is_over;) {
    is_over = true;
    for (auto& each : all) {
      Work work;
      costs.plan([&] { work = each.plan(last, true, {.deliveries = records_at_once}); });
      is_over = is_over && work.empty();
      delivered += work.counts.delivered;
      work.records.clear();
      costs.apply([&] { each.apply(std::move(work)); });
    }
  }
  costs.print(delivered);
}

void run(const Settings& settings) {
  std::string directory = (fs::temp_directory_path() / "relay_bench.XXXXXX").string();
  if (::mkdtemp(directory.data()) == nullptr) std::exit(1);
  set_log_level(LogLevel::error);
  const Rules rules{"relay", "", false};
  std::vector<StateRow> rows;
  {
    const auto store = open_rows(directory + "/owner");
    rows = take_in(settings, rules, *store);
    if (settings.drains) drain(settings, rules, *store);
  }
  load(rows, rules, *open_rows(directory + "/next"));
  std::error_code ignored;
  fs::remove_all(directory, ignored);
}

std::size_t number_in(std::string_view text) {
  std::size_t number = 0;
  const auto read = std::from_chars(text.data(), text.data() + text.size(), number);
  if (read.ec == std::errc{} && read.ptr == text.data() + text.size() && number > 0) return number;
  fmt::print(stderr, "relay_bench RECORDS [--bytes N] [--minutes N] [--ids] [--drain]\n");
  std::exit(2);
}

}  // namespace
}  // namespace tarry::relay

int main(int count, char** given) {
  using namespace tarry::relay;
  Settings settings;
  const std::vector<std::string_view> words(given + 1, given + count);
  for (std::size_t i = 0; i < words.size(); ++i) {
    const auto value = [&] { return number_in(i + 1 < words.size() ? words[++i] : ""); };
    if (words[i] == "--bytes") {
      settings.bytes = value();
    } else if (words[i] == "--minutes") {
      settings.minutes = static_cast<int>(value());
    } else if (words[i] == "--ids") {
      settings.has_ids = true;
    } else if (words[i] == "--drain") {
      settings.drains = true;
    } else {
      settings.records = number_in(words[i]);
    }
  }
  if (settings.records == 0) number_in("");
  run(settings);
}
