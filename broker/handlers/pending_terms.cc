#include "broker/handlers/pending_terms.h"

#include <cstdint>
#include <optional>
#include <string_view>
#include <utility>

#include "broker/broker.h"
#include "broker/context/request_context.h"
#include "broker/handlers/client_quota.h"

namespace tarry::broker {
namespace {

constexpr std::string_view anonymous = "User:ANONYMOUS";
constexpr std::string_view type_of_user = "User:";

}  // namespace

bool knows_principal(const RequestContext& context) {
  auto& connection = context.connection;
  if (connection.principal_id() != unknown_principal) return true;
  const auto principal = connection.principal();
  connection.set_principal_id(
      principal == anonymous
          ? anonymous_principal
          : context.broker.security(context.shard).image->find_principal(principal));
  return connection.principal_id() != unknown_principal;
}

boost::asio::awaitable<bool> number_principal(const RequestContext& context) {
  // A copy, because a connection belongs to its own shard.
  auto work = [&broker = context.broker,
               name = context.connection.principal()]() -> boost::asio::awaitable<PrincipalId> {
    const PrincipalId number = co_await broker.live_security().number_principal(name);
    co_return number;
  };
  const PrincipalId number =
      co_await context.broker.on(context.shard, context.broker.shard(0), std::move(work));
  // Only what holds for good is noted.
  context.connection.set_principal_id(number);
  co_return number != unknown_principal;
}

delay::PendingTerms pending_terms(const RequestContext& context, std::string& user) {
  delay::PendingTerms terms;
  if (!knows_principal(context)) return terms;
  terms.principal = context.connection.principal_id();
  const auto limit = [&](QuotaKind kind) -> std::optional<std::int64_t> {
    const double found = client_quota(context, kind).limit;
    if (found == 0) return std::nullopt;
    return static_cast<std::int64_t>(found);
  };
  terms.max_records = limit(QuotaKind::pending_records);
  terms.max_bytes = limit(QuotaKind::pending_bytes);
  if (!terms.is_limited()) return terms;
  user = context.connection.principal().substr(type_of_user.size());
  terms.user = user;
  return terms;
}

}  // namespace tarry::broker
