#include "relay/peer_key.h"

#include <array>
#include <charconv>
#include <cstdint>
#include <optional>
#include <utility>
#include <vector>

#include <fmt/format.h>
#include <openssl/evp.h>

#include "base/bytes.h"

namespace tarry::relay {
namespace {

constexpr std::string_view scheme = "Tarry-Peer ";
constexpr std::size_t key_bytes = 32, signature_bytes = 64, nonce_digits = 32;

using Digest = std::unique_ptr<EVP_MD_CTX, decltype(&EVP_MD_CTX_free)>;

std::string hexadecimal(const std::uint8_t* bytes, std::size_t size) {
  std::string text;
  for (std::size_t i = 0; i < size; ++i) text += fmt::format("{:02x}", bytes[i]);
  return text;
}

template <std::size_t size>
std::optional<std::array<std::uint8_t, size>> from_hexadecimal(std::string_view text) {
  std::array<std::uint8_t, size> bytes{};
  // One spelling alone, so that a signature cannot be repeated in another form.
  if (text.size() != 2 * size) return std::nullopt;
  for (std::size_t i = 0; i < size; ++i) {
    const char* at = text.data() + 2 * i;
    if (std::from_chars(at, at + 2, bytes[i], 16).ptr != at + 2) return std::nullopt;
  }
  return bytes;
}

// No part but the last can hold a line feed.
std::string signed_text(const PeerRequest& request, std::string_view time, std::string_view nonce) {
  return fmt::format("tarry relay 2\n{}\n{}\n{}\n{}\n{}\n{}\n{}", request.method, request.target,
                     request.address, request.key, time, nonce, request.body);
}

const std::uint8_t* bytes_in(std::string_view text) {
  return as_bytes(text).data();
}

}  // namespace

Result<PeerKey> PeerKey::make() {
  PeerKey key;
  // A new one at each start, kept nowhere: a stolen disk signs nothing.
  key.key_ = EVP_PKEY_Q_keygen(nullptr, nullptr, "ED25519");
  std::array<std::uint8_t, key_bytes> bytes{};
  std::size_t size = bytes.size();
  if (key.key_ == nullptr || EVP_PKEY_get_raw_public_key(key.key_, bytes.data(), &size) != 1)
    return fail(Errc::io, "the key for requests between members could not be generated");
  key.public_ = hexadecimal(bytes.data(), size);
  return key;
}

PeerKey::PeerKey(PeerKey&& other) noexcept
    : key_(std::exchange(other.key_, nullptr)), public_(std::move(other.public_)) {}

PeerKey::~PeerKey() {
  EVP_PKEY_free(key_);
}

std::string PeerKey::sign(const PeerRequest& request, WallTime now, std::string_view nonce) const {
  const std::string time = std::to_string(to_ms(now));
  const std::string text = signed_text(request, time, nonce);
  std::array<std::uint8_t, signature_bytes> signature{};
  std::size_t size = signature.size();
  const Digest digest(EVP_MD_CTX_new(), EVP_MD_CTX_free);
  if (!digest || EVP_DigestSignInit(digest.get(), nullptr, nullptr, nullptr, key_) != 1 ||
      EVP_DigestSign(digest.get(), signature.data(), &size, bytes_in(text), text.size()) != 1)
    return {};
  return fmt::format("{}{} {} {} {}", scheme, public_, time, nonce,
                     hexadecimal(signature.data(), size));
}

bool PeerChecks::is_signature(std::string_view authorization) {
  return authorization.starts_with(scheme);
}

std::optional<Signer> PeerChecks::signer(std::string_view authorization, const PeerRequest& request,
                                         WallTime now) const {
  if (!is_signature(authorization)) return {};
  authorization.remove_prefix(scheme.size());
  std::array<std::string_view, 4> words;  // Key, time, nonce, signature.
  for (auto& word : words) {
    word = authorization.substr(0, authorization.find(' '));
    authorization.remove_prefix(std::min(authorization.size(), word.size() + 1));
  }
  const auto& [key, time, nonce, signature] = words;
  std::int64_t sent = 0;
  const auto read = std::from_chars(time.data(), time.data() + time.size(), sent);
  if (read.ec != std::errc{} || read.ptr != time.data() + time.size()) return {};
  // Clocks of members may differ to either side.
  if (sent < to_ms(now - max_age) || sent > to_ms(now + max_age)) return {};
  // Looked up before the signature is checked, which costs a hundred times as much.
  if (nonce.size() != nonce_digits || nonces_.contains(nonce)) return {};
  const auto key_read = from_hexadecimal<key_bytes>(key);
  const auto signature_read = from_hexadecimal<signature_bytes>(signature);
  if (!key_read || !signature_read) return {};
  const std::unique_ptr<EVP_PKEY, decltype(&EVP_PKEY_free)> public_key(
      EVP_PKEY_new_raw_public_key(EVP_PKEY_ED25519, nullptr, key_read->data(), key_bytes),
      EVP_PKEY_free);
  const std::string text = signed_text(request, time, nonce);
  const Digest digest(EVP_MD_CTX_new(), EVP_MD_CTX_free);
  if (!public_key || !digest ||
      EVP_DigestVerifyInit(digest.get(), nullptr, nullptr, nullptr, public_key.get()) != 1 ||
      EVP_DigestVerify(digest.get(), signature_read->data(), signature_bytes, bytes_in(text),
                       text.size()) != 1)
    return {};
  return Signer{std::string(key), std::string(nonce)};
}

bool PeerChecks::take(const Signer& signer, WallTime now) {
  // One that is too old is refused for its time, twice max_age after it was signed at the latest.
  while (!by_age_.empty() &&
         (by_age_.front().first + 2 * max_age < now || by_age_.size() >= max_nonces)) {
    nonces_.erase(by_age_.front().second);
    by_age_.pop_front();
  }
  // Inserted behind the check of the signature, so that strangers cannot fill the table.
  if (!nonces_.insert(signer.nonce).second) return false;
  by_age_.emplace_back(now, signer.nonce);
  return true;
}

}  // namespace tarry::relay
