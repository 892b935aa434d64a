#pragma once

// TlsContext: what a listener needs for TLS: its key and certificates, whom it trusts, which
// protocols and ciphers it speaks, and how a certificate's name becomes a principal.
//
//   ListenerConfig --> TlsContext --> TlsSession, one a connection
//
// A context is constant, so that any thread may use it.  New certificates make a new context;
// connections that exist keep the old one for as long as they last.
//
// Sessions are not resumed (no tickets, no cache), nothing is compressed or renegotiated, and
// nothing older than TLS 1.2 is spoken.

#include <memory>
#include <string>

#include "base/clock.h"
#include "base/result.h"
#include "server/listener_config.h"
#include "server/principal_rules.h"
#include "server/tls_settings.h"

struct ssl_ctx_st;
struct ssl_st;

namespace tarry::server {

class TlsContext {
 public:
  // Reads files: blocks.  The error names listener, key and what is wrong; a certificate that has
  // expired by `now` is one.
  static Result<std::shared_ptr<const TlsContext>> make(const ListenerConfig& listener,
                                                        WallTime now);
  ~TlsContext();

  ssl_ctx_st* get() const { return context_; }
  // The name of a client whose handshake is done; empty without a certificate.  The error: no rule
  // of ssl.principal.mapping.rules matches.
  Result<std::string> principal_of(const ssl_st* session) const;
  // The broker's certificate, for the log: "CN=broker.example, valid until Nov 23 12:00:00 2026
  // GMT".
  const std::string& description() const { return description_; }
  // The end of the first certificate of its chain to expire.
  WallTime valid_until() const { return valid_until_; }

 private:
  TlsContext();

  ssl_ctx_st* const context_;
  PrincipalRules rules_;
  std::string description_;
  WallTime valid_until_{};
};

}  // namespace tarry::server
