#include "cli/kafka/wire_client.h"

#include <netdb.h>
#include <sys/random.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <map>
#include <optional>
#include <utility>

#include <fmt/core.h>

#include "base/ascii_case.h"
#include "base/base64.h"
#include "base/log.h"
#include "base/scram.h"
#include "cli/io/host_port.h"
#include "protocol/messages/sasl_authenticate.h"
#include "protocol/messages/sasl_handshake.h"

namespace tarry::cli {
namespace {

using protocol::ErrorCode;

constexpr std::size_t max_answer = 64 << 20;

// If two have the same name the last one holds, as in librdkafka.
std::map<std::string, std::string> all_properties(const KafkaSettings& settings) {
  std::map<std::string, std::string> all;
  for (const auto& each : settings.properties) {
    const auto equals = each.find('=');
    if (equals != std::string::npos) all[each.substr(0, equals)] = each.substr(equals + 1);
  }
  return all;
}

std::string property_of(const KafkaSettings& settings, const std::string& name) {
  return all_properties(settings)[name];
}

int connect_to(const HostPort& address, std::chrono::milliseconds timeout) {
  addrinfo hints{};
  hints.ai_socktype = SOCK_STREAM;
  addrinfo* found = nullptr;
  if (::getaddrinfo(address.host.c_str(), address.port.c_str(), &hints, &found) != 0) return -1;
  int descriptor = -1;
  for (const auto* each = found; each != nullptr && descriptor < 0; each = each->ai_next) {
    descriptor = ::socket(each->ai_family, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (descriptor < 0) continue;
    // On Linux the timeout of sending holds for connect() too.
    timeval wait{};
    wait.tv_sec = timeout.count() / 1000;
    wait.tv_usec = timeout.count() % 1000 * 1000;
    ::setsockopt(descriptor, SOL_SOCKET, SO_RCVTIMEO, &wait, sizeof wait);
    ::setsockopt(descriptor, SOL_SOCKET, SO_SNDTIMEO, &wait, sizeof wait);
    if (::connect(descriptor, each->ai_addr, each->ai_addrlen) == 0) continue;
    ::close(descriptor);
    descriptor = -1;
  }
  ::freeaddrinfo(found);
  return descriptor;
}

std::string escaped_name(std::string_view name) {
  std::string out;
  // A comma ends an attribute (RFC 5802), so that a name can hold neither of these signs as it is.
  for (const char c : name) out += c == ',' ? "=2C" : c == '=' ? "=3D" : std::string(1, c);
  return out;
}

// "r=...,s=...,i=..." by its letters.
std::map<char, std::string> attributes_of(std::string_view message) {
  std::map<char, std::string> out;
  while (!message.empty()) {
    const auto comma = message.find(',');
    const auto part = message.substr(0, comma);
    if (part.size() > 1 && part[1] == '=') out.emplace(part[0], part.substr(2));
    message.remove_prefix(comma == std::string_view::npos ? message.size() : comma + 1);
  }
  return out;
}

}  // namespace

Result<WireClient> WireClient::open(const KafkaSettings& settings) {
  const auto with_files = expanded(settings);
  if (!with_files) return std::unexpected(with_files.error());
  const KafkaSettings& complete = *with_files;
  auto protocol = property_of(complete, "security.protocol");
  std::ranges::transform(protocol, protocol.begin(), ascii_lower);
  std::string_view brokers = complete.brokers;
  while (!brokers.empty()) {
    const auto comma = brokers.find(',');
    const std::string one(brokers.substr(0, comma));
    brokers.remove_prefix(comma == std::string_view::npos ? brokers.size() : comma + 1);
    const auto address = parse_host_port(one);
    if (!address) return std::unexpected(address.error());
    const int descriptor = connect_to(*address, complete.timeout);
    // The next address may answer.
    if (descriptor < 0) continue;
    // Closes the descriptor from here on, whatever goes wrong.
    WireClient client(descriptor, one);
    if (protocol.ends_with("ssl")) {
      auto tls = ClientTls::connect(descriptor, address->host, all_properties(complete));
      if (!tls) return std::unexpected(tls.error());
      client.tls_ = std::move(*tls);
    }
    if (!protocol.starts_with("sasl")) return client;
    auto mechanism = property_of(complete, "sasl.mechanism");
    // librdkafka has two names for it.
    if (mechanism.empty()) mechanism = property_of(complete, "sasl.mechanisms");
    if (auto in = client.log_in(mechanism, property_of(complete, "sasl.username"),
                                property_of(complete, "sasl.password"));
        !in)
      return std::unexpected(in.error());
    return client;
  }
  return fail(Errc::io, fmt::format("nothing answers at {}: is `tarry serve` running?",
                                    printable(complete.brokers)));
}

WireClient::WireClient(WireClient&& from) noexcept
    : descriptor_(std::exchange(from.descriptor_, -1)),
      tls_(std::move(from.tls_)),
      broker_(std::move(from.broker_)),
      last_id_(from.last_id_),
      answer_(std::move(from.answer_)) {}

WireClient::~WireClient() {
  if (descriptor_ >= 0) ::close(descriptor_);
}

std::unexpected<Error> WireClient::connection_failed() const {
  const bool late = errno == EAGAIN || errno == EWOULDBLOCK;
  return fail(Errc::io, fmt::format("{}: {}", printable(broker_),
                                    late ? "no answer in time"
                                         : "the broker has closed the connection; its log says why "
                                           "(a SASL listener needs -X security.protocol=...)"));
}

bool WireClient::send(Bytes bytes) {
  if (tls_) return tls_->send(bytes);
  while (!bytes.empty()) {
    // Without MSG_NOSIGNAL a connection that the broker has closed would end this process.
    const auto sent = ::send(descriptor_, bytes.data(), bytes.size(), MSG_NOSIGNAL);
    if (sent <= 0) return false;
    bytes = bytes.subspan(static_cast<std::size_t>(sent));
  }
  return true;
}

bool WireClient::receive(std::uint8_t* to, std::size_t size) {
  while (size > 0) {
    const auto got =
        tls_ ? static_cast<ssize_t>(tls_->receive({to, size})) : ::recv(descriptor_, to, size, 0);
    if (got <= 0) return false;
    to += got;
    size -= static_cast<std::size_t>(got);
  }
  return true;
}

Result<Buffer> WireClient::exchange(Bytes frame) {
  // connection_failed() tells by errno whether the time was up.
  errno = 0;
  if (!send(frame)) return connection_failed();
  std::array<std::uint8_t, 4> size;
  if (!receive(size.data(), size.size())) return connection_failed();
  const auto bytes = load_be<std::int32_t>(size.data());
  // Bytes that look like a size may be text of another protocol.
  if (bytes < 0 || static_cast<std::size_t>(bytes) > max_answer)
    return fail(Errc::invalid, fmt::format("{}: this is not a Kafka broker", printable(broker_)));
  Buffer answer(static_cast<std::size_t>(bytes));
  if (!receive(answer.data(), answer.size())) return connection_failed();
  return answer;
}

Result<std::string> WireClient::send_token(const std::string& token) {
  protocol::SaslAuthenticateRequest request;
  request.auth_bytes = as_bytes(token);
  const auto answer = ask<protocol::SaslAuthenticateResponse>(request, 1);
  if (!answer) return std::unexpected(answer.error());
  if (answer->error_code != ErrorCode::none)
    return fail(Errc::invalid, printable(answer->error_message.value_or("the login failed")));
  return std::string(as_text(answer->auth_bytes));
}

Result<> WireClient::log_in(const std::string& mechanism, const std::string& user,
                            const std::string& password) {
  const auto scram = scram_mechanism_named(mechanism);
  if (!scram && mechanism != "PLAIN")
    return fail(Errc::invalid, fmt::format("sasl.mechanism={}: use PLAIN, SCRAM-SHA-256 or "
                                           "SCRAM-SHA-512",
                                           printable(mechanism)));
  if (user.empty()) return fail(Errc::invalid, "a login needs -X sasl.username=NAME");
  protocol::SaslHandshakeRequest request;
  request.mechanism = mechanism;
  // After version 1 the tokens go in SaslAuthenticate requests, after version 0 they would follow
  // bare.
  const auto shaken = ask<protocol::SaslHandshakeResponse>(request, 1);
  if (!shaken) return std::unexpected(shaken.error());
  if (shaken->error_code != ErrorCode::none)
    return fail(Errc::invalid, fmt::format("the broker does not accept sasl.mechanism={}: {}",
                                           mechanism, protocol::name(shaken->error_code)));
  if (!scram) {
    // RFC 4616: an authorization id, which is empty, the user and the password.
    const auto done = send_token(fmt::format("{}{}{}{}", '\0', user, '\0', password));
    return done ? Result<>() : std::unexpected(done.error());
  }
  std::array<char, 24> random;
  if (::getrandom(random.data(), random.size(), 0) != static_cast<ssize_t>(random.size()))
    return fail(Errc::io, "the system provides no random numbers");
  const auto nonce = base64({random.data(), random.size()});
  const auto bare = fmt::format("n={},r={}", escaped_name(user), nonce);
  // "n,,": without channel binding; the last message says the same in base64, c=biws.
  const auto first = send_token("n,," + bare);
  if (!first) return std::unexpected(first.error());
  auto said = attributes_of(*first);
  const auto salt = from_base64(said['s']);
  const auto iterations = std::atoi(said['i'].c_str());
  // A nonce that does not begin with ours belongs to another exchange.  The iterations are the
  // other side's choice: too few would make the password easy to guess from our proof, too many
  // would keep us computing.
  const bool is_right = salt && said['r'].starts_with(nonce) && said['r'] != nonce &&
                        iterations >= min_scram_iterations && iterations <= 1'000'000;
  if (!is_right) return fail(Errc::invalid, "the broker's SCRAM message is malformed");
  const auto without_proof = fmt::format("c=biws,r={}", said['r']);
  const auto auth_message = fmt::format("{},{},{}", bare, *first, without_proof);
  const auto salted = scram_salted_password(*scram, password, *salt, iterations);
  const auto proof = scram_proof(*scram, salted, auth_message);
  const auto last = send_token(fmt::format("{},p={}", without_proof, base64(proof)));
  if (!last) return std::unexpected(last.error());
  const auto server_key = scram_hmac(*scram, salted, "Server Key");
  if (attributes_of(*last)['v'] != base64(scram_hmac(*scram, server_key, auth_message)))
    return fail(Errc::invalid,
                "the broker has not proved that it knows the password: is it the right broker?");
  return {};
}

}  // namespace tarry::cli
