#include "server/tls_context.h"

#include <openssl/bio.h>
#include <openssl/err.h>
#include <openssl/pem.h>
#include <openssl/ssl.h>
#include <openssl/x509.h>

#include <algorithm>
#include <cstring>
#include <ctime>
#include <iterator>
#include <new>
#include <utility>
#include <vector>

#include <fmt/core.h>

#include "base/free_by.h"
#include "base/log.h"
#include "base/read_small_file.h"

namespace tarry::server {
namespace {

// A key and some certificates; a whole bundle of authorities is a few hundred KiB.
constexpr std::size_t max_pem_bytes = std::size_t{4} << 20;

using Bio = std::unique_ptr<BIO, FreeBy<BIO_free_all>>;
using Certificate = std::unique_ptr<X509, FreeBy<X509_free>>;
using PrivateKey = std::unique_ptr<EVP_PKEY, FreeBy<EVP_PKEY_free>>;

std::string openssl_reason() {
  const unsigned long error = ERR_peek_last_error();
  const char* reason = ERR_reason_error_string(error);
  ERR_clear_error();
  return reason == nullptr ? "it cannot be read" : reason;
}

// A piece of PEM and the setting that it comes from.
struct Pem {
  std::string text;
  std::string from;  // "listener SSL: ssl.keystore.location=/etc/tarry/broker.pem"
};

Bio reader_of(const std::string& text) {
  return Bio(BIO_new_mem_buf(text.data(), static_cast<int>(text.size())));
}

Result<Pem> read_file(const ListenerConfig& listener, const char* key) {
  const std::string path(listener.tls_setting(key));
  Pem pem{"", fmt::format("{}{}{}={}", listener.tls_place(), listener.tls_prefix, key,
                          printable(path))};
  auto text = read_small_file(path, max_pem_bytes);
  if (!text) return fail(text.error().code, fmt::format("{}: {}", pem.from, text.error().message));
  pem.text = std::move(*text);
  return pem;
}

// The text of one of two settings, of which one at most may be given; empty: neither is.
Result<Pem> pem_of(const ListenerConfig& listener, const char* inline_key, const char* file_key) {
  const bool is_inline = !listener.tls_setting(inline_key).empty();
  const bool is_file = !listener.tls_setting(file_key).empty();
  if (is_inline && is_file) {
    return fail(Errc::invalid,
                fmt::format("{0}both {1}{2} and {1}{3} are given: keep one", listener.tls_place(),
                            listener.tls_prefix, file_key, inline_key));
  }
  if (is_file) return read_file(listener, file_key);
  return Pem{std::string(listener.tls_setting(inline_key)),
             fmt::format("{}{}{}", listener.tls_place(), listener.tls_prefix, inline_key)};
}

Result<std::vector<Certificate>> certificates_in(const Pem& pem) {
  std::vector<Certificate> all;
  const Bio reader = reader_of(pem.text);
  ERR_clear_error();
  while (X509* const read = PEM_read_bio_X509(reader.get(), nullptr, nullptr, nullptr))
    all.emplace_back(read);
  // The end of the text is an error to OpenSSL too: no further certificate begins.
  const bool at_end = ERR_GET_REASON(ERR_peek_last_error()) == PEM_R_NO_START_LINE;
  if (all.empty() && at_end) {
    ERR_clear_error();
    return fail(Errc::invalid, fmt::format("{}: there is no certificate in it", pem.from));
  }
  if (!at_end) {
    return fail(Errc::invalid, fmt::format("{}: its certificate {} cannot be read: {}", pem.from,
                                           all.size() + 1, openssl_reason()));
  }
  ERR_clear_error();
  return all;
}

struct Password {
  std::string_view text;
  bool asked = false;
};
int give_password(char* buffer, int size, int /*for_writing*/, void* given) {
  auto& password = *static_cast<Password*>(given);
  password.asked = true;
  // -1 and not 0: an empty password is one, with which OpenSSL would go on.
  if (password.text.empty() || password.text.size() > static_cast<std::size_t>(size)) return -1;
  std::memcpy(buffer, password.text.data(), password.text.size());
  return static_cast<int>(password.text.size());
}

Result<PrivateKey> key_in(const Pem& pem, const ListenerConfig& listener) {
  Password password{listener.tls_setting("key.password")};
  const Bio reader = reader_of(pem.text);
  ERR_clear_error();
  PrivateKey key(PEM_read_bio_PrivateKey(reader.get(), nullptr, give_password, &password));
  if (key) return key;
  // OpenSSL has one error for "no key" and "a key that is damaged", and the advice differs.
  if (!pem.text.contains("PRIVATE KEY-----")) {
    ERR_clear_error();
    return fail(Errc::invalid, fmt::format("{}: there is no private key in it", pem.from));
  }
  const std::string reason = openssl_reason();
  if (password.asked) {
    return fail(
        Errc::invalid,
        fmt::format("{}: the private key is encrypted, and {}key.password is {}", pem.from,
                    listener.tls_prefix, password.text.empty() ? "not given" : "not its password"));
  }
  return fail(Errc::invalid,
              fmt::format("{}: the private key cannot be read: {}", pem.from, reason));
}

std::string name_text(const X509_NAME* name) {
  const Bio out(BIO_new(BIO_s_mem()));
  // Java's form of a name (RFC 2253), with text beyond ASCII as it is.
  if (!out ||
      X509_NAME_print_ex(out.get(), name, 0,
                         XN_FLAG_RFC2253 & ~static_cast<unsigned long>(ASN1_STRFLGS_ESC_MSB)) < 0)
    return {};
  char* text = nullptr;
  const long size = BIO_get_mem_data(out.get(), &text);
  return {text, static_cast<std::size_t>(std::max(0L, size))};
}

std::string time_text(const ASN1_TIME* time) {
  const Bio out(BIO_new(BIO_s_mem()));
  if (!out || ASN1_TIME_print(out.get(), time) != 1) return "an unknown time";
  char* text = nullptr;
  const long size = BIO_get_mem_data(out.get(), &text);
  return {text, static_cast<std::size_t>(std::max(0L, size))};
}

WallTime wall_time(const ASN1_TIME* time) {
  std::tm parts{};
  if (ASN1_TIME_to_tm(time, &parts) != 1) return WallTime::max();
  return WallTime(std::chrono::seconds(::timegm(&parts)));
}

Result<> put_own_certificate(SSL_CTX* context, const ListenerConfig& listener, WallTime now,
                             std::string& description, WallTime& valid_until) {
  const bool is_file = !listener.tls_setting("keystore.location").empty();
  auto chain_pem = pem_of(listener, "keystore.certificate.chain", "keystore.location");
  if (!chain_pem) return std::unexpected(chain_pem.error());
  // A file holds both.
  auto key_pem = is_file ? chain_pem : pem_of(listener, "keystore.key", "keystore.location");
  if (is_file && !listener.tls_setting("keystore.key").empty()) {
    return fail(Errc::invalid,
                fmt::format("{0}both {1}keystore.location and {1}keystore.key are given: keep one",
                            listener.tls_place(), listener.tls_prefix));
  }
  if (!key_pem) return std::unexpected(key_pem.error());
  if (chain_pem->text.empty() || key_pem->text.empty()) {
    return fail(Errc::invalid,
                fmt::format("{0}TLS needs a certificate and its key: give {1}keystore.location, or "
                            "{1}keystore.certificate.chain with {1}keystore.key",
                            listener.tls_place(), listener.tls_prefix));
  }
  auto chain = certificates_in(*chain_pem);
  if (!chain) return std::unexpected(chain.error());
  auto key = key_in(*key_pem, listener);
  if (!key) return std::unexpected(key.error());
  X509* const own = chain->front().get();
  if (X509_check_private_key(own, key->get()) != 1) {
    ERR_clear_error();
    return fail(Errc::invalid,
                fmt::format("{}: the private key does not belong to the first certificate, that "
                            "of {}: the broker's own certificate has to come first",
                            key_pem->from, name_text(X509_get_subject_name(own))));
  }
  std::time_t time = std::chrono::system_clock::to_time_t(std::chrono::system_clock::time_point(
      std::chrono::duration_cast<std::chrono::system_clock::duration>(now.time_since_epoch())));
  // All of them: an intermediate certificate that has expired keeps clients away as well.
  for (const auto& certificate : *chain) {
    if (X509_cmp_time(X509_get0_notAfter(certificate.get()), &time) < 0) {
      return fail(Errc::invalid,
                  fmt::format("{}: the certificate of {} expired on {}", chain_pem->from,
                              name_text(X509_get_subject_name(certificate.get())),
                              time_text(X509_get0_notAfter(certificate.get()))));
    }
  }
  bool put = SSL_CTX_use_certificate(context, own) == 1 &&
             SSL_CTX_use_PrivateKey(context, key->get()) == 1;
  for (std::size_t i = 1; put && i < chain->size(); ++i)
    put = SSL_CTX_add1_chain_cert(context, (*chain)[i].get()) == 1;
  if (!put) return fail(Errc::invalid, fmt::format("{}: {}", chain_pem->from, openssl_reason()));
  valid_until = WallTime::max();
  for (const auto& certificate : *chain)
    valid_until = std::min(valid_until, wall_time(X509_get0_notAfter(certificate.get())));
  description = fmt::format("{}, valid until {}", name_text(X509_get_subject_name(own)),
                            time_text(X509_get0_notAfter(own)));
  return {};
}

Result<> put_trusted(SSL_CTX* context, const ListenerConfig& listener) {
  const auto auth = listener.tls_setting("client.auth");
  const bool is_asked = auth == "required" || auth == "requested";
  const auto pem = pem_of(listener, "truststore.certificates", "truststore.location");
  if (!pem) return std::unexpected(pem.error());
  if (pem->text.empty() && is_asked) {
    return fail(Errc::invalid,
                fmt::format("listener {}: ssl.client.auth={} needs ssl.truststore.location or "
                            "ssl.truststore.certificates",
                            listener.name, auth));
  }
  // Trust matters only where clients are asked for certificates.
  if (!is_asked || pem->text.empty()) return {};
  const auto trusted = certificates_in(*pem);
  if (!trusted) return std::unexpected(trusted.error());
  // They are named in the handshake too, because clients choose their certificate by its issuer.
  for (const auto& certificate : *trusted) {
    if (X509_STORE_add_cert(SSL_CTX_get_cert_store(context), certificate.get()) != 1 ||
        SSL_CTX_add_client_CA(context, certificate.get()) != 1)
      return fail(Errc::invalid, fmt::format("{}: {}", pem->from, openssl_reason()));
  }
  SSL_CTX_set_verify(context,
                     SSL_VERIFY_PEER | (auth == "required" ? SSL_VERIFY_FAIL_IF_NO_PEER_CERT : 0),
                     nullptr);
  return {};
}

Result<> put_protocols(SSL_CTX* context, const ListenerConfig& listener) {
  const auto enabled = listener.tls_setting("enabled.protocols");
  const bool has_1_2 = enabled.empty() || enabled.contains("TLSv1.2");
  const bool has_1_3 = (enabled.empty() || enabled.contains("TLSv1.3")) &&
                       listener.tls_setting("protocol") != "TLSv1.2";
  if (!has_1_2 && !has_1_3) {
    return fail(Errc::invalid, fmt::format("listener {}: ssl.protocol=TLSv1.2 with "
                                           "ssl.enabled.protocols={} leaves no version of TLS",
                                           listener.name, enabled));
  }
  SSL_CTX_set_min_proto_version(context, has_1_2 ? TLS1_2_VERSION : TLS1_3_VERSION);
  SSL_CTX_set_max_proto_version(context, has_1_3 ? TLS1_3_VERSION : TLS1_2_VERSION);
  const auto ciphers = listener.tls_setting("cipher.suites");
  if (ciphers.empty()) return {};
  const auto suites = parse_cipher_suites(ciphers);
  if (!suites) return std::unexpected(suites.error());
  // A version without a named cipher is switched off.
  if (suites->of_tls_1_2.empty()) SSL_CTX_set_min_proto_version(context, TLS1_3_VERSION);
  if (suites->of_tls_1_3.empty()) SSL_CTX_set_max_proto_version(context, TLS1_2_VERSION);
  if ((suites->of_tls_1_2.empty() && !has_1_3) || (suites->of_tls_1_3.empty() && !has_1_2)) {
    return fail(Errc::invalid, fmt::format("listener {}: ssl.cipher.suites={} has no cipher of the "
                                           "enabled versions of TLS",
                                           listener.name, ciphers));
  }
  if (!suites->of_tls_1_2.empty()) SSL_CTX_set_cipher_list(context, suites->of_tls_1_2.c_str());
  if (!suites->of_tls_1_3.empty()) SSL_CTX_set_ciphersuites(context, suites->of_tls_1_3.c_str());
  return {};
}

}  // namespace

TlsContext::TlsContext() : context_(SSL_CTX_new(TLS_server_method())) {
  if (context_ == nullptr) throw std::bad_alloc();
  SSL_CTX_set_options(context_, SSL_OP_NO_COMPRESSION | SSL_OP_NO_RENEGOTIATION | SSL_OP_NO_TICKET |
                                    SSL_OP_CIPHER_SERVER_PREFERENCE |
                                    // Requests have sizes, so one that is cut off is noticed.
                                    SSL_OP_IGNORE_UNEXPECTED_EOF);
  // Without SSL_MODE_AUTO_RETRY one read takes one record: a flood of key updates holds nobody up.
  SSL_CTX_clear_mode(context_, SSL_MODE_AUTO_RETRY);
  // A write that would have blocked is repeated from another buffer (TlsSession::write_some()
  // gathers small pieces again), and an idle connection keeps no buffers.
  SSL_CTX_set_mode(context_, SSL_MODE_ENABLE_PARTIAL_WRITE | SSL_MODE_ACCEPT_MOVING_WRITE_BUFFER |
                                 SSL_MODE_RELEASE_BUFFERS);
  // Connections to a broker live long, so a session that is taken up again saves little, and a
  // cache of them is memory that clients fill.
  SSL_CTX_set_session_cache_mode(context_, SSL_SESS_CACHE_OFF);
  SSL_CTX_set_num_tickets(context_, 0);
}

TlsContext::~TlsContext() {
  SSL_CTX_free(context_);
}

Result<std::shared_ptr<const TlsContext>> TlsContext::make(const ListenerConfig& listener,
                                                           WallTime now) {
  std::shared_ptr<TlsContext> made(new TlsContext());
  if (auto put = put_own_certificate(made->context_, listener, now, made->description_,
                                     made->valid_until_);
      !put)
    return std::unexpected(put.error());
  if (auto put = put_trusted(made->context_, listener); !put) return std::unexpected(put.error());
  if (auto put = put_protocols(made->context_, listener); !put) return std::unexpected(put.error());
  auto rules = PrincipalRules::parse(listener.tls_setting("principal.mapping.rules"));
  if (!rules) return std::unexpected(rules.error());
  made->rules_ = std::move(*rules);
  return made;
}

Result<std::string> TlsContext::principal_of(const ssl_st* session) const {
  const X509* const certificate = SSL_get0_peer_certificate(session);
  if (certificate == nullptr) return std::string();
  const std::string name = name_text(X509_get_subject_name(certificate));
  if (auto mapped = rules_.apply(name)) return std::move(*mapped);
  return fail(Errc::invalid, fmt::format("no rule of ssl.principal.mapping.rules matches the name "
                                         "in its certificate, {}",
                                         printable(name)));
}

}  // namespace tarry::server
