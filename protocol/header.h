#pragma once

// The request and response headers, which precede a message in its frame.
//
//   request   i32 size | i16 key | i16 version | i32 correlation id | i16 n, client id | [tags] |
//             body
//             size: of all that follows it.  Header v2, of flexible versions, has the tags, v1 not
//
//   response  i32 size | i32 correlation id | [tags] | body
//                      \_ header v0; v1, of flexible versions, has the tags
//
// The client id never has a compact length, in header v2 neither.  An ApiVersions response has
// header v0 always: it is read by clients that do not know yet which versions we speak.

#include <cstdint>
#include <optional>
#include <string_view>
#include <vector>

#include "base/bytes.h"
#include "base/result.h"
#include "protocol/api.h"
#include "protocol/codec.h"

namespace tarry::protocol {

// A request's header, and where its message begins.  Lives no longer than the frame.
struct RequestHeader {
  std::int16_t key = 0;  // As it came: whether we know it, `api` says.
  std::int16_t version = 0;
  std::int32_t correlation_id = 0;
  std::optional<std::string_view> client_id;  // A view of the frame.

  const ApiSchema* api = nullptr;  // Null when the schema has no such key.
  Bytes body;                      // A view of the frame: what follows the header.

  ApiKey api_key() const { return static_cast<ApiKey>(key); }
  bool is_flexible() const { return api && api->is_flexible(version); }
};

// `frame` is without its size.  An error is a header that is cut off or malformed, which ends a
// connection.  A key or version that we do not know is none: the caller decides what to answer.
// For an unknown key the header is parsed as v1, so its `body` is meaningless.
Result<RequestHeader> parse_request_header(Bytes frame);

// Returns 0 or 1.
int response_header_version(ApiKey key, int version);

// For clients and tests; `version` has to be in the schema.
void encode_request_header(Writer& writer, ApiKey key, int version, std::int32_t correlation_id,
                           std::optional<std::string_view> client_id);

// The same of a response; for clients and tests.  `frame` is without its size.
struct ResponseHeader {
  std::int32_t correlation_id = 0;
  Bytes body;
};
Result<ResponseHeader> parse_response_header(Bytes frame, ApiKey key, int version);

void encode_response_header(Writer& writer, ApiKey key, int version, std::int32_t correlation_id);

// Begins a frame, whose size end_frame() fills in.
inline void begin_frame(Writer& writer) {
  writer.number(std::int32_t{0});
}
void end_frame(Writer& writer);

// A whole frame, ready to be gathered and written.  Records in it are shared, not copied.
template <typename Response>
std::vector<SharedBytes> encode_response_frame(std::int32_t correlation_id,
                                               const Response& response, int version) {
  Writer writer;
  begin_frame(writer);
  encode_response_header(writer, Response::api, version, correlation_id);
  response.encode(writer, version);
  end_frame(writer);
  return writer.finish();
}

template <typename Request>
Buffer encode_request_frame(std::int32_t correlation_id, std::optional<std::string_view> client_id,
                            const Request& request, int version) {
  Writer writer;
  begin_frame(writer);
  encode_request_header(writer, Request::api, version, correlation_id, client_id);
  request.encode(writer, version);
  end_frame(writer);
  return writer.flatten();
}

}  // namespace tarry::protocol
