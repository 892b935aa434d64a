#include "broker/security/plain_users.h"

#include <utility>

#include <fmt/core.h>

#include "base/ascii_case.h"
#include "base/scram.h"

namespace tarry::broker {
namespace {

// Words, quoted texts, '=' and ';', as java.io.StreamTokenizer finds them.
class JaasTokens {
 public:
  explicit JaasTokens(std::string_view text) : text_(text) {}

  // Empty at the end.  A quoted text is never taken for a sign.
  struct Token {
    std::string text;
    bool quoted = false;
    bool is(char sign) const { return !quoted && text.size() == 1 && text[0] == sign; }
    bool at_end() const { return !quoted && text.empty(); }
  };
  Result<Token> next() {
    while (at_ < text_.size() && is_blank(text_[at_])) ++at_;
    if (at_ == text_.size()) return Token{};
    const char first = text_[at_];
    if (first == '"' || first == '\'') return quoted(first);
    if (first == '=' || first == ';') return Token{std::string(1, text_[at_++]), false};
    Token word;
    while (at_ < text_.size() && !is_blank(text_[at_]) &&
           !std::string_view("=;\"'").contains(text_[at_]))
      word.text += text_[at_++];
    return word;
  }

 private:
  static bool is_blank(char c) { return static_cast<unsigned char>(c) <= ' '; }

  Result<Token> quoted(char mark) {
    Token out{{}, true};
    for (++at_; at_ < text_.size(); ++at_) {
      char c = text_[at_];
      if (c == mark) {
        ++at_;
        return out;
      }
      if (c == '\\' && at_ + 1 < text_.size()) {
        c = text_[++at_];
        if (c == 'n') c = '\n';
        if (c == 't') c = '\t';
        if (c == 'r') c = '\r';
      }
      out.text += c;
    }
    return fail(Errc::invalid, "a quotation mark is not closed");
  }

  std::string_view text_;
  std::size_t at_ = 0;
};

}  // namespace

Result<JaasLine> parse_jaas_line(std::string_view text) {
  JaasTokens tokens(text);
  JaasLine line;
  auto token = tokens.next();
  if (!token) return std::unexpected(token.error());
  line.module = token->text;
  if (line.module.empty() || token->is(';'))
    return fail(Errc::invalid, "the login module is missing");
  token = tokens.next();
  if (!token) return std::unexpected(token.error());
  bool known_flag = false;
  for (const auto* flag : {"required", "requisite", "sufficient", "optional"})
    known_flag = known_flag || equals_ignoring_case(token->text, flag);
  if (!known_flag) return fail(Errc::invalid, "`required` is missing after the login module");
  for (;;) {
    auto name = tokens.next();
    if (!name) return std::unexpected(name.error());
    if (name->is(';')) break;
    if (name->at_end()) return fail(Errc::invalid, "the semicolon at its end is missing");
    auto sign = tokens.next();
    if (!sign) return std::unexpected(sign.error());
    if (!sign->is('=')) return fail(Errc::invalid, "an option has no =");
    auto value = tokens.next();
    if (!value) return std::unexpected(value.error());
    if (value->at_end() || value->is(';') || value->is('='))
      return fail(Errc::invalid, "an option has no value");
    line.options.insert_or_assign(std::move(name->text), std::move(value->text));
  }
  auto rest = tokens.next();
  if (!rest) return std::unexpected(rest.error());
  if (!rest->at_end()) return fail(Errc::invalid, "something follows the first semicolon");
  return line;
}

Result<PlainUsers> parse_plain_users(std::string_view jaas_line) {
  PlainUsers users;
  if (jaas_line.empty()) return users;
  auto line = parse_jaas_line(jaas_line);
  if (!line) return std::unexpected(line.error());
  constexpr std::string_view prefix = "user_";
  for (auto& [name, value] : line->options)
    if (name.starts_with(prefix)) users.emplace(name.substr(prefix.size()), std::move(value));
  return users;
}

std::string check_plain(const PlainUsers& users, std::string_view token) {
  const auto first = token.find('\0');
  if (first == std::string_view::npos) return {};
  const auto second = token.find('\0', first + 1);
  if (second == std::string_view::npos) return {};
  const auto acts_as = token.substr(0, first);
  const auto user = token.substr(first + 1, second - first - 1);
  const auto password = token.substr(second + 1);
  if (user.empty() || password.empty() || password.contains('\0')) return {};
  // Nobody may act for another user, as there is no rule that would allow it.
  if (!acts_as.empty() && acts_as != user) return {};
  const auto found = users.find(user);
  // An unknown name takes as long as a known one.
  const bool same =
      same_password(found == users.end() ? std::string_view{} : found->second, password);
  return same && found != users.end() ? std::string(user) : std::string();
}

}  // namespace tarry::broker
