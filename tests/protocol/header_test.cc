#include "protocol/header.h"

#include <doctest/doctest.h>

#include "golden.h"
#include "protocol/messages/api_versions.h"
#include "protocol/messages/fetch.h"
#include "protocol/messages/metadata.h"

namespace tarry::protocol {
namespace {

Buffer flat(const std::vector<SharedBytes>& pieces) {
  Buffer flat;
  for (const SharedBytes& piece : pieces) append_bytes(flat, piece.view());
  return flat;
}

TEST_SUITE("header") {
  TEST_CASE("a request of an ordinary version has no tagged fields in its header") {
    const Buffer frame = from_hex(
        "0003"
        "0001"
        "00000007"
        "0002"
        "6162"
        "ffffffff");
    const auto header = parse_request_header(frame);
    REQUIRE(header);
    CHECK(header->api_key() == ApiKey::metadata);
    CHECK(header->api->name == "Metadata");
    CHECK(header->version == 1);
    CHECK(header->correlation_id == 7);
    CHECK(header->client_id == "ab");
    CHECK_FALSE(header->is_flexible());
    CHECK(to_hex(header->body) == "ffffffff");
  }

  TEST_CASE("a request of a flexible version has them, and a client id that is not compact") {
    const Buffer frame = from_hex(
        "0003"
        "0009"
        "00000007"
        "0002"
        "6162"
        "01"
        "0302ffff"
        "00"
        "01");
    const auto header = parse_request_header(frame);
    REQUIRE(header);
    CHECK(header->is_flexible());
    CHECK(header->client_id == "ab");
    CHECK(to_hex(header->body) == "0001");
  }

  TEST_CASE("a client id may be null") {
    const Buffer frame = from_hex(
        "0012"
        "0000"
        "00000001"
        "ffff");
    const auto header = parse_request_header(frame);
    REQUIRE(header);
    CHECK_FALSE(header->client_id);
    CHECK(header->body.empty());
  }

  TEST_CASE("an unknown key is for the caller to answer") {
    const Buffer frame = from_hex(
        "03e7"
        "0000"
        "00000005"
        "ffff"
        "00");
    const auto header = parse_request_header(frame);
    REQUIRE(header);
    CHECK(header->key == 999);
    CHECK(header->api == nullptr);
    CHECK(header->correlation_id == 5);
  }

  TEST_CASE("a version above ours is flexible when the API has become so") {
    const Buffer frame = from_hex(
        "0012"
        "0063"
        "00000005"
        "0001"
        "61"
        "00"
        "dead");
    const auto header = parse_request_header(frame);
    REQUIRE(header);
    CHECK(header->version == 99);
    CHECK(header->is_flexible());
    CHECK_FALSE(header->api->has_version(99));
    CHECK(to_hex(header->body) == "dead");
    // OffsetDelete never has.
    CHECK_FALSE(find_api(ApiKey::offset_delete)->is_flexible(0));
  }

  TEST_CASE("every truncation of a header is an error") {
    const Buffer whole = from_hex(
        "0003"
        "0009"
        "00000007"
        "0002"
        "6162"
        "01"
        "0302ffff");
    for (std::size_t size = 0; size < whole.size(); ++size) {
      const Buffer cut(whole.begin(), whole.begin() + static_cast<long>(size));
      const auto header = parse_request_header(cut);
      REQUIRE_FALSE(header);
      CHECK(header.error().message.starts_with("request header: "));
    }
  }

  TEST_CASE("a request's frame is read back as it was written") {
    MetadataRequest request;
    request.topics.emplace().push_back({.topic_id = {}, .name = "orders"});
    for (const int version : {0, 8, 9, 12}) {
      const Buffer frame = encode_request_frame(42, "me", request, version);
      CHECK(load_be<std::int32_t>(frame.data()) == static_cast<std::int32_t>(frame.size() - 4));
      const auto header = parse_request_header(Bytes(frame).subspan(4));
      REQUIRE(header);
      CHECK(header->correlation_id == 42);
      CHECK(header->client_id == "me");
      const auto decoded = decode_message<MetadataRequest>(header->body, version);
      REQUIRE(decoded);
      CHECK(decoded->topics->at(0).name == "orders");
    }
  }

  TEST_CASE("a flexible response has header v1, but ApiVersions has v0 in every version") {
    CHECK(response_header_version(ApiKey::metadata, 8) == 0);
    CHECK(response_header_version(ApiKey::metadata, 9) == 1);
    for (int version = 0; version <= 4; ++version) {
      CHECK(response_header_version(ApiKey::api_versions, version) == 0);
      const Buffer frame = flat(encode_response_frame(9, ApiVersionsResponse{}, version));
      CHECK(to_hex(frame).substr(8, 12) ==
            "00000009"
            "0000");  // Then the error code at once.
    }
  }

  TEST_CASE("a response's frame says its size with the records in it") {
    FetchResponse response;
    response.responses.resize(1);
    response.responses[0].partitions.resize(1);
    response.responses[0].partitions[0].records.pieces = {SharedBytes(Buffer(100'000, 7))};
    const Buffer frame = flat(encode_response_frame(9, response, 12));
    CHECK(load_be<std::int32_t>(frame.data()) == static_cast<std::int32_t>(frame.size() - 4));
    const auto header = parse_response_header(Bytes(frame).subspan(4), ApiKey::fetch, 12);
    REQUIRE(header);
    CHECK(header->correlation_id == 9);
    const auto decoded = decode_message<FetchResponse>(header->body, 12);
    REQUIRE(decoded);
    CHECK(decoded->responses[0].partitions[0].records.size() == 100'000);
  }

  TEST_CASE("the table of APIs is in order of the keys and finds each of them") {
    int previous = -1;
    for (const ApiSchema& api : api_schemas()) {
      const int key = static_cast<int>(api.key);
      CHECK(key > previous);
      previous = key;
      CHECK(find_api(api.key) == &api);
      CHECK(name(api.key) == api.name);
      CHECK(api.min_version <= api.max_version);
    }
    CHECK(api_schemas().size() == 37);
    CHECK(find_api(std::int16_t{-1}) == nullptr);
    CHECK(find_api(std::int16_t{4}) == nullptr);
  }
}

}  // namespace
}  // namespace tarry::protocol
