#pragma once

// Scram: the arithmetic of SCRAM (RFC 5802), for the side that checks and the side that proves.
//
//   password --PBKDF2(salt, iterations)--> salted password --> client key --> stored key
//                                                         '--> server key
//
// The broker keeps stored key and server key: with them it checks a proof, and nobody who reads
// them can make one.  Only clients and `tarry user` do the slow part.

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace tarry {

enum class ScramMechanism : std::int8_t { sha256 = 1, sha512 = 2 };  // Kafka's numbers.

std::string_view scram_name(ScramMechanism mechanism);                       // "SCRAM-SHA-256"
std::optional<ScramMechanism> scram_mechanism_named(std::string_view name);  // In any case.

struct ScramCredential {
  std::string salt;
  std::string stored_key;
  std::string server_key;
  std::int32_t iterations = 0;

  bool operator==(const ScramCredential&) const = default;
};

// Kafka's bounds: fewer are too easy to try out, more let a user slow down its own clients.
inline constexpr std::int32_t min_scram_iterations = 4096;
inline constexpr std::int32_t max_scram_iterations = 16'384;

std::string scram_hash(ScramMechanism mechanism, std::string_view data);
std::string scram_hmac(ScramMechanism mechanism, std::string_view key, std::string_view data);
// Takes milliseconds.
std::string scram_salted_password(ScramMechanism mechanism, std::string_view password,
                                  std::string_view salt, std::int32_t iterations);
ScramCredential scram_credential(ScramMechanism mechanism, std::string_view salted_password,
                                 std::string_view salt, std::int32_t iterations);
// The proof that a client knows the password, for one exchange of messages.
std::string scram_proof(ScramMechanism mechanism, std::string_view salted_password,
                        std::string_view auth_message);
bool scram_proves(ScramMechanism mechanism, const ScramCredential& credential,
                  std::string_view auth_message, std::string_view proof);

// Compares in a time that depends on neither text.
bool same_password(std::string_view a, std::string_view b);

}  // namespace tarry
