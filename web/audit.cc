#include "web/audit.h"

#include <cstddef>

#include <fmt/core.h>

#include "base/log.h"

namespace tarry::web {
namespace {

constexpr std::size_t max_audited_target = 200;

}  // namespace

std::string Audit::name_of(const AccessTokens::Holder* holder, const Question& question) {
  if (holder != nullptr)
    return fmt::format("{} with the role {}", printable(holder->name), name(holder->role));
  return question.authorization.empty() ? "a client without a token"
                                        : "a client with a wrong token";
}

void Audit::note(std::string_view who, const Question& question, unsigned status, bool changes,
                 MonoTime now) {
  // 421 is the answer to a foreign name of this admin, as refuse_stranger() gives it.
  const bool refused = status == 401 || status == 403 || status == 421;
  if (!refused && !changes) return;
  const auto line = fmt::format(
      "{} from {} on the admin: {} {}: {}", who, question.peer, printable(question.method),
      printable(question.target.substr(0, max_audited_target)),
      refused ? fmt::format("denied ({})", status) : std::to_string(status));
  auto& log = refused ? refused_ : changes_;
  if (refused) {
    log.warn(now, "audit", line);
  } else {
    log.info(now, "audit", line);
  }
}

}  // namespace tarry::web
