#pragma once

// WireClient: one connection to a broker over Kafka's protocol, for the requests that librdkafka
// does not have.
//
// It knows plain text, TLS (client_tls.h), and logins by PLAIN and SCRAM; as librdkafka it takes
// them from the properties security.protocol, sasl.mechanism (sasl.mechanisms), sasl.username and
// sasl.password.
//
// Every call blocks, no longer than KafkaSettings::timeout for each answer.

#include <cstdint>
#include <optional>
#include <string>

#include "base/bytes.h"
#include "base/result.h"
#include "cli/kafka/client_tls.h"
#include "cli/kafka/settings.h"
#include "protocol/codec.h"
#include "protocol/header.h"

namespace tarry::cli {

class WireClient {
 public:
  // Connects to the first of the brokers that accepts, and logs in.
  static Result<WireClient> open(const KafkaSettings& settings);
  ~WireClient();
  WireClient(WireClient&& from) noexcept;
  WireClient(const WireClient&) = delete;
  WireClient& operator=(const WireClient&) = delete;
  WireClient& operator=(WireClient&&) = delete;

  template <typename Response, typename Request>
  Result<Response> ask(const Request& request, int version) {
    const auto frame = protocol::encode_request_frame(++last_id_, "tarry", request, version);
    auto answer = exchange(frame);
    if (!answer) return std::unexpected(answer.error());
    answer_ = std::move(*answer);
    const auto header = protocol::parse_response_header(answer_, Response::api, version);
    if (!header) return std::unexpected(header.error());
    return protocol::decode_message<Response>(header->body, version);
  }

 private:
  WireClient(int descriptor, std::string broker)
      : descriptor_(descriptor), broker_(std::move(broker)) {}

  Result<> log_in(const std::string& mechanism, const std::string& user,
                  const std::string& password);
  Result<std::string> send_token(const std::string& token);
  // Without its size.
  Result<Buffer> exchange(Bytes frame);
  bool send(Bytes bytes);
  bool receive(std::uint8_t* to, std::size_t size);
  std::unexpected<Error> connection_failed() const;

  int descriptor_;
  std::optional<ClientTls> tls_;  // None: plain text.
  std::string broker_;            // HOST:PORT, for errors.
  std::int32_t last_id_ = 0;
  Buffer answer_;  // The last, which its response may view.
};

}  // namespace tarry::cli
