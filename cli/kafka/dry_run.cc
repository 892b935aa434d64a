#include "cli/kafka/dry_run.h"

#include <array>
#include <exception>
#include <utility>
#include <vector>

#include <boost/asio/buffer.hpp>
#include <boost/asio/co_spawn.hpp>
#include <boost/asio/io_context.hpp>
#include <boost/asio/ip/tcp.hpp>
#include <boost/asio/read.hpp>
#include <boost/asio/redirect_error.hpp>
#include <boost/asio/use_awaitable.hpp>
#include <boost/asio/write.hpp>

#include "protocol/header.h"
#include "protocol/messages/produce.h"
#include "records/batch_builder.h"

namespace tarry::cli {
namespace {

namespace asio = boost::asio;
using asio::use_awaitable;

// The first version whose answers hold messages.
constexpr int version = 8;
constexpr std::int16_t refused_acks = -2;
constexpr std::size_t max_answer_bytes = std::size_t{1} << 20;

Buffer request_of(const std::string& topic, const ConsumedRecord& record, Buffer& batch) {
  const auto bytes = [](std::optional<std::string_view> text) -> std::optional<Bytes> {
    if (!text) return std::nullopt;
    return as_bytes(*text);
  };
  std::vector<records::HeaderView> headers;
  for (const auto& [name, value] : record.headers) headers.push_back({name, bytes(value)});
  records::BatchBuilder builder;
  builder.append(from_ms(record.timestamp), bytes(record.key), bytes(record.value), headers);
  batch = builder.finish();
  protocol::ProduceRequest request;
  // No broker takes a batch with such acks, but Tarry checks it first and says what is wrong.
  request.acks = refused_acks;
  request.timeout_ms = 1000;
  auto& to = request.topic_data.emplace_back();
  to.name = topic;
  auto& partition = to.partition_data.emplace_back();
  partition.index = record.partition;
  partition.records = batch;
  return protocol::encode_request_frame(1, "tarry", request, version);
}

std::optional<Refusal> refusal_in(Bytes frame) {
  const auto header = protocol::parse_response_header(frame, protocol::ApiKey::produce, version);
  if (!header) return std::nullopt;
  const auto response = protocol::decode_message<protocol::ProduceResponse>(header->body, version);
  if (!response || response->responses.size() != 1 ||
      response->responses[0].partition_responses.size() != 1) {
    return std::nullopt;
  }
  const auto& answer = response->responses[0].partition_responses[0];
  // The message about the record says more than the one about its batch.
  if (!answer.record_errors.empty() && answer.record_errors[0].batch_index_error_message)
    return Refusal{answer.error_code, *answer.record_errors[0].batch_index_error_message};
  return Refusal{answer.error_code, answer.error_message.value_or("")};
}

// Throws when the broker cannot be reached or does not answer.
asio::awaitable<Buffer> ask(asio::io_context& io, std::string host, int port, Buffer request) {
  asio::ip::tcp::resolver resolver(io);
  asio::ip::tcp::socket socket(io);
  for (const auto& found :
       co_await resolver.async_resolve(host, std::to_string(port), use_awaitable)) {
    // localhost is often two addresses, of which the broker has one.
    boost::system::error_code error;
    co_await socket.async_connect(found.endpoint(), asio::redirect_error(use_awaitable, error));
    if (!error) break;
    socket.close(error);
  }
  co_await asio::async_write(socket, asio::buffer(request), use_awaitable);
  std::array<std::uint8_t, 4> size;
  co_await asio::async_read(socket, asio::buffer(size), use_awaitable);
  const auto bytes = load_be<std::uint32_t>(size.data());
  // A larger claim leaves the frame empty, which refusal_in() takes for no answer.
  Buffer frame(bytes <= max_answer_bytes ? bytes : 0);
  co_await asio::async_read(socket, asio::buffer(frame), use_awaitable);
  co_return frame;
}

}  // namespace

std::optional<Refusal> dry_run(const std::string& host, int port, const std::string& topic,
                               const ConsumedRecord& record, std::chrono::milliseconds patience) {
  Buffer batch, answer;
  asio::io_context io;  // Goes first: a conversation that did not end goes with it.
  asio::co_spawn(io, ask(io, host, port, request_of(topic, record, batch)),
                 [&](std::exception_ptr failed, Buffer frame) {
                   if (!failed) answer = std::move(frame);
                 });
  io.run_for(patience);
  return refusal_in(answer);
}

}  // namespace tarry::cli
