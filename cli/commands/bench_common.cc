#include "cli/commands/bench_common.h"

#include <algorithm>
#include <random>
#include <utility>

#include <fmt/core.h>

#include "base/time_text.h"
#include "cli/admin_choice.h"
#include "cli/admin_client.h"
#include "cli/io/exit_status.h"
#include "cli/io/number_text.h"
#include "cli/io/text.h"
#include "cli/kafka/admin.h"

namespace tarry::cli {
namespace {

constexpr std::uint64_t max_rate = 10'000'000;
constexpr std::size_t max_size = 1'000'000;
constexpr unsigned max_clients = 64;

// A topic for this run alone, deleted with what may be pending in it.
class OwnTopic {
 public:
  static Result<OwnTopic> create(const BrokerOptions& broker, std::string name,
                                 std::int32_t partitions) {
    auto admin = KafkaAdmin::open(broker.kafka());
    if (!admin) return std::unexpected(admin.error());
    if (auto created = admin->create(name, partitions, {}); !created)
      return std::unexpected(created.error());
    return OwnTopic(broker, std::move(*admin), std::move(name));
  }

  const std::string& name() const { return name_; }

  Result<> remove() {
    auto removed = admin_.remove(name_);
    if (removed || removed.error().code != Errc::in_use) return removed;
    // Records are pending in it, so it takes the admin's force.
    BrokerOptions broker = broker_;
    // -b's default counts as given, so that only an admin of the same broker deletes the topic.
    broker.brokers_given = broker.brokers_given || !broker.admin_given;
    auto admin = choose_admin(broker, AdminUse::changes);
    if (!admin) return fail(Errc::in_use, left_over(admin.error().reason));
    // The name of a topic of this run needs no escapes.
    const auto forced = admin->remove(fmt::format("/topics/{}?force=true", name_));
    if (!forced) return fail(Errc::in_use, left_over(forced.error().message));
    return {};
  }

 private:
  OwnTopic(const BrokerOptions& broker, KafkaAdmin admin, std::string name)
      : broker_(broker), admin_(std::move(admin)), name_(std::move(name)) {}

  std::string left_over(const std::string& why) const {
    return fmt::format(
        "the topic {} still has pending records and could not be deleted ({}); delete it with "
        "`tarry topic delete {} --force`",
        name_, why, name_);
  }

  const BrokerOptions& broker_;
  KafkaAdmin admin_;
  std::string name_;
};

// The number of partitions of a topic that the user has named.
Result<std::int32_t> named_topic(const BrokerOptions& broker, const TopicWish& wish) {
  auto admin = KafkaAdmin::open(broker.kafka());
  if (!admin) return std::unexpected(admin.error());
  const auto there = admin->topic(*wish.name);
  if (there) {
    const auto partitions = static_cast<std::int32_t>(there->partitions.size());
    // The figures of another number would be taken for those that were asked for.
    if (wish.partitions && *wish.partitions != partitions) {
      return fail(Errc::exists,
                  fmt::format("{}: it has {}, not {}; give another topic, or no --partitions",
                              cell(*wish.name),
                              counted(there->partitions.size(), "partition", "partitions"),
                              *wish.partitions));
    }
    return partitions;
  }
  if (there.error().code != Errc::not_found || !wish.may_be_made)
    return std::unexpected(there.error());
  const std::int32_t partitions = wish.partitions.value_or(1);
  if (auto made = admin->create(*wish.name, partitions, {}); !made)
    return std::unexpected(made.error());
  return partitions;
}

}  // namespace

LoadLength add_load_options(CLI::App& command, LoadOptions& options, const char* rate_help) {
  command.add_option("--rate", options.rate, rate_help)
      ->option_text("N")
      ->check(CLI::Range(std::uint64_t{0}, max_rate))
      ->take_last();
  auto* duration =
      command.add_option("--duration", options.duration, "How long to send records (default 10s)")
          ->option_text("D")
          ->check(is_duration)
          ->take_last();
  auto* count = command.add_option("--count", options.count, "The number of records to send")
                    ->option_text("N")
                    ->check(CLI::Range(std::uint64_t{1}, max_bench_records))
                    ->take_last()
                    ->excludes(duration);
  command
      .add_option("--size,--bytes", options.size,
                  "Bytes in a record's value, as in 1KiB (default 100)")
      ->option_text("BYTES")
      ->transform(is_size(min_record_size, max_size))
      ->take_last();
  command.add_option("--clients", options.clients, "The number of producers (default 1)")
      ->option_text("N")
      ->check(CLI::Range(1U, max_clients))
      ->take_last();
  return {duration, count};
}

std::expected<std::uint64_t, std::string> records_in(std::chrono::milliseconds duration,
                                                     std::uint64_t rate) {
  const double records =
      static_cast<double>(rate) * std::chrono::duration<double>(duration).count();
  if (records < 1 || records > static_cast<double>(max_bench_records)) {
    return std::unexpected(fmt::format(
        "--duration: {} at {} records a second are {:.0f} records; give 1 to {} records",
        format_duration(duration), rate, records, max_bench_records));
  }
  return static_cast<std::uint64_t>(records);
}

std::uint64_t random_run() {
  std::random_device random;
  return std::uint64_t{random()} << 32 | random();
}

int with_bench_topic(const BrokerOptions& broker, const char* bench, std::uint64_t run,
                     const TopicWish& wish,
                     const std::function<int(const std::string& topic, std::int32_t)>& measure) {
  if (wish.name) {
    const auto partitions = named_topic(broker, wish);
    if (!partitions) return failure(partitions.error().message);
    return measure(*wish.name, *partitions);
  }
  const std::int32_t partitions = wish.partitions.value_or(1);
  auto topic =
      OwnTopic::create(broker, fmt::format("tarry-bench-{}-{:016x}", bench, run), partitions);
  if (!topic) return failure(topic.error().message);
  const int status = measure(topic->name(), partitions);
  // The topic goes after an error or an interrupt too, because nobody else knows it.
  const auto removed = topic->remove();
  if (!removed && status == done) return failure(removed.error().message);
  if (!removed) complain(removed.error().message);
  return status;
}

double in_milliseconds(std::int64_t us) {
  return static_cast<double>(us) / 1000;
}

std::string ms_text(std::int64_t us) {
  return fmt::format("{:.2f} ms", in_milliseconds(us));
}

Json percentiles(const LatencyHistogram& histogram) {
  // Null and not 0, which would read as the best result of all.
  if (histogram.count() == 0) return nullptr;
  return {{"min", in_milliseconds(histogram.min())},
          {"p50", in_milliseconds(histogram.quantile(0.5))},
          {"p90", in_milliseconds(histogram.quantile(0.9))},
          {"p99", in_milliseconds(histogram.quantile(0.99))},
          {"p99.9", in_milliseconds(histogram.quantile(0.999))},
          {"max", in_milliseconds(histogram.max())}};
}

double accept_rate(const FlowResult& flow) {
  if (flow.accepted_in_us <= 0) return 0;
  return static_cast<double>(flow.figures.accepted) * 1e6 /
         static_cast<double>(flow.accepted_in_us);
}

}  // namespace tarry::cli
