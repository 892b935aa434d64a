#pragma once

// Routes: the requests of an admin in one table, from which all refusals follow.
//
//   Question --refuse_stranger()--> Host, Origin --choose()--> path, method, rights, parameters
//            --> the route, whose handler the admin calls
//
// An unknown path or parameter is refused by name, with an example, and never ignored.

#include <cstddef>
#include <cstdint>
#include <expected>
#include <optional>
#include <span>
#include <string>
#include <string_view>

#include "web/hosts.h"
#include "web/question.h"
#include "web/target.h"

namespace tarry::web {

enum class Needs : std::uint8_t {
  nothing,           // Not even off loopback: health, who we are before a client sends its token.
  right_to_read,     // A token or a session off loopback, nothing on it.
  right_to_operate,  // It changes pending records: the token, or one for this.
  token,             // It changes something else.
};

// A login's body is read before anybody is known, and an object of n fields takes n * n steps
// (base/json.h), on a thread that has other work too.
inline constexpr std::size_t max_body_bytes = 8 * 1024;

struct Route {
  std::string_view method;
  std::string_view path;  // A part in capitals stands for any text.
  Needs needs;
  std::string_view parameters = {};  // Their names, with blanks between them.
  std::string_view example = {};
  bool takes_body = false;
  std::size_t max_body = max_body_bytes;
};

struct Rights {
  bool may_read = false;
  bool may_change = false;
  bool may_operate = may_change;
  std::string_view holder = {};  // The token's, if it has a name.
  bool only_reads = false;       // A token came whose role is to read.
};

// Whether a request for it may use the connections that are kept for health checks.
bool is_health_check(std::string_view target);

// The answer to a request that came by a foreign name or from a foreign page; empty: it did not.
// `known`: the client has shown a token or a session.  `remedy` says what to do about the name.
std::optional<Reply> refuse_stranger(const Hosts& hosts, const Question& question, bool known,
                                     std::string_view remedy);

struct Chosen {
  std::size_t route;  // Its place in the table.
  Target target;
};

// `paths` names them to somebody who has asked for another one.
std::expected<Chosen, Reply> choose(std::span<const Route> routes, std::string_view paths,
                                    const Question& question, const Rights& rights);

}  // namespace tarry::web
