#pragma once

// Where the files are that tests read.  A function of tests/main.cc and not a macro, so that the
// place of the clone stands in one object file and ccache serves all others to every clone.

#include <string>
#include <string_view>

namespace tarry {

// `path` is below tests/.
std::string test_data(std::string_view path);

}  // namespace tarry
