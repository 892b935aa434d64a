#include "admin/status_routes.h"

#include <algorithm>
#include <chrono>
#include <optional>
#include <string_view>
#include <utility>
#include <vector>

#include "admin/call.h"
#include "admin/overview.h"
#include "admin/process_status.h"
#include "admin/purgatory_json.h"
#include "admin/wheel_json.h"
#include "base/windowed_histogram.h"
#include "broker/broker.h"
#include "broker/views/status.h"
#include "web/json_fields.h"
#include "web/json_reply.h"

namespace tarry::admin {
namespace {

namespace asio = boost::asio;
using std::chrono::milliseconds;
using Shards = std::vector<broker::ShardStatus>;

// The facts about the broker that are no figures.
void put_identity(Json& body, const Context& context, const Shards& shards) {
  const auto& broker = context.broker;
  const auto& config = broker.identity();
  body["version"] = config.version;
  body["cluster_id"] = config.cluster_id;
  body["start_id"] = config.start_id;
  body["node_id"] = config.node_id;
  body["state"] = state_of(broker, shards);
  // The page makes rates from two answers, by this clock: that of a browser may be wrong.
  body["at_ms"] = to_ms(broker.clock().wall());
  body["uptime_ms"] =
      std::chrono::floor<milliseconds>(broker.clock().mono() - broker.started()).count();
  body["window_ms"] = milliseconds(WindowedHistogram::window).count();
  body["data"] = config.data_directory;
  body["listeners"] = Json{{"kafka", context.facts.kafka_address},
                           {"listeners", context.facts.kafka_listeners},
                           {"advertised", context.facts.kafka_advertised},
                           {"admin", context.facts.admin_address}};
}

Json shards_json(const Shards& shards) {
  Json json = Json::array();
  for (const auto& shard : shards) {
    Json each;
    each["shard"] = shard.index;
    JsonFields figures;
    shard.report(figures);
    figures.put_into(each);
    json.push_back(std::move(each));
  }
  return json;
}

Json produce_errors_json(const Shards& shards) {
  JsonFields errors;
  for (const auto& shard : shards) shard.report_produce_errors(errors);
  return errors.object();
}

Json refused_batches_json(const Shards& shards) {
  JsonFields reasons;
  for (const auto& shard : shards) shard.report_refused_batches(reasons);
  return reasons.object();
}

Json out_of_service_json(const Context& context, const Shards& shards) {
  Json json = Json::array();
  for (const auto& shard : shards) {
    for (const auto& each : shard.out_of_service) {
      const auto topic = context.here.topics().find(each.partition.topic);
      // One whose topic was deleted meanwhile is nobody's concern.
      if (!topic) continue;
      json.push_back({{"topic", topic->name},
                      {"partition", each.partition.partition},
                      {"shard", shard.index},
                      {"reason", each.reason},
                      {"set_aside", each.set_aside}});
    }
  }
  return json;
}

// JsonFields adds up what the shards report under one name.
Json delayed_json(const PendingStatus& pending, const Shards& shards) {
  JsonFields delayed;
  pending.report(delayed);
  for (const auto& shard : shards) shard.delay.report(delayed);
  return delayed.object();
}

Json all_wheels_json(const Shards& shards) {
  std::vector<WheelStatus> wheels;
  for (const auto& shard : shards) {
    wheels.push_back(requests_wheel(shard));
    wheels.push_back(delayed_wheel(shard));
  }
  return wheel_json(wheels);
}

// Null: it could not be asked.
const FileSystem* file_system_of(const std::vector<FileSystem>& all, std::string_view directory) {
  const auto found = std::ranges::find(all, directory, &FileSystem::directory);
  return found == all.end() ? nullptr : &*found;
}

Json storage_json(const Context& context, const Overview& all) {
  JsonFields storage;
  all.disk.report(storage);
  all.pending_files.report(storage);
  all.databases.report(storage);
  for (const auto& shard : all.shards) shard.journal.report(storage);
  Json json = storage.object();
  // In /metrics each directory has figures of its own for these, so here they are no declared ones.
  const auto& file_systems = all.disk.file_systems;
  const auto* const of_data =
      file_system_of(file_systems, context.broker.identity().data_directory);
  // Null and not 0, which would read as a full disk.
  json["free_bytes"] = of_data == nullptr ? Json(nullptr) : Json(of_data->free_bytes);
  json["total_bytes"] = of_data == nullptr ? Json(nullptr) : Json(of_data->total_bytes);
  json["file_systems"] = Json::array();
  for (const auto& each : file_systems) {
    json["file_systems"].push_back({{"directory", each.directory},
                                    {"free_bytes", each.free_bytes},
                                    {"total_bytes", each.total_bytes},
                                    {"used_bytes", each.used_bytes}});
  }
  // In /metrics their sum alone, because its parts are of no alert.
  json["logs_bytes"] = all.disk.files.logs;
  json["journal_files_bytes"] = all.disk.files.journals;
  json["reserve_bytes"] = context.here.config().disk_reserve_bytes;
  return json;
}

}  // namespace

asio::awaitable<Json> status_json(Context& context) {
  const auto all = co_await overview(context);
  const auto& shards = all.shards;

  Json body;
  put_identity(body, context, shards);
  body["shards"] = shards_json(shards);
  JsonFields totals;
  all.topics.report(totals);
  all.memory.report(totals);
  all.backup.report(totals);
  for (const auto& shard : shards) shard.counters.report(totals);
  totals.put_into(body);
  body["max_connections"] = context.facts.max_kafka_connections();
  body["wanted_connections"] = context.facts.wanted_kafka_connections();
  body["open_listeners"] = context.facts.open_listeners;
  body["produce_errors"] = produce_errors_json(shards);
  body["refused_batches"] = refused_batches_json(shards);
  body["out_of_service"] = out_of_service_json(context, shards);
  body["delayed"] = delayed_json(all.pending, shards);
  // The last minutes alone: the whole histograms are on /purgatory.
  body["purgatory"] = purgatory_json(shards, JsonFields::Histograms::recent);
  body["wheel"] = all_wheels_json(shards);
  body["storage"] = storage_json(context, all);
  JsonFields process;
  all.process.report(process);
  body["process"] = process.object();
  co_return body;
}

asio::awaitable<Json> quick_figures_json(Context& context) {
  const auto shards = co_await broker::shard_statuses(context.broker, context.here);
  Json body;
  body["at_ms"] = to_ms(context.broker.clock().wall());
  JsonFields totals, storage;
  for (const auto& shard : shards) {
    shard.counters.report(totals);
    shard.journal.report(storage);
  }
  totals.put_into(body);
  body["delayed"] = delayed_json({context.broker.pending_counts().total(), std::nullopt}, shards);
  body["storage"] = storage.object();
  body["process"] = Json{{"cpu_seconds", process_cpu_seconds()}};
  co_return body;
}

asio::awaitable<Reply> get_status(Call& call) {
  co_return json_reply(co_await status_json(call.context));
}

}  // namespace tarry::admin
