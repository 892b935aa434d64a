#pragma once

// Reads the values of TLS settings, before there is a context that uses them.
//
//   configuration, or a live change --> check_...() --> TlsContext takes the parsed value
//
// Kafka's names mean the same here, in OpenSSL's words.  A value that this program cannot honour is
// refused and never ignored: a cipher that is silently missing would weaken a listener.
//
// Pure, on any thread; a PrincipalRules never changes, so all handshakes share it.

#include <optional>
#include <regex>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"

namespace tarry::server {

// The errors say what is allowed.
Result<> check_cipher_suites(std::string_view value);
Result<> check_enabled_protocols(std::string_view value);
Result<> check_principal_rules(std::string_view value);

// The ciphers of ssl.cipher.suites in OpenSSL's form: those of TLS 1.3 separate from the older
// ones.
struct CipherSuites {
  std::string of_tls_1_2;  // Empty: none was named.
  std::string of_tls_1_3;
};
Result<CipherSuites> parse_cipher_suites(std::string_view value);

// How the name in a certificate becomes the name of a principal (ssl.principal.mapping.rules):
//
//   RULE:^CN=(.*?),OU=ops.*$/$1/L,DEFAULT
//        pattern             | '- to lower case (U: upper)
//                            '--- replacement
//
// The first rule whose pattern matches the whole name counts; DEFAULT leaves a name as it is.
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
