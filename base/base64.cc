#include "base/base64.h"

#include <openssl/evp.h>

namespace tarry {
namespace {

const unsigned char* octets_of(std::string_view bytes) {
  return reinterpret_cast<const unsigned char*>(bytes.data());
}

}  // namespace

std::string base64(std::string_view bytes) {
  std::string out((bytes.size() + 2) / 3 * 4 + 1, '\0');  // One for the zero that is written.
  const int size = ::EVP_EncodeBlock(reinterpret_cast<unsigned char*>(out.data()), octets_of(bytes),
                                     static_cast<int>(bytes.size()));
  out.resize(static_cast<std::size_t>(size));
  return out;
}

std::optional<std::string> from_base64(std::string_view text) {
  if (text.size() % 4 != 0) return std::nullopt;
  const auto begin_of_padding = text.find('=');
  const std::size_t padding =
      begin_of_padding == std::string_view::npos ? 0 : text.size() - begin_of_padding;
  // EVP_DecodeBlock would leave out blanks at the ends.
  for (const char c : text.substr(0, text.size() - padding)) {
    const bool is_digit = (c >= 'A' && c <= 'Z') || (c >= 'a' && c <= 'z') ||
                          (c >= '0' && c <= '9') || c == '+' || c == '/';
    if (!is_digit) return std::nullopt;
  }
  // The loop has left out what follows the first '=': that is one more '=' at most.
  if (padding > 2 || (padding == 2 && text.back() != '=')) return std::nullopt;
  std::string out(text.size() / 4 * 3 + 1, '\0');
  const int size = ::EVP_DecodeBlock(reinterpret_cast<unsigned char*>(out.data()), octets_of(text),
                                     static_cast<int>(text.size()));
  if (size < 0) return std::nullopt;
  // EVP_DecodeBlock() counts the padding as bytes that are 0.
  out.resize(static_cast<std::size_t>(size) - padding);
  return out;
}

}  // namespace tarry
