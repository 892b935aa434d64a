#pragma once

// run(): what every handler does first and last.
//
// Decodes the request, calls the handler, encodes its response in the request's version.  A body
// that does not decode ends the connection: what follows it in the stream means nothing.

#include <utility>

#include <fmt/core.h>
#include <boost/asio/awaitable.hpp>

#include "broker/handlers/table.h"
#include "protocol/codec.h"
#include "protocol/header.h"

namespace tarry::broker {

template <typename Response>
Answer answer_with(const RequestContext& context, const Response& response) {
  return {
      protocol::encode_response_frame(context.header.correlation_id, response, context.version()),
      {}};
}

inline Answer undecodable(const RequestContext& context, const Error& error) {
  return {{},
          fmt::format("a {} v{} request that cannot be read: {}", context.header.api->name,
                      context.version(), error.message)};
}

// `Handle` is awaitable<Response>(RequestContext&, const Request&): both outlive the call.
template <typename Request, auto Handle>
boost::asio::awaitable<Answer> run(RequestContext context) {
  auto request = protocol::decode_message<Request>(context.header.body, context.version());
  if (!request) co_return undecodable(context, request.error());
  const auto response = co_await Handle(context, *request);
  co_return answer_with(context, response);
}

// The same for a handler that never waits: Response(RequestContext&, const Request&).
template <typename Request, auto Handle>
boost::asio::awaitable<Answer> run_at_once(RequestContext context) {
  auto request = protocol::decode_message<Request>(context.header.body, context.version());
  if (!request) co_return undecodable(context, request.error());
  co_return answer_with(context, Handle(context, *request));
}

}  // namespace tarry::broker
