#include "records/batch_builder.h"

#include <limits>
#include <random>

#include "records/batch_check.h"
#include "tests/records/golden.h"

namespace tarry::records {
namespace {

TEST_SUITE("batch_builder") {
  TEST_CASE("Kafka's own batches, built again from their records, are the same to the last byte") {
    int built = 0;
    for (const GoldenBatch& golden : golden_batches()) {
      const auto batch = BatchView::parse(golden.bytes).value();
      if (batch.codec() != Codec::none) continue;
      BatchOptions options{.base_offset = batch.base_offset(),
                           .leader_epoch = batch.leader_epoch(),
                           .producer_id = batch.producer_id(),
                           .producer_epoch = batch.producer_epoch(),
                           .base_sequence = batch.base_sequence(),
                           .transactional = batch.is_transactional(),
                           .control = batch.is_control()};
      if (batch.is_log_append_time()) options.log_append_time = batch.max_timestamp();
      BatchBuilder from_values(options), from_bodies(options), from_parts(options);
      const auto walked =
          for_each_record(batch.records(), batch.record_count(), [&](const RecordView& record) {
            const WallTime time =
                batch.base_timestamp() + std::chrono::milliseconds(record.timestamp_delta);
            const std::vector<HeaderView> headers(record.headers.begin(), record.headers.end());
            from_values.append(time, record.key, record.value, headers);
            from_bodies.append_body(time, record.body);
            from_parts.append_parts(time, record.key_value, record.headers.size(),
                                    record.headers.encoded());
          });
      REQUIRE(walked.has_value());
      CHECK(from_values.size() == golden.bytes.size());
      CHECK(from_values.finish() == golden.bytes);
      CHECK(from_bodies.finish() == golden.bytes);
      CHECK(from_parts.finish() == golden.bytes);
      ++built;
    }
    CHECK(built == 17);
  }

  TEST_CASE("a batch with holes keeps the offsets of the kept records and spans the removed ones") {
    const auto golden = golden_batches()[5];  // 50 records of an idempotent producer.
    const auto batch = BatchView::parse(golden.bytes).value();
    REQUIRE(batch.record_count() == 50);
    for (const Codec codec : all_codecs) {
      BatchBuilder builder({.base_offset = batch.base_offset(),
                            .codec = codec,
                            .producer_id = batch.producer_id(),
                            .producer_epoch = batch.producer_epoch(),
                            .base_sequence = batch.base_sequence()});
      const auto stays = [](std::int32_t delta) { return delta % 7 == 3; };
      const auto walked = for_each_record(batch.records(), 50, [&](const RecordView& record) {
        if (stays(record.offset_delta))
          builder.append_body(batch.timestamp_of(record), record.body);
        else
          builder.skip();
      });
      REQUIRE(walked.has_value());
      CHECK(builder.next_offset_delta() == 50);
      const Buffer bytes = builder.finish();
      const auto holed = BatchView::parse(bytes).value();
      CHECK(holed.crc_matches());
      CHECK(holed.last_offset() == batch.last_offset());
      CHECK(holed.last_sequence() == batch.last_sequence());
      CHECK(holed.record_count() == 7);
      std::vector<OwnedRecord> expected;
      for (const OwnedRecord& record : read_all(batch))
        if (stays(record.offset_delta)) expected.push_back(record);
      CHECK(read_all(holed) == expected);
      CHECK(to_ms(holed.base_timestamp()) == expected.front().timestamp);
      CHECK(to_ms(holed.max_timestamp()) == expected.back().timestamp);
    }
  }

  TEST_CASE("every built batch passes the check, in every codec and for any records") {
    const auto seed = std::random_device{}();
    INFO("seed: ", seed);
    std::mt19937_64 random(seed);
    for (int round = 0; round < 300; ++round) {
      BatchOptions options{.base_offset = static_cast<Offset>(random() >> 1),
                           .leader_epoch = static_cast<std::int32_t>(random()),
                           .codec = all_codecs[random() % 5],
                           .expected_size = random() % 5000};
      if (random() % 2 == 0) {
        options.producer_id = static_cast<ProducerId>(random() >> 1);
        options.producer_epoch = static_cast<std::int16_t>(random() % 32768);
        options.base_sequence = static_cast<std::int32_t>(random() >> 33);
        options.transactional = random() % 2 == 0;
      }
      BatchBuilder builder(options);
      std::vector<OwnedRecord> records;
      const std::size_t count = 1 + random() % (round % 10 == 0 ? 3000 : 20);
      for (std::size_t i = 0; i < count; ++i) {
        OwnedRecord record;
        record.timestamp = static_cast<std::int64_t>(random() >> (1 + random() % 63));
        record.offset_delta = static_cast<std::int32_t>(i);
        record.key = maybe_text(random, 40);
        record.value = maybe_text(random, random() % 10 == 0 ? 20'000 : 200);
        for (std::size_t h = random() % 4; h > 0; --h)
          record.headers.push_back({random_text(random, 80), maybe_text(random, 100)});
        const std::size_t before = builder.size();
        Buffer body;
        append_record_body(body, view(record.key), view(record.value), views(record.headers));
        if (random() % 3 == 0) {
          builder.append(from_ms(record.timestamp), view(record.key), view(record.value),
                         views(record.headers));
        } else if (random() % 2 == 0) {
          builder.append_body(from_ms(record.timestamp), body);
        } else {
          Buffer key_value, headers;
          append_key_value(key_value, view(record.key), view(record.value));
          for (const auto& header : record.headers)
            append_header(headers, header.name, view(header.value));
          builder.append_parts(from_ms(record.timestamp), key_value,
                               static_cast<std::int32_t>(record.headers.size()), headers);
        }
        CHECK(builder.size() - before <= body.size() + BatchBuilder::max_record_overhead);
        records.push_back(std::move(record));
      }
      const Buffer bytes = builder.finish();
      const auto checked = check_produced(bytes, {.max_message_bytes = bytes.size()});
      REQUIRE(checked.has_value());
      CHECK(checked->count == static_cast<std::int32_t>(count));
      CHECK_FALSE(checked->needs_max_timestamp_fix);
      CHECK(checked->batch.base_offset() == options.base_offset);
      CHECK(checked->batch.leader_epoch() == options.leader_epoch);
      CHECK(checked->batch.producer_id() == options.producer_id);
      CHECK(checked->batch.producer_epoch() == options.producer_epoch);
      CHECK(checked->batch.base_sequence() == options.base_sequence);
      CHECK(checked->batch.is_transactional() == options.transactional);
      CHECK(checked->codec == options.codec);
      CHECK(read_all(checked->batch) == records);
    }
  }

  TEST_CASE("a large batch that compression would make larger is not compressed") {
    std::mt19937 random(1);
    Buffer noise(3 << 20);
    for (auto& byte : noise) byte = static_cast<std::uint8_t>(random());
    const Buffer zeros(3 << 20, 0);
    for (const Codec codec : {Codec::gzip, Codec::snappy, Codec::lz4, Codec::zstd}) {
      CAPTURE(static_cast<int>(codec));
      const auto finished = [codec](Bytes value) {
        BatchBuilder builder({.codec = codec});
        builder.append(from_ms(1), std::nullopt, value);
        const std::size_t plain = builder.size();
        Buffer bytes = builder.finish();
        const bool is_small = value.size() < 1000;
        CHECK((is_small || bytes.size() <= plain));
        const auto checked = check_produced(bytes, {.max_message_bytes = bytes.size()});
        REQUIRE(checked.has_value());
        CHECK(checked->count == 1);
        return checked->codec;
      };
      CHECK(finished(noise) == Codec::none);
      CHECK(finished(zeros) == codec);
      CHECK(finished(Bytes(noise).first(100)) == codec);
    }
  }

  TEST_CASE("numbers of every size are written as they are read") {
    const std::int64_t ends[] = {0,
                                 -1,
                                 1,
                                 63,
                                 64,
                                 -64,
                                 -65,
                                 8191,
                                 8192,
                                 std::numeric_limits<std::int32_t>::max(),
                                 std::numeric_limits<std::int64_t>::max(),
                                 std::numeric_limits<std::int64_t>::min() + 1};
    for (const std::int64_t end : ends) {
      BatchBuilder builder;
      builder.append(from_ms(0), std::nullopt, as_bytes("v"));
      builder.append(from_ms(end), std::nullopt, as_bytes("v"));
      const Buffer bytes = builder.finish();
      CHECK(read_all(BatchView::parse(bytes).value())[1].timestamp == end);
    }
  }
}

}  // namespace
}  // namespace tarry::records
