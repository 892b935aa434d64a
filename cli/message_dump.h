#pragma once

// dumped_message(): one message of Kafka's protocol, from a line of text to a line of text.
//
//   in    18 q 3 0e6b61666b61...      API key, q request or p response, version, body in hex (- or
//                                     nothing: empty); what follows is not looked at
//   out   {"clientSoftwareName":...}<TAB>0e6b61666b61...     its fields, then encoded again (- when
//                                     empty)
//   out   error: HEX has 'xy' at 4, which is not a byte       for a line that cannot be decoded

#include <string>
#include <string_view>

namespace tarry::cli {

std::string dumped_message(std::string_view line);

}  // namespace tarry::cli
