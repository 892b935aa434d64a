#pragma once

// run(): the first and the last step of every handler.
//
// Decodes the request, calls the handler, encodes its response in the request's version.  A body
// that cannot be decoded ends the connection: the rest of the stream means nothing.  Bytes after
// it in the frame are ignored, as by Kafka's brokers: librdkafka 2.0.2 sends some after
// ListGroups 4, and after OffsetFetch 7 when that asks for all topics.

#include <cstddef>
#include <cstdint>
#include <functional>
#include <utility>

#include <fmt/core.h>
#include <boost/asio/awaitable.hpp>

#include "broker/context/request_context.h"
#include "broker/handlers/throttle.h"
#include "broker/shard.h"
#include "protocol/codec.h"
#include "protocol/header.h"

namespace tarry::broker {

// The limit of one answer's memory, enough for the configs of some 10 000 topics: a few bytes can
// ask for a large answer, again and again. A larger answer is refused with INVALID_REQUEST.
inline constexpr std::size_t max_answer_bytes = std::size_t{64} << 20;

// Charges an answer that is larger than its request lets expect, while it grows.
//
//   AnswerMemory memory(context);
//   for (...) {
//     if (memory.spend(bytes of it) && !co_await memory.take()) co_return response;
//     response.things.push_back(...);
//   }
//
// If there is no memory, run() ends the connection instead of sending a part: every client retries
// then.
class AnswerMemory {
 public:
  explicit AnswerMemory(RequestContext& context) : context_(context) {}

  // The answer grows by so many bytes; true: it is time to take them.
  bool spend(std::size_t bytes) {
    spent_ += bytes;
    context_.answer_bytes += bytes;
    return spent_ >= a_piece;
  }
  boost::asio::awaitable<bool> take() {
    const bool taken = co_await context_.charge.grow(std::exchange(spent_, 0));
    if (!taken) context_.out_of_memory = true;
    co_return taken;
  }

 private:
  static constexpr std::size_t a_piece = std::size_t{256} << 10;

  RequestContext& context_;
  std::size_t spent_ = 0;
};

template <typename Response>
Answer answer_with(const RequestContext& context, const Response& response) {
  return {
      protocol::encode_response_frame(context.header.correlation_id, response, context.version()),
      {}};
}

// The same, with what the request took of its client's time.
template <typename Response>
Answer metered_answer(const RequestContext& context, Response& response) {
  const auto wait = throttle_request(context);
  if constexpr (requires { response.throttle_time_ms; })
    response.throttle_time_ms = static_cast<std::int32_t>(wait.count());
  Answer answer = answer_with(context, response);
  answer.mute = wait;
  return answer;
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

inline Answer out_of_memory(const RequestContext& context) {
  return {{},
          fmt::format("no memory became free in time for the answer to a {} request of {} bytes "
                      "(tarry.memory.bytes)",
                      context.header.api->name, context.frame_bytes)};
}

// A body of more bytes is decoded on the pool: it may have thousands of elements.
constexpr std::size_t decoded_here = std::size_t{64} << 10;
// An answer whose answer_bytes are more is encoded on the pool.
constexpr std::size_t encoded_here = std::size_t{1} << 20;

// Encodes the response on the pool and frees it there, with the request.
template <typename Request, typename Response>
boost::asio::awaitable<Answer> answer_on_pool(RequestContext& context, Request request,
                                              Response response) {
  const auto wait = throttle_request(context);
  if constexpr (requires { response.throttle_time_ms; })
    response.throttle_time_ms = static_cast<std::int32_t>(wait.count());
  Answer answer;
  std::move_only_function<void()> work = [&] {
    [[maybe_unused]] const auto asked = std::move(request);  // They go with the end of this block.
    const auto told = std::move(response);
    answer = context.out_of_memory ? out_of_memory(context) : answer_with(context, told);
  };
  co_await context.shard.run_on_pool(work);
  answer.mute = wait;
  co_return answer;
}

// `Handle` is awaitable<Response>(RequestContext&, const Request&): both outlive the call.
template <typename Request, auto Handle>
boost::asio::awaitable<Answer> run(RequestContext context) {
  const bool is_large = context.header.body.size() > decoded_here;
  Result<Request> request = Request();
  if (is_large) {
    std::move_only_function<void()> work = [&] { request = decode_request<Request>(context); };
    co_await context.shard.run_on_pool(work);
  } else {
    request = decode_request<Request>(context);
  }
  if (!request) co_return undecodable(context, request.error());
  auto response = co_await Handle(context, *request);
  if (is_large || context.answer_bytes > encoded_here)
    co_return co_await answer_on_pool(context, std::move(*request), std::move(response));
  if (context.out_of_memory) co_return out_of_memory(context);
  co_return metered_answer(context, response);
}

// The same for a handler that never waits: Response(RequestContext&, const Request&).
template <typename Request, auto Handle>
boost::asio::awaitable<Answer> run_at_once(RequestContext context) {
  auto request = decode_request<Request>(context);
  if (!request) co_return undecodable(context, request.error());
  auto response = Handle(context, *request);
  co_return metered_answer(context, response);
}

}  // namespace tarry::broker
