#pragma once

// The handlers, one file each; their header comments name the versions and the guarantees.
//
//   server/session --> table.h: which handler, which versions --> run_...() --> Answer
//
// They are declared together because table.cc alone calls them.  A handler takes its context by
// value, starts on the shard of its connection and ends there, whatever hops are between; what it
// throws ends that connection alone.

#include <boost/asio/awaitable.hpp>

#include "broker/context/request_context.h"

namespace tarry::broker {

boost::asio::awaitable<Answer> run_produce(RequestContext context);
// Whether a Produce has so many batches that it works in steps.
bool has_many_batches(const RequestContext& context);
boost::asio::awaitable<Answer> run_fetch(RequestContext context);
boost::asio::awaitable<Answer> run_list_offsets(RequestContext context);
boost::asio::awaitable<Answer> run_metadata(RequestContext context);
boost::asio::awaitable<Answer> run_find_coordinator(RequestContext context);
boost::asio::awaitable<Answer> run_join_group(RequestContext context);
boost::asio::awaitable<Answer> run_heartbeat(RequestContext context);
boost::asio::awaitable<Answer> run_leave_group(RequestContext context);
boost::asio::awaitable<Answer> run_sync_group(RequestContext context);
boost::asio::awaitable<Answer> run_api_versions(RequestContext context);
boost::asio::awaitable<Answer> run_create_topics(RequestContext context);
boost::asio::awaitable<Answer> run_delete_topics(RequestContext context);
boost::asio::awaitable<Answer> run_delete_records(RequestContext context);
boost::asio::awaitable<Answer> run_init_producer_id(RequestContext context);
boost::asio::awaitable<Answer> run_describe_configs(RequestContext context);
boost::asio::awaitable<Answer> run_alter_configs(RequestContext context);
boost::asio::awaitable<Answer> run_create_partitions(RequestContext context);
boost::asio::awaitable<Answer> run_incremental_alter_configs(RequestContext context);
boost::asio::awaitable<Answer> run_describe_cluster(RequestContext context);
boost::asio::awaitable<Answer> run_describe_topic_partitions(RequestContext context);
boost::asio::awaitable<Answer> run_offset_commit(RequestContext context);
boost::asio::awaitable<Answer> run_offset_fetch(RequestContext context);
boost::asio::awaitable<Answer> run_offset_delete(RequestContext context);
boost::asio::awaitable<Answer> run_describe_groups(RequestContext context);
boost::asio::awaitable<Answer> run_list_groups(RequestContext context);
boost::asio::awaitable<Answer> run_delete_groups(RequestContext context);
boost::asio::awaitable<Answer> run_sasl_handshake(RequestContext context);
boost::asio::awaitable<Answer> run_sasl_authenticate(RequestContext context);
boost::asio::awaitable<Answer> run_raw_token(RequestContext context);
boost::asio::awaitable<Answer> run_describe_acls(RequestContext context);
boost::asio::awaitable<Answer> run_create_acls(RequestContext context);
boost::asio::awaitable<Answer> run_delete_acls(RequestContext context);
boost::asio::awaitable<Answer> run_describe_client_quotas(RequestContext context);
boost::asio::awaitable<Answer> run_alter_client_quotas(RequestContext context);
boost::asio::awaitable<Answer> run_describe_scram_users(RequestContext context);
boost::asio::awaitable<Answer> run_alter_scram_users(RequestContext context);

}  // namespace tarry::broker
