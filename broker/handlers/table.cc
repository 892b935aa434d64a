#include "broker/handlers/table.h"

#include <algorithm>
#include <array>

#include <fmt/core.h>

#include "broker/broker.h"
#include "broker/handlers/all.h"
#include "protocol/codec.h"

namespace tarry::broker {
namespace {

using protocol::ApiKey;

// max_bytes stands near the front of a Fetch request, after max_wait_ms and min_bytes, and until
// version 14 after replica_id: it is found without decoding the rest.
std::size_t max_fetched(const RequestContext& context) {
  const std::size_t at = context.version() < 15 ? 12 : 8;
  const Bytes body = context.header.body;
  if (body.size() < at + 4) return 0;  // Its handler will say that it is cut.
  const auto asked = load_be<std::int32_t>(body.data() + at);
  return static_cast<std::size_t>(std::clamp(asked, 0, context.shard.config().fetch_max_bytes));
}

// Ascending by key.  Produce is advertised from version 0 on, but served from 3: with a higher
// minimum librdkafka 2.0.2 silently sends batches uncompressed (KAFKA-18659).
constexpr std::array table{
    Handler{ApiKey::produce, 0, 3, 12, true, run_produce, nullptr, has_many_batches},
    Handler{ApiKey::fetch, 4, 4, 17, true, run_fetch, max_fetched},
    Handler{ApiKey::list_offsets, 1, 1, 10, false, run_list_offsets},
    Handler{ApiKey::metadata, 0, 0, 12, false, run_metadata},
    Handler{ApiKey::offset_commit, 2, 2, 9, false, run_offset_commit},
    Handler{ApiKey::offset_fetch, 1, 1, 9, false, run_offset_fetch},
    Handler{ApiKey::find_coordinator, 0, 0, 6, false, run_find_coordinator},
    Handler{ApiKey::join_group, 0, 0, 9, false, run_join_group},
    Handler{ApiKey::heartbeat, 0, 0, 4, false, run_heartbeat},
    Handler{ApiKey::leave_group, 0, 0, 5, false, run_leave_group},
    Handler{ApiKey::sync_group, 0, 0, 5, false, run_sync_group},
    Handler{ApiKey::describe_groups, 0, 0, 6, false, run_describe_groups},
    Handler{ApiKey::list_groups, 0, 0, 5, false, run_list_groups},
    Handler{ApiKey::sasl_handshake, 0, 0, 1, false, run_sasl_handshake},
    Handler{ApiKey::api_versions, 0, 0, 4, false, run_api_versions},
    Handler{ApiKey::create_topics, 2, 2, 7, false, run_create_topics},
    Handler{ApiKey::delete_topics, 1, 1, 6, false, run_delete_topics},
    Handler{ApiKey::delete_records, 0, 0, 2, false, run_delete_records},
    Handler{ApiKey::init_producer_id, 0, 0, 5, false, run_init_producer_id},
    Handler{ApiKey::describe_acls, 1, 1, 3, false, run_describe_acls},
    Handler{ApiKey::create_acls, 1, 1, 3, false, run_create_acls},
    Handler{ApiKey::delete_acls, 1, 1, 3, false, run_delete_acls},
    Handler{ApiKey::describe_configs, 1, 1, 4, false, run_describe_configs},
    Handler{ApiKey::alter_configs, 0, 0, 2, false, run_alter_configs},
    Handler{ApiKey::sasl_authenticate, 0, 0, 2, false, run_sasl_authenticate},
    Handler{ApiKey::create_partitions, 0, 0, 3, false, run_create_partitions},
    Handler{ApiKey::delete_groups, 0, 0, 2, false, run_delete_groups},
    Handler{ApiKey::incremental_alter_configs, 0, 0, 1, false, run_incremental_alter_configs},
    Handler{ApiKey::offset_delete, 0, 0, 0, false, run_offset_delete},
    Handler{ApiKey::describe_client_quotas, 0, 0, 1, false, run_describe_client_quotas},
    Handler{ApiKey::alter_client_quotas, 0, 0, 1, false, run_alter_client_quotas},
    Handler{ApiKey::describe_user_scram_credentials, 0, 0, 0, false, run_describe_scram_users},
    Handler{ApiKey::alter_user_scram_credentials, 0, 0, 0, false, run_alter_scram_users},
    Handler{ApiKey::describe_cluster, 0, 0, 2, false, run_describe_cluster},
    Handler{ApiKey::describe_topic_partitions, 0, 0, 0, false, run_describe_topic_partitions},
};

static_assert(std::ranges::is_sorted(table, {}, &Handler::key));

// Records, or what tarry.group.max.bytes bounds.
constexpr bool carries_data(ApiKey key) {
  return key == ApiKey::produce || key == ApiKey::join_group || key == ApiKey::sync_group;
}

}  // namespace

std::span<const Handler> handlers() {
  return table;
}

const Handler& raw_token_handler() {
  static constexpr Handler handler{ApiKey::sasl_authenticate, 0, 0, 0, false, run_raw_token};
  return handler;
}

const Handler* find_handler(std::int16_t key) {
  for (const auto& handler : table) {
    if (static_cast<std::int16_t>(handler.key) == key) return &handler;
  }
  return nullptr;
}

std::size_t working_bytes(const Handler& handler, std::size_t request_bytes) {
  // A thing that is named takes two bytes and more of a request, and some hundred bytes at the most
  // while it is looked up.
  constexpr std::size_t bytes_a_byte = 32;
  constexpr std::size_t limit = protocol::max_elements * 512;
  // Its coroutines, and what it waits as: with its place in the session 80 000 parked Fetches of 59
  // bytes took 4.4 KB each.
  constexpr std::size_t at_least = 3328;
  switch (handler.key) {
    case ApiKey::produce:  // Its records stay in the frame; it counts its batches itself.
      return at_least;
    case ApiKey::fetch:  // The partitions that it keeps while it waits.
      return at_least + 4 * request_bytes;
    case ApiKey::join_group:
    case ApiKey::sync_group:
      return at_least + 2 * request_bytes;
    default:
      return at_least + std::min(request_bytes * bytes_a_byte, limit);
  }
}

std::string refusal_reason(const protocol::RequestHeader& header) {
  const auto* handler = find_handler(header.key);
  if (handler == nullptr) return fmt::format("API key {} is not supported", header.key);
  // A newer client asks in its own version first and steps down by the answer.
  if (handler->key == ApiKey::api_versions && header.version >= 0) return {};
  if (header.version < handler->min_served || header.version > handler->max_version) {
    return fmt::format("{} version {} is not supported; the supported versions are {} to {}",
                       protocol::name(handler->key), header.version, handler->min_served,
                       handler->max_version);
  }
  if (!carries_data(handler->key) && header.body.size() > max_request_bytes) {
    return fmt::format("a {} request has {} bytes; the limit is {}", protocol::name(handler->key),
                       header.body.size(), max_request_bytes);
  }
  return {};
}

}  // namespace tarry::broker
