#pragma once

// Percent-encoding (RFC 3986) of one part of a URL's path, or of a value of its
// query: every byte other than letters, digits and -._~ becomes %NN.  web/target.h decodes it.

#include <string>
#include <string_view>

namespace tarry {

std::string percent_encoded(std::string_view text);

}  // namespace tarry
