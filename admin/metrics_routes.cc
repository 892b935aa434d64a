#include "admin/metrics_routes.h"

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "admin/large_answer.h"
#include "admin/overview.h"
#include "base/log.h"
#include "broker/broker.h"
#include "broker/views/metric_series.h"
#include "broker/views/status.h"
#include "web/metrics_text.h"

namespace tarry::admin {
namespace {

namespace asio = boost::asio;

// A label's value for the sum of what is not told apart; no topic and no partition is called so.
constexpr std::string_view other_label = "(other)";

// Texts are labels of a figure that is always 1, because Prometheus has no texts as values.
void report_broker(const broker::Broker& broker, MetricSink& sink) {
  const auto& config = broker.identity();
  {
    const MetricLabel version(sink, "version", config.version);
    const MetricLabel cluster(sink, "cluster_id", config.cluster_id);
    const MetricLabel node(sink, "node_id", std::to_string(config.node_id));
    sink.gauge({"tarry_broker_info", "The broker's version, cluster id and node id; always 1."},
               std::uint64_t{1});
  }
  const std::chrono::duration<double> up = broker.clock().mono() - broker.started();
  sink.gauge({"tarry_broker_uptime_seconds", "Time since the broker's start."}, up.count());
}

void report_topics(const broker::TopicSeries& series, MetricSink& sink) {
  const auto pending = [&](std::string_view topic, std::uint64_t records) {
    const MetricLabel label(sink, "topic", topic);
    sink.gauge({"tarry_delay_topic_pending",
                "Pending records of a topic; topics without any are left out."},
               records);
  };
  for (const auto& topic : series.pending) pending(topic.topic, topic.records);
  // The sum over all topics stays right although not each has a line.
  if (series.other_pending > 0) pending(other_label, series.other_pending);
  const auto delivered = [&](std::string_view topic, const broker::TopicDeliveries& of) {
    const MetricLabel label(sink, "topic", topic);
    sink.counter({"tarry_delay_topic_delivered_total", "Records of a topic that were delivered."},
                 of.records);
    sink.counter({"tarry_delay_topic_lag_seconds_total",
                  "Time from a record's due time until it is durable in the log, summed over a "
                  "topic's records."},
                 of.lag_seconds);
  };
  for (const auto& topic : series.deliveries) delivered(topic.topic, topic);
  if (series.other_deliveries.records > 0) delivered(other_label, series.other_deliveries);
}

void report_users(const broker::UserSeries& series, MetricSink& sink) {
  const auto pending = [&](std::string_view user, const storage::PendingUse& use) {
    const MetricLabel label(sink, "user", user);
    // While records come and go, a sum may be a moment ahead of what it is a sum of.
    const auto shown = [](std::int64_t sum) {
      return static_cast<std::uint64_t>(std::max<std::int64_t>(sum, 0));
    };
    sink.gauge({"tarry_delay_user_pending_records",
                "Pending records that a user has produced, as its quota pending_records counts "
                "them; users without any are left out."},
               shown(use.records));
    sink.gauge({"tarry_delay_user_pending_bytes",
                "Bytes of the pending records that a user has produced and of their ids, as its "
                "quota pending_bytes counts them."},
               shown(use.bytes));
  };
  for (const auto& user : series.pending) pending(user.user, user.use);
  if (series.other != storage::PendingUse{}) pending(other_label, series.other);
}

void report_groups(const broker::GroupSeries& series, MetricSink& sink) {
  sink.gauge({"tarry_broker_groups", "Consumer groups."}, series.groups);
  const auto members = [&](std::string_view group, std::uint64_t count) {
    const MetricLabel label(sink, "group", group);
    sink.gauge({"tarry_broker_group_members", "Members of a consumer group."}, count);
  };
  for (const auto& group : series.members) members(group.group, group.members);
  // A flood of groups costs one line more, and not thousands of series.
  if (series.groups > series.members.size()) members(other_label, series.other_members);
  const auto lag = [&](std::string_view group, std::string_view topic, std::string_view partition,
                       std::uint64_t offsets) {
    const MetricLabel of_group(sink, "group", group);
    const MetricLabel of_topic(sink, "topic", topic);
    const MetricLabel of_partition(sink, "partition", partition);
    sink.gauge(
        {"tarry_broker_group_lag",
         "Lag of a group: the offsets from its committed offset to the end of the partition."},
        offsets);
  };
  for (const auto& each : series.lags)
    lag(each.group, each.topic, std::to_string(each.partition), each.lag);
  if (series.has_others) lag(other_label, other_label, other_label, series.other_lags);
}

void report_space(const std::vector<FileSystem>& file_systems, std::int64_t reserve,
                  MetricSink& sink) {
  for (const auto& each : file_systems) {
    const MetricLabel label(sink, "directory", printable(each.directory));
    sink.gauge({"tarry_storage_free_bytes",
                "Free bytes of the file system with this directory, for the broker's user."},
               each.free_bytes);
    sink.gauge({"tarry_storage_capacity_bytes", "Size of the file system with this directory."},
               each.total_bytes);
  }
  sink.gauge({"tarry_storage_reserve_bytes",
              "The setting tarry.disk.reserve.bytes: with less free no records are accepted."},
             static_cast<std::uint64_t>(reserve));
}

// With nothing overdue in memory, a first due time in the past is the beginning of a bucket.
void report_oldest_overdue(const Overview& all, WallTime now, MetricSink& sink) {
  std::chrono::duration<double> age{0};
  const bool any =
      std::ranges::any_of(all.shards, [](const auto& shard) { return shard.delay.overdue > 0; });
  if (any && all.pending.next_due)
    age = std::max(age.zero(), decltype(age)(now - *all.pending.next_due));
  sink.gauge({"tarry_delay_oldest_overdue_seconds",
              "How long the oldest overdue record has been due; 0: no record is overdue."},
             age.count());
}

void report_wheel(std::string_view name, const timing::TimingWheel::Stats& wheel,
                  MetricSink& sink) {
  const MetricLabel label(sink, "wheel", name);
  for (std::size_t i = 0; i < wheel.levels.size(); ++i) {
    if (!wheel.levels[i].exists) continue;
    const MetricLabel level(sink, "level", std::to_string(i));
    report(wheel.levels[i], sink);
  }
}

void report_shard(const broker::ShardStatus& shard, MetricSink& sink) {
  const MetricLabel label(sink, "shard", std::to_string(shard.index));
  shard.report(sink);
  report_wheel("requests", shard.wheel, sink);
  report_wheel("delayed", shard.delay.wheel, sink);
}

// What comes one for each group, topic and user.
struct Series {
  broker::GroupSeries groups;
  broker::TopicSeries topics;
  broker::UserSeries users;
};

// On any thread.
std::string text_of_all(const broker::Broker& broker, const Overview& all, const Series& series,
                        std::int64_t reserve, MetricsText::Format format) {
  MetricsText text;
  report_broker(broker, text);
  all.topics.report(text);
  all.pending.report(text);
  report_oldest_overdue(all, broker.clock().wall(), text);
  report_topics(series.topics, text);
  report_users(series.users, text);
  report_groups(series.groups, text);
  for (const auto& shard : all.shards) {
    report_shard(shard, text);
    // These are sums over the shards: a line for each shard would be many, and say little more.
    shard.report_produce_errors(text);
    shard.report_refused_batches(text);
    for (const auto kind : purgatory::kinds()) {
      const MetricLabel label(text, "kind", kind.name());
      shard.purgatory[kind.index()].report(text);
    }
  }
  all.disk.report(text);
  report_space(all.disk.file_systems, reserve, text);
  all.pending_files.report(text);
  all.databases.report(text);
  all.process.report(text);
  all.memory.report(text);
  all.backup.report(text);
  return text.text(format);
}

}  // namespace

asio::awaitable<Reply> get_metrics(Call& call) {
  auto& context = call.context;
  // Before the turn, because it looks at the disk: one that hangs must not hold up other answers.
  const auto all = co_await overview(context);
  co_await wait_for_turn(context);
  const LargeAnswer turn(context);
  auto& broker = context.broker;
  const auto max_series = static_cast<std::size_t>(context.here.config().metrics_max_series);
  // Clients choose the names of topics and groups, so the number of lines is bounded by a setting.
  Series series;
  series.groups = co_await broker::group_series(broker, context.here, max_series);
  series.topics = co_await broker::topic_series(broker, context.here, max_series);
  series.users = co_await broker::user_series(broker, context.here, max_series);
  const auto format = MetricsText::format_for(call.accept);
  const auto reserve = context.here.config().disk_reserve_bytes;
  Reply reply;
  reply.content_type = MetricsText::content_type(format);
  // On the pool, where the series are freed, too: there may be very many.
  std::move_only_function<void()> work = [&] {
    const Series taken = std::move(series);
    reply.body = text_of_all(broker, all, taken, reserve, format);
  };
  co_await context.here.run_on_pool(work);
  co_return reply;
}

}  // namespace tarry::admin
