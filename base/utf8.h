#pragma once

// UTF-8 in text that came from outside, one character after the other.

#include <cstddef>
#include <string_view>

namespace tarry {

// How many bytes the character at the front of `text` takes, which is not empty; 0 if none is
// there: an overlong form, a surrogate, half a character, or what is above U+10FFFF.
std::size_t utf8_character_size(std::string_view text);

bool is_utf8(std::string_view text);

// Whether one character moves a terminal's cursor, breaks the line, or turns the text around.
bool is_control_character(std::string_view character);

}  // namespace tarry
