#include "cli/io/json_path.h"

namespace tarry::cli {

const Json* find_at(const Json& json, const char* path) {
  const Json::json_pointer pointer(path);
  if (!json.contains(pointer)) return nullptr;
  const Json& value = json.at(pointer);
  // Null means "not known", and so does a field that an older broker does not send.
  return value.is_null() ? nullptr : &value;
}

std::uint64_t number_at(const Json& json, const char* path) {
  const double value = figure_at(json, path);
  // The conversion of a negative double to an unsigned number is undefined.
  return value <= 0 ? 0 : static_cast<std::uint64_t>(value);
}

double figure_at(const Json& json, const char* path) {
  const Json* value = find_at(json, path);
  return value != nullptr && value->is_number() ? value->get<double>() : 0;
}

std::string text_at(const Json& json, const char* path) {
  const Json* value = find_at(json, path);
  return value != nullptr && value->is_string() ? value->get<std::string>() : std::string();
}

std::optional<WallTime> time_at(const Json& json, const char* path) {
  const Json* value = find_at(json, path);
  if (value == nullptr || !value->is_number_integer()) return std::nullopt;
  return from_ms(value->get<std::int64_t>());
}

}  // namespace tarry::cli
