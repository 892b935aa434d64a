#pragma once

// The APIs of messages.schema: their keys, names and versions.
//
// These are the versions that we can read and write.  A broker chooses which of them it serves;
// the choice is made where its handlers are.

#include <cstdint>
#include <span>
#include <string_view>

#include "protocol/messages/api_key.h"  // enum class ApiKey, made from messages.schema.

namespace tarry::protocol {

struct ApiSchema {
  ApiKey key;
  std::string_view name;  // Kafka's: "OffsetForLeaderEpoch".
  std::int16_t min_version;
  std::int16_t max_version;
  std::int16_t flexible_since;  // Past max_version when no version is flexible.

  bool has_version(int version) const { return version >= min_version && version <= max_version; }
  // Known for versions above ours too: what is flexible once stays so.
  bool is_flexible(int version) const { return version >= flexible_since; }
};

// Ascending by key.
std::span<const ApiSchema> api_schemas();

// Null for a key that the schema does not have.
const ApiSchema* find_api(std::int16_t key);
inline const ApiSchema* find_api(ApiKey key) {
  return find_api(static_cast<std::int16_t>(key));
}

// "Produce"; "Unknown" for a key that the schema does not have.
std::string_view name(ApiKey key);

}  // namespace tarry::protocol
