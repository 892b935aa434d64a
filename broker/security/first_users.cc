#include "broker/security/first_users.h"

#include <charconv>
#include <optional>
#include <vector>

#include <fmt/core.h>

#include "base/base64.h"
#include "base/scram.h"
#include "broker/security/security_image.h"

namespace tarry::broker {
namespace {

std::vector<std::string_view> words_of(std::string_view line) {
  std::vector<std::string_view> out;
  while (!line.empty()) {
    const auto blank = line.find(' ');
    out.push_back(line.substr(0, blank));
    line.remove_prefix(blank == std::string_view::npos ? line.size() : blank + 1);
  }
  return out;
}

}  // namespace

Result<storage::Configs> parse_first_users(std::string_view text) {
  storage::Configs rows;
  for (int number = 1; !text.empty(); ++number) {
    const auto end = text.find('\n');
    const auto words = words_of(text.substr(0, end));
    text.remove_prefix(end == std::string_view::npos ? text.size() : end + 1);
    const auto wrong = [&] {
      return fail(Errc::corrupt, fmt::format("line {} of users.add is malformed", number));
    };
    if (words.size() != 6) return wrong();
    const auto mechanism = scram_mechanism_named(words[0]);
    const auto name = from_base64(words[1]);
    const auto salt = from_base64(words[3]);
    const auto stored_key = from_base64(words[4]);
    const auto server_key = from_base64(words[5]);
    std::int32_t iterations = 0;
    std::from_chars(words[2].data(), words[2].data() + words[2].size(), iterations);
    if (!mechanism || !name || name->empty() || !salt || !stored_key || !server_key ||
        // A line that was cut or edited must not make a login that is easy to guess.
        iterations < min_scram_iterations)
      return wrong();
    rows.insert_or_assign(SecurityImage::user_key(*name, *mechanism),
                          SecurityImage::user_value({.salt = *salt,
                                                     .stored_key = *stored_key,
                                                     .server_key = *server_key,
                                                     .iterations = iterations}));
  }
  return rows;
}

}  // namespace tarry::broker
