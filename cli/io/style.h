#pragma once

// Colours, for people at a terminal.
//
// Invariant: there is none in a pipe, none if $NO_COLOR is set and not empty, and none on a
// terminal that says that it is dumb.  A colour never says what no word says.

#include <string>
#include <string_view>

namespace tarry::cli {

enum class Style { plain, bold, dim, red, green, yellow };

// Whether the environment allows colours on a terminal.
bool colours_allowed();

// `text` in this style, and plain behind it; `text` itself when it is plain.
std::string styled(Style style, std::string_view text);

}  // namespace tarry::cli
