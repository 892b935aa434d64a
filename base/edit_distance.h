#pragma once

// How far a word is from the one that was probably meant.
//
// edit_distance() counts how many characters must be added, removed or changed to make one text of
// the other (Levenshtein's distance), for "did you mean ...?".  is_one_letter_off() answers the
// question of a single slip without a table, for code that asks it often.

#include <cstddef>
#include <string_view>

namespace tarry {

// Takes time in proportion to the product of both lengths.
std::size_t edit_distance(std::string_view a, std::string_view b);

// Whether one character added, removed or changed, or two neighbours exchanged, make one text of
// the other.  Without regard to ASCII case; false for texts that are equal so.
bool is_one_letter_off(std::string_view a, std::string_view b);

}  // namespace tarry
