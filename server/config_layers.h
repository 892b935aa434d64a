#pragma once

// make_config(): layers of settings become the Config.  check_setting() checks one alone.
//
//   built-in default  <  --config FILE  <  --set key=value  <  a flag of its own (--data ...)
//
// Invariant: a setting that is not understood is refused, in one line that names its place,
// key, value and what is allowed; no value is clamped or ignored.  A key stands once in a layer.
//
// Touches nothing but its arguments.

#include <span>
#include <vector>

#include "base/result.h"
#include "server/config.h"
#include "server/setting.h"

namespace tarry::server {

// Whether there is such a key and it takes the value.
Result<> check_setting(const Setting& setting);

// From the lowest layer to the highest: a later one wins.  Values that are overridden are checked
// too.
Result<Config> make_config(std::span<const std::vector<Setting>> layers);

}  // namespace tarry::server
