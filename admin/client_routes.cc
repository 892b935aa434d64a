#include "admin/client_routes.h"

#include "admin/delayed_call.h"
#include "broker/broker.h"
#include "broker/views/clients.h"
#include "web/arguments.h"
#include "web/json_reply.h"

namespace tarry::admin {
namespace {

namespace asio = boost::asio;

constexpr std::size_t usual_clients = 200;
// The bound of each shard too: a shard takes about a millisecond for so many.
constexpr std::size_t max_clients = 1000;

Json client_json(const broker::ClientStatus& client, WallTime now) {
  Json json;
  json["client"] = client.client_id;
  json["address"] = client.address;
  json["listener"] = client.listener;
  json["principal"] = client.principal;
  json["software_name"] = client.software_name;
  json["software_version"] = client.software_version;
  json["connected_ms"] = to_ms(now - client.age);
  json["requests"] = client.requests;
  json["bytes_in"] = client.bytes_in;
  json["bytes_out"] = client.bytes_out;
  json["shard"] = client.shard;
  return json;
}

}  // namespace

asio::awaitable<Json> clients_json(Context& context, std::size_t limit) {
  // The newest ones: a client that somebody looks for has most often just connected.
  const auto clients = co_await broker::newest_clients(context.broker, context.here, limit);
  const WallTime now = context.broker.clock().wall();
  Json body;
  body["at_ms"] = to_ms(now);
  body["clients"] = Json::array();
  for (const auto& client : clients.newest) body["clients"].push_back(client_json(client, now));
  body["clients_total"] = clients.total;
  co_return body;
}

asio::awaitable<Reply> get_clients(Call& call) {
  std::size_t limit = usual_clients;
  if (const auto* given = call.parameter("limit"))
    limit = number_given("limit", *given, 1, max_clients);
  co_return json_reply(co_await clients_json(call.context, limit));
}

}  // namespace tarry::admin
