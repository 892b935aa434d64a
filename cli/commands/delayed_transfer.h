#pragma once

// tarry delayed export, import: pending records as lines of JSON.

#include "cli/commands/delayed_common.h"

namespace tarry::cli {

void add_delayed_transfer(const AddDelayed& add);

}  // namespace tarry::cli
