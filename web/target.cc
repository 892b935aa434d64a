#include "web/target.h"

#include <algorithm>
#include <utility>

#include <fmt/core.h>

#include "base/log.h"
#include "base/utf8.h"

namespace tarry::web {
namespace {

int hex_digit(char c) {
  if (c >= '0' && c <= '9') return c - '0';
  if (c >= 'a' && c <= 'f') return c - 'a' + 10;
  if (c >= 'A' && c <= 'F') return c - 'A' + 10;
  return -1;
}

Result<std::string> decode(std::string_view text, bool plus_is_space) {
  std::string out;
  out.reserve(text.size());
  for (std::size_t i = 0; i < text.size(); ++i) {
    char c = text[i];
    if (c == '%') {
      const int high = i + 1 < text.size() ? hex_digit(text[i + 1]) : -1;
      const int low = i + 2 < text.size() ? hex_digit(text[i + 2]) : -1;
      if (high < 0 || low < 0) {
        return fail(Errc::invalid, fmt::format("'{}' is not an escape: two hexadecimal digits "
                                               "follow a %, and a % itself is written %25",
                                               printable(text.substr(i, 3))));
      }
      c = static_cast<char>(high * 16 + low);
      i += 2;
    } else if (c == '+' && plus_is_space) {
      c = ' ';
    }
    out += c;
  }
  // JSON and log lines show names, and neither may hold other bytes.
  if (!is_utf8(out)) {
    return fail(Errc::invalid, fmt::format("'{}' is not UTF-8", printable(text)));
  }
  return out;
}

}  // namespace

Result<Target> parse_target(std::string_view text) {
  const auto refuse = [&](std::string_view why) {
    return fail(Errc::invalid, fmt::format("the request's target '{}' {}", printable(text), why));
  };
  if (!text.starts_with('/')) return refuse("does not begin with /");
  for (const char c : text) {
    // A proxy may split a target at such a character, and see another request than we do.
    if (static_cast<unsigned char>(c) <= 0x20 || c == 0x7f || c == '#')
      return refuse("contains a character that has to be escaped");
  }
  Target target;
  const auto question = text.find('?');
  std::string_view path = text.substr(1, question == text.npos ? text.npos : question - 1);
  for (;;) {
    const auto end = path.find('/');
    // In a path a + stands for itself.
    auto part = decode(path.substr(0, end), false);
    if (!part) return std::unexpected(part.error());
    target.path.push_back(std::move(*part));
    if (end == path.npos) break;
    path.remove_prefix(end + 1);
  }
  if (question == text.npos) return target;

  std::string_view query = text.substr(question + 1);
  while (!query.empty()) {
    const std::string_view pair = query.substr(0, query.find('&'));
    query.remove_prefix(std::min(query.size(), pair.size() + 1));
    if (pair.empty()) continue;
    const auto equals = pair.find('=');
    auto name = decode(pair.substr(0, equals), true);
    if (!name) return std::unexpected(name.error());
    auto value = decode(equals == pair.npos ? std::string_view{} : pair.substr(equals + 1), true);
    if (!value) return std::unexpected(value.error());
    // A proxy may take one of two values for the valid one, and we the other.
    if (!target.query.emplace(*name, std::move(*value)).second) {
      return fail(Errc::invalid,
                  fmt::format("the parameter '{}' is given twice", printable(*name)));
    }
  }
  return target;
}

}  // namespace tarry::web
