// DescribeCluster (key 60), versions 0 to 2: this broker.

#include "protocol/messages/describe_cluster.h"
#include "broker/broker.h"
#include "broker/handlers/advertised.h"
#include "broker/handlers/all.h"
#include "broker/handlers/authorize.h"
#include "broker/handlers/operations.h"
#include "broker/handlers/run.h"

namespace tarry::broker {
namespace {

constexpr std::int8_t brokers = 1;  // The other endpoint type is KRaft's controllers.

protocol::DescribeClusterResponse describe_cluster(
    RequestContext& context, const protocol::DescribeClusterRequest& request) {
  const auto& config = context.broker.identity();
  protocol::DescribeClusterResponse response;
  response.cluster_id = config.cluster_id;
  if (request.endpoint_type != brokers) {
    response.error_code = protocol::ErrorCode::invalid_request;
    response.error_message =
        fmt::format("Endpoint type {} is not supported; use 1 (brokers).", request.endpoint_type);
    return response;
  }
  response.controller_id = config.node_id;
  auto& self = response.brokers.emplace_back();
  self.broker_id = config.node_id;
  const auto address = advertised_to(context);
  self.host = address.host;
  self.port = address.port;
  if (request.include_cluster_authorized_operations)
    response.cluster_authorized_operations = allowed_cluster_operations(context);
  return response;
}

}  // namespace

boost::asio::awaitable<Answer> run_describe_cluster(RequestContext context) {
  return run_at_once<protocol::DescribeClusterRequest, describe_cluster>(std::move(context));
}

}  // namespace tarry::broker
