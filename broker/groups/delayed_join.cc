#include "broker/groups/delayed_join.h"

#include "broker/groups/group_waits.h"

namespace tarry::broker {

DelayedJoin::~DelayedJoin() {
  withdraw();
  if (group() != nullptr) group()->forget_join(*member());
}

void DelayedJoin::time_is_over() {
  if (group() != nullptr) group()->join_time_is_over();
}

void DelayedJoin::given_up() {
  if (group() != nullptr) group()->join_given_up(*member());
}

}  // namespace tarry::broker
