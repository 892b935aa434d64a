#pragma once

// How bytes become text and back, on a command line, in a URL, in JSON and in a table.

#include <cstddef>
#include <string>
#include <string_view>

#include "base/result.h"

namespace tarry::cli {

std::string base64(std::string_view bytes);  // Standard alphabet, padded.
// Errors: invalid.
Result<std::string> from_base64(std::string_view text);

// For one part of a URL's path, or a value of its query: all but letters, digits and -._~ is
// written as %NN.
std::string percent_encoded(std::string_view text);

// For one cell of a table: on one line whatever comes.  Control characters, the backslash and what
// is no UTF-8 are written as \t, \n, \\, \xNN; other UTF-8 stays as it is.
std::string cell(std::string_view text);

// Code points, which is what a terminal's columns mostly are.
std::size_t width_of(std::string_view utf8);

}  // namespace tarry::cli
