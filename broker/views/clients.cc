#include "broker/views/clients.h"

#include <algorithm>

#include "broker/broker.h"
#include "broker/context/connection.h"
#include "broker/views/each_shard.h"

namespace tarry::broker {
namespace {

namespace asio = boost::asio;

ClientStatus status_of_client(const Shard& shard, Connection& connection) {
  const ConnectionUse& use = connection.use();
  ClientStatus status;
  status.client_id = use.client_id;
  status.address = connection.peer();
  status.listener = connection.listener().name;
  status.principal = connection.principal();
  status.software_name = connection.client_software_name;
  status.software_version = connection.client_software_version;
  const MonoTime now = shard.clock().mono();
  status.age = std::chrono::duration_cast<std::chrono::milliseconds>(now - use.since.value_or(now));
  status.requests = use.requests;
  status.bytes_in = use.bytes_in;
  status.bytes_out = use.bytes_out;
  status.shard = shard.index();
  return status;
}

}  // namespace

asio::awaitable<Clients> newest_clients(Broker& broker, Shard& here, std::size_t limit) {
  Clients clients;
  const auto take = [&clients, limit](Shard& shard) -> asio::awaitable<void> {
    clients.total += shard.counters.connections;
    std::size_t told = 0;
    for (auto& connection : shard.clients) {
      // The newest stand first, so no more of one shard can be among the newest of all.
      if (told++ == limit) break;
      clients.newest.push_back(status_of_client(shard, connection));
    }
    co_return;
  };
  co_await on_each_shard(broker, here, take);
  std::ranges::stable_sort(clients.newest, {}, &ClientStatus::age);
  if (clients.newest.size() > limit) clients.newest.resize(limit);
  co_return clients;
}

}  // namespace tarry::broker
