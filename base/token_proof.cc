#include "base/token_proof.h"

#include <algorithm>
#include <array>

#include <fmt/core.h>
#include <openssl/crypto.h>
#include <openssl/evp.h>
#include <openssl/hmac.h>

#include "base/assert.h"

namespace tarry {

std::string token_proof(std::string_view token, std::string_view nonce, std::string_view address) {
  // The nonce has a fixed length and no part holds a line's end, so two questions never look alike.
  const std::string text = fmt::format("tarry admin proof 1\n{}\n{}\n", nonce, address);
  std::array<unsigned char, EVP_MAX_MD_SIZE> digest;
  unsigned size = 0;
  const auto* done = ::HMAC(EVP_sha256(), token.data(), static_cast<int>(token.size()),
                            reinterpret_cast<const unsigned char*>(text.data()), text.size(),
                            digest.data(), &size);
  TARRY_ASSERT(done != nullptr && size == 32, "libcrypto has SHA-256");
  std::string hex;
  for (unsigned i = 0; i < size; ++i) hex += fmt::format("{:02x}", digest[i]);
  return hex;
}

bool is_proof_nonce(std::string_view text) {
  return text.size() == 64 && std::ranges::all_of(text, [](char c) {
           return (c >= '0' && c <= '9') || (c >= 'a' && c <= 'f');
         });
}

bool same_secret(std::string_view a, std::string_view b) {
  // The length of a secret is known to everybody; how much of it is right must not be.
  return a.size() == b.size() && ::CRYPTO_memcmp(a.data(), b.data(), a.size()) == 0;
}

}  // namespace tarry
