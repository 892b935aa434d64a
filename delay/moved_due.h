#pragma once

// moved_due: when a pending record is due after a request to move it, or why it cannot be then.

#include "base/clock.h"
#include "base/result.h"
#include "delay/controlled.h"

namespace tarry::delay {

// `due` and `expires` are the record's.  Errc::invalid says what does not fit.
Result<WallTime> moved_due(WallTime due, const NewDue& change, WallTime expires);

}  // namespace tarry::delay
