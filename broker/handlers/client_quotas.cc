// DescribeClientQuotas (key 48) and AlterClientQuotas (key 49), versions 0 and 1: how much users,
// client ids and addresses may use (security/quota_table.h).  They need DESCRIBE_CONFIGS and
// ALTER_CONFIGS on the cluster.  All changes of one entity hold together or not at all.

#include <map>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <fmt/core.h>

#include "base/log.h"
#include "broker/broker.h"
#include "broker/context/yield_budget.h"
#include "broker/handlers/all.h"
#include "broker/handlers/authorize.h"
#include "broker/handlers/change_security.h"
#include "broker/handlers/run.h"
#include "protocol/messages/alter_client_quotas.h"
#include "protocol/messages/describe_client_quotas.h"

namespace tarry::broker {

using protocol::ErrorCode;
namespace asio = boost::asio;

namespace {

// Every shard keeps them, and a filter looks at each.
constexpr std::int64_t max_quotas = 10'000;
// Bounds the entities of one request, because each has a row in the journal's record.
constexpr std::size_t max_altered_entities = 10'000;

struct QuotaRefusal {
  ErrorCode code;
  std::string message;
};

std::optional<QuotaName>* part_of(QuotaEntity& entity, std::string_view type) {
  if (type == "user") return &entity.user;
  if (type == "client-id") return &entity.client_id;
  if (type == "ip") return &entity.ip;
  return nullptr;
}

// --- Describe

// The first of a part that a filter names: nothing of it, any, its default, or a name.
struct PartFilter {
  bool any = false;
  QuotaName exact;

  bool matches(const std::optional<QuotaName>& part) const {
    return part && (any || *part == exact);
  }
};

struct QuotaFilter {
  std::map<std::string, PartFilter, std::less<>> parts;
  bool strict = false;

  bool matches(QuotaEntity entity) const {
    std::size_t matched = 0, there = 0;
    for (const std::string_view type : {"user", "client-id", "ip"}) {
      const auto& part = *part_of(entity, type);
      const auto wanted = parts.find(type);
      there += part ? 1 : 0;
      if (wanted == parts.end()) continue;
      if (!wanted->second.matches(part)) return false;
      ++matched;
    }
    // Strict: the entity has no part besides those that the filter names.
    return !strict || matched == there;
  }
};

enum MatchType : std::int8_t { match_exact = 0, match_default = 1, match_any = 2 };

std::optional<QuotaRefusal> take_component(
    QuotaFilter& filter, const protocol::DescribeClientQuotasRequest::Component& component) {
  const auto invalid = [](std::string message) {
    return QuotaRefusal{ErrorCode::invalid_request, std::move(message)};
  };
  QuotaEntity none;
  const auto type = component.entity_type;
  if (type.empty()) return invalid("Invalid empty entity type.");
  if (filter.parts.contains(type)) {
    return invalid(
        fmt::format("Entity type {} cannot appear more than once in the filter.", printable(type)));
  }
  if (part_of(none, type) == nullptr) {
    return QuotaRefusal{ErrorCode::unsupported_version,
                        fmt::format("Unsupported entity type {}", printable(type))};
  }
  if (component.match_type == match_exact && !component.match)
    return invalid("Request specified MATCH_TYPE_EXACT, but set match string to null.");
  if (component.match_type != match_exact && component.match)
    return invalid("Request specified a match string, but not MATCH_TYPE_EXACT.");
  if (component.match_type < match_exact || component.match_type > match_any)
    return invalid(fmt::format("Unknown match type {}", component.match_type));
  auto& part = filter.parts[std::string(type)];
  part.any = component.match_type == match_any;
  part.exact.is_default = component.match_type == match_default;
  part.exact.name = component.match.value_or("");
  return std::nullopt;
}

std::optional<QuotaRefusal> take_filter(QuotaFilter& filter,
                                        const protocol::DescribeClientQuotasRequest& request) {
  filter.strict = request.strict;
  for (const auto& component : request.components) {
    if (auto refused = take_component(filter, component)) return refused;
  }
  if (filter.parts.contains("ip") && filter.parts.size() > 1) {
    return QuotaRefusal{ErrorCode::invalid_request,
                        "Invalid entity filter component combination, IP filter component should "
                        "not be used with user or clientId filter component."};
  }
  return std::nullopt;
}

using DescribedEntry = protocol::DescribeClientQuotasResponse::Entry;

DescribedEntry entry_of(QuotaEntity entity, const QuotaTable::Limits& limits) {
  DescribedEntry entry;
  for (const auto* type : {"user", "client-id", "ip"}) {
    const auto& part = *part_of(entity, type);
    if (!part) continue;
    auto& told = entry.entity.emplace_back();
    told.entity_type = type;
    // Null stands for the default.
    if (!part->is_default) told.entity_name = part->name;
  }
  for (std::size_t i = 0; i < limits.size(); ++i) {
    const auto& limit = limits.at(i);
    if (limit) entry.values.push_back({std::string(name(static_cast<QuotaKind>(i))), *limit});
  }
  return entry;
}

asio::awaitable<protocol::DescribeClientQuotasResponse> describe_quotas(
    RequestContext& context, const protocol::DescribeClientQuotasRequest& request) {
  protocol::DescribeClientQuotasResponse response;
  QuotaFilter filter;
  std::optional<QuotaRefusal> refused;
  if (!authorize_cluster(context, AclOperation::describe_configs)) {
    refused = {ErrorCode::cluster_authorization_failed, "Cluster authorization failed."};
  } else {
    refused = take_filter(filter, request);
  }
  if (refused) {
    response.error_code = refused->code;
    response.error_message = refused->message;
    co_return response;
  }
  const auto image = context.broker.security(context.shard).image;
  AnswerMemory memory(context);
  YieldBudget budget(context.shard, &context.connection);
  auto& entries = response.entries.emplace();
  for (const auto& [entity, limits] : image->quotas().all()) {
    if (budget.spend()) {
      const bool wanted = co_await budget.yield();
      if (!wanted) co_return response;
    }
    if (!filter.matches(entity)) continue;
    auto entry = entry_of(entity, limits);
    std::size_t bytes = sizeof entry + 256;
    for (const auto& part : entry.entity) bytes += part.entity_name.value_or("").size();
    // Once for the answer itself, and once for its bytes on the wire.
    if (memory.spend(2 * bytes)) {
      const bool taken = co_await memory.take();
      if (!taken) co_return response;
    }
    entries.push_back(std::move(entry));
  }
  co_return response;
}

// --- Alter

using AlteredEntry = protocol::AlterClientQuotasRequest::Entry;

std::optional<QuotaRefusal> read_entity(QuotaEntity& entity, const AlteredEntry& entry) {
  const auto invalid = [](std::string message) {
    return QuotaRefusal{ErrorCode::invalid_request, std::move(message)};
  };
  for (const auto& part : entry.entity) {
    auto* const place = part_of(entity, part.entity_type);
    if (place == nullptr) {
      return invalid(
          fmt::format("Unhandled client quota entity type: {}", printable(part.entity_type)));
    }
    if (*place) {
      return invalid(fmt::format("Invalid client quota entity, duplicate entity entry for {}",
                                 part.entity_type));
    }
    *place = QuotaName{!part.entity_name, std::string(part.entity_name.value_or(""))};
  }
  if (auto reason = entity.refusal_reason(); !reason.empty()) return invalid(std::move(reason));
  return std::nullopt;
}

struct EntryChanges {
  std::vector<LiveSecurity::Change> changes;
  std::int64_t more = 0;  // Quotas that there are afterwards; negative: fewer.
};

std::optional<QuotaRefusal> changes_of_entry(const AlteredEntry& entry, const QuotaTable& quotas,
                                             EntryChanges& out) {
  auto& changes = out.changes;
  QuotaEntity entity;
  if (auto refused = read_entity(entity, entry)) return refused;
  std::set<QuotaKind> named;
  for (const auto& op : entry.ops) {
    const auto kind = quota_kind_named(op.key);
    std::string reason;
    if (!kind) {
      reason = fmt::format("Invalid configuration key {}", printable(op.key));
    } else if (!named.insert(*kind).second) {
      reason = fmt::format("{} is named twice for one entity", op.key);
    } else {
      // A removal has no value, so any allowed one stands for it.
      reason = entity.refusal_reason(*kind, op.remove ? 1 : op.value);
    }
    if (!reason.empty()) return QuotaRefusal{ErrorCode::invalid_request, std::move(reason)};
    changes.push_back({.key = QuotaTable::row_key(entity, *kind),
                       .value = std::nullopt,
                       .with_previous = !changes.empty()});
    if (!op.remove) changes.back().value = QuotaTable::row_value(op.value);
    const bool is_set = quotas.is_set(entity, *kind);
    if (op.remove && is_set) --out.more;
    if (!op.remove && !is_set) ++out.more;
  }
  return std::nullopt;
}

asio::awaitable<protocol::AlterClientQuotasResponse> alter_quotas(
    RequestContext& context, const protocol::AlterClientQuotasRequest& request) {
  protocol::AlterClientQuotasResponse response;
  const auto image = context.broker.security(context.shard).image;
  std::optional<QuotaRefusal> all_refused;
  if (!authorize_cluster(context, AclOperation::alter_configs)) {
    all_refused = {ErrorCode::cluster_authorization_failed, "Cluster authorization failed."};
  } else if (request.entries.size() > max_altered_entities) {
    all_refused = {ErrorCode::invalid_request, "A request may name at most 10000 entities."};
  }
  YieldBudget budget(context.shard, nullptr);
  std::vector<LiveSecurity::Change> changes;
  // Signed, because a request may remove more than it adds.
  auto count = static_cast<std::int64_t>(image->quotas().size());
  for (const auto& entry : request.entries) {
    if (budget.spend(5)) co_await budget.yield();
    auto& result = response.entries.emplace_back();
    for (const auto& part : entry.entity) {
      if (budget.spend()) co_await budget.yield();
      auto& told = result.entity.emplace_back();
      told.entity_type = part.entity_type;
      if (part.entity_name) told.entity_name.emplace(*part.entity_name);
    }
    // Apart from the others, because all changes of one entity are made, or none.
    EntryChanges of_entry;
    auto refused = all_refused ? all_refused : changes_of_entry(entry, image->quotas(), of_entry);
    if (!refused && of_entry.more > 0 && count + of_entry.more > max_quotas)
      refused = QuotaRefusal{ErrorCode::policy_violation, "There would be more than 10000 quotas."};
    if (refused) {
      result.error_code = refused->code;
      result.error_message = std::move(refused->message);
      continue;
    }
    count += of_entry.more;
    for (auto& change : of_entry.changes) changes.push_back(std::move(change));
  }
  if (request.validate_only || changes.empty()) co_return response;
  const std::size_t changed_quotas = changes.size();
  const auto changed = co_await change_security(context, std::move(changes));
  for (auto& result : response.entries) {
    if (changed || result.error_code != ErrorCode::none) continue;
    result.error_code = ErrorCode::kafka_storage_error;
    result.error_message = changed.error().message;
  }
  if (changed) {
    log_info("audit", "{} from {} has changed {} quotas", printable(context.connection.principal()),
             context.connection.peer(), changed_quotas);
  }
  co_return response;
}

}  // namespace

asio::awaitable<Answer> run_describe_client_quotas(RequestContext context) {
  return run<protocol::DescribeClientQuotasRequest, describe_quotas>(std::move(context));
}

asio::awaitable<Answer> run_alter_client_quotas(RequestContext context) {
  return run<protocol::AlterClientQuotasRequest, alter_quotas>(std::move(context));
}

}  // namespace tarry::broker
