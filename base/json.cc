#include "base/json.h"

template class nlohmann::basic_json<nlohmann::ordered_map>;

namespace tarry {

Json parse_json(std::string_view text) {
  return Json::parse(text, nullptr, false);
}

std::string text_of(const Json& json) {
  return json.dump(-1, ' ', false, Json::error_handler_t::replace);
}

}  // namespace tarry
