#include "cli/kafka/client_tls.h"

#include <openssl/err.h>
#include <openssl/ssl.h>
#include <openssl/x509v3.h>
#include <sys/socket.h>
#include <sys/stat.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <string_view>
#include <vector>

#include <fmt/core.h>

#include "base/log.h"

namespace tarry::cli {
namespace {

using Properties = std::map<std::string, std::string>;
using ContextPtr = std::unique_ptr<SSL_CTX, decltype(&SSL_CTX_free)>;

constexpr std::array<std::string_view, 7> known_properties{"enable.ssl.certificate.verification",
                                                           "ssl.ca.location",
                                                           "ssl.certificate.location",
                                                           "ssl.endpoint.identification.algorithm",
                                                           "ssl.key.location",
                                                           "ssl.key.password",
                                                           "ssl.cipher.suites"};

std::string value_of(const Properties& properties, const char* name) {
  const auto found = properties.find(name);
  return found == properties.end() ? std::string() : found->second;
}

std::string openssl_error() {
  const auto code = ERR_get_error();
  ERR_clear_error();
  if (code == 0) return "the connection ended; does the listener use TLS?";
  if (ERR_SYSTEM_ERROR(code)) return std::strerror(ERR_GET_REASON(code));
  const char* const reason = ERR_reason_error_string(code);
  return reason == nullptr ? "it cannot be used" : reason;
}

std::unexpected<Error> unusable(std::string_view name, std::string_view value) {
  return fail(Errc::invalid, fmt::format("{}={}: {}", name, printable(value), openssl_error()));
}

int give_password(char* into, int size, int, void* password) {
  const auto& text = *static_cast<const std::string*>(password);
  const auto length = std::min<std::size_t>(text.size(), static_cast<std::size_t>(size));
  std::copy_n(text.begin(), length, into);
  return static_cast<int>(length);
}

Result<> trust(SSL_CTX* context, const std::string& location) {
  if (location.empty()) {
    // As librdkafka does without ssl.ca.location.
    SSL_CTX_set_default_verify_paths(context);
    return {};
  }
  struct stat status {};
  const bool is_directory = ::stat(location.c_str(), &status) == 0 && S_ISDIR(status.st_mode);
  const int loaded = is_directory
                         ? SSL_CTX_load_verify_locations(context, nullptr, location.c_str())
                         : SSL_CTX_load_verify_locations(context, location.c_str(), nullptr);
  if (loaded != 1) return unusable("ssl.ca.location", location);
  return {};
}

Result<> use_certificate(SSL_CTX* context, const Properties& properties) {
  const auto certificate = value_of(properties, "ssl.certificate.location");
  const auto key = value_of(properties, "ssl.key.location");
  auto password = value_of(properties, "ssl.key.password");
  if (!certificate.empty() && SSL_CTX_use_certificate_chain_file(context, certificate.c_str()) != 1)
    return unusable("ssl.certificate.location", certificate);
  if (key.empty()) return {};
  // It is set without a password too: OpenSSL's own would ask for one on the terminal.
  SSL_CTX_set_default_passwd_cb(context, give_password);
  SSL_CTX_set_default_passwd_cb_userdata(context, &password);
  const int used = SSL_CTX_use_PrivateKey_file(context, key.c_str(), SSL_FILETYPE_PEM);
  // `password` ends with this function.
  SSL_CTX_set_default_passwd_cb_userdata(context, nullptr);
  if (used != 1) return unusable("ssl.key.location", key);
  return {};
}

Result<ContextPtr> make_context(const Properties& properties) {
  // A setting that is silently without effect could be one that was to protect.
  for (const auto& [name, value] : properties) {
    if (!name.starts_with("ssl.") ||
        std::ranges::find(known_properties, name) != known_properties.end())
      continue;
    return fail(Errc::invalid,
                fmt::format("{}: this command does not support this setting; give PEM files as "
                            "ssl.ca.location, ssl.certificate.location and ssl.key.location",
                            printable(name)));
  }
  ContextPtr context(SSL_CTX_new(TLS_client_method()), SSL_CTX_free);
  if (!context) return fail(Errc::io, openssl_error());
  SSL_CTX_set_min_proto_version(context.get(), TLS1_2_VERSION);
  const auto ciphers = value_of(properties, "ssl.cipher.suites");
  if (!ciphers.empty() && SSL_CTX_set_cipher_list(context.get(), ciphers.c_str()) != 1)
    return unusable("ssl.cipher.suites", ciphers);
  if (auto done = trust(context.get(), value_of(properties, "ssl.ca.location")); !done)
    return std::unexpected(done.error());
  if (auto done = use_certificate(context.get(), properties); !done)
    return std::unexpected(done.error());
  const bool verified = value_of(properties, "enable.ssl.certificate.verification") != "false";
  SSL_CTX_set_verify(context.get(), verified ? SSL_VERIFY_PEER : SSL_VERIFY_NONE, nullptr);
  return context;
}

// A broker's certificate has to be for the name or the address that was asked.
void expect_host(SSL* session, const std::string& host) {
  X509_VERIFY_PARAM* const expected = SSL_get0_param(session);
  // A host that is an address has to stand in the certificate as an address, any other one as a
  // name.
  if (X509_VERIFY_PARAM_set1_ip_asc(expected, host.c_str()) == 1) return;
  ERR_clear_error();
  SSL_set1_host(session, host.c_str());
}

}  // namespace

void ClientTls::Free::operator()(ssl_st* session) const {
  SSL_free(session);
}

bool ClientTls::flush_output() {
  std::array<std::uint8_t, 16 * 1024> bytes;
  for (;;) {
    const int ready = BIO_read(SSL_get_wbio(session_.get()), bytes.data(), bytes.size());
    if (ready <= 0) return true;
    // Not by OpenSSL: its write to a socket that was closed would end the process (SIGPIPE).
    for (int at = 0; at < ready;) {
      const auto sent = ::send(descriptor_, bytes.data() + at, static_cast<std::size_t>(ready - at),
                               MSG_NOSIGNAL);
      if (sent <= 0) return false;
      at += static_cast<int>(sent);
    }
  }
}

// Runs `step` until it needs no more bytes; what it returned last, 0 when the connection failed.
template <typename Step>
int ClientTls::until_done(Step step) {
  std::array<std::uint8_t, 16 * 1024> bytes;
  for (;;) {
    ERR_clear_error();
    const int done = step(session_.get());
    const int why = SSL_get_error(session_.get(), done);
    // A step that failed is followed by it too: the alert that tells the broker why may be ready.
    if (!flush_output()) return 0;
    if (done > 0) return done;
    // A BIO in memory takes all that is written, so OpenSSL never waits for that.
    if (why != SSL_ERROR_WANT_READ) return done;
    const auto got = ::recv(descriptor_, bytes.data(), bytes.size(), 0);
    if (got <= 0) return 0;
    BIO_write(SSL_get_rbio(session_.get()), bytes.data(), static_cast<int>(got));
  }
}

Result<ClientTls> ClientTls::connect(int descriptor, const std::string& host,
                                     const Properties& properties) {
  const auto context = make_context(properties);
  if (!context) return std::unexpected(context.error());
  ClientTls tls(descriptor, SSL_new(context->get()));
  SSL* const session = tls.session_.get();
  if (session == nullptr) return fail(Errc::io, openssl_error());
  // Over memory, so that only this class reads and writes the socket.
  SSL_set_bio(session, BIO_new(BIO_s_mem()), BIO_new(BIO_s_mem()));
  // SSL_set_tlsext_host_name(), whose cast is an old one.
  std::string name = host;
  SSL_ctrl(session, SSL_CTRL_SET_TLSEXT_HOSTNAME, TLSEXT_NAMETYPE_host_name, name.data());
  if (value_of(properties, "ssl.endpoint.identification.algorithm") != "none")
    expect_host(session, host);
  if (tls.until_done([](SSL* one) { return SSL_connect(one); }) == 1) return tls;
  const auto verified = SSL_get_verify_result(session);
  const std::string why = verified == X509_V_OK
                              ? openssl_error()
                              : fmt::format(
                                    "the broker's certificate is not accepted: {} "
                                    "(ssl.ca.location)",
                                    X509_verify_cert_error_string(verified));
  return fail(Errc::io, fmt::format("{}: the TLS handshake with the broker failed: {}",
                                    printable(host), why));
}

bool ClientTls::send(std::span<const std::uint8_t> bytes) {
  return bytes.empty() || until_done([bytes](SSL* session) {
                            return SSL_write(session, bytes.data(), static_cast<int>(bytes.size()));
                          }) == static_cast<int>(bytes.size());
}

std::size_t ClientTls::receive(std::span<std::uint8_t> into) {
  // SSL_read() takes an int.
  const int got = until_done([into](SSL* session) {
    return SSL_read(session, into.data(),
                    static_cast<int>(std::min<std::size_t>(into.size(), 1 << 20)));
  });
  return got > 0 ? static_cast<std::size_t>(got) : 0;
}

}  // namespace tarry::cli
