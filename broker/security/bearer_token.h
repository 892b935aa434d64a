#pragma once

// A login by SASL/OAUTHBEARER: the client's message (RFC 7628), and the signed token in it (a JWT,
// RFC 7519).
//
//   n,,^Aauth=Bearer HEADER.CLAIMS.SIGNATURE^A^A
//                    |      |      '-- by a key of the JWKS file, RS256, PS256 or ES256
//                    |      '--------- {"sub": "alice", "exp": 1795442400, ...}
//                    '---------------- {"alg": "RS256", "kid": "2026-11"}
//
// Invariant: no claim is read before the signature is found right, and a token without a
// signature ("alg": "none") or without an end is refused.

#include <chrono>
#include <cstddef>
#include <string>
#include <string_view>
#include <vector>

#include "base/clock.h"
#include "base/result.h"
#include "broker/security/json_web_keys.h"

namespace tarry::broker {

inline constexpr std::size_t max_token_bytes = 16 * 1024;

// sasl.oauthbearer.*
struct TokenTerms {
  std::string issuer;                  // Empty: any.
  std::vector<std::string> audiences;  // One of these; empty: any.
  std::chrono::seconds clock_skew{30};
  std::string user_claim = "sub";
  std::string scope_claim = "scope";
};

struct TokenUser {
  std::string name;
  WallTime expires;
};

// The errors are for the log, and hold nothing of the token but names.
Result<TokenUser> check_token(std::string_view token, const JsonWebKeys& keys,
                              const TokenTerms& terms, WallTime now);

struct BearerMessage {
  std::string acts_as;  // Empty: as the token's user.
  std::string token;
};
Result<BearerMessage> parse_bearer_message(std::string_view message);

}  // namespace tarry::broker
