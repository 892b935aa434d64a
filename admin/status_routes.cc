#include "admin/status_routes.h"

#include <algorithm>
#include <chrono>
#include <map>
#include <utility>

#include <fmt/core.h>
#include <nlohmann/json.hpp>

#include "admin/json_reply.h"
#include "admin/metrics_text.h"
#include "admin/process_status.h"
#include "base/log.h"
#include "base/token_proof.h"
#include "broker/broker.h"
#include "broker/views/status.h"

namespace tarry::admin {
namespace {

namespace asio = boost::asio;
using broker::PartitionStatus;
using broker::ShardStatus;
using Shards = std::vector<ShardStatus>;
using WheelStats = timing::TimingWheel::Stats;
using std::chrono::milliseconds;

// Older than this, the size of the data directory is looked up again.
constexpr std::chrono::seconds disk_use_kept{10};

// A page that shows partitions opens so many of them: a log's directory is read for each.
constexpr std::size_t opened_at_most = 1000;

// Of topics with something pending, in the metrics.
constexpr std::size_t topics_measured = 1000;

double to_ms(std::chrono::microseconds time) {
  return static_cast<double>(time.count()) / 1e3;
}
Json ms_or_null(const std::optional<WallTime>& time) {
  return time ? Json(tarry::to_ms(*time)) : Json(nullptr);
}
void be_earlier(std::optional<WallTime>& of, const std::optional<WallTime>& other) {
  if (other && (!of || *other < *of)) of = other;
}

// --- What every page needs -----------------------------------------------------------------------

struct Machine {
  ProcessStatus process;
  std::uint64_t bytes = 0;  // On the disk.
};

asio::awaitable<Machine> look_at_machine(Context& context) {
  auto& use = context.disk_use;
  const MonoTime now = context.broker.clock().mono();
  const bool stale = !use.looking && (!use.at || now - *use.at >= disk_use_kept);
  if (stale) use.looking = true;
  auto machine = co_await context.here.blocking([&broker = context.broker, stale] {
    return Machine{process_status(), stale ? broker::bytes_on_disk(broker) : 0};
  });
  if (stale) {
    use.bytes = machine.bytes;
    use.at = now;
    use.looking = false;
  }
  machine.bytes = use.bytes;
  co_return machine;
}

struct Pending {
  std::uint64_t total = 0;
  std::optional<WallTime> next_due;
};

asio::awaitable<Pending> look_at_pending(Context& context) {
  Result<storage::PendingFirst> first;
  do {  // A step at a time, so that others get at the pool.
    first = co_await context.here.blocking(
        [&store = context.broker.pending()] { return store.next_due(); });
  } while (first && !first->known);
  if (!first) throw Refused{500, first.error().message};
  co_return Pending{context.broker.pending().total(), first->due};
}

constexpr std::string_view disk_full = "disk full";

std::string_view state_of(const Shards& shards) {
  if (std::ranges::any_of(shards, &ShardStatus::failed)) return "failed";
  if (std::ranges::any_of(shards, &ShardStatus::stopping)) return "stopping";
  if (!std::ranges::all_of(shards, &ShardStatus::has_room)) return disk_full;
  return "running";
}

template <typename Of>
auto sum(const Shards& shards, Of of) {
  decltype(of(shards.front())) total{};
  for (const auto& shard : shards) total += of(shard);
  return total;
}

std::map<protocol::ErrorCode, std::uint64_t> produce_errors_of(const Shards& shards) {
  std::map<protocol::ErrorCode, std::uint64_t> sums;
  for (const auto& shard : shards)
    for (const auto& [error, batches] : shard.produce_errors) sums[error] += batches;
  return sums;
}

// --- Wheels -------------------------------------------------------------------------------------

void add(WheelStats& to, const WheelStats& other) {
  for (std::size_t i = 0; i < to.levels.size(); ++i) {
    auto& level = to.levels[i];
    const auto& more = other.levels[i];
    level.exists |= more.exists;
    level.timers += more.timers;
    level.buckets += more.buckets;
    level.upgrades += more.upgrades;
    level.downgrades += more.downgrades;
  }
  to.overdue += other.overdue;
  to.bytes += other.bytes;
}

std::uint64_t tick_ms(std::size_t level) {
  return std::uint64_t{1} << (8 * level);  // 256 buckets a level.
}

std::size_t timers_of(const WheelStats& wheel) {
  std::size_t timers = wheel.overdue;
  for (const auto& level : wheel.levels) timers += level.timers;
  return timers;
}

Json wheel_json(const WheelStats& wheel, const std::optional<WallTime>& next_due) {
  Json json;
  json["timers"] = timers_of(wheel);
  json["levels"] = Json::array();
  for (std::size_t i = 0; i < wheel.levels.size(); ++i) {
    const auto& level = wheel.levels[i];
    if (!level.exists) continue;
    Json each;
    each["level"] = i;
    each["tick_ms"] = tick_ms(i);
    each["buckets_in_use"] = level.buckets;
    each["timers"] = level.timers;
    each["upgrades"] = level.upgrades;
    each["downgrades"] = level.downgrades;
    json["levels"].push_back(std::move(each));
  }
  json["next_due_ms"] = ms_or_null(next_due);
  return json;
}

// --- Purgatory ----------------------------------------------------------------------------------

Json distribution_json(const purgatory::Histogram& histogram) {
  Json json;
  json["count"] = histogram.count();
  json["sum"] = histogram.sum();
  json["p50"] = histogram.p50();
  json["p99"] = histogram.p99();
  json["max"] = histogram.max();
  json["buckets"] = Json::array();  // Those that are not empty.
  for (std::size_t i = 0; i < purgatory::Histogram::bucket_count; ++i) {
    if (histogram.in_bucket(i) == 0) continue;
    Json bucket;
    bucket["le"] = purgatory::Histogram::upper_bound(i);
    bucket["count"] = histogram.in_bucket(i);
    json["buckets"].push_back(std::move(bucket));
  }
  return json;
}

Json quantiles_json(const purgatory::Histogram& histogram) {
  return Json{{"p50", histogram.p50()}, {"p99", histogram.p99()}, {"max", histogram.max()}};
}

template <typename Visit>
void for_each_kind(const Shards& shards, Visit visit) {
  for (const auto kind : purgatory::kinds()) visit(kind.name(), broker::sum_of(shards, kind));
}

// --- Topics -------------------------------------------------------------------------------------

Json topic_json(Context& context, const storage::Topic& topic) {
  Json json;
  json["name"] = topic.name;
  json["id"] = topic.id.text();
  json["partitions"] = topic.partitions;
  json["configs"] = Json::object();
  for (const auto& [key, value] : topic.configs) json["configs"][key] = value;
  json["pending"] = context.broker.pending().pending_of(topic.id);
  return json;
}

// Sums of the partitions that are open.
void put_sums(Json& to, std::span<const PartitionStatus> partitions) {
  std::uint64_t bytes = 0;
  std::int64_t offsets = 0;
  std::size_t open = 0;
  for (const auto& partition : partitions) {
    if (!partition.open) continue;
    ++open;
    bytes += partition.bytes;
    offsets += partition.high_watermark - partition.log_start;
  }
  to["partitions_open"] = open;
  to["bytes"] = bytes;
  to["offsets"] = offsets;
}

std::vector<TopicPartition> partitions_of(const storage::Topic& topic) {
  std::vector<TopicPartition> partitions;
  for (PartitionIndex p = 0; p < topic.partitions; ++p) partitions.push_back({topic.id, p});
  return partitions;
}

broker::TopicPtr topic_of(Call& call) {
  auto topic = call.context.here.topics().find(call.part(1));
  if (!topic) throw Refused{404, fmt::format("there is no topic '{}'", printable(call.part(1)))};
  return topic;
}

std::int64_t partition_count(const storage::TopicsImage& topics) {
  std::int64_t count = 0;
  for (const auto& topic : topics.by_name()) count += topic->partitions;
  return count;
}

}  // namespace

asio::awaitable<Reply> get_health(Call&) {
  // Shard 0 has its turn: the process lives and does not hang.
  co_return json_reply(Json{{"status", "ok"}});
}

asio::awaitable<Reply> get_proof(Call& call) {
  const auto* nonce = call.parameter("nonce");
  if (nonce == nullptr || !is_proof_nonce(*nonce)) {
    throw Refused{400,
                  "give a nonce of 64 hexadecimal digits (0-9a-f), as in "
                  "/proof?nonce=" +
                      std::string(64, '0')};
  }
  co_return json_reply(
      Json{{"proof", call.context.token.proof(*nonce, call.local)}, {"address", call.local}});
}

asio::awaitable<Reply> get_readiness(Call& call) {
  const auto shards = co_await broker::shard_statuses(call.context.broker, call.context.here);
  const auto state = state_of(shards);
  Json body;
  body["status"] = state;
  if (state != "running") {
    body["error"] = state == disk_full ? "disk full: the broker takes no records"
                                       : fmt::format("the broker is {}", state);
    co_return json_reply(body, 503);
  }
  co_return json_reply(body);
}

asio::awaitable<Reply> get_status(Call& call) {
  auto& context = call.context;
  auto& broker = context.broker;
  const auto& config = broker.config();
  const auto machine = co_await look_at_machine(context);
  const auto pending = co_await look_at_pending(context);
  const auto shards = co_await broker::shard_statuses(broker, context.here);

  Json body;
  body["version"] = config.version;
  body["cluster_id"] = config.cluster_id;
  body["node_id"] = config.node_id;
  body["state"] = state_of(shards);
  body["uptime_ms"] =
      std::chrono::floor<milliseconds>(broker.clock().mono() - broker.started()).count();
  body["data"] = config.data_directory;
  body["listeners"] =
      Json{{"kafka", context.facts.kafka_address}, {"admin", context.facts.admin_address}};
  body["shards"] = Json::array();
  for (const auto& shard : shards) {
    Json each;
    each["shard"] = shard.index;
    each["partitions_open"] = shard.partitions_open;
    each["connections"] = shard.connections;
    each["requests_total"] = shard.requests_total;
    each["has_room"] = shard.has_room;
    each["overdue"] = shard.delay.overdue;
    each["delivered_total"] = shard.delay.delivered_total;
    each["journal_live_bytes"] = shard.journal_live_bytes;
    each["fsyncs_total"] = shard.journal.syncs;
    each["checkpoints_total"] = shard.checkpoints_total;
    body["shards"].push_back(std::move(each));
  }
  body["topics"] = context.here.topics().size();
  body["partitions"] = partition_count(context.here.topics());
  body["connections"] = sum(shards, [](auto& s) { return s.connections; });
  body["max_connections"] = context.facts.max_kafka_connections;
  body["produce_errors"] = Json::object();
  for (const auto& [error, batches] : produce_errors_of(shards))
    body["produce_errors"][std::string(protocol::name(error))] = batches;

  const auto lag = broker::lag_of(shards);
  Json& delayed = body["delayed"];
  delayed["pending"] = pending.total;
  delayed["next_due"] = ms_or_null(pending.next_due);
  delayed["overdue"] = sum(shards, [](auto& s) { return s.delay.overdue; });
  delayed["delivered_total"] = sum(shards, [](auto& s) { return s.delay.delivered_total; });
  delayed["early_total"] = sum(shards, [](auto& s) { return s.delay.early_total; });
  delayed["cancelled_total"] = sum(shards, [](auto& s) { return s.delay.cancelled_total; });
  delayed["replaced_total"] = sum(shards, [](auto& s) { return s.delay.replaced_total; });
  delayed["expired_total"] = sum(shards, [](auto& s) { return s.delay.expired_total; });
  delayed["lag_ms"] = Json{{"p50", to_ms(lag.quantile(0.50))},
                           {"p99", to_ms(lag.quantile(0.99))},
                           {"max", to_ms(lag.max())}};

  for_each_kind(shards, [&](std::string_view name, const purgatory::KindMetrics& kind) {
    body["purgatory"][std::string(name)] = Json{{"waiting", kind.waiting},
                                                {"satisfied", kind.satisfied},
                                                {"expired", kind.expired},
                                                {"cancelled", kind.cancelled},
                                                {"waited_ms", quantiles_json(kind.waited_ms)},
                                                {"late_ms", quantiles_json(kind.late_ms)}};
  });

  WheelStats wheels;
  std::optional<WallTime> next_due;
  for (const auto& shard : shards) {
    add(wheels, shard.wheel);
    add(wheels, shard.delay.wheel);
    be_earlier(next_due, shard.wheel_next_due);
    be_earlier(next_due, shard.delay.next_due);
  }
  body["wheel"] = wheel_json(wheels, next_due);
  body["storage"] = Json{{"bytes", machine.bytes},
                         {"fsyncs_total", sum(shards, [](auto& s) { return s.journal.syncs; })}};
  body["process"] = Json{{"rss_bytes", machine.process.rss_bytes},
                         {"cpu_seconds", machine.process.cpu_seconds},
                         {"open_fds", machine.process.open_fds}};
  co_return json_reply(body);
}

asio::awaitable<Reply> get_wheel(Call& call) {
  auto& context = call.context;
  const auto pending = co_await look_at_pending(context);
  const auto shards = co_await broker::shard_statuses(context.broker, context.here);
  Json body;
  body["shards"] = Json::array();
  std::uint64_t near = 0, near_bytes = 0;
  for (const auto& shard : shards) {
    const auto& delay = shard.delay;
    Json each;
    each["shard"] = shard.index;
    each["requests"] = wheel_json(shard.wheel, shard.wheel_next_due);
    each["requests"]["bytes"] = shard.wheel.bytes;
    each["delayed"] = wheel_json(delay.wheel, delay.next_due);
    each["delayed"]["near"] = delay.near;
    each["delayed"]["overdue"] = delay.overdue;
    each["delayed"]["in_flight"] = delay.in_flight;
    // Everything that is due before this is in memory; before the first look at the store: nothing.
    each["delayed"]["in_memory_until_ms"] =
        delay.horizon == WallTime::min() ? Json(nullptr) : Json(tarry::to_ms(delay.horizon));
    each["delayed"]["bytes"] = delay.bytes;
    body["shards"].push_back(std::move(each));
    near += delay.near;
    near_bytes += delay.bytes;
  }
  body["memory"] = Json{{"records", near}, {"bytes", near_bytes}};
  body["disk"] = Json{{"records", pending.total - std::min(pending.total, near)},
                      {"next_due_ms", ms_or_null(pending.next_due)}};
  co_return json_reply(body);
}

asio::awaitable<Reply> get_purgatory(Call& call) {
  const auto shards = co_await broker::shard_statuses(call.context.broker, call.context.here);
  Json body;
  for_each_kind(shards, [&](std::string_view name, const purgatory::KindMetrics& kind) {
    Json& each = body[std::string(name)];
    each["started"] = kind.started;
    each["answered_at_once"] = kind.answered_at_once;
    each["waiting"] = kind.waiting;
    each["queued"] = kind.queued;
    each["satisfied"] = kind.satisfied;
    each["expired"] = kind.expired;
    each["cancelled"] = kind.cancelled;
    each["withdrawn"] = kind.withdrawn;
    each["waited_ms"] = distribution_json(kind.waited_ms);
    each["late_ms"] = distribution_json(kind.late_ms);
  });
  co_return json_reply(body);
}

asio::awaitable<Reply> get_topics(Call& call) {
  auto& context = call.context;
  // A topic that is deleted meanwhile is shown as it was.
  const auto topics = context.here.topics().by_name();
  std::vector<TopicPartition> partitions;
  for (const auto& topic : topics) {
    const auto more = partitions_of(*topic);
    partitions.insert(partitions.end(), more.begin(), more.end());
  }
  const auto statuses =
      co_await broker::partition_statuses(context.broker, context.here, partitions, opened_at_most);
  Json body;
  body["topics"] = Json::array();
  std::span<const PartitionStatus> rest = statuses;
  for (const auto& topic : topics) {
    const auto count = static_cast<std::size_t>(topic->partitions);
    Json each = topic_json(context, *topic);
    put_sums(each, rest.first(count));
    rest = rest.subspan(count);
    body["topics"].push_back(std::move(each));
  }
  co_return json_reply(body);
}

asio::awaitable<Reply> get_topic(Call& call) {
  auto& context = call.context;
  const auto topic = topic_of(call);
  const auto statuses = co_await broker::partition_statuses(context.broker, context.here,
                                                            partitions_of(*topic), opened_at_most);
  Json body = topic_json(context, *topic);
  put_sums(body, statuses);
  body["partitions"] = Json::array();
  for (std::size_t i = 0; i < statuses.size(); ++i) {
    const auto& status = statuses[i];
    Json each;
    each["partition"] = i;
    each["shard"] = status.shard;
    each["open"] = status.open;
    if (status.open) {
      each["fenced"] = status.fenced;
      each["log_start"] = status.log_start;
      each["high_watermark"] = status.high_watermark;
      each["log_end"] = status.log_end;
      each["bytes"] = status.bytes;
    }
    body["partitions"].push_back(std::move(each));
  }
  co_return json_reply(body);
}

asio::awaitable<Reply> delete_topic(Call& call) {
  auto& context = call.context;
  auto& broker = context.broker;
  bool force = false;
  if (const auto* given = call.parameter("force")) {
    if (*given != "true" && *given != "false") {
      throw Refused{400, fmt::format("force={}: true or false is expected, as in force=true",
                                     printable(*given))};
    }
    force = *given == "true";
  }
  if (!broker.config().delete_topics) throw Refused{403, "delete.topic.enable is false"};
  const auto topic = topic_of(call);
  const auto pending = broker.pending().pending_of(topic->id);
  const auto removed = co_await broker.topics().remove(topic->id, force);
  if (!removed) {
    using protocol::ErrorCode;
    const auto& refused = removed.error();
    if (refused.code == ErrorCode::policy_violation) {
      Json body{{"error", refused.message}};
      body["pending"] = pending;
      co_return json_reply(body, 409);
    }
    throw Refused{refused.code == ErrorCode::unknown_topic_id ? 404u : 500u, refused.message};
  }
  Json body;
  body["result"] = "deleted";
  body["topic"] = topic->name;
  body["id"] = topic->id.text();
  body["pending_dropped"] = pending;
  co_return json_reply(body);
}

// --- Metrics
// --------------------------------------------------------------------------------------

namespace {

void put_delay(MetricsText& text, Context& context, const Shards& shards, const Pending& pending) {
  text.family("tarry_delay_pending", "gauge", "Records that wait for their time.");
  text.sample(pending.total);
  text.family("tarry_delay_topic_pending", "gauge",
              "Records of a topic that wait for their time; topics with none are left out.");
  std::size_t shown = 0;
  for (const auto& topic : context.here.topics().by_name()) {
    const auto count = context.broker.pending().pending_of(topic->id);
    if (count == 0) continue;
    if (++shown > topics_measured) break;
    text.sample(count, {{"topic", topic->name}});
  }
  if (pending.next_due) {
    text.family("tarry_delay_next_due_timestamp_seconds", "gauge",
                "When the next pending record is due.");
    text.sample(static_cast<double>(tarry::to_ms(*pending.next_due)) / 1e3);
  }

  const auto of_each = [&](std::string_view name, std::string_view type, std::string_view help,
                           auto delay::Engine::Stats::*member) {
    text.family(name, type, help);
    for (const auto& shard : shards)
      text.sample(shard.delay.*member, {{"shard", std::to_string(shard.index)}});
  };
  using Stats = delay::Engine::Stats;
  of_each("tarry_delay_near", "gauge", "Pending records that are in memory.", &Stats::near);
  of_each("tarry_delay_near_bytes", "gauge", "Memory for what is near.", &Stats::bytes);
  of_each("tarry_delay_overdue", "gauge", "Records that are due and not delivered yet.",
          &Stats::overdue);
  of_each("tarry_delay_in_flight", "gauge", "Records of them that are being written.",
          &Stats::in_flight);
  of_each("tarry_delay_arriving", "gauge", "Records that are not durable yet.", &Stats::arriving);
  of_each("tarry_delay_delivered_total", "counter", "Records that were delivered.",
          &Stats::delivered_total);
  of_each("tarry_delay_early_total", "counter", "Records delivered before their time: always 0.",
          &Stats::early_total);
  of_each("tarry_delay_cancelled_total", "counter", "Records that were cancelled.",
          &Stats::cancelled_total);
  of_each("tarry_delay_cancel_unknown_total", "counter",
          "Cancels by clients of ids that were not pending.", &Stats::cancel_unknown_total);
  of_each("tarry_delay_cancel_late_total", "counter",
          "Cancels by clients of records that were on their way.", &Stats::cancel_late_total);
  of_each("tarry_delay_replaced_total", "counter", "Records that another one of their id replaced.",
          &Stats::replaced_total);
  of_each("tarry_delay_expired_total", "counter", "Records dropped for their x-expire-at.",
          &Stats::expired_total);
  of_each("tarry_delay_dropped_total", "counter", "Records whose topic was deleted.",
          &Stats::dropped_total);
  of_each("tarry_delay_refused_total", "counter", "Deliveries that had to be tried again.",
          &Stats::refused_total);

  const auto lag = broker::lag_of(shards);
  const auto seconds = [](std::chrono::microseconds us) {
    return static_cast<double>(us.count()) / 1e6;
  };
  text.family("tarry_delay_lag_seconds", "summary", "From due to durable in the log.");
  text.sample(seconds(lag.quantile(0.5)), {{"quantile", "0.5"}});
  text.sample(seconds(lag.quantile(0.99)), {{"quantile", "0.99"}});
  text.sample(seconds(lag.max()), {{"quantile", "1"}});
  text.sample(seconds(lag.sum()), {}, "_sum");
  text.sample(lag.count(), {}, "_count");
}

void put_wheels(MetricsText& text, const Shards& shards) {
  const auto of_each = [&](std::string_view name, std::string_view type, std::string_view help,
                           auto timing::TimingWheel::LevelStats::*member) {
    text.family(name, type, help);
    for (const auto& shard : shards) {
      const auto put = [&](std::string_view which, const WheelStats& wheel) {
        for (std::size_t i = 0; i < wheel.levels.size(); ++i) {
          if (!wheel.levels[i].exists) continue;
          text.sample(wheel.levels[i].*member, {{"shard", std::to_string(shard.index)},
                                                {"wheel", which},
                                                {"level", std::to_string(i)}});
        }
      };
      put("requests", shard.wheel);
      put("delayed", shard.delay.wheel);
    }
  };
  using Level = timing::TimingWheel::LevelStats;
  of_each("tarry_timing_timers", "gauge", "Timers in a wheel's level.", &Level::timers);
  of_each("tarry_timing_buckets", "gauge", "Buckets in use in a wheel's level.", &Level::buckets);
  of_each("tarry_timing_upgrades_total", "counter",
          "Timers that overflowed, or were moved later, up to the level.", &Level::upgrades);
  of_each("tarry_timing_downgrades_total", "counter",
          "Timers that came down to the level from a higher one.", &Level::downgrades);
}

void put_histogram(MetricsText& text, std::string_view kind, const purgatory::Histogram& values) {
  // 1, 2 and 5 ms, and every eighth bucket, where a power of two ends: 7 ms, 15 ms, 31 ms ...
  std::uint64_t seen = 0;
  for (std::size_t i = 0; i + 1 < purgatory::Histogram::bucket_count; ++i) {
    seen += values.in_bucket(i);
    if (i != 1 && i != 2 && i != 5 && i % 8 != 7) continue;
    const double bound = static_cast<double>(purgatory::Histogram::upper_bound(i)) / 1e3;
    text.sample(seen, {{"kind", kind}, {"le", fmt::format("{}", bound)}}, "_bucket");
  }
  text.sample(values.count(), {{"kind", kind}, {"le", "+Inf"}}, "_bucket");
  text.sample(static_cast<double>(values.sum()) / 1e3, {{"kind", kind}}, "_sum");
  text.sample(values.count(), {{"kind", kind}}, "_count");
}

void put_purgatory(MetricsText& text, const Shards& shards) {
  using purgatory::KindMetrics;
  text.family("tarry_purgatory_waiting", "gauge", "Requests that wait for an answer.");
  for_each_kind(shards, [&](std::string_view kind, const KindMetrics& metrics) {
    text.sample(metrics.waiting, {{"kind", kind}});
  });
  text.family("tarry_purgatory_answered_total", "counter", "Requests that were answered.");
  for_each_kind(shards, [&](std::string_view kind, const KindMetrics& metrics) {
    text.sample(metrics.answered_at_once, {{"kind", kind}, {"outcome", "at_once"}});
    text.sample(metrics.satisfied, {{"kind", kind}, {"outcome", "satisfied"}});
    text.sample(metrics.expired, {{"kind", kind}, {"outcome", "expired"}});
    text.sample(metrics.cancelled, {{"kind", kind}, {"outcome", "cancelled"}});
  });
  const auto of_each = [&](std::string_view name, std::string_view help,
                           purgatory::Histogram KindMetrics::*member) {
    text.family(name, "histogram", help);
    for_each_kind(shards, [&](std::string_view kind, const KindMetrics& metrics) {
      put_histogram(text, kind, metrics.*member);
    });
  };
  of_each("tarry_purgatory_waited_seconds", "From asking to the answer, of requests that waited.",
          &KindMetrics::waited_ms);
  of_each("tarry_purgatory_late_seconds", "From deadline to answer, of requests that expired.",
          &KindMetrics::late_ms);
}

}  // namespace

asio::awaitable<Reply> get_metrics(Call& call) {
  auto& context = call.context;
  auto& broker = context.broker;
  const auto& config = broker.config();
  const auto machine = co_await look_at_machine(context);
  const auto pending = co_await look_at_pending(context);
  const auto shards = co_await broker::shard_statuses(broker, context.here);
  MetricsText text;

  text.family("tarry_broker_info", "gauge", "What runs here; always 1.");
  text.sample(1, {{"version", config.version},
                  {"cluster_id", config.cluster_id},
                  {"node_id", std::to_string(config.node_id)}});
  text.family("tarry_broker_uptime_seconds", "gauge", "Since the start.");
  text.sample(std::chrono::duration<double>(broker.clock().mono() - broker.started()).count());
  text.family("tarry_broker_topics", "gauge", "Topics.");
  text.sample(context.here.topics().size());
  text.family("tarry_broker_partitions", "gauge", "Partitions of all topics.");
  text.sample(partition_count(context.here.topics()));

  const auto of_each = [&](std::string_view name, std::string_view type, std::string_view help,
                           auto of) {
    text.family(name, type, help);
    for (const auto& shard : shards)
      text.sample(of(shard), {{"shard", std::to_string(shard.index)}});
  };
  of_each("tarry_broker_partitions_open", "gauge", "Partitions that were used since the start.",
          [](auto& s) { return s.partitions_open; });
  of_each("tarry_broker_connections", "gauge", "Clients that are connected.",
          [](auto& s) { return s.connections; });
  of_each("tarry_broker_requests_total", "counter", "Requests over the Kafka protocol.",
          [](auto& s) { return s.requests_total; });
  text.family("tarry_broker_produce_errors_total", "counter",
              "Batches of producers that were answered with an error, by error.");
  for (const auto& [error, batches] : produce_errors_of(shards))
    text.sample(batches, {{"error", protocol::name(error)}});
  of_each("tarry_broker_has_room", "gauge", "0: the disk is full, no records are taken.",
          [](auto& s) { return s.has_room ? 1 : 0; });

  put_delay(text, context, shards, pending);
  put_wheels(text, shards);
  put_purgatory(text, shards);

  of_each("tarry_storage_journal_rounds_total", "counter", "Rounds of the journal with records.",
          [](auto& s) { return s.journal.rounds; });
  of_each("tarry_storage_fsyncs_total", "counter", "Syncs of the journal.",
          [](auto& s) { return s.journal.syncs; });
  of_each("tarry_storage_journal_records_total", "counter", "Records of the journal.",
          [](auto& s) { return s.journal.records; });
  of_each("tarry_storage_journal_bytes_total", "counter", "Bytes of the journal's records.",
          [](auto& s) { return s.journal.bytes; });
  of_each("tarry_storage_journal_written_bytes_total", "counter", "Bytes written for them.",
          [](auto& s) { return s.journal.disk_bytes; });
  of_each("tarry_storage_journal_live_bytes", "gauge", "What a recovery would read.",
          [](auto& s) { return s.journal_live_bytes; });
  of_each("tarry_storage_checkpoints_total", "counter", "Checkpoints.",
          [](auto& s) { return s.checkpoints_total; });
  text.family("tarry_storage_bytes", "gauge", "All files of the broker, looked up now and then.");
  text.sample(machine.bytes);

  text.family("process_resident_memory_bytes", "gauge", "Memory that is in use.");
  text.sample(machine.process.rss_bytes);
  text.family("process_cpu_seconds_total", "counter", "User and system time.");
  text.sample(machine.process.cpu_seconds);
  text.family("process_open_fds", "gauge", "Open files and sockets.");
  text.sample(machine.process.open_fds);

  Reply reply;
  reply.content_type = "text/plain; version=0.0.4; charset=utf-8";
  reply.body = text.take();
  co_return reply;
}

}  // namespace tarry::admin
