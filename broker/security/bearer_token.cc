#include "broker/security/bearer_token.h"

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <optional>

#include <fmt/core.h>

#include "base/ascii_case.h"
#include "base/json.h"
#include "base/log.h"

namespace tarry::broker {
namespace {

constexpr std::size_t max_user_bytes = 1024;
// The year 9999, past which a time cannot be written.
constexpr double max_seconds = 253'402'300'799.0;

// Each field of an object is compared with all before it (base/json.h), so there may be few.
constexpr std::size_t max_fields = 512;

std::size_t count_fields(std::string_view json) {
  std::size_t fields = 0;
  bool in_text = false;
  for (std::size_t i = 0; i < json.size(); ++i) {
    if (in_text && json[i] == '\\') {
      ++i;
    } else if (json[i] == '"') {
      in_text = !in_text;
    } else if (!in_text && json[i] == ':') {
      ++fields;
    }
  }
  return fields;
}

// An object; nothing else is ever expected.
Result<Json> parse_object(std::string_view part, std::string_view what) {
  const auto text = from_base64_url(part);
  // Nothing of it is verified yet, and the parser has no bound of its own.
  if (text.empty() || is_nested_too_deep(text) || count_fields(text) > max_fields)
    return fail(Errc::invalid, fmt::format("the token's {} cannot be read", what));
  auto json = parse_json(text);
  if (!json.is_object())
    return fail(Errc::invalid, fmt::format("the token's {} is not a JSON object", what));
  return json;
}

// Nullopt: there is none.
Result<std::optional<WallTime>> time_of(const Json& claims, const char* name) {
  const auto found = claims.find(name);
  if (found == claims.end()) return std::nullopt;
  const double seconds = found->is_number() ? found->get<double>() : -1;
  // Written so that it refuses NaN too.
  if (!(seconds >= 0 && seconds <= max_seconds))
    return fail(Errc::invalid, fmt::format("the token's {} is not a time", name));
  return from_ms(static_cast<std::int64_t>(std::floor(seconds * 1000)));
}

Result<WallTime> check_times(const Json& claims, std::chrono::seconds skew, WallTime now) {
  const auto expires = time_of(claims, "exp"), from = time_of(claims, "nbf"),
             issued = time_of(claims, "iat");
  for (const auto* each : {&expires, &from, &issued})
    if (!*each) return std::unexpected(each->error());
  if (!*expires || !*issued) return fail(Errc::invalid, "the token has no exp, or no iat");
  if (now - skew >= **expires) return fail(Errc::invalid, "the token has expired");
  if (*from && now + skew < **from) return fail(Errc::invalid, "the token is not valid yet (nbf)");
  if (now + skew < **issued) return fail(Errc::invalid, "the token was issued in the future (iat)");
  return **expires;
}

bool is_text_or_texts(const Json& value) {
  return value.is_string() || (value.is_array() && std::ranges::all_of(value, [](const Json& each) {
                                 return each.is_string();
                               }));
}

Result<> check_names(const Json& claims, const TokenTerms& terms) {
  const auto issuer = claims.find("iss");
  if (!terms.issuer.empty() && (issuer == claims.end() || *issuer != terms.issuer))
    return fail(Errc::invalid,
                "the token is from another issuer (sasl.oauthbearer.expected.issuer)");
  const auto scope = claims.find(terms.scope_claim);
  if (scope != claims.end() && !is_text_or_texts(*scope))
    return fail(Errc::invalid, "the token's scope is neither a string nor a list of strings");
  if (terms.audiences.empty()) return {};
  const auto audience = claims.find("aud");
  const auto is_expected = [&](const Json& one) {
    return one.is_string() &&
           std::ranges::find(terms.audiences, one.get_ref<const std::string&>()) !=
               terms.audiences.end();
  };
  const bool expected =
      audience != claims.end() &&
      (audience->is_array() ? std::ranges::any_of(*audience, is_expected) : is_expected(*audience));
  if (expected) return {};
  return fail(Errc::invalid,
              "the token is for another audience (sasl.oauthbearer.expected.audience)");
}

}  // namespace

Result<TokenUser> check_token(std::string_view token, const JsonWebKeys& keys,
                              const TokenTerms& terms, WallTime now) {
  if (token.size() > max_token_bytes) return fail(Errc::invalid, "the token is too long");
  const auto first = token.find('.'), last = token.rfind('.');
  if (first == std::string_view::npos || first == last ||
      token.substr(first + 1, last - first - 1).contains('.'))
    return fail(Errc::invalid, "the token does not have three parts");
  const auto header = parse_object(token.substr(0, first), "header");
  if (!header) return std::unexpected(header.error());
  // RFC 7515: everything that `crit` names has to be understood.
  if (header->contains("crit"))
    return fail(Errc::invalid, "the token requires an extension that is not supported (crit)");
  const auto algorithm = header->value("alg", Json()), id = header->value("kid", Json(""));
  if (!algorithm.is_string() || !id.is_string())
    return fail(Errc::invalid, "the token's header has no alg, or a kid that is not a string");
  // The signature comes first: before it no claim is believed.
  const auto verified =
      keys.verify(algorithm.get_ref<const std::string&>(), id.get_ref<const std::string&>(),
                  token.substr(0, last), from_base64_url(token.substr(last + 1)));
  if (!verified) return std::unexpected(verified.error());
  const auto claims = parse_object(token.substr(first + 1, last - first - 1), "claims");
  if (!claims) return std::unexpected(claims.error());
  const auto expires = check_times(*claims, terms.clock_skew, now);
  if (!expires) return std::unexpected(expires.error());
  if (auto checked = check_names(*claims, terms); !checked) return std::unexpected(checked.error());
  const auto user = claims->find(terms.user_claim);
  const bool has_name = user != claims->end() && user->is_string() &&
                        !user->get_ref<const std::string&>().empty() &&
                        user->get_ref<const std::string&>().size() <= max_user_bytes &&
                        !user->get_ref<const std::string&>().contains('\0');
  if (!has_name)
    return fail(Errc::invalid,
                fmt::format("the token has no valid user name in the claim {}", terms.user_claim));
  return TokenUser{user->get<std::string>(), *expires};
}

Result<BearerMessage> parse_bearer_message(std::string_view message) {
  const auto refuse = [] {
    return fail(Errc::invalid, "the client's OAUTHBEARER message is malformed");
  };
  constexpr char mark = '\x01';
  BearerMessage parsed;
  // "n,a=alice," or "y,,": without channel binding.
  const auto begin = message.find(mark);
  if (begin == std::string_view::npos || !message.ends_with(mark)) return refuse();
  const auto header = message.substr(0, begin);
  if ((!header.starts_with("n,") && !header.starts_with("y,")) || !header.ends_with(','))
    return refuse();
  if (header.size() > 2) {
    const auto acts_as = header.substr(2, header.size() - 3);
    if (!acts_as.empty() && !acts_as.starts_with("a=")) return refuse();
    parsed.acts_as = acts_as.substr(std::min<std::size_t>(2, acts_as.size()));
  }
  auto rest = message.substr(begin + 1);
  while (rest.size() > 1) {
    const auto end = rest.find(mark);
    const auto pair = rest.substr(0, end);
    rest.remove_prefix(end + 1);
    if (!pair.starts_with("auth=")) continue;  // host=, port= and what extensions there are.
    constexpr std::string_view scheme = "bearer ";
    const auto value = pair.substr(5);
    // Nobody could say which one of two tokens counts.
    if (!parsed.token.empty() || value.size() <= scheme.size() ||
        !equals_ignoring_case(value.substr(0, scheme.size()), scheme))
      return refuse();
    parsed.token = value.substr(scheme.size());
  }
  if (parsed.token.empty() || rest != std::string_view(&mark, 1)) return refuse();
  return parsed;
}

}  // namespace tarry::broker
