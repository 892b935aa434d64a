#include "admin/call.h"

#include <nlohmann/json.hpp>

namespace tarry::admin {

Reply refusal(unsigned status, std::string_view why) {
  nlohmann::json body;
  body["error"] = std::string(why);
  using Handler = nlohmann::json::error_handler_t;
  return {status, body.dump(-1, ' ', false, Handler::replace) + "\n"};
}

}  // namespace tarry::admin
