#pragma once

// JsonWebKeys: the public keys by which tokens are checked, as a JWKS file has them (RFC 7517):
//
//   {"keys": [{"kty": "RSA", "kid": "2026-11", "n": "...", "e": "AQAB"},
//             {"kty": "EC", "crv": "P-256", "kid": "a", "x": "...", "y": "..."}]}
//
// The signatures are checked by OpenSSL.  Keys of other kinds, for encryption, or too short are
// left out.  Constant, so that any thread may use it.

#include <cstddef>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"

namespace tarry::broker {

// A file of keys, and each part of a token: JSON that is larger or deeper is not read.
inline constexpr std::size_t max_key_file_bytes = 256 * 1024;
inline constexpr int max_json_depth = 8;

// Brackets within brackets.  nlohmann/json has no bound of its own.
bool is_nested_too_deep(std::string_view json);
// Without padding (RFC 7515).  Empty: it is none.
std::string from_base64_url(std::string_view text);

class JsonWebKeys {
 public:
  // The error says what is wrong.
  static Result<std::shared_ptr<const JsonWebKeys>> parse(std::string_view text);
  ~JsonWebKeys();

  // Whether `signature` of `text` is right by `algorithm` (RS256, PS256 or ES256) and the key that
  // `id` names; empty: the only key of the algorithm's kind.
  Result<> verify(std::string_view algorithm, std::string_view id, std::string_view text,
                  std::string_view signature) const;

 private:
  struct Key;
  JsonWebKeys();
  Result<const Key*> find(std::string_view algorithm, std::string_view id) const;

  std::vector<Key> keys_;
};

}  // namespace tarry::broker
