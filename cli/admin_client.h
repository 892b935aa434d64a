#pragma once

// AdminClient: asks a broker's admin over HTTP, one question after the other.
//
//   AdminClient admin("127.0.0.1:8080", 10s);
//   const auto status = admin.get("/status");
//   if (!status) return failure(status.error().message);
//
// A question that changes something carries the token: $TARRY_ADMIN_TOKEN, or what stands in
// DATA/admin.token, with DATA as /status names it.  The file is looked for only when the admin is
// on this machine's loopback: nobody elsewhere gets to name a file that we read and send.
//
// What always holds: no question takes longer than the timeout, no answer more than largest_answer
// bytes.  Errors: io (no answer, or none that is HTTP), not_found (404), invalid (any other status
// that is not 2xx; the message is the admin's own).
//
// Blocks; one thread.

#include <chrono>
#include <cstddef>
#include <optional>
#include <string>
#include <string_view>

#include "base/result.h"

namespace tarry::cli {

// "127.0.0.1:8080", "[::1]:8080"; http:// before it does no harm.
struct HostPort {
  std::string host;  // Without brackets.
  std::string port;

  bool is_loopback() const;
};
Result<HostPort> parse_host_port(std::string_view text);

class AdminClient {
 public:
  static constexpr std::size_t largest_answer = std::size_t{256} << 20;

  AdminClient(std::string address, std::chrono::milliseconds timeout);

  // The bodies of answers: JSON.
  Result<std::string> get(std::string_view target);
  Result<std::string> remove(std::string_view target);

 private:
  struct Answer {
    unsigned status;
    std::string body;
  };
  Result<Answer> ask(std::string_view method, std::string_view target, std::string_view token);
  Result<std::string> body_of(Result<Answer> answer) const;
  Result<std::string> token();

  const std::string address_;
  const std::chrono::milliseconds timeout_;
  std::optional<std::string> token_;  // Once it was needed.
};

}  // namespace tarry::cli
