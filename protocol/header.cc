#include "protocol/header.h"

#include <limits>

namespace tarry::protocol {

Result<RequestHeader> parse_request_header(Bytes frame) {
  Reader reader(frame);
  RequestHeader header;
  reader.number(header.key);
  reader.number(header.version);
  reader.number(header.correlation_id);
  // Not compact in flexible versions either, as in Kafka.
  reader.nullable_string(false, header.client_id);
  header.api = find_api(header.key);
  if (header.is_flexible()) reader.skip_tagged_fields();
  if (!reader.ok()) {
    Error error = reader.error();
    error.message = "request header: " + error.message;
    return std::unexpected(std::move(error));
  }
  header.body = frame.subspan(reader.position());
  return header;
}

int response_header_version(ApiKey key, int version) {
  // As in Kafka: a client that reads this answer does not know yet which versions are served.
  if (key == ApiKey::api_versions) return 0;
  const ApiSchema* api = find_api(key);
  return api && api->is_flexible(version) ? 1 : 0;
}

void encode_request_header(Writer& writer, ApiKey key, int version, std::int32_t correlation_id,
                           std::optional<std::string_view> client_id) {
  const ApiSchema* api = find_api(key);
  TARRY_ASSERT(api && api->has_version(version), "only what the schema has can be encoded");
  writer.number(static_cast<std::int16_t>(key));
  writer.number(static_cast<std::int16_t>(version));
  writer.number(correlation_id);
  // Not compact: an older broker has to be able to read this much of a header of any version.
  writer.nullable_string(false, client_id);
  // There are no tagged fields.
  if (api->is_flexible(version)) writer.uvarint(0);
}

Result<ResponseHeader> parse_response_header(Bytes frame, ApiKey key, int version) {
  Reader reader(frame);
  ResponseHeader header;
  reader.number(header.correlation_id);
  if (response_header_version(key, version) == 1) reader.skip_tagged_fields();
  if (!reader.ok()) {
    Error error = reader.error();
    error.message = "response header: " + error.message;
    return std::unexpected(std::move(error));
  }
  header.body = frame.subspan(reader.position());
  return header;
}

void encode_response_header(Writer& writer, ApiKey key, int version, std::int32_t correlation_id) {
  writer.number(correlation_id);
  if (response_header_version(key, version) == 1) writer.uvarint(0);
}

void end_frame(Writer& writer) {
  // The size does not count itself.
  const std::size_t size = writer.size() - 4;
  TARRY_ASSERT(size <= static_cast<std::size_t>(std::numeric_limits<std::int32_t>::max()),
               "a frame's size fits 31 bits");
  writer.overwrite_i32(0, static_cast<std::int32_t>(size));
}

}  // namespace tarry::protocol
