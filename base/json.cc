#include "base/json.h"

#include "base/base64.h"
#include "base/utf8.h"

template class nlohmann::basic_json<nlohmann::ordered_map>;

namespace tarry {

Json parse_json(std::string_view text) {
  // Without exceptions: text from the network that is no JSON is an ordinary case.
  return Json::parse(text, nullptr, false);
}

std::string text_of(const Json& json) {
  // Without `replace` a byte that is not UTF-8 ends in an exception.
  return json.dump(-1, ' ', false, Json::error_handler_t::replace);
}

void put_bytes(Json& to, const std::string& name, std::optional<std::string_view> bytes) {
  if (!bytes) {
    to[name] = nullptr;
  } else if (is_utf8(*bytes)) {
    to[name] = *bytes;
  } else {
    to[name] = base64(*bytes);
    // Said beside it, because a text may look like base64 by chance.
    to[name + "_base64"] = true;
  }
}

void put_bytes(Json& to, const std::string& name, std::optional<Bytes> bytes) {
  put_bytes(to, name, bytes ? std::optional(as_text(*bytes)) : std::nullopt);
}

}  // namespace tarry
