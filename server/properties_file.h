#pragma once

// Properties files, in the syntax of Java's, as Kafka's are:
//
//   # a comment, ! too
//   num.partitions = 3          '=', ':' or blanks between key and value
//   log.dirs /srv/\             a line that ends in \ continues in the next one
//            tarry-logs         whose leading blanks do not count
//   listeners=\u006cocalhost:9092    escapes: \t \n \r \f \\ \uXXXX, any other is itself
//
// Bytes above ASCII are taken as they are (UTF-8); blanks at the end of a value do not count.
//
// Invariant: every key comes in the order of the file, with its line; whether there is such
// a key, and whether it stands twice, is not looked at here.

#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "server/setting.h"

namespace tarry::server {

// `name` is the file's, for errors.
Result<std::vector<Setting>> parse_properties(std::string_view text, std::string_view name);
Result<std::vector<Setting>> read_properties(const std::string& path);

}  // namespace tarry::server
