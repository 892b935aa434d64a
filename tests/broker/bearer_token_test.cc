#include "broker/security/bearer_token.h"

#include <openssl/bn.h>
#include <openssl/core_names.h>
#include <openssl/ec.h>
#include <openssl/evp.h>
#include <openssl/rsa.h>
#include <unistd.h>

#include <chrono>
#include <cstdio>
#include <fstream>
#include <memory>
#include <string>
#include <string_view>

#include <fmt/core.h>

#include <doctest/doctest.h>

#include "base/base64.h"
#include "base/bytes.h"
#include "broker/security/token_logins.h"

namespace tarry::broker::test {
namespace {

using namespace std::chrono_literals;

std::string base64_url(std::string_view bytes) {
  auto text = base64(bytes);
  for (char& c : text) c = c == '+' ? '-' : c == '/' ? '_' : c;
  while (text.ends_with('=')) text.pop_back();
  return text;
}

// Signs as an authority for tokens does.
class TokenSigner {
 public:
  explicit TokenSigner(bool is_rsa)
      : key_(is_rsa ? EVP_RSA_gen(2048) : EVP_EC_gen("P-256")), is_rsa_(is_rsa) {}
  ~TokenSigner() { EVP_PKEY_free(key_); }
  TokenSigner(const TokenSigner&) = delete;
  TokenSigner& operator=(const TokenSigner&) = delete;

  std::string jwk(std::string_view id) const {
    if (is_rsa_)
      return fmt::format(R"({{"kty":"RSA","kid":"{}","n":"{}","e":"{}"}})", id,
                         part(OSSL_PKEY_PARAM_RSA_N), part(OSSL_PKEY_PARAM_RSA_E));
    return fmt::format(R"({{"kty":"EC","crv":"P-256","kid":"{}","x":"{}","y":"{}"}})", id,
                       part(OSSL_PKEY_PARAM_EC_PUB_X), part(OSSL_PKEY_PARAM_EC_PUB_Y));
  }
  std::string sign(std::string_view header, std::string_view claims, bool pss = false) const {
    const auto text = fmt::format("{}.{}", base64_url(header), base64_url(claims));
    return fmt::format("{}.{}", text, base64_url(signature(text, pss)));
  }

 private:
  std::string part(const char* name) const {
    BIGNUM* number = nullptr;
    REQUIRE(EVP_PKEY_get_bn_param(key_, name, &number) == 1);
    const int size = is_rsa_ ? BN_num_bytes(number) : 32;
    const auto bytes = padded(number, size);
    BN_free(number);
    return base64_url(bytes);
  }
  static std::string padded(const BIGNUM* number, int size) {
    Buffer bytes(static_cast<std::size_t>(size));
    BN_bn2binpad(number, bytes.data(), size);
    return std::string(as_text(bytes));
  }
  std::string signature(std::string_view text, bool pss) const {
    const std::unique_ptr<EVP_MD_CTX, decltype(&EVP_MD_CTX_free)> context(EVP_MD_CTX_new(),
                                                                          EVP_MD_CTX_free);
    EVP_PKEY_CTX* of_key = nullptr;
    REQUIRE(EVP_DigestSignInit(context.get(), &of_key, EVP_sha256(), nullptr, key_) == 1);
    if (pss) {
      EVP_PKEY_CTX_set_rsa_padding(of_key, RSA_PKCS1_PSS_PADDING);
      EVP_PKEY_CTX_set_rsa_pss_saltlen(of_key, RSA_PSS_SALTLEN_DIGEST);
    }
    Buffer out(1024);
    std::size_t size = out.size();
    const auto bytes = as_bytes(text);
    REQUIRE(EVP_DigestSign(context.get(), out.data(), &size, bytes.data(), bytes.size()) == 1);
    out.resize(size);
    if (is_rsa_) return std::string(as_text(out));
    const unsigned char* at = out.data();
    ECDSA_SIG* both = d2i_ECDSA_SIG(nullptr, &at, static_cast<long>(size));
    auto raw = padded(ECDSA_SIG_get0_r(both), 32) + padded(ECDSA_SIG_get0_s(both), 32);
    ECDSA_SIG_free(both);
    return raw;
  }

  EVP_PKEY* const key_;
  const bool is_rsa_;
};

std::string key_set(std::initializer_list<std::string> keys) {
  std::string text;
  for (const auto& each : keys) text += (text.empty() ? "" : ",") + each;
  return fmt::format(R"({{"keys":[{}]}})", text);
}

constexpr WallTime token_now{std::chrono::seconds{1'800'000'000}};
constexpr std::string_view ec_header = R"({"alg":"ES256","kid":"a"})";

struct TokenWorld {
  TokenSigner signer{false};
  std::shared_ptr<const JsonWebKeys> keys = *JsonWebKeys::parse(key_set({signer.jwk("a")}));
  TokenTerms terms;

  // The user, or what is wrong.
  std::string check(const std::string& token) const {
    const auto user = check_token(token, *keys, terms, token_now);
    return user ? user->name : user.error().message;
  }
  std::string check_claims(std::string_view claims) const {
    return check(signer.sign(ec_header, claims));
  }
};

TEST_SUITE("bearer token") {
  constexpr std::string_view good_claims =
      R"({"sub":"alice","iat":1799999990,"exp":1800000060,"iss":"https://id.example","aud":["tarry","other"]})";

  TEST_CASE("a token that is signed by a known key gives its user and its expiry") {
    TokenSigner rsa(true), ec(false);
    const auto keys = JsonWebKeys::parse(key_set({rsa.jwk("r"), ec.jwk("e")}));
    REQUIRE(keys.has_value());
    const auto check = [&](const std::string& token) {
      const auto user = check_token(token, **keys, {}, token_now);
      if (!user) return user.error().message;
      CHECK(user->expires == token_now + 60s);
      return user->name;
    };
    CHECK(check(rsa.sign(R"({"alg":"RS256","kid":"r"})", good_claims)) == "alice");
    CHECK(check(rsa.sign(R"({"alg":"RS256"})", good_claims)) == "alice");
    CHECK(check(rsa.sign(R"({"alg":"PS256","kid":"r"})", good_claims, true)) == "alice");
    CHECK(check(ec.sign(R"({"alg":"ES256","kid":"e"})", good_claims)) == "alice");
    // A key is for its own kind of signature, and a padding for its own name.
    CHECK(check(ec.sign(R"({"alg":"ES256","kid":"r"})", good_claims)).contains("no key 'r'"));
    CHECK(check(rsa.sign(R"({"alg":"RS256","kid":"r"})", good_claims, true)).contains("signature"));
    CHECK(check(rsa.sign(R"({"alg":"ES256","kid":"e"})", good_claims)).contains("signature"));
  }

  TEST_CASE("a token without a signature, or with another's, is refused") {
    const TokenWorld world;
    const TokenSigner other(false);
    CHECK(world.check_claims(good_claims) == "alice");
    CHECK(world.check(other.sign(ec_header, good_claims)).contains("signature is wrong"));
    const auto good = world.signer.sign(ec_header, good_claims);
    const auto unsigned_part = good.substr(0, good.rfind('.') + 1);
    CHECK(world.check(unsigned_part).contains("signature is wrong"));
    CHECK(
        world.check(fmt::format("{}.{}.", base64_url(R"({"alg":"none"})"), base64_url(good_claims)))
            .contains("none is not accepted"));
    CHECK(world.check(world.signer.sign(R"({"alg":"HS256","kid":"a"})", good_claims))
              .contains("HS256 is not accepted"));
    CHECK(world.check(world.signer.sign(R"({"alg":"ES256","kid":"b"})", good_claims))
              .contains("no key 'b'"));
    CHECK(world.check(world.signer.sign(R"({"alg":"ES256","kid":"a","crit":["x"]})", good_claims))
              .contains("crit"));
    // Every byte of it counts.
    for (std::size_t at = 0; at + 1 < good.size(); at += 7) {
      auto changed = good;
      changed[at] = changed[at] == 'A' ? 'B' : 'A';
      CHECK(world.check(changed) != "alice");
    }
    for (std::size_t size = 0; size < good.size(); size += 5)
      CHECK(world.check(good.substr(0, size)) != "alice");
  }

  TEST_CASE(
      "a token is valid from when it was issued until it expires, give or take the clock skew") {
    const TokenWorld world;
    const auto at = [&](std::int64_t issued, std::int64_t expires, std::string_view more = "") {
      return world.check_claims(fmt::format(R"({{"sub":"a","iat":{},"exp":{}{}}})",
                                            1'800'000'000 + issued, 1'800'000'000 + expires, more));
    };
    CHECK(at(-10, 10) == "a");
    CHECK(at(-100, -29) == "a");
    CHECK(at(-100, -30).contains("expired"));
    CHECK(at(30, 100) == "a");
    CHECK(at(31, 100).contains("iat"));
    CHECK(at(0, 10, R"(,"nbf":1800000030)") == "a");
    CHECK(at(0, 10, R"(,"nbf":1800000031)").contains("nbf"));
    CHECK(world.check_claims(R"({"sub":"a","iat":1800000000})").contains("no exp"));
    CHECK(world.check_claims(R"({"sub":"a","exp":1800000010})").contains("no iat"));
    for (const auto* wrong :
         {"\"1800000010\"", "1e300", "-1", "null", "[]", "99999999999999999999"})
      CHECK(world.check_claims(fmt::format(R"({{"sub":"a","iat":1800000000,"exp":{}}})", wrong))
                .contains("exp is not a time"));
  }

  TEST_CASE("a token for another audience, of another issuer or without a user is refused") {
    TokenWorld world;
    world.terms.audiences = {"x", "tarry"};
    world.terms.issuer = "https://id.example";
    CHECK(world.check_claims(good_claims) == "alice");
    constexpr std::string_view times = R"("iat":1800000000,"exp":1800000060)";
    const auto with = [&](std::string_view more) {
      return world.check_claims(fmt::format("{{{},{}}}", times, more));
    };
    CHECK(with(R"("sub":"a","iss":"https://id.example","aud":"tarry")") == "a");
    CHECK(with(R"("sub":"a","iss":"https://id.example","aud":"other")").contains("audience"));
    CHECK(with(R"("sub":"a","iss":"https://id.example","aud":[["tarry"],1])").contains("audience"));
    CHECK(with(R"("sub":"a","iss":"https://id.example")").contains("audience"));
    CHECK(with(R"("sub":"a","iss":"https://evil.example","aud":"tarry")").contains("issuer"));
    world.terms = {};
    CHECK(with(R"("sub":"")").contains("no valid user name in the claim sub"));
    CHECK(with(R"("sub":7)").contains("no valid user name in the claim sub"));
    CHECK(with(R"("name":"b")").contains("no valid user name in the claim sub"));
    CHECK(with(R"("sub":"a","scope":7)").contains("scope"));
    world.terms.user_claim = "name";
    CHECK(with(R"("sub":"a","name":"b","scope":["x","y"])") == "b");
  }

  TEST_CASE("input that is too long, too deep or no token is refused at no cost") {
    const TokenWorld world;
    CHECK(world.check(std::string(max_token_bytes + 1, 'a')).contains("too long"));
    CHECK(world.check_claims(fmt::format(R"({{"sub":"{}"}})", std::string(20'000, 'a')))
              .contains("too long"));
    const auto deep =
        fmt::format(R"({{"sub":{}1{}}})", std::string(1000, '['), std::string(1000, ']'));
    CHECK(world.check_claims(deep).contains("cannot be read"));
    CHECK(world.check(world.signer.sign(deep, good_claims)).contains("cannot be read"));
    // Each field takes a step for each one before it, and nobody is known yet.
    std::string wide = "{";
    for (int i = 0; i < 1000; ++i) wide += fmt::format(R"("{}" :0,)", i);
    wide += R"("sub":"a"})";
    CHECK(world.check(world.signer.sign(wide, good_claims)).contains("header cannot be read"));
    CHECK(world.check_claims(wide).contains("claims cannot be read"));
    // A colon within a text begins no value.
    CHECK(world.check_claims(
              fmt::format(R"({{"sub":"alice","iat":1799999990,"exp":1800000060,"of":"\"{}"}})",
                          std::string(1000, ':'))) == "alice");
    for (const auto* wrong :
         {"", ".", "..", "a.b", "a.b.c", "a.b.c.d", "e30.e30.", "bnVsbA.bnVsbA.AA"})
      CHECK(world.check(wrong).starts_with("the token"));
    CHECK(world.check(world.signer.sign(ec_header, "[]")).contains("is not a JSON object"));
    CHECK(world.check(world.signer.sign(ec_header, "{\"sub\":\"\xff\"}"))
              .contains("is not a JSON object"));
  }

  TEST_CASE("keys that cannot be used are left out, and a file without any is refused") {
    const TokenSigner ec(false);
    for (const auto* wrong :
         {"", "{}", "[]", R"({"keys":[]})", R"({"keys":[{"kty":"oct","k":"AAAA"}]})",
          R"({"keys":[{"kty":"RSA","n":"AQAB","e":"AQAB"}]})",
          R"({"keys":[{"kty":"EC","crv":"P-256","x":"AAAA","y":"AAAA"}]})"})
      CHECK_FALSE(JsonWebKeys::parse(wrong).has_value());
    // A point that is not on the curve.
    CHECK_FALSE(JsonWebKeys::parse(
                    key_set({fmt::format(R"({{"kty":"EC","crv":"P-256","x":"{0}","y":"{0}"}})",
                                         base64_url(std::string(32, 'a')))}))
                    .has_value());
    CHECK_FALSE(JsonWebKeys::parse(std::string(max_key_file_bytes + 1, ' ')).has_value());
    CHECK_FALSE(JsonWebKeys::parse(std::string(200'000, '[')).has_value());
    auto for_encryption = ec.jwk("a");
    for_encryption.insert(1, R"("use":"enc",)");
    CHECK_FALSE(JsonWebKeys::parse(key_set({for_encryption})).has_value());
    const auto keys = JsonWebKeys::parse(key_set({"7", for_encryption, ec.jwk("b"), ec.jwk("c")}));
    REQUIRE(keys.has_value());
    const auto unnamed = ec.sign(R"({"alg":"ES256"})", good_claims);
    CHECK(check_token(unnamed, **keys, {}, token_now).error().message.contains("several keys"));
  }

  TEST_CASE("a client's message holds one token, and may name the user it acts as") {
    const auto good = parse_bearer_message("n,a=alice,\1host=h\1auth=Bearer x.y.z\1\1");
    REQUIRE(good.has_value());
    CHECK(good->acts_as == "alice");
    CHECK(good->token == "x.y.z");
    CHECK(parse_bearer_message("y,,\1auth=bearer t\1\1").has_value());
    for (const auto* wrong :
         {"", "\1", "n,,", "n,,\1", "n,,\1\1", "n,,\1auth=Bearer t\1", "n,,\1auth=Bearer \1\1",
          "n,,\1auth=Basic t\1\1", "p=x,,\1auth=Bearer t\1\1", "n,b=a,\1auth=Bearer t\1\1",
          "n,,\1auth=Bearer t\1auth=Bearer u\1\1", "n,,auth=Bearer t\1\1",
          "n,,\1auth=Bearer t\1\1x"})
      CHECK_FALSE(parse_bearer_message(wrong).has_value());
  }

  TEST_CASE("the file of keys is read again when it has changed, and a bad one changes nothing") {
    const TokenSigner first(false), second(false);
    const auto path = fmt::format("/tmp/tarry-keys-test-{}", ::getpid());
    const auto write = [&](const std::string& text) { std::ofstream(path) << text; };
    TokenLogins logins(path, {});
    CHECK_FALSE(logins.read(true).has_value());
    write(key_set({first.jwk("a")}));
    REQUIRE(logins.read(true).has_value());
    const auto keys = logins.keys();
    CHECK(logins.read(false).has_value());
    CHECK(logins.keys() == keys);
    write("nothing");
    CHECK_FALSE(logins.read(false).has_value());
    CHECK(logins.read(false).has_value());  // It has been complained about.
    CHECK(logins.keys() == keys);
    write(key_set({first.jwk("a"), second.jwk("b")}));
    CHECK(logins.read(false).has_value());
    CHECK(logins.keys() != keys);
    std::remove(path.c_str());
    CHECK_FALSE(logins.read(false).has_value());
    CHECK(logins.keys() != nullptr);
    const MonoTime now{1h};
    CHECK(logins.is_due(now));
    CHECK_FALSE(logins.is_due(now + 999ms));
    CHECK(logins.is_due(now + 1s));
  }
}

}  // namespace
}  // namespace tarry::broker::test
