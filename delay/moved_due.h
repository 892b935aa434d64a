#pragma once

// moved_due: the due time of a pending record after a request to move it, or the reason why it
// cannot be moved there.

#include "base/clock.h"
#include "base/result.h"
#include "delay/controlled.h"

namespace tarry::delay {

// `due` and `expires` are the record's.  Errc::invalid says what does not fit.
Result<WallTime> moved_due(WallTime due, const NewDue& change, WallTime expires);

}  // namespace tarry::delay
