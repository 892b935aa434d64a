#include "protocol/api.h"

#include <algorithm>

namespace tarry::protocol {

const ApiSchema* find_api(std::int16_t key) {
  const auto all = api_schemas();
  // The generator writes the schemas in the order of their keys.
  const auto found = std::ranges::lower_bound(
      all, key, {}, [](const ApiSchema& api) { return static_cast<std::int16_t>(api.key); });
  return found != all.end() && static_cast<std::int16_t>(found->key) == key ? &*found : nullptr;
}

std::string_view name(ApiKey key) {
  const ApiSchema* api = find_api(key);
  return api ? api->name : "Unknown";
}

}  // namespace tarry::protocol
