#pragma once

// Asks the admin of another member.

#include <chrono>
#include <cstddef>
#include <string>

#include <boost/asio/awaitable.hpp>

#include "base/result.h"

namespace tarry::relay {

struct PeerAsked {
  std::string address;  // HOST:PORT
  std::string method, target, body;
  std::string authorization;
  std::chrono::milliseconds timeout{};
  std::size_t max_bytes = 0;  // The bound of the answer.
};

struct PeerAnswer {
  unsigned status = 0;
  std::string body;
};

// One connection for one request.  The error says what is wrong, without the address;
// Errc::not_found: no connection was made, so nothing was asked.
boost::asio::awaitable<Result<PeerAnswer>> ask_peer(PeerAsked asked);

}  // namespace tarry::relay
