#pragma once

// PrincipalRules: how the name in a certificate becomes the name of a principal
// (ssl.principal.mapping.rules):
//
//   RULE:^CN=(.*?),OU=ops.*$/$1/L,DEFAULT
//        pattern             | '- to lower case (U: upper)
//                            '--- replacement
//
// The first rule whose pattern matches the whole name counts; DEFAULT leaves a name as it is.
//
// Constant once parsed, so all handshakes share it; any thread.

#include <optional>
#include <regex>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"

namespace tarry::server {

// The error says what is allowed.
Result<> check_principal_rules(std::string_view value);

class PrincipalRules {
 public:
  static Result<PrincipalRules> parse(std::string_view value);

  // Nullopt: no rule matches.
  std::optional<std::string> apply(const std::string& name) const;

 private:
  struct Rule {
    std::optional<std::regex> pattern;  // None: DEFAULT.
    std::string replacement;
    char letters = 0;  // 'L', 'U' or 0.
  };
  std::vector<Rule> rules_;
};

}  // namespace tarry::server
