#include "broker/handlers/authorize.h"

#include <utility>

#include <fmt/core.h>

#include "base/log.h"
#include "broker/broker.h"
#include "broker/handlers/operations.h"
#include "broker/security/client_address.h"

namespace tarry::broker {
namespace {

// "/127.0.0.1" and "/[::1]" as rules name them.
std::string address_of(const Connection& connection) {
  auto host = connection.host().substr(1);
  if (host.starts_with('[') && host.ends_with(']')) host = host.substr(1, host.size() - 2);
  return host;
}

ClientIdentity identity_of(const RequestContext& context) {
  auto address = address_of(context.connection);
  auto in_full = address_in_full(address);
  return {.principal = context.connection.principal(),
          .host = std::move(address),
          .host_in_full = std::move(in_full)};
}

bool decides_alone(const AuthorizerTerms& terms, const ClientIdentity& who) {
  return !terms.enabled || terms.super_users.contains(who.principal);
}

bool is_allowed_on(Shard& here, const RequestContext& context, AclOperation operation,
                   AclResource resource, std::string_view name) {
  const auto& terms = here.config().authorizer;
  // Before the identity is made, which costs a copy for every request.
  if (!terms.enabled) return true;
  const auto who = identity_of(context);
  return decides_alone(terms, who) ||
         context.broker.security(here).image->allows(terms, who, operation, resource, name);
}

}  // namespace

bool is_allowed(const RequestContext& context, AclOperation operation, AclResource resource,
                std::string_view name) {
  return is_allowed_on(context.shard, context, operation, resource, name);
}

std::string resource_name_of(std::string_view topic, PendingAction action) {
  return fmt::format("{}{}{}", topic, action_separator,
                     action == PendingAction::schedule ? "schedule" : "cancel");
}

bool is_action_allowed(const RequestContext& context, std::string_view topic,
                       PendingAction action) {
  const auto& image = *context.broker.security(context.shard).image;
  if (!context.shard.config().authorizer.enabled || !image.has_rules_of_actions()) return true;
  const auto name = resource_name_of(topic, action);
  return !image.has_rule_of_action(name) ||
         is_allowed(context, AclOperation::write, AclResource::topic, name);
}

bool is_allowed_somewhere(const RequestContext& context, AclOperation operation,
                          AclResource resource) {
  const auto& terms = context.shard.config().authorizer;
  if (!terms.enabled) return true;
  const auto who = identity_of(context);
  return decides_alone(terms, who) || context.broker.security(context.shard)
                                          .image->allows_for_some(terms, who, operation, resource);
}

bool authorize(const RequestContext& context, AclOperation operation, AclResource resource,
               std::string_view resource_name) {
  return authorize_on(context.shard, context, operation, resource, resource_name);
}

bool authorize_on(Shard& here, const RequestContext& context, AclOperation operation,
                  AclResource resource, std::string_view resource_name) {
  if (is_allowed_on(here, context, operation, resource, resource_name)) return true;
  note_denial(here, context, operation, resource, resource_name);
  return false;
}

void note_denial(Shard& here, const RequestContext& context, AclOperation operation,
                 AclResource resource, std::string_view resource_name) {
  ++here.counters.refused_total;
  // Every refusal is counted, but a client that asks in a loop must not fill the log.
  auto& log = context.broker.security(here).log_refused;
  const auto unwritten = log.admit(here.clock().mono());
  if (!unwritten) return;
  const auto& connection = context.connection;
  log_warn("audit", "{} from {} on listener {} may not {} {} {}: denied{}",
           printable(connection.principal()), connection.peer(), connection.listener().name,
           name(operation), name(resource), printable(resource_name),
           LogThrottle::suffix(*unwritten));
}

std::int32_t allowed_operations(const RequestContext& context, std::int32_t all,
                                AclResource resource, std::string_view name) {
  // A negative set stands for "not known", and is no set of bits.
  if (!context.shard.config().authorizer.enabled || all < 0) return all;
  std::int32_t allowed = 0;
  for (int operation = 0; operation < 16; ++operation) {
    const auto bit = std::int32_t{1} << operation;
    if ((all & bit) != 0 &&
        is_allowed(context, static_cast<AclOperation>(operation), resource, name))
      allowed |= bit;
  }
  return allowed;
}

bool may_create_topic(const RequestContext& context, std::string_view name) {
  // The cluster's rule is asked without a line in the log: if it does not allow, the topic's may.
  return is_allowed(context, AclOperation::create, AclResource::cluster, cluster_resource_name) ||
         authorize_topic(context, AclOperation::create, name);
}

std::int32_t allowed_cluster_operations(const RequestContext& context) {
  if (!is_allowed(context, AclOperation::describe, AclResource::cluster, cluster_resource_name))
    return 0;
  return allowed_operations(context, cluster_operations, AclResource::cluster,
                            cluster_resource_name);
}

}  // namespace tarry::broker
