#pragma once

// The parts that DescribeAcls, CreateAcls and DeleteAcls share: Kafka's filter as ours, and the
// measures by which a long list of rules yields its thread and is charged for its memory.
//
// The number of rules and of filters is a client's choice, so a search is paid for in time (it
// yields its shard's thread) and in memory (text_bytes()).  Pure; on any thread.

#include <cstddef>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include <boost/asio/awaitable.hpp>

#include "broker/context/yield_budget.h"
#include "broker/security/acl.h"
#include "protocol/error_code.h"

namespace tarry::broker {

inline constexpr std::string_view no_authorizer = "No Authorizer is configured.";

// Rules that a filter looks at, or a little more, in a microsecond.
inline constexpr std::size_t rules_a_microsecond = 16;

inline std::size_t text_bytes(const AclBinding& rule) {
  return rule.name.size() + rule.principal.size() + rule.host.size();
}

// Answers all `count` of a request with one error, but those that were refused for themselves.
// Only rules that were removed may be told, so it takes the others out.
template <typename Result>
boost::asio::awaitable<void> refuse_all(std::vector<Result>& results, std::size_t count,
                                        protocol::ErrorCode code, std::string_view message,
                                        YieldBudget& budget) {
  for (std::size_t i = 0; i < count; ++i) {
    if (budget.spend()) co_await budget.yield();
    auto& result = i < results.size() ? results[i] : results.emplace_back();
    if constexpr (requires { result.matching_acls; }) {
      while (!result.matching_acls.empty()) {
        if (budget.spend()) co_await budget.yield();
        result.matching_acls.pop_back();
      }
    }
    if (result.error_code != protocol::ErrorCode::none) continue;
    result.error_code = code;
    result.error_message = message;
  }
}

// The filter of DescribeAcls, and each one of DeleteAcls.
template <typename Filter>
AclFilter filter_of(const Filter& asked) {
  const auto text = [](const std::optional<std::string_view>& given) {
    return given ? std::optional<std::string>(*given) : std::nullopt;
  };
  return {.resource = static_cast<AclResource>(asked.resource_type_filter),
          .pattern = static_cast<AclPattern>(asked.pattern_type_filter),
          .operation = static_cast<AclOperation>(asked.operation),
          .permission = static_cast<AclPermission>(asked.permission_type),
          .name = text(asked.resource_name_filter),
          .principal = text(asked.principal_filter),
          .host = text(asked.host_filter)};
}

}  // namespace tarry::broker
