#pragma once

// The connected clients, for the admin's pages.
//
// Each shard answers for the connections that came to it last; the others are only counted.  So the
// time that it takes does not grow with their number.

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include <boost/asio/awaitable.hpp>

namespace tarry::broker {

class Broker;
class Shard;

struct ClientStatus {
  std::string client_id;  // The id in its last request; empty: it gave none.
  std::string address;
  std::string listener;
  std::string principal;
  std::string software_name;  // From ApiVersions; empty: it had none.
  std::string software_version;
  std::chrono::milliseconds age{0};
  std::uint64_t requests = 0;
  std::uint64_t bytes_in = 0;
  std::uint64_t bytes_out = 0;
  std::uint32_t shard = 0;
};

struct Clients {
  std::vector<ClientStatus> newest;  // The youngest connection first.
  std::size_t total = 0;
};

// Starts and ends on the thread of `here`.
boost::asio::awaitable<Clients> newest_clients(Broker& broker, Shard& here, std::size_t limit);

}  // namespace tarry::broker
