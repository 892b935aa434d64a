#include "records/record_batch.h"

#include <limits>

#include "base/json.h"
#include "records/batch_builder.h"
#include "tests/records/golden.h"

namespace tarry::records {
namespace {

// One record's bytes with `length` in front.
Buffer with_length(Buffer record) {
  Buffer whole;
  append_varint(whole, static_cast<std::int64_t>(record.size()));
  append_bytes(whole, record);
  return whole;
}

std::string error_of(Bytes records, std::int32_t count) {
  const auto walked = for_each_record(records, count, [](const RecordView&) {});
  return walked ? "" : walked.error().message;
}

TEST_SUITE("record_batch") {
  TEST_CASE("every batch of Kafka's own is read with the same fields and records") {
    for (const GoldenBatch& golden : golden_batches()) {
      const auto batch = BatchView::parse(golden.bytes);
      REQUIRE(batch.has_value());
      const auto& fields = golden.fields;
      CHECK(batch->magic() == 2);
      CHECK(batch->crc_matches());
      CHECK(batch->size() == golden.bytes.size());
      CHECK(batch->base_offset() == fields["base"].get<std::int64_t>());
      CHECK(batch->producer_id() == fields["pid"].get<std::int64_t>());
      if (fields.contains("control")) {
        CHECK(batch->is_control());
        CHECK(batch->is_transactional());
        const auto records = read_all(*batch);
        REQUIRE(records.size() == 1);
        const Bytes key = as_bytes(*records[0].key), value = as_bytes(*records[0].value);
        CHECK(load_be<std::int16_t>(key.data() + 2) == (fields["control"] == "COMMIT" ? 1 : 0));
        CHECK(load_be<std::int32_t>(value.data() + 2) == fields["coordinatorEpoch"].get<int>());
        continue;
      }
      CHECK(name_of(batch->codec().value()) == fields["codec"].get<std::string>());
      CHECK(batch->last_offset() == fields["last"].get<std::int64_t>());
      CHECK(to_ms(batch->max_timestamp()) == fields["maxTs"].get<std::int64_t>());
      CHECK(batch->is_log_append_time() == (fields["tsType"] == "LogAppendTime"));
      CHECK(batch->producer_epoch() == fields["epoch"].get<int>());
      CHECK(batch->base_sequence() == fields["seq"].get<int>());
      CHECK(batch->last_sequence() == fields["lastSeq"].get<int>());
      CHECK(batch->is_transactional() == fields["txn"].get<bool>());
      CHECK(batch->crc() == fields["crc"].get<std::uint32_t>());
      CHECK_FALSE(batch->is_control());

      const auto records = read_all(*batch);
      REQUIRE(records.size() == fields["records"].size());
      for (std::size_t i = 0; i < records.size(); ++i) {
        const auto& expected = fields["records"][i];
        const auto hex = [](const std::optional<std::string>& text) {
          return text ? Json(to_hex(as_bytes(*text))) : Json();
        };
        CHECK(batch->base_offset() + records[i].offset_delta == expected["o"].get<std::int64_t>());
        CHECK(records[i].timestamp == expected["t"].get<std::int64_t>());
        CHECK(hex(records[i].key) == expected["k"]);
        CHECK(hex(records[i].value) == expected["v"]);
        REQUIRE(records[i].headers.size() == expected["h"].size());
        for (std::size_t h = 0; h < records[i].headers.size(); ++h) {
          CHECK(records[i].headers[h].name == expected["h"][h][0].get<std::string>());
          CHECK(hex(records[i].headers[h].value) == expected["h"][h][1]);
        }
      }
    }
  }

  TEST_CASE("a blob of batches is split at their borders, and a torn end is reported") {
    Buffer blob;
    std::vector<std::size_t> sizes;
    for (const GoldenBatch& golden : golden_batches()) {
      append_bytes(blob, golden.bytes);
      sizes.push_back(golden.bytes.size());
    }
    Bytes rest = blob;
    for (const std::size_t size : sizes) {
      const auto batch = next_batch(rest);
      REQUIRE(batch.has_value());
      CHECK(batch->size() == size);
      rest = rest.subspan(batch->size());
    }
    CHECK(rest.empty());

    const Bytes torn = Bytes(blob).first(sizes[0] - 1);
    CHECK(next_batch(torn).error().code == Errc::corrupt);
    CHECK(batch_size(torn).value() == sizes[0]);
    CHECK(batch_size(Bytes(blob).first(60)).error().code == Errc::corrupt);
    CHECK(next_batch({}).error().code == Errc::corrupt);
    CHECK(BatchView::parse(Bytes(blob).first(sizes[0] + 1)).error().code == Errc::corrupt);
  }

  TEST_CASE("a length or a magic that no batch has is refused with its value") {
    Buffer bytes = golden_batches()[0].bytes;
    for (const std::int32_t length : {-1, 0, 48, std::numeric_limits<std::int32_t>::min()}) {
      store_be(bytes.data() + field::batch_length, length);
      const auto batch = next_batch(bytes);
      CHECK(batch.error().code == Errc::corrupt);
      CHECK(batch.error().message.find(std::to_string(length)) != std::string::npos);
    }
    store_be(bytes.data() + field::batch_length, std::numeric_limits<std::int32_t>::max());
    CHECK(next_batch(bytes).error().code == Errc::corrupt);
    for (const int magic : {0, 1, 3, 255}) {
      bytes[field::magic] = static_cast<std::uint8_t>(magic);
      CHECK(next_batch(bytes).error().code == Errc::unsupported);
    }
  }

  TEST_CASE("no truncation of a batch or of its records is taken for whole") {
    for (const GoldenBatch& golden : golden_batches()) {
      for (std::size_t size = 0; size < golden.bytes.size(); ++size)
        REQUIRE_FALSE(next_batch(Buffer(golden.bytes.begin(),
                                        golden.bytes.begin() + static_cast<std::ptrdiff_t>(size))));
      const auto batch = BatchView::parse(golden.bytes).value();
      if (batch.codec() != Codec::none) continue;
      for (std::size_t size = 0; size < batch.records().size(); ++size) {
        // A copy of just this size, so that the sanitizer sees a step too far.
        const Bytes front = batch.records().first(size);
        const Buffer copy(front.begin(), front.end());
        REQUIRE_FALSE(for_each_record(copy, batch.record_count(), [](const RecordView&) {}));
      }
    }
  }

  TEST_CASE("every single flipped bit that the checksum covers is found") {
    const auto all = golden_batches();
    for (const std::size_t which : {0, 1, 6, 16, 33, 45, 52, 59}) {
      Buffer bytes = all[which].bytes;
      for (std::size_t bit = 0; bit < bytes.size() * 8; ++bit) {
        bytes[bit / 8] = static_cast<std::uint8_t>(bytes[bit / 8] ^ (1u << (bit % 8)));
        const auto batch = BatchView::parse(bytes);
        const bool found = !batch || !batch->crc_matches();
        const std::size_t at = bit / 8;
        // The broker sets these two itself; they are outside the checksum.
        const bool covered =
            !(at < field::batch_length || (at >= field::leader_epoch && at < field::magic));
        REQUIRE(found == covered);
        bytes[at] = static_cast<std::uint8_t>(bytes[at] ^ (1u << (bit % 8)));
      }
    }
  }

  TEST_CASE("records with any bit flipped are read to an error or to other records, no further") {
    for (const GoldenBatch& golden : golden_batches()) {
      const auto batch = BatchView::parse(golden.bytes).value();
      if (batch.codec() != Codec::none || batch.records().size() > 500) continue;
      Buffer records(batch.records().begin(), batch.records().end());
      for (std::size_t bit = 0; bit < records.size() * 8; ++bit) {
        records[bit / 8] = static_cast<std::uint8_t>(records[bit / 8] ^ (1u << (bit % 8)));
        std::size_t bytes = 0;
        const auto walked =
            for_each_record(records, batch.record_count(), [&](const RecordView& record) {
              bytes += record.body.size();
              for (const HeaderView& header : record.headers)
                bytes += header.name.size() + (header.value ? header.value->size() : 0);
            });
        REQUIRE((walked.has_value() || walked.error().code == Errc::corrupt));
        records[bit / 8] = static_cast<std::uint8_t>(records[bit / 8] ^ (1u << (bit % 8)));
      }
    }
  }

  TEST_CASE("each thing that can be wrong with a record is named with the record") {
    const auto message = [](Buffer record) { return error_of(with_length(std::move(record)), 1); };
    // attributes, timestamp delta, offset delta, key, value, headers
    CHECK(message({0, 0, 0, 1, 1, 0}) == "");
    CHECK(message({}).ends_with("record 0 of the batch: it has no attributes"));
    CHECK(message({0}).ends_with("its timestamp is not a number"));
    CHECK(message({0, 0}).ends_with("its offset is not a number"));
    CHECK(message({0, 0, 0}).ends_with("its key's length is invalid"));
    CHECK(message({0, 0, 0, 3, 1, 0}).ends_with("its key's length is invalid"));   // -2.
    CHECK(message({0, 0, 0, 20, 1, 0}).ends_with("its key's length is invalid"));  // 10.
    CHECK(message({0, 0, 0, 1}).ends_with("its value's length is invalid"));
    CHECK(message({0, 0, 0, 1, 20, 0}).ends_with("its value's length is invalid"));
    CHECK(message({0, 0, 0, 1, 1}).ends_with("its number of headers is invalid"));
    CHECK(message({0, 0, 0, 1, 1, 1}).ends_with("its number of headers is invalid"));
    CHECK(message({0, 0, 0, 1, 1, 2}).ends_with("it is too short for its headers"));
    CHECK(message({0, 0, 0, 1, 1, 0xfe, 0xff, 0xff, 0xff, 0x0f, 2})
              .ends_with("it is too short for its headers"));
    CHECK(message({0, 0, 0, 1, 1, 2, 1, 1}).ends_with("one of its headers is not well formed"));
    CHECK(
        message({0, 0, 0, 1, 1, 2, 2, 'a', 9}).ends_with("one of its headers is not well formed"));
    CHECK(message({0, 0, 0, 1, 1, 2, 2, 'a', 1}) == "");
    CHECK(message({0, 0, 0, 1, 1, 0, 0}).ends_with("its length is larger than its contents"));
    // Numbers that do not end, or do not fit.
    CHECK(message({0, 0, 0x80, 0x80, 0x80, 0x80, 0x80, 0, 1, 1, 0})
              .ends_with("its offset is not a number"));
    CHECK(message({0, 0, 0xff, 0xff, 0xff, 0xff, 0x1f, 1, 1, 0})
              .ends_with("its offset is not a number"));
    CHECK(message({0, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0x02, 0, 1, 1, 0})
              .ends_with("its timestamp is not a number"));
    // Numbers that are longer than they had to be are still numbers.
    CHECK(message({0, 0x80, 0x00, 0x80, 0x00, 1, 1, 0}) == "");

    CHECK(error_of(Buffer{}, 1).ends_with("record 0 of the batch: it is missing"));
    CHECK(error_of(Buffer{1}, 1).ends_with("its length is invalid"));
    CHECK(error_of(Buffer{40, 0}, 1).ends_with("it is longer than what remains of the batch"));
    CHECK(error_of(Buffer{0xfe, 0xff, 0xff, 0xff, 0x0f}, 1)
              .ends_with("it is longer than what remains of the batch"));
    Buffer two = with_length({0, 0, 0, 1, 1, 0});
    append_bytes(two, two);
    CHECK(
        error_of(two, 1).ends_with("record 1 of the batch: there are bytes after the last record"));
    CHECK(error_of(two, 3).ends_with("record 2 of the batch: it is missing"));
  }

  TEST_CASE("a visitor that returns false ends the walk") {
    Buffer records = with_length({0, 0, 0, 1, 1, 0});
    append_bytes(records, records);
    int seen = 0;
    CHECK(for_each_record(records, 2, [&](const RecordView&) { return ++seen < 1; }).has_value());
    CHECK(seen == 1);
  }

  TEST_CASE("patching offset and epoch leaves the checksum right, patching times makes it right") {
    Buffer bytes = golden_batches()[1].bytes;
    set_base_offset(bytes, 123'456'789'012);
    set_leader_epoch(bytes, 17);
    auto batch = BatchView::parse(bytes).value();
    CHECK(batch.base_offset() == 123'456'789'012);
    CHECK(batch.leader_epoch() == 17);
    CHECK(batch.crc() == golden_batches()[1].fields["crc"].get<std::uint32_t>());
    CHECK(batch.crc_matches());

    set_max_timestamp(bytes, from_ms(42));
    CHECK(to_ms(batch.max_timestamp()) == 42);
    CHECK(batch.crc_matches());
    CHECK(read_all(batch)[0].timestamp == 1'700'000'000'000);

    set_log_append_time(bytes, from_ms(1'800'000'000'000));
    CHECK(batch.is_log_append_time());
    CHECK(batch.crc_matches());
    CHECK(batch.codec() == Codec::none);
    for (const OwnedRecord& record : read_all(batch)) CHECK(record.timestamp == 1'800'000'000'000);
  }

  TEST_CASE("numbers at their ends wrap instead of being undefined") {
    Buffer bytes = golden_batches()[1].bytes;
    set_base_offset(bytes, std::numeric_limits<Offset>::max());
    store_be(bytes.data() + field::base_timestamp, std::numeric_limits<std::int64_t>::max());
    store_be(bytes.data() + field::last_offset_delta, std::numeric_limits<std::int32_t>::min());
    const auto batch = BatchView::parse(bytes).value();
    CHECK(batch.last_offset() == std::numeric_limits<Offset>::max() - 2147483648);
    CHECK(batch.last_sequence() == -1);
    CHECK(read_all(batch)[2].timestamp < 0);
  }

  TEST_CASE("a body that was kept is read as the record it came from") {
    const Buffer bytes = golden_batches()[1].bytes;
    const auto batch = BatchView::parse(bytes).value();
    std::int32_t count = 0;
    const auto walked = for_each_record(batch.records(), 3, [&](const RecordView& record) {
      const auto again = parse_record_body(record.body);
      REQUIRE(again.has_value());
      CHECK(owned(again->key) == owned(record.key));
      CHECK(owned(again->value) == owned(record.value));
      CHECK(again->headers.size() == record.headers.size());
      ++count;
    });
    CHECK(walked.has_value());
    CHECK(count == 3);
    CHECK(parse_record_body({}).error().code == Errc::corrupt);
  }
}

}  // namespace
}  // namespace tarry::records
