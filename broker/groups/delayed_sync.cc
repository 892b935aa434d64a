#include "broker/groups/delayed_sync.h"

#include "broker/groups/group_waits.h"

namespace tarry::broker {

DelayedSync::~DelayedSync() {
  withdraw();
  if (group() != nullptr) group()->forget_sync(*member());
}

void DelayedSync::on_timeout() {
  if (group() != nullptr) group()->on_sync_timeout();
}

void DelayedSync::given_up() {
  if (group() != nullptr) group()->on_sync_cancelled(*member());
}

}  // namespace tarry::broker
