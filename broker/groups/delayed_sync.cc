#include "broker/groups/delayed_sync.h"

#include "broker/groups/group_waits.h"

namespace tarry::broker {

DelayedSync::~DelayedSync() {
  withdraw();
  if (group() != nullptr) group()->forget_sync(*member());
}

void DelayedSync::time_is_over() {
  if (group() != nullptr) group()->sync_time_is_over();
}

void DelayedSync::given_up() {
  if (group() != nullptr) group()->sync_given_up(*member());
}

}  // namespace tarry::broker
