#include "server/tls_settings.h"

#include <openssl/ssl.h>

#include <algorithm>
#include <array>
#include <cctype>
#include <memory>
#include <utility>

#include <fmt/core.h>

#include "base/log.h"

namespace tarry::server {
namespace {

// std::regex recurses once a character; a name that a certificate authority signs is far shorter.
constexpr std::size_t max_name_bytes = 2048;

constexpr std::string_view allowed_rules =
    "DEFAULT, or rules as in RULE:^CN=(.*?),.*$/$1/L with commas between them (L: to lower case, "
    "U: to upper case)";

constexpr std::array<std::string_view, 5> tls_1_3_ciphers{
    "TLS_AES_256_GCM_SHA384", "TLS_CHACHA20_POLY1305_SHA256", "TLS_AES_128_GCM_SHA256",
    "TLS_AES_128_CCM_SHA256", "TLS_AES_128_CCM_8_SHA256"};

std::string_view without_spaces(std::string_view text) {
  while (text.starts_with(' ')) text.remove_prefix(1);
  while (text.ends_with(' ')) text.remove_suffix(1);
  return text;
}

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

Result<CipherSuites> parse_cipher_suites(std::string_view value) {
  CipherSuites suites;
  while (!value.empty()) {
    const auto end = std::min(value.find_first_of(",:"), value.size());
    const std::string name(without_spaces(value.substr(0, end)));
    value.remove_prefix(std::min(value.size(), end + 1));
    // Each name is tried alone: of a list OpenSSL takes those that it knows, and does not mention
    // the others.
    const std::unique_ptr<SSL_CTX, decltype(&SSL_CTX_free)> scratch(
        SSL_CTX_new(TLS_server_method()), SSL_CTX_free);
    // OpenSSL passes over names of TLS 1.3 that it does not know.
    if (std::ranges::find(tls_1_3_ciphers, name) != tls_1_3_ciphers.end()) {
      suites.of_tls_1_3 += (suites.of_tls_1_3.empty() ? "" : ":") + name;
      continue;
    }
    // Kafka has the names of the standards; OpenSSL takes its own alone.
    const std::string own = OPENSSL_cipher_name(name.c_str());
    const std::string known = own == "(NONE)" ? name : own;
    // OpenSSL also takes whole expressions, such as ALL:!aNULL, which Kafka does not.
    const bool is_one_name = std::ranges::all_of(
        known, [](unsigned char c) { return std::isalnum(c) != 0 || c == '-' || c == '_'; });
    if (known.empty() || !is_one_name ||
        SSL_CTX_set_cipher_list(scratch.get(), known.c_str()) != 1) {
      return fail(Errc::invalid,
                  "names of ciphers separated by commas, as in "
                  "TLS_AES_256_GCM_SHA384,TLS_ECDHE_RSA_WITH_AES_256_GCM_SHA384");
    }
    suites.of_tls_1_2 += (suites.of_tls_1_2.empty() ? "" : ":") + known;
  }
  return suites;
}

Result<> check_cipher_suites(std::string_view value) {
  const auto parsed = parse_cipher_suites(value);
  if (!parsed) return std::unexpected(parsed.error());
  return {};
}

Result<> check_enabled_protocols(std::string_view value) {
  bool good = !value.empty();
  for (auto rest = value; good && !rest.empty();) {
    const auto end = std::min(rest.find(','), rest.size());
    const auto one = without_spaces(rest.substr(0, end));
    good = one == "TLSv1.2" || one == "TLSv1.3";
    rest.remove_prefix(std::min(rest.size(), end + 1));
  }
  if (good) return {};
  return fail(Errc::invalid, "TLSv1.2, TLSv1.3 or both separated by a comma");
}

Result<PrincipalRules> PrincipalRules::parse(std::string_view value) {
  const auto refuse = [] { return fail(Errc::invalid, std::string(allowed_rules)); };
  PrincipalRules rules;
  auto rest = without_spaces(value);
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
    rest = without_spaces(rest);
    if (rest.empty()) break;
    if (!rest.starts_with(',')) return refuse();
    rest = without_spaces(rest.substr(1));
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
