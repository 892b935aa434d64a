// ApiVersions (key 18), versions 0 to 4.  A version above ours is answered in version 0 with
// UNSUPPORTED_VERSION and our table, as Kafka does: every client reads that and steps down.

#include <algorithm>

#include "broker/handlers/all.h"
#include "broker/handlers/run.h"
#include "broker/handlers/table.h"
#include "protocol/messages/api_versions.h"

namespace tarry::broker {

using protocol::ErrorCode;

namespace {

protocol::ApiVersionsResponse our_versions(ErrorCode error) {
  protocol::ApiVersionsResponse response;
  response.error_code = error;
  for (const auto& handler : handlers()) {
    response.api_keys.push_back(
        {static_cast<std::int16_t>(handler.key), handler.min_advertised, handler.max_version});
  }
  return response;
}

// They are kept for as long as the connection is open, and a client may not even have logged in.
constexpr std::size_t max_software_text = 255;

// Kafka's check of these names: letters and digits, with dots and dashes inside.
bool is_software_text(std::string_view text) {
  const auto alphanumeric = [](char c) {
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9');
  };
  return !text.empty() && alphanumeric(text.front()) && alphanumeric(text.back()) &&
         std::ranges::all_of(text, [&](char c) { return alphanumeric(c) || c == '-' || c == '.'; });
}

}  // namespace

boost::asio::awaitable<Answer> run_api_versions(RequestContext context) {
  if (context.version() > find_handler(context.header.key)->max_version) {
    co_return Answer{
        protocol::encode_response_frame(context.header.correlation_id,
                                        our_versions(ErrorCode::unsupported_version), 0),
        {}};
  }
  const auto request = protocol::decode_message<protocol::ApiVersionsRequest>(context.header.body,
                                                                              context.version());
  if (!request) co_return undecodable(context, request.error());
  // Older clients do not say what they are.
  if (context.version() >= 3) {
    if (!is_software_text(request->client_software_name) ||
        !is_software_text(request->client_software_version)) {
      co_return answer_with(context, our_versions(ErrorCode::invalid_request));
    }
    context.connection.client_software_name =
        request->client_software_name.substr(0, max_software_text);
    context.connection.client_software_version =
        request->client_software_version.substr(0, max_software_text);
  }
  co_return answer_with(context, our_versions(ErrorCode::none));
}

}  // namespace tarry::broker
