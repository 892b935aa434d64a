#pragma once

// Asks the admin of another member.

#include <chrono>
#include <cstddef>
#include <memory>
#include <string>

#include <boost/asio/awaitable.hpp>

#include "base/result.h"

namespace tarry::relay {

// The authorities by which the certificates of other members are checked.
struct PeerTrust;
// `ca`: a file of certificates in PEM; empty: the system's.  Blocks.
Result<std::shared_ptr<PeerTrust>> open_peer_trust(const std::string& ca);

struct PeerCall {
  std::string address;  // HOST:PORT
  std::string method, target, body;
  std::string authorization;
  std::chrono::milliseconds timeout{};
  std::size_t max_bytes = 0;                   // The bound of the answer.
  std::shared_ptr<PeerTrust> trust = nullptr;  // Null: plain HTTP.
};

struct PeerAnswer {
  unsigned status = 0;
  std::string body;
};

// One connection for one request.  The error says what is wrong, without the address;
// Errc::not_found: no connection was made, or its TLS failed, so nothing was asked.
boost::asio::awaitable<Result<PeerAnswer>> ask_peer(PeerCall asked);

}  // namespace tarry::relay
