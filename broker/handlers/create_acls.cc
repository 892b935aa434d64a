// CreateAcls (key 30), versions 1 to 3: adds rules.  Needs ALTER on the cluster.  A rule that
// cannot be is refused alone; those that can are added.  One that is there already is no
// error.

#include "protocol/messages/create_acls.h"

#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <fmt/core.h>

#include "broker/broker.h"
#include "broker/context/freed_on_pool.h"
#include "broker/context/yield_budget.h"
#include "broker/handlers/acl_messages.h"
#include "broker/handlers/all.h"
#include "broker/handlers/authorize.h"
#include "broker/handlers/change_security.h"
#include "broker/handlers/run.h"

namespace tarry::broker {

using protocol::ErrorCode;
namespace asio = boost::asio;

namespace {

// Every shard keeps them all, and a filter looks at each.
constexpr std::size_t max_rules = 100'000;
// A stored rule that has longer ones stays in force: to ignore a denial would let somebody in.
constexpr std::size_t max_rule_name_bytes = 1024;  // As the names of users.
constexpr std::size_t max_rule_principal_bytes =
    max_rule_name_bytes + std::string_view("User:").size();

std::string refusal_of(const AclBinding& rule) {
  if (auto reason = rule.refusal_reason(); !reason.empty()) return reason;
  // Their ids may be as long as the protocol allows, and each of them can be named.
  const bool is_id =
      rule.resource == AclResource::group || rule.resource == AclResource::transactional_id;
  if (rule.principal.size() > max_rule_principal_bytes || rule.host.size() > max_rule_name_bytes ||
      (!is_id && rule.name.size() > max_rule_name_bytes))
    return fmt::format("A name has at most {} bytes", max_rule_name_bytes);
  return {};
}

AclBinding binding_of(const protocol::CreateAclsRequest::Creation& wanted) {
  return {.resource = static_cast<AclResource>(wanted.resource_type),
          .pattern = static_cast<AclPattern>(wanted.resource_pattern_type),
          .operation = static_cast<AclOperation>(wanted.operation),
          .permission = static_cast<AclPermission>(wanted.permission_type),
          .name = std::string(wanted.resource_name),
          .principal = std::string(wanted.principal),
          .host = std::string(wanted.host)};
}

asio::awaitable<protocol::CreateAclsResponse> create_acls(
    RequestContext& context, const protocol::CreateAclsRequest& request) {
  protocol::CreateAclsResponse response;
  YieldBudget budget(context.shard, &context.connection);
  const auto refuse = [&](ErrorCode code, std::string_view message) {
    return refuse_all(response.results, request.creations.size(), code, message, budget);
  };
  constexpr std::string_view too_many = "There would be more than 100000 rules.";
  std::optional<std::pair<ErrorCode, std::string_view>> refused;
  if (!authorize_cluster(context, AclOperation::alter)) {
    refused = {ErrorCode::cluster_authorization_failed, "Cluster authorization failed."};
  } else if (!context.shard.config().authorizer.enabled) {
    refused = {ErrorCode::security_disabled, no_authorizer};
  } else if (request.creations.size() > max_rules) {
    refused = {ErrorCode::policy_violation, too_many};
  }
  if (refused) {
    co_await refuse(refused->first, refused->second);
    co_return response;
  }
  const auto image = context.broker.security(context.shard).image;
  std::vector<LiveSecurity::Change> changes;
  std::size_t bytes = 0;
  const FreedOnPool freed(context.shard, changes);
  for (std::size_t i = 0; i < request.creations.size(); ++i) {
    if (budget.spend()) {
      const bool wanted = co_await budget.yield();
      if (!wanted) co_return response;
    }
    auto& result = response.results.emplace_back();
    const auto rule = binding_of(request.creations[i]);
    if (auto reason = refusal_of(rule); !reason.empty()) {
      result.error_code = ErrorCode::invalid_request;
      result.error_message = std::move(reason);
      continue;
    }
    if (image->rules().contains(rule)) continue;
    // The key says everything about a rule, so its row has no value.
    changes.push_back({.key = SecurityImage::rule_key(rule), .value = std::string()});
    bytes += changes.back().key.size();
  }
  // A rule that one request names twice counts twice.
  const bool is_too_many = image->rules().size() + changes.size() > max_rules;
  if (is_too_many || (bytes > 0 && image->bytes() + bytes > SecurityImage::max_bytes)) {
    co_await refuse(ErrorCode::policy_violation,
                    is_too_many ? too_many : SecurityImage::above_max_bytes);
    co_return response;
  }
  const std::size_t added = changes.size();
  const auto changed = co_await change_security(context, std::move(changes));
  if (!changed) {
    co_await refuse(ErrorCode::kafka_storage_error, changed.error().message);
    co_return response;
  }
  log_info("audit", "{} from {} added ACL rules: {}", printable(context.connection.principal()),
           context.connection.peer(), added);
  co_return response;
}

}  // namespace

asio::awaitable<Answer> run_create_acls(RequestContext context) {
  return run<protocol::CreateAclsRequest, create_acls>(std::move(context));
}

}  // namespace tarry::broker
