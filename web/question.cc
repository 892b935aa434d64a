#include "web/question.h"

#include "base/json.h"

namespace tarry::web {

Reply refusal(unsigned status, std::string_view why) {
  Json body;
  body["error"] = std::string(why);
  return {status, text_of(body) + "\n"};
}

}  // namespace tarry::web
