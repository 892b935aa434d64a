#include "server/tls_settings.h"

#include <openssl/ssl.h>

#include <algorithm>
#include <array>
#include <cctype>
#include <memory>

#include "base/list_text.h"

namespace tarry::server {
namespace {

constexpr std::array<std::string_view, 5> tls_1_3_ciphers{
    "TLS_AES_256_GCM_SHA384", "TLS_CHACHA20_POLY1305_SHA256", "TLS_AES_128_GCM_SHA256",
    "TLS_AES_128_CCM_SHA256", "TLS_AES_128_CCM_8_SHA256"};

}  // namespace

Result<CipherSuites> parse_cipher_suites(std::string_view value) {
  CipherSuites suites;
  while (!value.empty()) {
    const auto end = std::min(value.find_first_of(",:"), value.size());
    const std::string name(trimmed(value.substr(0, end)));
    value.remove_prefix(std::min(value.size(), end + 1));
    // Each name is tried alone: of a list OpenSSL takes those that it knows, and does not mention
    // the others.
    const std::unique_ptr<SSL_CTX, decltype(&SSL_CTX_free)> scratch(
        SSL_CTX_new(TLS_server_method()), SSL_CTX_free);
    // OpenSSL passes over names of TLS 1.3 that it does not know.
    if (std::ranges::find(tls_1_3_ciphers, name) != tls_1_3_ciphers.end()) {
      suites.of_tls_1_3 += (suites.of_tls_1_3.empty() ? "" : ":") + name;
      continue;
    }
    // Kafka has the names of the standards; OpenSSL takes its own alone.
    const std::string own = OPENSSL_cipher_name(name.c_str());
    const std::string known = own == "(NONE)" ? name : own;
    // OpenSSL also takes whole expressions, such as ALL:!aNULL, which Kafka does not.
    const bool is_one_name = std::ranges::all_of(
        known, [](unsigned char c) { return std::isalnum(c) != 0 || c == '-' || c == '_'; });
    if (known.empty() || !is_one_name ||
        SSL_CTX_set_cipher_list(scratch.get(), known.c_str()) != 1) {
      return fail(Errc::invalid,
                  "names of ciphers separated by commas, as in "
                  "TLS_AES_256_GCM_SHA384,TLS_ECDHE_RSA_WITH_AES_256_GCM_SHA384");
    }
    suites.of_tls_1_2 += (suites.of_tls_1_2.empty() ? "" : ":") + known;
  }
  return suites;
}

Result<> check_cipher_suites(std::string_view value) {
  const auto parsed = parse_cipher_suites(value);
  if (!parsed) return std::unexpected(parsed.error());
  return {};
}

Result<> check_enabled_protocols(std::string_view value) {
  bool good = !value.empty();
  for (auto rest = value; good && !rest.empty();) {
    const auto one = take_element(rest, ',');
    good = one == "TLSv1.2" || one == "TLSv1.3";
  }
  if (good) return {};
  return fail(Errc::invalid, "TLSv1.2, TLSv1.3 or both separated by a comma");
}

}  // namespace tarry::server
