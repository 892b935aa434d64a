#pragma once

// tarry delayed cancel, move, deliver: records by their names, or all of a selection.

#include "cli/commands/delayed_common.h"

namespace tarry::cli {

void add_delayed_control(const AddDelayed& add);

}  // namespace tarry::cli
