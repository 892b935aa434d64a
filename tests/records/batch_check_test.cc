#include "records/batch_check.h"

#include "records/batch_builder.h"
#include "tests/records/golden.h"

namespace tarry::records {
namespace {

// Three records, one of them with a header and none without a key.
Buffer good_batch(Codec codec = Codec::none) {
  BatchBuilder builder({.codec = codec});
  const HeaderView header{"h", as_bytes("v")};
  builder.append(from_ms(1000), as_bytes("a"), as_bytes("1"));
  builder.append(from_ms(3000), as_bytes("b"), std::nullopt, {&header, 1});
  builder.append(from_ms(2000), as_bytes("c"), as_bytes("3"));
  return builder.finish();
}

template <typename T>
Buffer with(Buffer batch, std::size_t field, T value) {
  store_be(batch.data() + field, value);
  update_crc(batch);
  return batch;
}

// A batch whose header says `count` and whose records section is `records`.
Buffer batch_of(Bytes records, std::int32_t count) {
  Buffer batch = good_batch();
  batch.resize(batch_header_size);
  append_bytes(batch, records);
  store_be(batch.data() + field::batch_length,
           static_cast<std::int32_t>(batch.size() - batch_length_end));
  store_be(batch.data() + field::last_offset_delta, count - 1);
  store_be(batch.data() + field::record_count, count);
  update_crc(batch);
  return batch;
}

BatchError refused(Bytes bytes, const CheckLimits& limits = {}) {
  auto checked = check_produced(bytes, limits);
  REQUIRE_FALSE(checked.has_value());
  CHECK_FALSE(checked.error().message.empty());
  return checked.error();
}

TEST_SUITE("batch_check") {
  TEST_CASE("a good batch is taken in every codec, with its records unpacked") {
    const Buffer plain = good_batch();
    const Bytes records = BatchView::parse(plain)->records();
    for (const Codec codec : all_codecs) {
      const Buffer bytes = good_batch(codec);
      auto checked = check_produced(bytes, {});
      REQUIRE(checked.has_value());
      const CheckedBatch moved = std::move(*checked);
      CHECK(moved.codec == codec);
      CHECK(moved.count == 3);
      CHECK(moved.opened);
      CHECK(moved.has_headers);
      CHECK(to_ms(moved.max_timestamp) == 3000);
      CHECK_FALSE(moved.needs_max_timestamp_fix);
      CHECK(as_text(moved.records()) == as_text(records));
      CHECK(moved.unpacked.empty() == (codec == Codec::none));
    }
  }

  TEST_CASE("Kafka's own batches are accepted unless only the broker may write them") {
    for (const GoldenBatch& golden : golden_batches()) {
      const auto checked = check_produced(golden.bytes, {});
      if (golden.fields.contains("control"))
        CHECK(checked.error().reason == Refusal::invalid_record);
      else if (golden.fields["tsType"] == "LogAppendTime")
        CHECK(checked.error().reason == Refusal::invalid_timestamp);
      else
        CHECK(checked.has_value());
    }
  }

  TEST_CASE(
      "unusual fields that clients are known to send are accepted: foreign epochs, sequences, "
      "timestamps") {
    const Buffer batch = good_batch();
    CHECK(check_produced(with(batch, field::leader_epoch, std::int32_t{0}), {}).has_value());
    CHECK(check_produced(with(batch, field::base_offset, std::int64_t{99}), {}).has_value());
    // A sequence number without a producer id.
    CHECK(check_produced(with(batch, field::base_sequence, std::int32_t{0}), {}).has_value());

    Buffer sarama = with(batch, field::max_timestamp, std::int64_t{-1});
    const auto checked = check_produced(sarama, {});
    REQUIRE(checked.has_value());
    CHECK(checked->needs_max_timestamp_fix);
    CHECK(to_ms(checked->max_timestamp) == 3000);
    set_max_timestamp(sarama, checked->max_timestamp);
    CHECK_FALSE(check_produced(sarama, {})->needs_max_timestamp_fix);
  }

  TEST_CASE("has_headers is false when no record has any") {
    BatchBuilder builder;
    builder.append(from_ms(1), std::nullopt, as_bytes("v"));
    const Buffer batch = builder.finish();
    CHECK_FALSE(check_produced(batch, {})->has_headers);
  }

  TEST_CASE("bytes that are not exactly one batch are refused") {
    const Buffer batch = good_batch();
    CHECK(refused({}).reason == Refusal::invalid_record);
    Buffer two = batch;
    append_bytes(two, batch);
    CHECK(refused(two).reason == Refusal::invalid_record);
    two.resize(batch.size() + 1);
    CHECK(refused(two).reason == Refusal::invalid_record);
    CHECK(refused(Bytes(batch).first(60)).reason == Refusal::corrupt);
    CHECK(refused(Bytes(batch).first(batch.size() - 1)).reason == Refusal::corrupt);
    CHECK(refused(with(batch, field::batch_length, std::int32_t{10})).reason == Refusal::corrupt);
  }

  TEST_CASE("another format than v2 is refused as such") {
    for (const int magic : {0, 1, 3, -1}) {
      const auto error = refused(with(good_batch(), field::magic, static_cast<std::int8_t>(magic)));
      CHECK(error.reason == Refusal::unsupported_format);
      CHECK(error.kafka_code() == 43);
    }
  }

  TEST_CASE("a batch larger than max.message.bytes is refused, one of that size is not") {
    const Buffer batch = good_batch();
    CHECK(check_produced(batch, {.max_message_bytes = batch.size()}).has_value());
    const auto error = refused(batch, {.max_message_bytes = batch.size() - 1});
    CHECK(error.reason == Refusal::message_too_large);
    CHECK(error.kafka_code() == 10);
    CHECK(error.message.find(std::to_string(batch.size())) != std::string::npos);
  }

  TEST_CASE("every flipped bit under the checksum is refused as corrupt, or before that") {
    Buffer batch = good_batch(Codec::zstd);
    for (std::size_t bit = field::magic * 8; bit < batch.size() * 8; ++bit) {
      batch[bit / 8] = static_cast<std::uint8_t>(batch[bit / 8] ^ (1u << (bit % 8)));
      const auto error = refused(batch);
      REQUIRE(error.reason ==
              (bit / 8 == field::magic ? Refusal::unsupported_format : Refusal::corrupt));
      batch[bit / 8] = static_cast<std::uint8_t>(batch[bit / 8] ^ (1u << (bit % 8)));
    }
    store_be(batch.data() + field::crc, std::uint32_t{0});
    CHECK(refused(batch).kafka_code() == 2);
  }

  TEST_CASE("a batch with any bit flipped and a checksum to match never crashes") {
    for (const Codec codec : all_codecs) {
      Buffer batch = good_batch(codec);
      for (std::size_t bit = 0; bit < batch.size() * 8; ++bit) {
        Buffer flipped = batch;
        flipped[bit / 8] = static_cast<std::uint8_t>(flipped[bit / 8] ^ (1u << (bit % 8)));
        update_crc(flipped);
        if (const auto checked = check_produced(flipped, {.max_uncompressed_bytes = 100'000})) {
          CHECK(checked->count == 3);
          CHECK(read_all(checked->batch).size() == 3);
        }
      }
    }
  }

  TEST_CASE("codecs that do not exist are refused, and zstd from requests that are too old") {
    for (const int number : {5, 6, 7}) {
      const auto error =
          refused(with(good_batch(), field::attributes, static_cast<std::int16_t>(number)));
      CHECK(error.reason == Refusal::unsupported_compression);
      CHECK(error.kafka_code() == 76);
    }
    const CheckLimits old_request{.zstd_allowed = false};
    CHECK(refused(good_batch(Codec::zstd), old_request).reason == Refusal::unsupported_compression);
    CHECK(check_produced(good_batch(Codec::lz4), old_request).has_value());
  }

  TEST_CASE("a header whose numbers do not agree is refused as an invalid record") {
    const Buffer batch = good_batch();
    const auto invalid = [](const Buffer& bytes) {
      const auto error = refused(bytes);
      CHECK(error.reason == Refusal::invalid_record);
      CHECK(error.kafka_code() == 87);
      CHECK(error.records.empty());
    };
    for (const std::int32_t count : {-1, 0, 2, 4, 2147483647})
      invalid(with(batch, field::record_count, count));
    for (const std::int32_t delta : {-1, 0, 1, 3, 2147483647})
      invalid(with(batch, field::last_offset_delta, delta));
    invalid(batch_of({}, 0));
    invalid(with(with(batch, field::record_count, std::int32_t{-2147483647 - 1}),
                 field::last_offset_delta, std::int32_t{2147483647}));
    invalid(with(batch, field::attributes, control_bit));
    invalid(with(batch, field::producer_id, std::int64_t{5}));   // Sequence -1.
    invalid(with(batch, field::attributes, transactional_bit));  // Producer -1.
    CHECK(refused(with(batch, field::attributes, log_append_time_bit)).kafka_code() == 32);
  }

  TEST_CASE("records that are not well formed are refused though the checksum is right") {
    const Buffer good = good_batch();
    const Bytes records = BatchView::parse(good)->records();
    for (std::size_t size = 0; size < records.size(); ++size)
      CHECK(refused(batch_of(records.first(size), 3)).reason == Refusal::invalid_record);
    Buffer longer(records.begin(), records.end());
    longer.push_back(0);
    CHECK(refused(batch_of(longer, 3)).reason == Refusal::invalid_record);
    // A number of records that the bytes cannot hold costs nothing to refuse.
    CHECK(refused(batch_of(records, 2147483647)).reason == Refusal::invalid_record);
  }

  TEST_CASE("a compressed batch that does not unpack is refused as an invalid record") {
    const Buffer good = good_batch();
    for (const int codec : {1, 2, 3, 4}) {
      // The records are there, only not compressed.
      const auto error = refused(with(good, field::attributes, static_cast<std::int16_t>(codec)));
      CHECK(error.reason == Refusal::invalid_record);
    }
  }

  TEST_CASE("a batch that unpacks to more than the limit is refused as too large") {
    BatchBuilder builder({.codec = Codec::zstd});
    const Buffer zeros(10 << 20);
    builder.append(from_ms(1), std::nullopt, zeros);
    const Buffer bomb = builder.finish();
    CHECK(bomb.size() < 10'000);
    CHECK(check_produced(bomb, {}).has_value());
    CHECK(refused(bomb, {.max_uncompressed_bytes = 1 << 20}).reason == Refusal::message_too_large);
  }

  TEST_CASE("wrong offset deltas are reported record by record") {
    BatchBuilder builder;
    builder.append(from_ms(1), std::nullopt, as_bytes("v"));
    builder.skip();
    builder.append(from_ms(1), std::nullopt, as_bytes("v"));
    const Buffer holed = builder.finish();
    CHECK(refused(holed).reason == Refusal::invalid_record);  // By its header.
    const auto error = refused(with(holed, field::last_offset_delta, std::int32_t{1}));
    CHECK(error.reason == Refusal::invalid_record);
    REQUIRE(error.records.size() == 1);
    CHECK(error.records[0].index == 1);
    CHECK(error.records[0].message == "its offset delta is 2");
  }

  TEST_CASE("a record without a key is an error when keys are required") {
    BatchBuilder builder;
    builder.append(from_ms(1), as_bytes("k"), as_bytes("v"));
    builder.append(from_ms(1), std::nullopt, as_bytes("v"));
    builder.append(from_ms(1), as_bytes(""), as_bytes("v"));
    builder.append(from_ms(1), std::nullopt, std::nullopt);
    const Buffer batch = builder.finish();
    CHECK(check_produced(batch, {}).has_value());
    const auto error = refused(batch, {.key_required = true});
    CHECK(error.kafka_code() == 87);
    REQUIRE(error.records.size() == 2);
    CHECK(error.records[0].index == 1);
    CHECK(error.records[1].index == 3);
    CHECK(error.records[0].message.find("key") != std::string::npos);
    CHECK(error.message.starts_with("2 records of the batch are invalid; record 1:"));
  }

  TEST_CASE(
      "timestamps outside their bounds are errors; the bounds themselves and missing ones are "
      "fine") {
    BatchBuilder builder;
    for (const std::int64_t ms : {999, 1000, 2000, 2001, -1})
      builder.append(from_ms(ms), std::nullopt, as_bytes("v"));
    const Buffer batch = builder.finish();
    CHECK(check_produced(batch, {}).has_value());
    const auto error = refused(batch, {.earliest = from_ms(1000), .latest = from_ms(2000)});
    CHECK(error.reason == Refusal::invalid_timestamp);
    REQUIRE(error.records.size() == 2);
    CHECK(error.records[0].index == 0);
    CHECK(error.records[0].message.find("1970-01-01T00:00:00.999Z") != std::string::npos);
    CHECK(error.records[1].index == 3);
  }

  TEST_CASE("however many records are bad, a bounded number of them is reported") {
    BatchBuilder builder;
    for (int i = 0; i < 1000; ++i) builder.append(from_ms(1), std::nullopt, as_bytes("v"));
    const Buffer batch = builder.finish();
    const auto error = refused(batch, {.key_required = true});
    CHECK(error.records.size() == max_bad_records_told);
    CHECK(error.message.starts_with("1000 records of the batch are invalid"));
  }

  TEST_CASE("with open_compressed off a compressed batch is trusted, an uncompressed one is not") {
    const CheckLimits limits{.open_compressed = false, .key_required = true};
    const Buffer packed = good_batch(Codec::gzip);
    const auto checked = check_produced(packed, limits);
    REQUIRE(checked.has_value());
    CHECK_FALSE(checked->opened);
    CHECK(checked->has_headers);
    CHECK(checked->records().empty());
    CHECK(to_ms(checked->max_timestamp) == 3000);
    const Buffer plain = good_batch();
    CHECK(check_produced(plain, limits)->opened);
    const auto records = BatchView::parse(plain)->records();
    CHECK(refused(batch_of(records.first(5), 3), limits).reason == Refusal::invalid_record);
  }
}

}  // namespace
}  // namespace tarry::records
