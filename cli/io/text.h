#pragma once

// Conversions between bytes and text, for a command line, JSON and a table.

#include <cstddef>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace tarry::cli {

// One cell of a table, always on one line.  Control characters, the backslash and bytes that
// are not UTF-8 become \t, \n, \\, \xNN; other UTF-8 stays as it is.
std::string cell(std::string_view text);

// As one word of a shell's command line; nullopt for a text that a terminal could not show.
std::optional<std::string> shell_word(const std::string& text);

// Its first `width` code points, the last of which says by an ellipsis that there were more.
std::string shortened(std::string_view utf8, std::size_t width);

// Its parts of at most `width` (>= 1) code points, in their order, broken at a space where there is
// one.  At least one part; the space at which it is broken belongs to none.
std::vector<std::string> wrapped(std::string_view utf8, std::size_t width);

// Code points, which a terminal shows in one column each, mostly.
std::size_t width_of(std::string_view utf8);

}  // namespace tarry::cli
