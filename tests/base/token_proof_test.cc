#include "base/token_proof.h"

#include <doctest/doctest.h>

namespace tarry {
namespace {

TEST_SUITE("token proof") {
  const std::string token(64, 'a'), nonce(64, '0');

  TEST_CASE("a proof is HMAC-SHA256 over purpose, nonce and address, as anybody can compute it") {
    // printf 'tarry admin proof 1\n%s\n127.0.0.1:8080\n' $NONCE | openssl dgst -sha256 -hmac $TOKEN
    CHECK(token_proof(token, nonce, "127.0.0.1:8080") ==
          "2b97e880faa8452ae6c1a60c97dfd59375ea226b9be052a70e2881342523c85d");
  }
  TEST_CASE("a proof fits no other token, nonce or address") {
    const auto proof = token_proof(token, nonce, "127.0.0.1:8080");
    CHECK(proof != token_proof(std::string(64, 'b'), nonce, "127.0.0.1:8080"));
    CHECK(proof != token_proof(token, std::string(64, '1'), "127.0.0.1:8080"));
    CHECK(proof != token_proof(token, nonce, "127.0.0.1:8081"));
    CHECK(proof != token_proof(token, nonce, "[::1]:8080"));
  }
  TEST_CASE("a nonce is 64 hexadecimal digits and nothing else") {
    CHECK(is_proof_nonce(nonce));
    CHECK_FALSE(is_proof_nonce(nonce + "0"));
    CHECK_FALSE(is_proof_nonce(std::string(63, '0')));
    CHECK_FALSE(is_proof_nonce(std::string(64, 'A')));
    CHECK_FALSE(is_proof_nonce(std::string(63, '0') + "\n"));
  }
  TEST_CASE("secrets are the same when all of their bytes are") {
    CHECK(same_secret("abc", "abc"));
    CHECK_FALSE(same_secret("abc", "abd"));
    CHECK_FALSE(same_secret("abc", "ab"));
    CHECK(same_secret("", ""));
  }
}

}  // namespace
}  // namespace tarry
