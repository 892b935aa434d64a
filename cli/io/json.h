#pragma once

// JSON as commands print it.  Only .cc files include it (base/json.h).

#include "base/json.h"

namespace tarry::cli {

using tarry::text_of;

}  // namespace tarry::cli
