#include "broker/groups/delayed_join.h"

#include "broker/groups/group_waits.h"

namespace tarry::broker {

DelayedJoin::~DelayedJoin() {
  withdraw();
  if (group() != nullptr) group()->forget_join(*member());
}

std::optional<purgatory::Tick> DelayedJoin::prolonged() {
  return group() != nullptr ? group()->join_prolonged() : std::nullopt;
}

void DelayedJoin::on_timeout() {
  if (group() != nullptr) group()->on_join_timeout();
}

void DelayedJoin::given_up() {
  if (group() != nullptr) group()->on_join_cancelled(*member());
}

}  // namespace tarry::broker
