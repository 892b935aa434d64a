#pragma once

// authorize(): whether the client may do this, by the rules of security/security_image.h.
//
//   if (!authorize(context, AclOperation::write, AclResource::topic, topic.name)) ...
//
// Without authorizer.class.name everybody may do everything.  A refusal is logged (a bounded number
// of lines) and counted; one that is asked to filter a list is not.

#include <cstdint>
#include <string>
#include <string_view>

#include "broker/context/request_context.h"
#include "broker/security/acl.h"

namespace tarry::broker {

bool authorize(const RequestContext& context, AclOperation operation, AclResource resource,
               std::string_view name);
// The same, without a count or a line in the log.
bool is_allowed(const RequestContext& context, AclOperation operation, AclResource resource,
                std::string_view name);
// For a request that runs on another shard than its connection's.
bool authorize_on(Shard& here, const RequestContext& context, AclOperation operation,
                  AclResource resource, std::string_view name);
// Counts a denial of `here`, and logs it.  For what was decided without authorize().
void note_denial(Shard& here, const RequestContext& context, AclOperation operation,
                 AclResource resource, std::string_view name);
// Whether there is a topic (a group) for which the client may do it.
bool is_allowed_somewhere(const RequestContext& context, AclOperation operation,
                          AclResource resource);

inline bool authorize_topic(const RequestContext& context, AclOperation operation,
                            std::string_view name) {
  return authorize(context, operation, AclResource::topic, name);
}
inline bool authorize_group(const RequestContext& context, AclOperation operation,
                            std::string_view name) {
  return authorize(context, operation, AclResource::group, name);
}
inline bool authorize_cluster(const RequestContext& context, AclOperation operation) {
  return authorize(context, operation, AclResource::cluster, cluster_resource_name);
}

// A producer needs WRITE on the topic to change its pending records, and on "orders/cancel" too
// once a rule is for that name.  So Kafka's own tools can make such rules, and
// a topic without any is as in Kafka.
enum class PendingAction : std::uint8_t { schedule, cancel };
std::string resource_name_of(std::string_view topic, PendingAction action);
// Without a count or a line in the log.
bool is_action_allowed(const RequestContext& context, std::string_view topic, PendingAction action);

// CREATE on the cluster is CREATE of every topic.
bool may_create_topic(const RequestContext& context, std::string_view name);

// For the answers' authorized_operations: of `all`, those that the client may do.
std::int32_t allowed_operations(const RequestContext& context, std::int32_t all,
                                AclResource resource, std::string_view name);
// None of them without DESCRIBE.
std::int32_t allowed_cluster_operations(const RequestContext& context);

}  // namespace tarry::broker
