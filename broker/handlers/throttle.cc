#include "broker/handlers/throttle.h"

#include <algorithm>
#include <memory>
#include <string>
#include <string_view>

#include "broker/broker.h"
#include "broker/handlers/client_quota.h"

namespace tarry::broker {
namespace {

using std::chrono::milliseconds;

constexpr std::string_view user_type = "User:";

milliseconds throttle_time(const RequestContext& context) {
  if (!context.time) return {};
  const auto metered = client_quota(context, QuotaKind::request);
  if (!metered) return {};
  const auto now = context.shard.clock().mono();
  // While a request waits it uses none of the broker's time.
  const std::chrono::nanoseconds spent =
      context.time->until_wait.value_or(now - context.time->begun);
  // A second of one thread is 100 percent.
  const auto percent = static_cast<double>(spent.count()) / 1e7;
  return std::min<milliseconds>(metered.meter->record(percent, metered.limit, now),
                                context.broker.quota_meters().windows().length);
}

// The longer one is what the client waits for.
milliseconds longer(const RequestContext& context, milliseconds bytes,
                    ShardCounters::Throttled& by_bytes, milliseconds time) {
  const auto wait = std::max(bytes, time);
  if (wait.count() > 0) {
    auto& by = bytes > time ? by_bytes : context.shard.counters.throttled_by_request;
    ++by.requests_total;
    by.seconds_total += std::chrono::duration<double>(wait).count();
  }
  return wait;
}

}  // namespace

// By value: the connection may look up others while a request waits.
ClientMeters::Metered client_quota(const RequestContext& context, QuotaKind kind) {
  const auto& image = context.broker.security(context.shard).image;
  if (!image->quotas().any(kind)) return {};
  auto& known = context.connection.meters;
  const std::string principal = context.connection.principal();
  const auto user = std::string_view(principal).substr(user_type.size());
  const auto client_id = context.header.client_id.value_or("");
  // Found once for many requests: the look-up goes over all quotas of the user and the client.
  if (!known || !known->are_of(image.get(), user, client_id)) {
    known = std::make_shared<ClientMeters>(ClientMeters::find(
        image, context.broker.quota_meters(), user, client_id, context.shard.clock().mono()));
  }
  return known->of.at(static_cast<std::size_t>(kind));
}

bool is_metered(const RequestContext& context) {
  return context.time || client_quota(context, QuotaKind::fetch);
}

std::size_t fetch_limit(const RequestContext& context) {
  const auto metered = client_quota(context, QuotaKind::fetch);
  if (!metered) return context.fetch_limit;
  // More in one answer than the quota allows at once could never be sent.
  const auto allowed = context.broker.quota_meters().windows().at_once(metered.limit);
  // The size of a frame is an i32.
  constexpr double largest = 2'147'483'647;
  return static_cast<std::size_t>(std::min(allowed, largest));
}

milliseconds throttle_counted_request(const RequestContext& context) {
  auto& counters = context.shard.counters;
  return longer(context, milliseconds{0}, counters.throttled_by_request, throttle_time(context));
}

milliseconds throttle_produce(const RequestContext& context, bool counts_time) {
  milliseconds bytes{0};
  if (const auto metered = client_quota(context, QuotaKind::produce)) {
    bytes = metered.meter->record(static_cast<double>(context.frame_bytes), metered.limit,
                                  context.shard.clock().mono());
  }
  const auto time = counts_time ? throttle_time(context) : milliseconds{0};
  return longer(context, bytes, context.shard.counters.throttled_by_produce, time);
}

milliseconds throttle_fetch(const RequestContext& context, std::size_t answer_bytes) {
  const auto time = throttle_time(context);
  const auto metered = client_quota(context, QuotaKind::fetch);
  milliseconds bytes{0};
  if (metered) {
    const auto now = context.shard.clock().mono();
    const auto used = static_cast<double>(answer_bytes);
    bytes = metered.meter->record(used, metered.limit, now);
    // It gets an empty answer instead.
    if (bytes.count() > 0 || time.count() > 0) metered.meter->take_back(used, now);
  }
  return longer(context, bytes, context.shard.counters.throttled_by_fetch, time);
}

}  // namespace tarry::broker
