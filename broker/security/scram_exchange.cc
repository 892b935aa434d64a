#include "broker/security/scram_exchange.h"

#include <algorithm>
#include <cstddef>
#include <optional>
#include <utility>

#include <fmt/core.h>

#include "base/base64.h"
#include "base/bytes.h"

namespace tarry::broker {
namespace {

// Printable ASCII without the comma.
bool is_nonce(std::string_view text) {
  return !text.empty() &&
         std::ranges::all_of(text, [](char c) { return c > 0x20 && c < 0x7f && c != ','; });
}

// "=2C" is a comma, "=3D" an equals sign, and no other "=" may stand in a name.
std::optional<std::string> name_of(std::string_view text) {
  std::string out;
  while (!text.empty()) {
    if (text.starts_with("=2C") || text.starts_with("=3D")) {
      out += text[1] == '2' ? ',' : '=';
      text.remove_prefix(3);
      continue;
    }
    if (text[0] == '=' || text[0] == '\0') return std::nullopt;
    out += text[0];
    text.remove_prefix(1);
  }
  return out.empty() ? std::nullopt : std::optional(std::move(out));
}

// Up to the next comma, which goes too.
std::string_view take_part(std::string_view& text) {
  const auto comma = text.find(',');
  const auto part = text.substr(0, comma);
  text.remove_prefix(comma == std::string_view::npos ? text.size() : comma + 1);
  return part;
}

std::unexpected<Error> malformed(std::string_view what) {
  return fail(Errc::invalid, fmt::format("the client's {} SCRAM message is malformed", what));
}

// The salts of `tarry user add`.
constexpr std::size_t usual_salt_bytes = 24;

// Kafka's own tool makes salts of these.
constexpr std::string_view salt_letters = "0123456789abcdefghijklmnopqrstuvwxyz";

}  // namespace

bool is_text_salt(std::string_view salt) {
  return salt.find_first_not_of(salt_letters) == std::string_view::npos;
}

// The values that are computed here from a name are the same each time.  No client can ask for a
// name with a zero byte (name_of), so none can learn the values that are computed from one.
ScramCredential ScramExchange::unknown_user(const FindExample& find_example) const {
  const auto choice = scram_hmac(mechanism_, secret_, fmt::format("{}{}", user_, '\0'));
  const auto* const example = find_example(load_be<std::uint64_t>(as_bytes(choice).data()));
  const std::size_t size = example == nullptr ? usual_salt_bytes : example->salt.size();
  ScramCredential made;
  made.salt = scram_hmac(mechanism_, secret_, user_);
  for (int part = 1; made.salt.size() < size; ++part)
    made.salt += scram_hmac(mechanism_, secret_, fmt::format("{}{}{}", user_, '\0', part));
  made.salt.resize(size);
  if (example != nullptr && is_text_salt(example->salt)) {
    for (char& c : made.salt) c = salt_letters[static_cast<unsigned char>(c) % salt_letters.size()];
  }
  made.iterations = example == nullptr ? min_scram_iterations : example->iterations;
  made.stored_key = scram_hmac(mechanism_, secret_, "no key");
  return made;
}

Result<std::string> ScramExchange::first(std::string_view message, const FindUser& find,
                                         const FindExample& find_example) {
  std::string_view rest = message;
  const auto binding = take_part(rest);
  // "p=" asks for it; "y" says only that the client could.
  if (binding != "n" && binding != "y")
    return fail(Errc::invalid, "the client asks for channel binding, which is not supported");
  const auto acts_as = take_part(rest);
  gs2_header_ = message.substr(0, message.size() - rest.size());
  const auto bare = rest;
  const auto user_part = take_part(rest);
  const auto nonce_part = take_part(rest);
  if (!user_part.starts_with("n=") || !nonce_part.starts_with("r=") ||
      !is_nonce(nonce_part.substr(2)))
    return malformed("first");
  const auto user = name_of(user_part.substr(2));
  if (!user) return malformed("first");
  if (!acts_as.empty() && (!acts_as.starts_with("a=") || name_of(acts_as.substr(2)) != user))
    return fail(Errc::invalid, "the client asks to act as another user");
  user_ = *user;
  // Made in any case, so that an unknown user takes as long as a known one.
  credential_ = unknown_user(find_example);
  if (const auto* found = find(user_); found != nullptr) {
    known_ = true;
    credential_ = *found;
  }
  nonce_ = fmt::format("{}{}", nonce_part.substr(2), our_nonce_);
  auto answer =
      fmt::format("r={},s={},i={}", nonce_, base64(credential_.salt), credential_.iterations);
  auth_message_ = fmt::format("{},{}", bare, answer);
  return answer;
}

Result<std::string> ScramExchange::final(std::string_view message) {
  const auto at = message.rfind(",p=");
  if (at == std::string_view::npos) return malformed("last");
  const auto without_proof = message.substr(0, at);
  const auto proof = from_base64(message.substr(at + 3));
  std::string_view rest = without_proof;
  const auto binding = take_part(rest);
  const auto nonce = take_part(rest);
  if (!proof || !binding.starts_with("c=") || from_base64(binding.substr(2)) != gs2_header_)
    return malformed("last");
  // librdkafka before 2.6.1 puts its own nonce in front of the whole one; Kafka 3 lets it in, too.
  const auto repeated = nonce_.substr(0, nonce_.size() - our_nonce_.size()) + nonce_;
  if (!nonce.starts_with("r=") ||
      (!same_password(nonce.substr(2), nonce_) && !same_password(nonce.substr(2), repeated)))
    return fail(Errc::invalid, "the client's last SCRAM message has the nonce of another exchange");
  const auto auth_message = fmt::format("{},{}", auth_message_, without_proof);
  // Computed in any case, so that an unknown user takes as long as a known one.
  const bool proved = scram_proves(mechanism_, credential_, auth_message, *proof);
  if (!proved || !known_) return fail(Errc::invalid, "no such user, or a wrong password");
  return fmt::format("v={}", base64(scram_hmac(mechanism_, credential_.server_key, auth_message)));
}

}  // namespace tarry::broker
