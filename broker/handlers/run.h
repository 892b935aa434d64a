#pragma once

// run(): the first and the last step of every handler.
//
// Decodes the request, calls the handler, encodes its response in the request's version.  A body
// that cannot be decoded ends the connection: the rest of the stream means nothing.  Bytes behind
// it in the frame are ignored, as by Kafka's brokers: librdkafka 2.0.2 sends some behind
// ListGroups 4, and behind OffsetFetch 7 when that asks for all topics.

#include <cstddef>
#include <utility>

#include <fmt/core.h>
#include <boost/asio/awaitable.hpp>

#include "broker/context/request_context.h"
#include "protocol/codec.h"
#include "protocol/header.h"

namespace tarry::broker {

// What one answer may take of memory, some 10 000 topics' configs: a few bytes can ask for a large
// thing, again and again.  What is above is refused with INVALID_REQUEST.
inline constexpr std::size_t max_answer_bytes = std::size_t{64} << 20;

template <typename Response>
Answer answer_with(const RequestContext& context, const Response& response) {
  return {
      protocol::encode_response_frame(context.header.correlation_id, response, context.version()),
      {}};
}

// Views the request's frame.
template <typename Request>
Result<Request> decode_request(const RequestContext& context) {
  protocol::Reader reader(context.header.body);
  Request request;
  request.decode(reader, context.version());
  if (!reader.ok()) return std::unexpected(reader.error());
  return request;
}

inline Answer undecodable(const RequestContext& context, const Error& error) {
  return {{},
          fmt::format("a {} v{} request cannot be decoded: {}", context.header.api->name,
                      context.version(), error.message)};
}

// `Handle` is awaitable<Response>(RequestContext&, const Request&): both outlive the call.
template <typename Request, auto Handle>
boost::asio::awaitable<Answer> run(RequestContext context) {
  auto request = decode_request<Request>(context);
  if (!request) co_return undecodable(context, request.error());
  const auto response = co_await Handle(context, *request);
  co_return answer_with(context, response);
}

// The same for a handler that never waits: Response(RequestContext&, const Request&).
template <typename Request, auto Handle>
boost::asio::awaitable<Answer> run_at_once(RequestContext context) {
  auto request = decode_request<Request>(context);
  if (!request) co_return undecodable(context, request.error());
  co_return answer_with(context, Handle(context, *request));
}

}  // namespace tarry::broker
