#pragma once

// AdminClient: sends requests to a broker's admin over HTTP, one after the other.
//
//   AdminClient admin({.address = "127.0.0.1:8080", .timeout = 10s});   // Or "https://HOST:PORT".
//   const auto status = admin.get("/status");
//   if (!status) return failure(status.error().message);
//
// Every request carries the token if there is one, because the admin may want it for reading too,
// and takes a request without it for a stranger's.  If there is none, or the other side does not
// know it, a request that only reads is sent without.  The token is the one in `data`, or
// $TARRY_ADMIN_TOKEN, or the one in the default data directory; for a change where there is none of
// these, the one in the directory that the /status of an admin on loopback names, if that file is
// this user's own.  It is sent only after the other side has proved, on the same connection, that
// it knows the token (base/token_proof.h): a program that has merely taken the port does not get
// it.
// Over TLS the admin's certificate has to be signed by an authority, and for the host that was
// asked, too.
//
// A connection that is refused on loopback is an error at once.  With `waits_for_start` the client
// tries again until the timeout, for a broker that is just starting.
//
// Invariant: no request takes longer than the timeout, no answer has more than
// max_answer_bytes.  Errors: io (no answer, or none that is HTTP, or the admin refuses us: no
// request would be answered), not_found (404), invalid (any other status that is not 2xx; the
// message is the admin's own).
//
// Blocks; one thread.

#include <chrono>
#include <cstddef>
#include <functional>
#include <optional>
#include <string>
#include <string_view>

#include "base/result.h"

namespace tarry::cli {

// The data directory of a broker that was started without --data.
inline constexpr const char* default_data_directory = "./tarry-data";

struct AdminSettings {
  std::string address;
  std::chrono::milliseconds timeout;
  bool waits_for_start = false;
  std::optional<std::string> data{};  // The broker's data directory, for the token in it.
  std::string ca{};  // A file of authorities in PEM, for an admin with TLS; empty: the system's.
  // Ends the waits of all requests together; empty: each has its timeout.
  std::optional<std::chrono::steady_clock::time_point> deadline{};
};

class AdminClient {
 public:
  static constexpr std::size_t max_answer_bytes = std::size_t{256} << 20;

  explicit AdminClient(AdminSettings settings);

  // The reason why the last request has no answer, for callers that can do without one.
  enum class Obstacle {
    nothing_listens,
    wants_token,  // It is served, to those who have a token.
    stranger,     // Another program answers, and refuses us.
    other,        // Or none.
  };
  Obstacle obstacle() const { return obstacle_; }

  // The bodies of answers: JSON.
  Result<std::string> get(std::string_view target);
  Result<std::string> remove(std::string_view target) { return change("DELETE", target); }
  // Any other request that changes something; `body` is JSON.
  Result<std::string> change(std::string_view method, std::string_view target,
                             std::string body = {});
  // The same, for an answer that comes line by line while the admin works: each line is given to
  // `take`.  The timeout is that between two lines.
  using TakeLine = std::function<void(std::string_view)>;
  Result<> change_by_lines(std::string_view method, std::string_view target, std::string body,
                           const TakeLine& take);

 private:
  struct Answer {
    unsigned status;
    std::string body;
  };
  struct Asked {
    std::string_view method;
    std::string_view target;
    std::string body = {};
    const TakeLine* take = nullptr;
  };
  Result<Answer> ask(Asked asked, const std::string& token);
  Result<Answer> ask_for_change(Asked asked);
  Result<std::string> body_of(Result<Answer> answer) const;
  std::unexpected<Error> stranger_error() const;
  Result<std::string> token();
  // Whether the caller has said where the token is.
  bool place_is_given() const;
  // Sets token_ to the one in the data directory that an answer of /status names; false: there is
  // none that may be used.
  bool find_token_by(const Answer& status);
  // The timeout, or what is left of it until the deadline.
  std::chrono::milliseconds time_left() const;

  const AdminSettings settings_;
  const std::string address_;         // The address of the settings, printable.
  std::optional<std::string> token_;  // Set when it is needed for the first time.
  std::string token_source_;
  std::string refused_;  // Why the last request was not sent; empty: it was.
  Obstacle obstacle_ = Obstacle::other;
  bool reads_without_token_ = false;  // The admin has answered one, and does not know the token.
};

}  // namespace tarry::cli
