#pragma once

// edit_distance(): how many characters must be added, removed or changed to make one text of the
// other (Levenshtein's distance), for "did you mean ...?".

#include <cstddef>
#include <string_view>

namespace tarry::server {

// Takes time in proportion to the product of both lengths.
std::size_t edit_distance(std::string_view a, std::string_view b);

}  // namespace tarry::server
