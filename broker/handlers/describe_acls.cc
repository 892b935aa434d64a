// DescribeAcls (key 29), versions 1 to 3: the rules that a filter selects.  Needs DESCRIBE on the
// cluster; without an authorizer SECURITY_DISABLED.

#include "protocol/messages/describe_acls.h"

#include <map>
#include <string>
#include <utility>

#include "broker/broker.h"
#include "broker/handlers/acl_messages.h"
#include "broker/handlers/all.h"
#include "broker/handlers/authorize.h"
#include "broker/handlers/run.h"

namespace tarry::broker {

using protocol::ErrorCode;

namespace {

protocol::DescribeAclsResponse describe_acls(RequestContext& context,
                                             const protocol::DescribeAclsRequest& request) {
  protocol::DescribeAclsResponse response;
  const auto refuse = [&](ErrorCode code, std::string message) {
    response.error_code = code;
    response.error_message = std::move(message);
    return response;
  };
  if (!authorize_cluster(context, AclOperation::describe))
    return refuse(ErrorCode::cluster_authorization_failed, "Cluster authorization failed.");
  if (!context.shard.config().authorizer.enabled)
    return refuse(ErrorCode::security_disabled, std::string(no_authorizer));
  const auto filter = filter_of(request);
  if (auto reason = filter.refusal_reason(); !reason.empty())
    return refuse(ErrorCode::invalid_request, std::move(reason));

  const auto image = context.broker.security(context.shard).image;
  using Resource = std::tuple<AclResource, std::string, AclPattern>;
  // Rules of one resource stand together in the answer.
  std::map<Resource, protocol::DescribeAclsResponse::Resource> found;
  for (const auto& rule : image->rules()) {
    if (!filter.selects(rule)) continue;
    auto& resource = found[{rule.resource, rule.name, rule.pattern}];
    resource.resource_type = std::to_underlying(rule.resource);
    resource.resource_name = rule.name;
    resource.pattern_type = std::to_underlying(rule.pattern);
    resource.acls.push_back({rule.principal, rule.host, std::to_underlying(rule.operation),
                             std::to_underlying(rule.permission)});
  }
  for (auto& [name, resource] : found) response.resources.push_back(std::move(resource));
  return response;
}

}  // namespace

boost::asio::awaitable<Answer> run_describe_acls(RequestContext context) {
  return run_at_once<protocol::DescribeAclsRequest, describe_acls>(std::move(context));
}

}  // namespace tarry::broker
