#pragma once

// AccessTokens: who may do what over an admin, by the token that a request carries.
//
//   DATA/admin.token        everything; made at the first start
//   DATA/admin.read.token   reading; made at the first start
//   DATA/admin.tokens       if it is there: a line `NAME ROLE TOKEN` for each further holder
//
//   read      every GET
//   operate   also cancelling, moving and delivering pending records
//   all       everything else: a broker's admin deletes topics and makes backups
//
// The name stands in the audit line of what its holder was refused or has changed.  The files are
// read when the admin starts.

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "base/random.h"
#include "base/result.h"
#include "web/token.h"

namespace tarry::web {

enum class Role : std::uint8_t { read, operate, all };

std::string_view name(Role role);

class AccessTokens {
 public:
  static constexpr std::size_t max_holders = 100;

  struct Holder {
    std::string name;
    Role role;
    Token token;
    bool is_listed = false;  // In admin.tokens.
  };

  // Blocks.  Errors name the file, and the line, and what to do.
  static Result<AccessTokens> open(const std::string& data, Random& random);

  // The lines of admin.tokens.
  static Result<std::vector<Holder>> parse(std::string_view text);

  // Null: nobody's.  In a time that does not depend on how much of a token is right.
  const Holder* with_token(std::string_view text) const;
  // The same for an Authorization header.
  const Holder* authorized(std::string_view header) const;

  // The first is admin.token's.
  const std::vector<Holder>& holders() const { return holders_; }

 private:
  std::vector<Holder> holders_;
};

}  // namespace tarry::web
