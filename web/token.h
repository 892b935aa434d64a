#pragma once

// Token: the secret that a client presents to the admin.
//
// It is in a file of the data directory, DATA/admin.token for instance: 64 hexadecimal digits, made
// at the first start, mode 0600.  A file that other users could read is refused, as is one without
// a token.

#include <cstddef>
#include <optional>
#include <string>
#include <string_view>
#include <utility>

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

}  // namespace tarry::web
