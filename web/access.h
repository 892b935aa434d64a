#pragma once

// Access: the token, and the hosts under which the admin may be addressed.
//
//   Token   DATA/admin.token: 64 hexadecimal digits, made at the first start, mode 0600.  A file
//           that other users could read is refused, as is one without a token.  The same for
//           DATA/admin.read.token, whose owner may read.
//   Hosts   the names of the admin's address.  A browser that was lured to a name which now
//           resolves to 127.0.0.1 (DNS rebinding) sends that name as Host and is answered 421.
//
// If the admin listens on loopback alone, reading needs no token (unless
// tarry.admin.loopback.reads=token) and the Host is checked.  On any other address, all requests
// but the health checks, /proof, the page's files and the login need a token, and Host may be
// anything: a client that has the token was not lured.  With tarry.admin.open.reads reading needs
// none there either, and the Host is checked again, but for addresses: nobody else can make a name
// of them.

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/random.h"
#include "base/result.h"

namespace tarry::web {

class Token {
 public:
  // Reads `path`, or creates it.  Blocks.  Errors name the file and what to do.
  static Result<Token> open(const std::string& path, Random& random);

  static Result<Token> from_text(std::string_view text);

  // In constant time, however much of it is right.
  bool matches(std::string_view text) const;
  // The answer of GET /proof (base/token_proof.h).
  std::string proof(std::string_view nonce, std::string_view address) const;
  // The same for an Authorization header.
  bool authorizes(std::string_view header) const;

 private:
  explicit Token(std::string text) : text_(std::move(text)) {}

  std::string text_;
};

// The token in an Authorization header.
std::optional<std::string_view> bearer_token(std::string_view header);

// The text of a file that no other user can read.  Errc::not_found: it is not there; the other
// errors name the file and what to do.  Blocks.
Result<std::string> read_secret(const std::string& path, std::size_t max_bytes);

class Hosts {
 public:
  struct Options {
    std::string host;  // The configured one, without brackets around an IPv6 address.
    std::uint16_t port = 0;
    bool loopback = false;
    bool open_reads = false;
    // tarry.admin.allowed.hosts: "name", of any port, "name:port", or "*".
    std::vector<std::string> allowed = {};
    bool loopback_reads = true;  // On loopback reading needs no token.
  };
  explicit Hosts(Options options);

  bool loopback() const { return loopback_; }
  // Whether reading needs no token.
  bool reads_are_open() const { return open_reads_ || (loopback_ && loopback_reads_); }
  // Whether a Host header names this admin.
  bool accepts(std::string_view header) const;
  // Whether an Origin header is that of our own page, loaded as `host`; without TLS of our own by
  // https only when a proxy may stand before us, which is when the name was allowed.
  bool is_own_origin(std::string_view origin, std::string_view host, bool has_tls = false) const;

 private:
  bool is_allowed(std::string_view header) const;

  const bool loopback_;
  const bool open_reads_;
  const bool loopback_reads_;
  const std::vector<std::string> allowed_;
  std::vector<std::string> names_;  // "127.0.0.1:8080", in lower case.
};

}  // namespace tarry::web
