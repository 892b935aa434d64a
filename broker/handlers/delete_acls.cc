// DeleteAcls (key 31), versions 1 to 3: removes the rules that each filter selects, and returns
// them.  Needs ALTER on the cluster.

#include "protocol/messages/delete_acls.h"

#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "broker/broker.h"
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

// Each looks at every rule.
constexpr std::size_t max_filters = 1000;
// The limit for all filters together: as many rules as one filter may select that matches all.
constexpr std::size_t max_selected = 100'000;

struct RuleSelection {
  const SecurityImage& image;
  YieldBudget& budget;
  AnswerMemory memory;
  std::vector<bool> chosen;  // One for each rule of the image: several filters may select it.
  std::size_t selected = 0;
  bool too_many = false;
};

// Adds the rules that the filter selects to its result.  False: nobody waits for the answer any
// more, or there are too many.
asio::awaitable<bool> select(RuleSelection& selection, const AclFilter& filter,
                             protocol::DeleteAclsResponse::FilterResult& result) {
  std::size_t place = 0;
  for (const auto& rule : selection.image.rules()) {
    const bool is_time = place % rules_a_microsecond == 0 && selection.budget.spend();
    if (is_time) {
      const bool wanted = co_await selection.budget.yield();
      if (!wanted) co_return false;
    }
    const auto at = place++;
    if (!filter.selects(rule)) continue;
    if (++selection.selected > max_selected) {
      selection.too_many = true;
      co_return false;
    }
    selection.chosen[at] = true;
    auto& told = result.matching_acls.emplace_back();
    told.resource_type = std::to_underlying(rule.resource);
    told.resource_name = rule.name;
    told.pattern_type = std::to_underlying(rule.pattern);
    told.principal = rule.principal;
    told.host = rule.host;
    told.operation = std::to_underlying(rule.operation);
    told.permission_type = std::to_underlying(rule.permission);
    // Once for the answer itself, and once for its bytes on the wire.
    if (selection.memory.spend(2 * (sizeof told + text_bytes(rule)))) {
      const bool taken = co_await selection.memory.take();
      if (!taken) co_return false;
    }
    selection.budget.spend();
  }
  co_return true;
}

// False: as select().
asio::awaitable<bool> select_all(RuleSelection& selection,
                                 const protocol::DeleteAclsRequest& request,
                                 protocol::DeleteAclsResponse& response) {
  for (std::size_t i = 0; i < request.filters.size(); ++i) {
    auto& result = response.filter_results[i];
    const auto filter = filter_of(request.filters[i]);
    if (auto reason = filter.refusal_reason(); !reason.empty()) {
      result.error_code = ErrorCode::invalid_request;
      result.error_message = std::move(reason);
      continue;
    }
    const bool goes_on = co_await select(selection, filter, result);
    if (!goes_on) co_return false;
  }
  co_return true;
}

asio::awaitable<std::vector<LiveSecurity::Change>> removals_of(RuleSelection& selection) {
  std::vector<LiveSecurity::Change> changes;
  std::size_t place = 0;
  for (const auto& rule : selection.image.rules()) {
    if (!selection.chosen[place++]) continue;
    if (selection.budget.spend()) co_await selection.budget.yield();
    changes.push_back({.key = SecurityImage::rule_key(rule), .value = std::nullopt});
  }
  co_return changes;
}

asio::awaitable<protocol::DeleteAclsResponse> delete_acls(
    RequestContext& context, const protocol::DeleteAclsRequest& request) {
  protocol::DeleteAclsResponse response;
  YieldBudget budget(context.shard, &context.connection);
  const auto refuse = [&](ErrorCode code, std::string_view message) {
    return refuse_all(response.filter_results, request.filters.size(), code, message, budget);
  };
  std::optional<std::pair<ErrorCode, std::string_view>> refused;
  if (!authorize_cluster(context, AclOperation::alter)) {
    refused = {ErrorCode::cluster_authorization_failed, "Cluster authorization failed."};
  } else if (!context.shard.config().authorizer.enabled) {
    refused = {ErrorCode::security_disabled, no_authorizer};
  } else if (request.filters.size() > max_filters) {
    refused = {ErrorCode::invalid_request, "A request may have at most 1000 filters."};
  }
  if (refused) {
    co_await refuse(refused->first, refused->second);
    co_return response;
  }

  response.filter_results.resize(request.filters.size());
  const auto image = context.broker.security(context.shard).image;
  RuleSelection selection{*image, budget, AnswerMemory(context),
                          std::vector<bool>(image->rules().size())};
  const bool selected = co_await select_all(selection, request, response);
  if (selection.too_many) {
    co_await refuse(ErrorCode::invalid_request,
                    "The filters select more than 100000 rules together, some of them more than "
                    "once; send them in several requests.");
    co_return response;
  }
  if (!selected) co_return response;  // Nobody gets it.
  auto changes = co_await removals_of(selection);
  const std::size_t removed = changes.size();
  const auto changed = co_await change_security(context, std::move(changes));
  if (!changed) {
    co_await refuse(ErrorCode::kafka_storage_error, changed.error().message);
    co_return response;
  }
  log_info("audit", "{} from {} removed ACL rules: {}", printable(context.connection.principal()),
           context.connection.peer(), removed);
  co_return response;
}

}  // namespace

asio::awaitable<Answer> run_delete_acls(RequestContext context) {
  return run<protocol::DeleteAclsRequest, delete_acls>(std::move(context));
}

}  // namespace tarry::broker
