// DescribeAcls (key 29), versions 1 to 3: the rules that a filter selects.  Needs DESCRIBE on the
// cluster; without an authorizer SECURITY_DISABLED.

#include "protocol/messages/describe_acls.h"

#include <map>
#include <string>
#include <tuple>
#include <utility>

#include "broker/broker.h"
#include "broker/context/freed_on_pool.h"
#include "broker/context/yield_budget.h"
#include "broker/handlers/acl_messages.h"
#include "broker/handlers/all.h"
#include "broker/handlers/authorize.h"
#include "broker/handlers/run.h"

namespace tarry::broker {

using protocol::ErrorCode;
namespace asio = boost::asio;

namespace {

using protocol::DescribeAclsResponse;
using Resource = std::tuple<AclResource, std::string, AclPattern>;
using ByResource = std::map<Resource, DescribeAclsResponse::Resource>;

struct RuleSearch {
  const SecurityImage& image;
  YieldBudget budget;
  AnswerMemory memory;
};

// False: nobody waits for the answer any more.
asio::awaitable<bool> find_rules(RuleSearch& search, const AclFilter& filter, ByResource& found) {
  std::size_t place = 0;
  for (const auto& rule : search.image.rules()) {
    const bool is_time = place++ % rules_a_microsecond == 0 && search.budget.spend();
    if (is_time) {
      const bool wanted = co_await search.budget.yield();
      if (!wanted) co_return false;
    }
    if (!filter.selects(rule)) continue;
    auto& resource = found[{rule.resource, rule.name, rule.pattern}];
    resource.resource_type = std::to_underlying(rule.resource);
    resource.resource_name = rule.name;
    resource.pattern_type = std::to_underlying(rule.pattern);
    auto& told = resource.acls.emplace_back();
    told.principal = rule.principal;
    told.host = rule.host;
    told.operation = std::to_underlying(rule.operation);
    told.permission_type = std::to_underlying(rule.permission);
    // As if each had a resource of its own; once for the answer, and once for its bytes on the
    // wire.
    if (search.memory.spend(2 * (sizeof resource + sizeof told + text_bytes(rule)))) {
      const bool taken = co_await search.memory.take();
      if (!taken) co_return false;
    }
    // It takes longer than a look: a name in the map, and three copies.
    search.budget.spend(2);
  }
  co_return true;
}

asio::awaitable<DescribeAclsResponse> describe_acls(RequestContext& context,
                                                    const protocol::DescribeAclsRequest& request) {
  DescribeAclsResponse response;
  const auto refuse = [&](ErrorCode code, std::string message) {
    response.error_code = code;
    response.error_message = std::move(message);
    return response;
  };
  if (!authorize_cluster(context, AclOperation::describe))
    co_return refuse(ErrorCode::cluster_authorization_failed, "Cluster authorization failed.");
  if (!context.shard.config().authorizer.enabled)
    co_return refuse(ErrorCode::security_disabled, std::string(no_authorizer));
  const auto filter = filter_of(request);
  if (auto reason = filter.refusal_reason(); !reason.empty())
    co_return refuse(ErrorCode::invalid_request, std::move(reason));

  const auto image = context.broker.security(context.shard).image;
  RuleSearch search{*image, YieldBudget(context.shard, &context.connection), AnswerMemory(context)};
  ByResource found;
  const FreedOnPool freed(context.shard, found);
  const bool all = co_await find_rules(search, filter, found);
  if (!all) co_return response;
  while (!found.empty()) {
    if (search.budget.spend()) co_await search.budget.yield();
    response.resources.push_back(std::move(found.extract(found.begin()).mapped()));
  }
  co_return response;
}

}  // namespace

asio::awaitable<Answer> run_describe_acls(RequestContext context) {
  return run<protocol::DescribeAclsRequest, describe_acls>(std::move(context));
}

}  // namespace tarry::broker
