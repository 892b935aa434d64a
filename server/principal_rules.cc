#include "server/principal_rules.h"

#include <cctype>
#include <cstddef>
#include <utility>

#include <fmt/core.h>

#include "base/list_text.h"
#include "base/log.h"

namespace tarry::server {
namespace {

// std::regex recurses once a character; a name that a certificate authority signs is far shorter.
constexpr std::size_t max_name_bytes = 2048;

constexpr std::string_view allowed_rules =
    "DEFAULT, or rules as in RULE:^CN=(.*?),.*$/$1/L with commas between them (L: to lower case, "
    "U: to upper case)";

// Takes what stands before the next '/' that no backslash precedes, and the slash.
std::optional<std::string> take_to_slash(std::string_view& text) {
  std::string taken;
  while (!text.empty()) {
    const char c = text.front();
    text.remove_prefix(1);
    if (c == '/') return taken;
    taken += c;
    if (c == '\\' && !text.empty()) {
      taken += text.front();
      text.remove_prefix(1);
    }
  }
  return std::nullopt;
}

}  // namespace

Result<PrincipalRules> PrincipalRules::parse(std::string_view value) {
  const auto refuse = [] { return fail(Errc::invalid, std::string(allowed_rules)); };
  PrincipalRules rules;
  auto rest = trimmed(value);
  if (rest.contains('\n')) return refuse();
  while (!rest.empty()) {
    Rule rule;
    if (rest.starts_with("DEFAULT")) {
      rest.remove_prefix(7);
    } else {
      if (!rest.starts_with("RULE:")) return refuse();
      rest.remove_prefix(5);
      auto pattern = take_to_slash(rest);
      auto replacement = pattern ? take_to_slash(rest) : std::nullopt;
      if (!replacement) return refuse();
      try {
        rule.pattern.emplace(*pattern);
      } catch (const std::regex_error&) {
        return fail(Errc::invalid, fmt::format("{}; {} is not a regular expression", allowed_rules,
                                               printable(*pattern)));
      }
      rule.replacement = std::move(*replacement);
      if (rest.starts_with('L') || rest.starts_with('U')) {
        rule.letters = rest.front();
        rest.remove_prefix(1);
      }
    }
    rules.rules_.push_back(std::move(rule));
    rest = trimmed(rest);
    if (rest.empty()) break;
    if (!rest.starts_with(',')) return refuse();
    rest = trimmed(rest.substr(1));
    if (rest.empty()) return refuse();
  }
  // No rule at all means DEFAULT.
  if (rules.rules_.empty()) rules.rules_.emplace_back();
  return rules;
}

Result<> check_principal_rules(std::string_view value) {
  const auto parsed = PrincipalRules::parse(value);
  if (!parsed) return std::unexpected(parsed.error());
  return {};
}

std::optional<std::string> PrincipalRules::apply(const std::string& name) const {
  if (name.size() > max_name_bytes) return std::nullopt;
  for (const auto& rule : rules_) {
    // This is DEFAULT.
    if (!rule.pattern) return name;
    if (!std::regex_match(name, *rule.pattern)) continue;
    std::string mapped = std::regex_replace(name, *rule.pattern, rule.replacement,
                                            std::regex_constants::format_first_only);
    for (char& c : mapped) {
      if (rule.letters == 'L') c = static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
      if (rule.letters == 'U') c = static_cast<char>(std::toupper(static_cast<unsigned char>(c)));
    }
    return mapped;
  }
  return std::nullopt;
}

}  // namespace tarry::server
