#pragma once

// Reads the values of TLS settings, before there is a context that uses them.
//
//   configuration, or a live change --> check_...() --> TlsContext takes the parsed value
//
// Kafka's names mean the same here, in OpenSSL's words.  A value that this program cannot honour is
// refused and never ignored: a cipher that is silently missing would weaken a listener.
//
// Pure, on any thread.

#include <string>
#include <string_view>

#include "base/result.h"

namespace tarry::server {

// The errors say what is allowed.
Result<> check_cipher_suites(std::string_view value);
Result<> check_enabled_protocols(std::string_view value);

// The ciphers of ssl.cipher.suites in OpenSSL's form: those of TLS 1.3 separate from the older
// ones.
struct CipherSuites {
  std::string of_tls_1_2;  // Empty: none was named.
  std::string of_tls_1_3;
};
Result<CipherSuites> parse_cipher_suites(std::string_view value);

}  // namespace tarry::server
