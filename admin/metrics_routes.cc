#include "admin/metrics_routes.h"

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

#include "admin/metrics_text.h"
#include "admin/overview.h"
#include "broker/broker.h"
#include "broker/views/status.h"

namespace tarry::admin {
namespace {

namespace asio = boost::asio;

// Each topic with something pending is a time series that Prometheus keeps.
constexpr std::size_t max_topics_shown = 1000;

void report_broker(const broker::Broker& broker, MetricSink& sink) {
  const auto& config = broker.config();
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

void report_pending_by_topic(Context& context, MetricSink& sink) {
  std::size_t shown = 0;
  for (const auto& topic : context.here.topics().by_name()) {
    const auto count = context.broker.pending_counts().pending_of(topic->id);
    if (count == 0) continue;
    if (++shown > max_topics_shown) break;
    const MetricLabel label(sink, "topic", topic->name);
    sink.gauge({"tarry_delay_topic_pending",
                "Pending records of a topic; topics without any are left out."},
               count);
  }
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

}  // namespace

asio::awaitable<Reply> get_metrics(Call& call) {
  auto& context = call.context;
  const auto all = co_await overview(context);
  MetricsText text;
  report_broker(context.broker, text);
  all.topics.report(text);
  all.pending.report(text);
  report_pending_by_topic(context, text);
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
  all.pending_files.report(text);
  all.process.report(text);

  Reply reply;
  reply.content_type = "text/plain; version=0.0.4; charset=utf-8";
  reply.body = text.text();
  co_return reply;
}

}  // namespace tarry::admin
