#include "protocol/codec.h"

#include <algorithm>

#include <doctest/doctest.h>

#include "golden.h"
#include "protocol/messages/api_versions.h"
#include "protocol/messages/create_topics.h"
#include "protocol/messages/describe_topic_partitions.h"
#include "protocol/messages/fetch.h"
#include "protocol/messages/heartbeat.h"
#include "protocol/messages/join_group.h"
#include "protocol/messages/metadata.h"
#include "protocol/messages/offset_fetch.h"
#include "protocol/messages/produce.h"

namespace tarry::protocol {
namespace {

template <typename M>
std::string encoded(const M& message, int version) {
  Writer writer;
  message.encode(writer, version);
  return to_hex(writer.flatten());
}

template <typename M>
std::string problem_of(const std::string& hex, int version) {
  const Buffer body = from_hex(hex);
  const auto message = decode_message<M>(body, version);
  return message ? "none" : message.error().message;
}

TEST_SUITE("codec") {
  TEST_CASE("an array of 10^9 elements is refused before anything is allocated for it") {
    // 10^9 is 3b9aca00; a compact array says one more, and says it as a varint.
    CHECK(problem_of<MetadataRequest>("3b9aca00", 1) ==
          "MetadataRequest version 1: an array of 1000000000 elements at byte 4, where 0 bytes are "
          "left");
    CHECK(problem_of<MetadataRequest>("8194ebdc03", 9) ==
          "MetadataRequest version 9: an array of 1000000000 elements at byte 5, where 0 bytes are "
          "left");
  }

  TEST_CASE("a message of more elements than any client sends is refused, all arrays together") {
    // A group, and two topics that share the limit between them.
    const auto body = [](std::size_t indexes) {
      Writer writer;
      writer.string(false, "group");
      writer.number(std::int32_t{2});
      for (int topic = 0; topic < 2; ++topic) {
        writer.string(false, "t");
        writer.number(static_cast<std::int32_t>(indexes));
        for (std::size_t i = 0; i < indexes; ++i) writer.number(std::int32_t{7});
      }
      return writer.flatten();
    };
    const Buffer most = body(max_elements / 2 - 1);
    CHECK(decode_message<OffsetFetchRequest>(most, 1));
    const Buffer more = body(max_elements / 2);
    const auto refused = decode_message<OffsetFetchRequest>(more, 1);
    REQUIRE_FALSE(refused);
    CHECK(refused.error().message.find("the limit is 262144 in one message") != std::string::npos);
  }

  TEST_CASE("a length below -1 is an error") {
    CHECK(problem_of<MetadataRequest>("fffffffe", 1).find("an array of -2 elements") !=
          std::string::npos);
    CHECK(problem_of<MetadataRequest>("00000001fffe", 1).find("a string of -2 bytes") !=
          std::string::npos);
  }

  TEST_CASE("a string has 32767 bytes at the most, in compact form too") {
    const auto body = [](std::size_t size) {
      Writer writer;
      writer.string(true, std::string(size, 'g'));
      writer.number(std::int32_t{0});
      writer.string(true, "member");
      writer.uvarint(0);
      writer.uvarint(0);
      return writer.flatten();
    };
    CHECK(decode_message<HeartbeatRequest>(body(32'767), 4));
    const auto refused = decode_message<HeartbeatRequest>(body(32'768), 4);
    REQUIRE_FALSE(refused);
    CHECK(refused.error().message.contains("a string of 32768 bytes (the limit is 32767)"));
  }

  TEST_CASE("null is an error where the version does not allow it") {
    CHECK(problem_of<MetadataRequest>("ffffffff", 1) == "none");
    CHECK(problem_of<MetadataRequest>("ffffffff", 0).find("null where an array") !=
          std::string::npos);
    CHECK(problem_of<MetadataRequest>("00000001ffff", 0).find("null where a string") !=
          std::string::npos);
  }

  TEST_CASE("a varint of more than 32 bits is an error") {
    CHECK(problem_of<MetadataRequest>("ffffffff1f", 9).find("a varint") != std::string::npos);
    CHECK(problem_of<MetadataRequest>("808080808000", 9).find("a varint") != std::string::npos);
  }

  TEST_CASE("unknown tagged fields are passed over") {
    const Buffer body = from_hex(
        "0261"
        "0262"
        "02"
        "00"
        "03aabbcc"
        "8001"
        "00");
    const auto request = decode_message<ApiVersionsRequest>(body, 3);
    REQUIRE(request);
    CHECK(request->client_software_name == "a");
    CHECK(request->client_software_version == "b");
  }

  TEST_CASE("tagged fields out of order, too many, too long or cut off are errors") {
    const auto problem = [](const std::string& tags) {
      return problem_of<ApiVersionsRequest>("02610262" + tags, 3);
    };
    CHECK(problem("0205000500").find("tag 5 after a tag that is not lower") != std::string::npos);
    CHECK(problem("0205000400").find("tag 4 after a tag that is not lower") != std::string::npos);
    CHECK(problem("41").find("65 tagged fields (the limit is 64)") != std::string::npos);
    CHECK(problem("010005aabb").find("a tagged field of 5 bytes") != std::string::npos);
    std::string long_field = "0100818008";
    long_field.append(2 * (max_tagged_field_size + 1), '0');
    CHECK(problem(long_field).find("131073 bytes (the limit is 131072)") != std::string::npos);
  }

  TEST_CASE("a known tagged field must fill its size exactly") {
    // In FetchRequest 12 cluster_id is tag 0.
    Writer writer;
    FetchRequest request;
    request.cluster_id = "abc";
    request.encode(writer, 12);
    Buffer body = writer.flatten();
    REQUIRE(decode_message<FetchRequest>(body, 12));
    REQUIRE(
        to_hex(body).ends_with("01"
                               "00"
                               "04"
                               "04616263"));
    body[body.size() - 5] = 5;
    body.push_back(0);
    const auto longer = decode_message<FetchRequest>(body, 12);
    REQUIRE_FALSE(longer);
    CHECK(longer.error().message.find("longer than its contents") != std::string::npos);
    body.pop_back();
    body[body.size() - 5] = 3;
    CHECK_FALSE(decode_message<FetchRequest>(body, 12));
  }

  TEST_CASE("a nullable struct begins with 1 or -1 and nothing else") {
    CHECK(problem_of<DescribeTopicPartitionsRequest>("01"
                                                     "000007d0"
                                                     "ff"
                                                     "00",
                                                     0) == "none");
    CHECK(problem_of<DescribeTopicPartitionsRequest>("01"
                                                     "000007d0"
                                                     "01"
                                                     "0261"
                                                     "00000001"
                                                     "00"
                                                     "00",
                                                     0) == "none");
    CHECK(problem_of<DescribeTopicPartitionsRequest>("01"
                                                     "000007d0"
                                                     "02"
                                                     "00",
                                                     0)
              .find("2 as the mark of a struct") != std::string::npos);
  }

  TEST_CASE("a decoded request views the frame and copies nothing of it") {
    ProduceRequest request;
    const Buffer batch(1000, 42);
    request.acks = -1;
    request.topic_data.push_back({.name = "t", .topic_id = {}, .partition_data = {}});
    request.topic_data[0].partition_data.push_back({.index = 3, .records = Bytes(batch)});
    Writer writer;
    request.encode(writer, 9);
    const Buffer body = writer.flatten();

    const auto decoded = decode_message<ProduceRequest>(body, 9);
    REQUIRE(decoded);
    const Bytes records = *decoded->topic_data.at(0).partition_data.at(0).records;
    CHECK(records.size() == 1000);
    CHECK(records.data() > body.data());
    CHECK(records.data() + records.size() < body.data() + body.size());
    CHECK_FALSE(decoded->transactional_id);
  }

  TEST_CASE("records go into a response's pieces without being copied") {
    const SharedBytes first(Buffer(5000, 1)), second(Buffer(7, 2));
    FetchResponse response;
    response.responses.resize(1);
    response.responses[0].topic = "t";
    response.responses[0].partitions.resize(2);
    response.responses[0].partitions[0].records.pieces = {first, second};

    Writer writer;
    response.encode(writer, 12);
    const std::size_t size = writer.size();
    const auto pieces = writer.finish();
    REQUIRE(pieces.size() == 4);
    CHECK(pieces[1].data() == first.data());
    CHECK(pieces[2].data() == second.data());
    std::size_t sum = 0;
    Buffer flat;
    for (const auto& piece : pieces) {
      sum += piece.size();
      append_bytes(flat, piece.view());
    }
    CHECK(sum == size);

    const auto decoded = decode_message<FetchResponse>(flat, 12);
    REQUIRE(decoded);
    CHECK(decoded->responses[0].partitions[0].records.size() == 5007);
    CHECK_FALSE(decoded->responses[0].partitions[1].records.null);
    CHECK(decoded->responses[0].partitions[1].records.size() == 0);
  }

  TEST_CASE("records that nobody set are empty in a response, not null") {
    FetchResponse response;
    response.responses.resize(1);
    response.responses[0].partitions.resize(1);
    CHECK(encoded(response, 4)
              .ends_with("ffffffff"
                         "00000000"));
    response.responses[0].partitions[0].records.null = true;
    CHECK(encoded(response, 4)
              .ends_with("ffffffff"
                         "ffffffff"));
  }

  TEST_CASE("null is written as empty in versions where null may not be") {
    JoinGroupResponse response;
    CHECK(encoded(response, 0) ==
          "0000"
          "ffffffff"
          "0000"
          "0000"
          "0000"
          "00000000");
    CHECK(encoded(response, 7)
              .starts_with("00000000"
                           "0000"
                           "ffffffff"
                           "00"
                           "00"
                           "01"));
  }

  TEST_CASE("a field that a version does not have keeps its default") {
    const auto request = decode_message<FetchRequest>(from_hex("ffffffff"
                                                               "00000064"
                                                               "00000001"
                                                               "00000000"),
                                                      2);
    REQUIRE(request);
    CHECK(request->max_bytes == 0x7fffffff);
    CHECK(request->session_epoch == -1);
  }

  TEST_CASE("an error code without a name is kept as it is") {
    CreateTopicsResponse response;
    response.topics.resize(1);
    response.topics[0].error_code = error_code_from(12345);
    const Buffer body = from_hex(encoded(response, 7));
    const auto decoded = decode_message<CreateTopicsResponse>(body, 7);
    REQUIRE(decoded);
    CHECK(to_int16(decoded->topics[0].error_code) == 12345);
    CHECK(name(decoded->topics[0].error_code) == "UNKNOWN");
    CHECK(name(ErrorCode::unknown_topic_or_partition) == "UNKNOWN_TOPIC_OR_PARTITION");
    CHECK(to_int16(ErrorCode::invalid_record) == 87);
  }

  TEST_CASE("versions newer than the golden messages have the fields that came with them") {
    const std::string id = "000102030405060708090a0b0c0d0e0f";
    ProduceRequest produce;
    produce.topic_data.resize(1);
    const Buffer id_bytes = from_hex(id);
    std::ranges::copy(id_bytes, produce.topic_data[0].topic_id.bytes.begin());
    produce.topic_data[0].name = "t";
    CHECK(encoded(produce, 12) ==
          "00"
          "0000"
          "00000000"
          "02"
          "0274"
          "01"
          "00"
          "00");
    CHECK(encoded(produce, 13) ==
          "00"
          "0000"
          "00000000"
          "02" +
              id +
              "01"
              "00"
              "00");

    FetchRequest::Partition partition;
    CHECK(encoded(partition, 17) == encoded(partition, 18));
    partition.high_watermark = 5;
    CHECK(encoded(partition, 17)
              .ends_with("00000000"
                         "00"));
    CHECK(encoded(partition, 18)
              .ends_with("00000000"
                         "01"
                         "01"
                         "08"
                         "0000000000000005"));

    MetadataResponse metadata;
    metadata.error_code = ErrorCode::rebootstrap_required;
    CHECK(encoded(metadata, 12)
              .ends_with("01"
                         "00"));
    CHECK(encoded(metadata, 13)
              .ends_with("01"
                         "0081"
                         "00"));
  }

  TEST_CASE("the current leader is a tagged field, left out when it is not set") {
    ProduceResponse::PartitionResponse response;
    CHECK(encoded(response, 10)
              .ends_with("01"
                         "00"
                         "00"));
    response.current_leader.leader_id = 1;
    CHECK(encoded(response, 9)
              .ends_with("01"
                         "00"
                         "00"));
    CHECK(encoded(response, 10)
              .ends_with("01"
                         "00"
                         "01"
                         "00"
                         "09"
                         "00000001"
                         "ffffffff"
                         "00"));
  }

  TEST_CASE("a string that an i16 cannot measure is cut, not miscounted") {
    Writer writer;
    writer.string(false, std::string(40'000, 'x'));
    CHECK(writer.size() == 2 + 32767);
    CHECK(to_hex(writer.flatten()).starts_with("7fff7878"));
  }

  TEST_CASE("a tagged field of more than 127 bytes gets its size in two") {
    FetchRequest request;
    const std::string id(200, 'c');
    request.cluster_id = id;
    const Buffer body = from_hex(encoded(request, 17));
    const auto decoded = decode_message<FetchRequest>(body, 17);
    REQUIRE(decoded);
    CHECK(decoded->cluster_id == id);
  }

  TEST_CASE("a writer that has to grow keeps what it has") {
    Writer writer(1);
    std::string expected;
    for (int i = 0; i < 3000; ++i) {
      writer.number(static_cast<std::int16_t>(i));
      Buffer bytes;
      append_be(bytes, static_cast<std::int16_t>(i));
      expected += to_hex(bytes);
    }
    CHECK(to_hex(writer.flatten()) == expected);
  }
}

}  // namespace
}  // namespace tarry::protocol
