#include "broker/security/json_web_keys.h"

#include <openssl/bn.h>
#include <openssl/core_names.h>
#include <openssl/ec.h>
#include <openssl/err.h>
#include <openssl/evp.h>
#include <openssl/param_build.h>
#include <openssl/rsa.h>

#include <utility>

#include <fmt/core.h>

#include "base/base64.h"
#include "base/bytes.h"
#include "base/free_by.h"
#include "base/json.h"
#include "base/log.h"

namespace tarry::broker {
namespace {

using KeyPtr = std::unique_ptr<EVP_PKEY, FreeBy<EVP_PKEY_free>>;
using NumberPtr = std::unique_ptr<BIGNUM, FreeBy<BN_free>>;
using ParametersPtr = std::unique_ptr<OSSL_PARAM, FreeBy<OSSL_PARAM_free>>;

constexpr std::size_t max_keys = 1000;
// Shorter ones are not safe, and with longer ones one signature takes milliseconds.
constexpr int min_rsa_bits = 2048, max_rsa_bits = 8192;
constexpr std::size_t ec_part_bytes = 32;

const unsigned char* raw(std::string_view text) {
  return as_bytes(text).data();
}

std::string text_at(const Json& object, const char* name) {
  const auto found = object.find(name);
  return found != object.end() && found->is_string() ? found->get<std::string>() : std::string();
}

KeyPtr make_key(const char* kind, OSSL_PARAM_BLD* builder) {
  const ParametersPtr parameters(OSSL_PARAM_BLD_to_param(builder));
  const std::unique_ptr<EVP_PKEY_CTX, FreeBy<EVP_PKEY_CTX_free>> context(
      EVP_PKEY_CTX_new_from_name(nullptr, kind, nullptr));
  EVP_PKEY* key = nullptr;
  if (parameters && context && EVP_PKEY_fromdata_init(context.get()) == 1)
    EVP_PKEY_fromdata(context.get(), &key, EVP_PKEY_PUBLIC_KEY, parameters.get());
  // OpenSSL keeps errors for the thread, where a later call would find them.
  ERR_clear_error();
  return KeyPtr(key);
}

KeyPtr make_rsa(const Json& from) {
  const auto n = from_base64_url(text_at(from, "n")), e = from_base64_url(text_at(from, "e"));
  // Before OpenSSL computes with it.
  if (n.empty() || e.empty() || n.size() > max_rsa_bits / 8 + 1 || e.size() > 8) return nullptr;
  const NumberPtr modulus(BN_bin2bn(raw(n), static_cast<int>(n.size()), nullptr));
  const NumberPtr exponent(BN_bin2bn(raw(e), static_cast<int>(e.size()), nullptr));
  const std::unique_ptr<OSSL_PARAM_BLD, FreeBy<OSSL_PARAM_BLD_free>> builder(OSSL_PARAM_BLD_new());
  OSSL_PARAM_BLD_push_BN(builder.get(), OSSL_PKEY_PARAM_RSA_N, modulus.get());
  OSSL_PARAM_BLD_push_BN(builder.get(), OSSL_PKEY_PARAM_RSA_E, exponent.get());
  auto key = make_key("RSA", builder.get());
  const int bits = key ? EVP_PKEY_get_bits(key.get()) : 0;
  return bits >= min_rsa_bits && bits <= max_rsa_bits ? std::move(key) : nullptr;
}

KeyPtr make_ec(const Json& from) {
  const auto x = from_base64_url(text_at(from, "x")), y = from_base64_url(text_at(from, "y"));
  if (text_at(from, "crv") != "P-256" || x.size() != ec_part_bytes || y.size() != ec_part_bytes)
    return nullptr;
  const std::string point = '\x04' + x + y;  // Not compressed.
  const std::unique_ptr<OSSL_PARAM_BLD, FreeBy<OSSL_PARAM_BLD_free>> builder(OSSL_PARAM_BLD_new());
  OSSL_PARAM_BLD_push_utf8_string(builder.get(), OSSL_PKEY_PARAM_GROUP_NAME, "prime256v1", 0);
  OSSL_PARAM_BLD_push_octet_string(builder.get(), OSSL_PKEY_PARAM_PUB_KEY, point.data(),
                                   point.size());
  return make_key("EC", builder.get());
}

// A token has two numbers in a row, OpenSSL takes them as ASN.1.
std::string ec_signature(std::string_view two_numbers) {
  if (two_numbers.size() != 2 * ec_part_bytes) return {};
  const std::unique_ptr<ECDSA_SIG, FreeBy<ECDSA_SIG_free>> signature(ECDSA_SIG_new());
  NumberPtr r(BN_bin2bn(raw(two_numbers), ec_part_bytes, nullptr));
  NumberPtr s(BN_bin2bn(raw(two_numbers.substr(ec_part_bytes)), ec_part_bytes, nullptr));
  if (!signature || !r || !s || ECDSA_SIG_set0(signature.get(), r.get(), s.get()) != 1) return {};
  static_cast<void>(r.release()), static_cast<void>(s.release());  // They are the signature's now.
  unsigned char* encoded = nullptr;
  const int size = i2d_ECDSA_SIG(signature.get(), &encoded);
  if (size <= 0) return {};
  std::string out;
  for (int i = 0; i < size; ++i) out += static_cast<char>(encoded[i]);
  OPENSSL_free(encoded);
  return out;
}

}  // namespace

bool is_nested_too_deep(std::string_view json) {
  int depth = 0;
  bool in_text = false;
  for (std::size_t i = 0; i < json.size(); ++i) {
    const char c = json[i];
    if (in_text) {
      if (c == '\\') ++i;
      if (c == '"') in_text = false;
    } else if (c == '"') {
      in_text = true;
    } else if (c == '{' || c == '[') {
      if (++depth > max_json_depth) return true;
    } else if (c == '}' || c == ']') {
      --depth;
    }
  }
  return false;
}

std::string from_base64_url(std::string_view text) {
  std::string usual(text);
  for (char& c : usual) {
    // A JWS has the other alphabet of base64, and no padding.
    if (c == '+' || c == '/' || c == '=') return {};
    if (c == '-') c = '+';
    if (c == '_') c = '/';
  }
  usual.append((4 - usual.size() % 4) % 4, '=');
  return from_base64(usual).value_or(std::string());
}

struct JsonWebKeys::Key {
  std::string id;
  std::string algorithm;  // The only one that it is for; empty: any of its kind.
  bool is_rsa;
  KeyPtr key;
};

JsonWebKeys::JsonWebKeys() = default;
JsonWebKeys::~JsonWebKeys() = default;

Result<std::shared_ptr<const JsonWebKeys>> JsonWebKeys::parse(std::string_view text) {
  if (text.size() > max_key_file_bytes || is_nested_too_deep(text))
    return fail(Errc::invalid, fmt::format("it has more than {} bytes, or is nested deeper than {}",
                                           max_key_file_bytes, max_json_depth));
  const auto json = parse_json(text);
  const auto keys = json.is_object() ? json.find("keys") : json.end();
  if (!json.is_object() || keys == json.end() || !keys->is_array() || keys->size() > max_keys)
    return fail(Errc::invalid, "it is not a JWKS: an object with an array `keys` is expected");
  std::shared_ptr<JsonWebKeys> made(new JsonWebKeys);
  for (const auto& each : *keys) {
    if (!each.is_object()) continue;
    const auto use = text_at(each, "use");
    // A file may hold keys for other purposes and of other kinds, which are left out.
    if (!use.empty() && use != "sig") continue;
    const bool is_rsa = text_at(each, "kty") == "RSA";
    if (!is_rsa && text_at(each, "kty") != "EC") continue;
    if (auto key = is_rsa ? make_rsa(each) : make_ec(each))
      made->keys_.push_back({text_at(each, "kid"), text_at(each, "alg"), is_rsa, std::move(key)});
  }
  if (made->keys_.empty())
    return fail(Errc::invalid, "it has no usable key: RSA of 2048 to 8192 bits, or EC P-256");
  return made;
}

Result<const JsonWebKeys::Key*> JsonWebKeys::find(std::string_view algorithm,
                                                  std::string_view id) const {
  const Key* found = nullptr;
  for (const auto& key : keys_) {
    // A token must not choose an algorithm that the key is not meant for.
    const bool fits = key.is_rsa == (algorithm != "ES256") &&
                      (key.algorithm.empty() || key.algorithm == algorithm) &&
                      (id.empty() || key.id == id);
    if (!fits) continue;
    if (id.empty() && found != nullptr)
      return fail(Errc::invalid,
                  "the token does not name its key (kid), and several keys are possible");
    if (found == nullptr) found = &key;
  }
  if (found == nullptr)
    return fail(Errc::invalid,
                fmt::format("there is no key '{}' for {}", printable(id), algorithm));
  return found;
}

Result<> JsonWebKeys::verify(std::string_view algorithm, std::string_view id, std::string_view text,
                             std::string_view signature) const {
  // A list of what is accepted, so that neither `none` nor a shared secret ever is.
  if (algorithm != "RS256" && algorithm != "PS256" && algorithm != "ES256")
    return fail(Errc::invalid,
                fmt::format("the algorithm {} is not accepted", printable(algorithm)));
  const auto key = find(algorithm, id);
  if (!key) return std::unexpected(key.error());
  const auto given = algorithm == "ES256" ? ec_signature(signature) : std::string(signature);
  const std::unique_ptr<EVP_MD_CTX, FreeBy<EVP_MD_CTX_free>> context(EVP_MD_CTX_new());
  EVP_PKEY_CTX* of_key = nullptr;
  bool right =
      !given.empty() && context &&
      EVP_DigestVerifyInit(context.get(), &of_key, EVP_sha256(), nullptr, (*key)->key.get()) == 1;
  // RFC 7518: the salt is as long as the hash.
  if (right && algorithm == "PS256") {
    right = EVP_PKEY_CTX_set_rsa_padding(of_key, RSA_PKCS1_PSS_PADDING) == 1 &&
            EVP_PKEY_CTX_set_rsa_pss_saltlen(of_key, RSA_PSS_SALTLEN_DIGEST) == 1;
  }
  right = right &&
          EVP_DigestVerify(context.get(), raw(given), given.size(), raw(text), text.size()) == 1;
  ERR_clear_error();
  if (!right) return fail(Errc::invalid, "the token's signature is wrong");
  return {};
}

}  // namespace tarry::broker
