#include <chrono>
#include <memory>
#include <string>

#include <boost/beast/core/flat_static_buffer.hpp>
#include <boost/beast/http.hpp>

#include "admin/sessions.h"
#include "base/assert.h"
#include "base/base64.h"
#include "base/scram.h"
#include "base/time_text.h"
#include "base/utf8.h"
#include "broker/security/acl.h"
#include "broker/security/bearer_token.h"
#include "broker/security/json_web_keys.h"
#include "broker/security/plain_users.h"
#include "broker/security/scram_exchange.h"
#include "broker/security/security_image.h"
#include "server/properties_file.h"
#include "storage/journal_record.h"
#include "tests/fuzz/targets.h"
#include "web/hosts.h"
#include "web/target.h"

namespace tarry::fuzz {

namespace {

using namespace std::chrono_literals;
namespace http = boost::beast::http;

// A key of which nobody has the other half, so that tokens come as far as their signature.
constexpr std::string_view known_keys = R"({"keys":[{"kty":"EC","crv":"P-256","kid":"a",)"
                                        R"("x":"f83OJ3D2xF1Bg8vub9tLe1gHMzV76e8Tus9uPHvRVEU",)"
                                        R"("y":"x_FEzRu9m36HLN_tue659LNpXW6pCyStikYjKIWI5a0"}]})";

void try_scram(Input& from) {
  static const broker::ScramExchange::FindUser nobody = [](std::string_view) { return nullptr; };
  static const broker::ScramExchange::FindExample nothing = [](std::uint64_t) { return nullptr; };
  broker::ScramExchange exchange(ScramMechanism::sha256, "ours", "secret");
  const Bytes first = from.long_piece();
  if (const auto asked = exchange.first(as_text(first), nobody, nothing); !asked) return;
  TARRY_ASSERT(exchange.has_begun(), "who is asked has a name");
  const auto ended = exchange.final(as_text(from.rest()));
  TARRY_ASSERT(!ended.has_value(), "nobody comes in without a password");
}

void try_token(Bytes message) {
  static const auto keys = broker::JsonWebKeys::parse(known_keys);
  TARRY_ASSERT(keys.has_value(), "the keys are some");
  const auto bearer = broker::parse_bearer_message(as_text(message));
  const std::string token = bearer ? bearer->token : std::string(as_text(message));
  const auto user = broker::check_token(token, **keys, {}, WallTime{1'800'000'000s});
  TARRY_ASSERT(!user.has_value(), "nobody has the private key");
}

void try_rows(Input& from) {
  storage::Configs rows;
  while (!from.empty() && rows.size() < 20) {
    const Bytes key = from.piece();
    rows.insert_or_assign(std::string(as_text(key)), std::string(as_text(from.piece())));
  }
  for (const auto& [key, value] : rows) {
    if (const auto rule = broker::AclBinding::of_key(key))
      TARRY_ASSERT(broker::AclBinding::of_key(rule->key()) == *rule, "a rule is its key");
  }
  const broker::SecurityImage image(rows);
  (void)image.allows({}, {"User:a", "h"}, broker::AclOperation::read, broker::AclResource::topic,
                     "t");
}

}  // namespace

void fuzz_login(Bytes input) {
  Input from(input);
  switch (from.u8() % 6) {
    case 0:
      try_scram(from);
      return;
    case 1:
      try_token(from.rest());
      return;
    case 2:
      (void)broker::JsonWebKeys::parse(as_text(from.rest()));
      return;
    case 3: {
      const auto users = broker::parse_plain_users(as_text(from.long_piece()));
      if (!users) return;
      const auto user = broker::check_plain(*users, as_text(from.rest()));
      TARRY_ASSERT(user.empty() || users->contains(user), "who comes in is known");
      return;
    }
    case 4:
      (void)from_base64(as_text(from.rest()));
      return;
    default:
      try_rows(from);
  }
}

void fuzz_settings(Bytes input) {
  Input from(input);
  const std::uint8_t what = from.u8();
  const std::string_view text = as_text(from.rest());
  if (what % 4 == 0) {
    const auto settings = server::parse_properties(text, "file");
    if (!settings) return;
    std::size_t bytes = 0;
    for (const auto& setting : *settings) bytes += setting.value.size();
    // \uXXXX is three bytes of UTF-8 at most.
    TARRY_ASSERT(bytes <= text.size(), "values are no longer than the file");
  } else if (what % 4 == 1) {
    if (const auto duration = parse_duration(text))
      TARRY_ASSERT(duration->count() >= 0, "a duration is not negative");
  } else if (what % 4 == 2) {
    (void)parse_time(text);
  } else {
    (void)parse_size(text);
  }
}

void fuzz_http(Bytes input) {
  Input from(input);
  const std::uint8_t what = from.u8();
  const std::string_view text = as_text(from.rest());
  if (what % 4 == 0) {
    static const web::Hosts hosts(
        {"127.0.0.1", 8080, true, false, {"name", "other:1", "a.example"}});
    (void)hosts.accepts(text);
    (void)hosts.is_own_origin(text, "127.0.0.1:8080");
    (void)admin::cookie_in(text, "tarry");
    return;
  }
  if (what % 4 == 1) {
    const auto target = web::parse_target(text);
    if (!target) return;
    for (const auto& part : target->path) TARRY_ASSERT(is_utf8(part), "a name is UTF-8");
    for (const auto& [name, value] : target->query)
      TARRY_ASSERT(is_utf8(name) && is_utf8(value), "so is a parameter");
    return;
  }
  // A whole request, as the server reads it.
  http::request_parser<http::string_body> parser;
  parser.header_limit(8 * 1024);
  parser.body_limit(std::uint64_t{1} << 20);
  parser.eager(true);
  boost::system::error_code error;
  std::string_view left = text;
  while (!left.empty() && !error && !parser.is_done()) {
    const std::size_t taken = parser.put(boost::asio::buffer(left), error);
    if (taken == 0) break;
    left.remove_prefix(taken);
  }
  if (!parser.is_done()) return;
  const auto request = parser.release();
  (void)web::parse_target(request.target());
  (void)admin::cookie_in(request[http::field::cookie], "tarry");
}

}  // namespace tarry::fuzz
