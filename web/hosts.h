#pragma once

// Hosts: the names under which the admin may be addressed, and the sites whose pages may send it
// requests.
//
// A browser that was lured to a name which now resolves to 127.0.0.1 (DNS rebinding) sends that
// name as Host and is answered 421.
//
// If the admin listens on loopback alone, reading needs no token (unless
// tarry.admin.loopback.reads=token) and the Host is checked.  On any other address, all requests
// but the health checks, /proof, the page's files and the login need a token, and Host may be
// anything: a client that has the token was not lured.  With tarry.admin.open.reads reading needs
// none there either, and the Host is checked again, but for addresses: nobody else can make a name
// of them.

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace tarry::web {

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
