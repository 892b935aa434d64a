#pragma once

// Patterns of names: `*` is any bytes, also none, and `?` is any one byte.
//
// Pure; any thread.

#include <string_view>

namespace tarry {

// Whether the whole `text` matches.  Linear, but for what one star has to try again.
bool matches_glob(std::string_view pattern, std::string_view text);

}  // namespace tarry
