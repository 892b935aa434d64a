#pragma once

// Token proof: the admin proves that it knows its token before a client sends the token to it.
//
//   client:  GET /proof?nonce=N           N: 64 hexadecimal digits, random, for once
//   admin:   {"proof": token_proof(token, N, A)}      A: its end, such as "127.0.0.1:8080"
//   client:  compares with token_proof(token, N, the address that it is connected to),
//            and sends the token on the same connection,
//            or not at all
//
// A program that merely took the port cannot answer.  It cannot relay the question either: the real
// admin answers for the address at which it is asked, which is not the one that the client is
// connected to.  An answer fits one question only, because N is new each time and the signed text
// names this purpose.
//
// The proof does not protect against
//   - a relay that reaches the real admin at the very same address and port that the client is
//     connected to: on another machine, or in another network namespace, where 127.0.0.1 is another
//     host (this is also what lets `ssh -L 8080:127.0.0.1:8080` work);
//   - anyone who can read the connection: the token follows in plain text;
//   - a token that can be guessed: anybody may collect proofs and try.  Ours has 256 random bits.

#include <string>
#include <string_view>

namespace tarry {

// HMAC-SHA256 under the token, as 64 hexadecimal digits.
std::string token_proof(std::string_view token, std::string_view nonce, std::string_view address);

// Whether `text` is a nonce: 64 hexadecimal digits, the letters in lower case.
bool is_proof_nonce(std::string_view text);

// Compares in a time that depends only on the two lengths.
bool same_secret(std::string_view a, std::string_view b);

}  // namespace tarry
