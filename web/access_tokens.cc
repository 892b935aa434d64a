#include "web/access_tokens.h"

#include <algorithm>
#include <array>
#include <utility>

#include <fmt/core.h>

#include "base/log.h"

namespace tarry::web {
namespace {

constexpr std::size_t max_name_bytes = 64;
constexpr std::size_t max_file_bytes = 64 * 1024;

constexpr std::array role_names{std::string_view("read"), std::string_view("operate"),
                                std::string_view("all")};

// The first word of `rest`, which then begins behind it.
std::string_view next_word(std::string_view& rest) {
  rest.remove_prefix(std::min(rest.find_first_not_of(" \t"), rest.size()));
  const auto word = rest.substr(0, std::min(rest.find_first_of(" \t"), rest.size()));
  rest.remove_prefix(word.size());
  return word;
}

bool is_name(std::string_view text) {
  return !text.empty() && text.size() <= max_name_bytes &&
         std::ranges::all_of(text, [](char c) { return c > 0x20 && c < 0x7f; });
}

}  // namespace

std::string_view name(Role role) {
  return role_names[static_cast<std::size_t>(role)];
}

Result<std::vector<AccessTokens::Holder>> AccessTokens::parse(std::string_view text) {
  std::vector<Holder> holders;
  for (std::size_t number = 1; !text.empty(); ++number) {
    auto line = text.substr(0, std::min(text.find('\n'), text.size()));
    text.remove_prefix(std::min(text.size(), line.size() + 1));
    // The file may have been written on Windows.
    if (line.ends_with('\r')) line.remove_suffix(1);
    const auto wrong = [&](std::string_view what) {
      return fail(Errc::invalid, fmt::format("line {}: {}", number, what));
    };
    const auto who = next_word(line);
    if (who.empty() || who.starts_with('#')) continue;
    const auto role = std::ranges::find(role_names, next_word(line));
    const auto token = next_word(line);
    // The line itself is not quoted: it holds a secret.
    if (!is_name(who) || role == role_names.end() || !next_word(line).empty())
      return wrong("expected NAME ROLE TOKEN, with the role read, operate or all");
    auto checked = Token::from_text(token);
    if (!checked) return wrong(checked.error().message);
    for (const auto& other : holders) {
      if (other.name == who) return wrong(fmt::format("{} has a line already", printable(who)));
      // With one token for two holders an audit line could not say who it was.
      if (other.token.matches(token))
        return wrong(fmt::format("{} has the same token", printable(other.name)));
    }
    if (holders.size() == max_holders)
      return wrong(fmt::format("there may be {} of them at most", max_holders));
    holders.push_back({std::string(who), static_cast<Role>(role - role_names.begin()),
                       std::move(*checked), true});
  }
  return holders;
}

Result<AccessTokens> AccessTokens::open(const std::string& data, Random& random) {
  AccessTokens tokens;
  for (const auto& [file, role] :
       {std::pair{"admin.token", Role::all}, {"admin.read.token", Role::read}}) {
    auto token = Token::open(fmt::format("{}/{}", data, file), random);
    if (!token) return std::unexpected(token.error());
    tokens.holders_.push_back({file, role, std::move(*token)});
  }
  const std::string path = data + "/admin.tokens";
  const auto text = read_secret(path, max_file_bytes);
  if (!text && text.error().code == Errc::not_found) return tokens;
  if (!text) return std::unexpected(text.error());
  auto listed = parse(*text);
  if (!listed) return fail(Errc::invalid, fmt::format("{}: {}", path, listed.error().message));
  for (auto& holder : *listed) tokens.holders_.push_back(std::move(holder));
  return tokens;
}

const AccessTokens::Holder* AccessTokens::with_token(std::string_view text) const {
  const Holder* found = nullptr;
  // The file's own token wins over a line that repeats it.
  for (const auto& holder : holders_)
    // All are compared: the time of an answer must not tell which of them it is.
    if (holder.token.matches(text) && found == nullptr) found = &holder;
  return found;
}

const AccessTokens::Holder* AccessTokens::authorized(std::string_view header) const {
  const auto token = bearer_token(header);
  return token ? with_token(*token) : nullptr;
}

}  // namespace tarry::web
