#pragma once

// AdminClient: asks a broker's admin over HTTP, one question after the other.
//
//   AdminClient admin({.address = "127.0.0.1:8080", .timeout = 10s});
//   const auto status = admin.get("/status");
//   if (!status) return failure(status.error().message);
//
// A question that changes something carries the token, and so does one that the admin would not
// answer without it.  The token is that of `data`, else $TARRY_ADMIN_TOKEN, else the one in the
// default data directory; nothing that the other side says has a part in it.  It is sent only after
// the other side has proved, on the same connection, that it knows it (base/token_proof.h): a
// program that has merely taken the port gets nothing.
//
// A connection that is refused on loopback is an error at once, unless `waits_for_start`: then it
// is tried again until the timeout, for a broker that is just starting.
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

// Where a broker that is told nothing keeps its data.
inline constexpr const char* default_data_directory = "./tarry-data";

struct AdminSettings {
  std::string address;
  std::chrono::milliseconds timeout;
  bool waits_for_start = false;
  std::optional<std::string> data{};  // The broker's data directory, for the token in it.
};

class AdminClient {
 public:
  static constexpr std::size_t largest_answer = std::size_t{256} << 20;

  explicit AdminClient(AdminSettings settings);

  // The bodies of answers: JSON.
  Result<std::string> get(std::string_view target);
  Result<std::string> remove(std::string_view target);

 private:
  struct Answer {
    unsigned status;
    std::string body;
  };
  Result<Answer> ask(std::string_view method, std::string_view target, const std::string& token);
  Result<std::string> body_of(Result<Answer> answer) const;
  Result<std::string> token();

  const AdminSettings settings_;
  const std::string address_;         // Of the settings, as it is shown.
  std::optional<std::string> token_;  // Once it was needed.
  std::string token_source_;
  bool reads_need_token_ = false;  // The admin has said so.
};

}  // namespace tarry::cli
