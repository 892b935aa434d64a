// DeleteAcls (key 31), versions 1 to 3: removes the rules that each filter selects, and tells them.
// Needs ALTER on the cluster.

#include "protocol/messages/delete_acls.h"

#include <set>
#include <string>
#include <utility>
#include <vector>

#include "broker/broker.h"
#include "broker/handlers/acl_messages.h"
#include "broker/handlers/all.h"
#include "broker/handlers/authorize.h"
#include "broker/handlers/change_security.h"
#include "broker/handlers/run.h"

namespace tarry::broker {

using protocol::ErrorCode;
namespace asio = boost::asio;

namespace {

// Each looks at every rule.
constexpr std::size_t max_filters = 1000;

// The rules that the filters select; each filter lists its own in its answer.
std::set<AclBinding> select(const SecurityImage& image, const protocol::DeleteAclsRequest& request,
                            protocol::DeleteAclsResponse& response) {
  // A set, because several filters may select the same rule.
  std::set<AclBinding> all;
  for (std::size_t i = 0; i < request.filters.size(); ++i) {
    auto& result = response.filter_results[i];
    const auto filter = filter_of(request.filters[i]);
    if (auto reason = filter.refusal_reason(); !reason.empty()) {
      result.error_code = ErrorCode::invalid_request;
      result.error_message = std::move(reason);
      continue;
    }
    for (const auto& rule : image.rules()) {
      if (!filter.selects(rule)) continue;
      all.insert(rule);
      auto& told = result.matching_acls.emplace_back();
      told.resource_type = std::to_underlying(rule.resource);
      told.resource_name = rule.name;
      told.pattern_type = std::to_underlying(rule.pattern);
      told.principal = rule.principal;
      told.host = rule.host;
      told.operation = std::to_underlying(rule.operation);
      told.permission_type = std::to_underlying(rule.permission);
    }
  }
  return all;
}

asio::awaitable<protocol::DeleteAclsResponse> delete_acls(
    RequestContext& context, const protocol::DeleteAclsRequest& request) {
  protocol::DeleteAclsResponse response;
  response.filter_results.resize(request.filters.size());
  const auto refuse_all = [&](ErrorCode code, std::string_view message) {
    for (auto& result : response.filter_results) {
      result.error_code = code;
      result.error_message = message;
      // Nothing was removed, so no rule may be told as removed.
      result.matching_acls.clear();
    }
    return response;
  };
  if (!authorize_cluster(context, AclOperation::alter))
    co_return refuse_all(ErrorCode::cluster_authorization_failed, "Cluster authorization failed.");
  if (!context.shard.config().authorizer.enabled)
    co_return refuse_all(ErrorCode::security_disabled, no_authorizer);
  if (request.filters.size() > max_filters)
    co_return refuse_all(ErrorCode::invalid_request, "A request may have at most 1000 filters.");

  const auto image = context.broker.security(context.shard).image;
  const auto rules = select(*image, request, response);
  std::vector<LiveSecurity::Change> changes;
  for (const auto& rule : rules) changes.push_back({SecurityImage::rule_key(rule), std::nullopt});
  const auto changed = co_await change_security(context, changes);
  if (!changed) co_return refuse_all(ErrorCode::kafka_storage_error, changed.error().message);
  log_info("audit", "{} from {} removed ACL rules: {}", printable(context.connection.principal()),
           context.connection.peer(), changes.size());
  co_return response;
}

}  // namespace

asio::awaitable<Answer> run_delete_acls(RequestContext context) {
  return run<protocol::DeleteAclsRequest, delete_acls>(std::move(context));
}

}  // namespace tarry::broker
