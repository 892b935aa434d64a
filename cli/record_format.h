#pragma once

// RecordFormat: how `consume --format` prints a record; its letters are kcat's.
//
//   %t topic    %p partition     %o offset    %T timestamp in epoch ms (-1: none)
//   %k key      %K its length    %s value     %S its length (-1: null)
//   %h headers: name=value,name=value (NULL for a null value)      %% a percent sign
//   \n \r \t \\ and \xHH for any byte
//
// A null key or value prints nothing.  Anything else after % or \ is refused.

#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "cli/kafka/consumed_record.h"

namespace tarry::cli {

class RecordFormat {
 public:
  static Result<RecordFormat> parse(std::string_view text);

  void append(const ConsumedRecord& record, std::string_view topic, std::string& to) const;

 private:
  struct Part {
    char what;         // One of the letters above; 0: the text itself.
    std::string text;  // When `what` is 0.
  };
  std::vector<Part> parts_;
};

// `text` with what \n \r \t \\ and \xHH stand for.  Errors: invalid, another escape.
Result<std::string> unescaped(std::string_view text);

// {"topic":..,"partition":..,"offset":..,"timestamp":..,"key":..,"value":..,"headers":[{"name":..,
// "value":..}]}.  Bytes that are not UTF-8 become base64, with "key_base64": true beside them.
std::string json_of(const ConsumedRecord& record, std::string_view topic);

}  // namespace tarry::cli
