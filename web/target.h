#pragma once

// Target: the parsed target of a request line.
//
//   /delayed/orders/a%2Fb?partition=3   -->  path {delayed, orders, a/b}, query {partition: 3}
//
// The path is split at '/' before it is decoded, so that an id may hold any character.  Nothing
// is normalised: ".." is a name like another, and there is no file behind any path.
//
// Invariant: names and values are UTF-8; a broken escape, a parameter that is given twice
// and a control character are refused (Errc::invalid, with the text in question).

#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"

namespace tarry::web {

struct Target {
  std::vector<std::string> path;
  std::map<std::string, std::string, std::less<>> query;
};

Result<Target> parse_target(std::string_view text);

}  // namespace tarry::web
