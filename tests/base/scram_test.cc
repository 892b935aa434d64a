#include "base/scram.h"
#include "base/base64.h"

#include <doctest/doctest.h>

namespace tarry {
namespace {

TEST_SUITE("scram") {
  // The exchange that RFC 7677 shows.
  TEST_CASE("the proof and the signature of RFC 7677's example come out") {
    const auto salt = from_base64("W22ZaJ0SNY7soEsUEjb6gQ==");
    REQUIRE(salt);
    const auto salted = scram_salted_password(ScramMechanism::sha256, "pencil", *salt, 4096);
    const std::string message =
        "n=user,r=rOprNGfwEbeRWgbNEkqO,r=rOprNGfwEbeRWgbNEkqO%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0,"
        "s=W22ZaJ0SNY7soEsUEjb6gQ==,i=4096,c=biws,r=rOprNGfwEbeRWgbNEkqO%hvYDpWUa2RaTCAfuxFIlj)"
        "hNlF$k0";
    const auto proof = scram_proof(ScramMechanism::sha256, salted, message);
    CHECK(base64(proof) == "dHzbZapWIk4jUhN+Ute9ytag9zjfMHgsqmmiz7AndVQ=");
    const auto known = scram_credential(ScramMechanism::sha256, salted, *salt, 4096);
    CHECK(base64(scram_hmac(ScramMechanism::sha256, known.server_key, message)) ==
          "6rriTRBi23WpRR/wtup+mMhUZUn/dB5nLTJRsjl95G4=");
    CHECK(scram_proves(ScramMechanism::sha256, known, message, proof));
    CHECK_FALSE(scram_proves(ScramMechanism::sha256, known, message + "x", proof));
    CHECK_FALSE(scram_proves(ScramMechanism::sha256, known, message, proof.substr(1)));
  }
}

}  // namespace
}  // namespace tarry
