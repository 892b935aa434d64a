#include "base/scram.h"

#include <array>

#include <openssl/crypto.h>
#include <openssl/evp.h>
#include <openssl/hmac.h>

#include "base/ascii_case.h"
#include "base/assert.h"

namespace tarry {
namespace {

const EVP_MD* digest_of(ScramMechanism mechanism) {
  return mechanism == ScramMechanism::sha256 ? EVP_sha256() : EVP_sha512();
}
std::size_t size_of(ScramMechanism mechanism) {
  return mechanism == ScramMechanism::sha256 ? 32 : 64;
}
const unsigned char* octets(std::string_view text) {
  return reinterpret_cast<const unsigned char*>(text.data());
}
std::string exclusive_or(std::string a, std::string_view b) {
  for (std::size_t i = 0; i < a.size(); ++i) a[i] = static_cast<char>(a[i] ^ b[i]);
  return a;
}

}  // namespace

std::string_view scram_name(ScramMechanism mechanism) {
  return mechanism == ScramMechanism::sha256 ? "SCRAM-SHA-256" : "SCRAM-SHA-512";
}

std::optional<ScramMechanism> scram_mechanism_named(std::string_view name) {
  for (const auto mechanism : {ScramMechanism::sha256, ScramMechanism::sha512})
    if (equals_ignoring_case(name, scram_name(mechanism))) return mechanism;
  return std::nullopt;
}

std::string scram_hash(ScramMechanism mechanism, std::string_view data) {
  std::array<unsigned char, EVP_MAX_MD_SIZE> out;
  unsigned size = 0;
  const int done =
      ::EVP_Digest(data.data(), data.size(), out.data(), &size, digest_of(mechanism), nullptr);
  TARRY_ASSERT(done == 1, "libcrypto has SHA-2");
  return {reinterpret_cast<const char*>(out.data()), size};
}

std::string scram_hmac(ScramMechanism mechanism, std::string_view key, std::string_view data) {
  std::array<unsigned char, EVP_MAX_MD_SIZE> out;
  unsigned size = 0;
  const auto* done = ::HMAC(digest_of(mechanism), key.data(), static_cast<int>(key.size()),
                            octets(data), data.size(), out.data(), &size);
  TARRY_ASSERT(done != nullptr, "libcrypto has SHA-2");
  return {reinterpret_cast<const char*>(out.data()), size};
}

std::string scram_salted_password(ScramMechanism mechanism, std::string_view password,
                                  std::string_view salt, std::int32_t iterations) {
  std::string out(size_of(mechanism), '\0');
  const int done = ::PKCS5_PBKDF2_HMAC(password.data(), static_cast<int>(password.size()),
                                       octets(salt), static_cast<int>(salt.size()), iterations,
                                       digest_of(mechanism), static_cast<int>(out.size()),
                                       reinterpret_cast<unsigned char*>(out.data()));
  TARRY_ASSERT(done == 1, "libcrypto has PBKDF2");
  return out;
}

ScramCredential scram_credential(ScramMechanism mechanism, std::string_view salted_password,
                                 std::string_view salt, std::int32_t iterations) {
  const auto client_key = scram_hmac(mechanism, salted_password, "Client Key");
  // The client key itself is not kept: whoever has it can log in (RFC 5802).
  return {.salt = std::string(salt),
          .stored_key = scram_hash(mechanism, client_key),
          .server_key = scram_hmac(mechanism, salted_password, "Server Key"),
          .iterations = iterations};
}

std::string scram_proof(ScramMechanism mechanism, std::string_view salted_password,
                        std::string_view auth_message) {
  const auto client_key = scram_hmac(mechanism, salted_password, "Client Key");
  const auto stored_key = scram_hash(mechanism, client_key);
  return exclusive_or(client_key, scram_hmac(mechanism, stored_key, auth_message));
}

bool scram_proves(ScramMechanism mechanism, const ScramCredential& credential,
                  std::string_view auth_message, std::string_view proof) {
  // A proof is the client key combined with this exchange's signature by exclusive or.  Combined
  // with the signature again it gives the client key, whose hash is the stored key.
  auto signature = scram_hmac(mechanism, credential.stored_key, auth_message);
  if (proof.size() != signature.size()) return false;
  const auto stored_key = scram_hash(mechanism, exclusive_or(std::move(signature), proof));
  return stored_key.size() == credential.stored_key.size() &&
         ::CRYPTO_memcmp(stored_key.data(), credential.stored_key.data(), stored_key.size()) == 0;
}

bool same_password(std::string_view a, std::string_view b) {
  // Hashes have one length, so the comparison tells nothing of the length of a password.
  const auto one = scram_hash(ScramMechanism::sha256, a);
  const auto other = scram_hash(ScramMechanism::sha256, b);
  return ::CRYPTO_memcmp(one.data(), other.data(), one.size()) == 0;
}

}  // namespace tarry
