#pragma once

// Call: the arguments of a handler of a relay's admin.

#include <string>
#include <string_view>

#include <fmt/format.h>

#include "base/log.h"
#include "web/question.h"
#include "web/target.h"

namespace tarry::relay {

struct Call {
  web::Target target;
  std::string raw;  // The target as it came.
  std::string local, body, accept;

  // Null when it is not given.
  const std::string* parameter(std::string_view name) const {
    const auto found = target.query.find(name);
    return found == target.query.end() ? nullptr : &found->second;
  }
  // It is asked about this member alone.
  bool is_of_member() const {
    const auto* scope = parameter("scope");
    if (scope != nullptr && *scope != "member") {
      throw web::Refused{400,
                         fmt::format("scope={}: give member, or leave it out", printable(*scope))};
    }
    return scope != nullptr;
  }
  // The same request about one member alone.
  std::string scoped() const { return raw + (raw.contains('?') ? "&" : "?") + "scope=member"; }
};

}  // namespace tarry::relay
