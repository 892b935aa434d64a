#pragma once

// The table of the supported APIs: one row for each Kafka API, with its versions and its handler.
//
// Everything that depends on which APIs there are reads this table: dispatch and ApiVersions.  A
// key that has no row is not advertised, and a request with it ends the connection, as in Kafka; so
// does a version that the row does not have (ApiVersions itself excepted, which is answered in
// version 0 so that a newer client can step down).

#include <span>
#include <string>

#include <boost/asio/awaitable.hpp>

#include "broker/context/request_context.h"
#include "protocol/header.h"

namespace tarry::broker {

struct Handler {
  protocol::ApiKey key;
  std::int16_t min_advertised;  // Below min_served for Produce: clients decide by it.
  std::int16_t min_served;
  std::int16_t max_version;
  // Started while earlier requests of its connection still wait.  The others wait for those
  // before them, and those after wait for them.
  bool pipelined;
  boost::asio::awaitable<Answer> (*run)(RequestContext context);
  // The bytes that its answer may hold, so that the session starts it when there is room for them;
  // null where the answer is not much larger than its request.
  std::size_t (*max_answered)(const RequestContext& context) = nullptr;
  // Tells of a pipelined API whether this request works in steps, and so has to be alone on its
  // connection all the same; null: none does.
  bool (*works_in_steps)(const RequestContext& context) = nullptr;
};

std::span<const Handler> handlers();
const Handler* find_handler(std::int16_t key);
// For the frames of a client that has begun its login with SaslHandshake 0.
const Handler& raw_token_handler();

// The limit of a request that names things, up to max_elements (codec.h) of them: decoding it and
// encoding its answer hold up the shard.
inline constexpr std::size_t max_request_bytes = std::size_t{8} << 20;

// The memory that a request of so many bytes may take beside its frame, decoded and taken apart;
// the session charges it before the request begins.
std::size_t working_bytes(const Handler& handler, std::size_t request_bytes);

// The reason why a request ends its connection after its header is read; empty if it is served.
std::string refusal_reason(const protocol::RequestHeader& header);

}  // namespace tarry::broker
