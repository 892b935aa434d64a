#pragma once

// The batches that Kafka's own classes wrote (golden/README.md), and random ones.

#include <fstream>
#include <optional>
#include <random>
#include <string>
#include <vector>

#include <doctest/doctest.h>

#include "base/json.h"
#include "records/record_batch.h"
#include "tests/test_data.h"

namespace tarry::records {

struct GoldenBatch {
  Buffer bytes;
  Json fields;
};

inline Buffer from_hex(const std::string& hex) {
  const auto digit = [](char c) { return c <= '9' ? c - '0' : c - 'a' + 10; };
  Buffer bytes;
  for (std::size_t i = 0; i + 1 < hex.size(); i += 2)
    bytes.push_back(static_cast<std::uint8_t>(digit(hex[i]) * 16 + digit(hex[i + 1])));
  return bytes;
}

inline std::string to_hex(Bytes bytes) {
  std::string hex;
  for (const std::uint8_t byte : bytes) {
    hex += "0123456789abcdef"[byte >> 4];
    hex += "0123456789abcdef"[byte & 15];
  }
  return hex;
}

inline std::vector<GoldenBatch> golden_batches() {
  std::ifstream file(test_data("records/golden/batches.txt"));
  std::vector<GoldenBatch> batches;
  for (std::string line; std::getline(file, line);) {
    const auto space = line.find(' ');
    if (line.starts_with('#') || space == std::string::npos) continue;
    batches.push_back({from_hex(line.substr(0, space)), Json::parse(line.substr(space + 1))});
  }
  REQUIRE(batches.size() == 61);
  return batches;
}

// Records that own what they hold, to compare.
struct OwnedHeader {
  std::string name;
  std::optional<std::string> value;
  bool operator==(const OwnedHeader&) const = default;
};
struct OwnedRecord {
  std::int64_t timestamp = 0;
  std::int32_t offset_delta = 0;
  std::optional<std::string> key, value;
  std::vector<OwnedHeader> headers;
  bool operator==(const OwnedRecord&) const = default;
};

inline std::optional<std::string> owned(const std::optional<Bytes>& bytes) {
  if (!bytes) return std::nullopt;
  return std::string(as_text(*bytes));
}
inline std::optional<Bytes> view(const std::optional<std::string>& text) {
  if (!text) return std::nullopt;
  return as_bytes(*text);
}
inline OwnedRecord owned(const BatchView& batch, const RecordView& record) {
  OwnedRecord copy{to_ms(batch.timestamp_of(record)),
                   record.offset_delta,
                   owned(record.key),
                   owned(record.value),
                   {}};
  for (const HeaderView& header : record.headers)
    copy.headers.push_back({std::string(header.name), owned(header.value)});
  return copy;
}
inline std::vector<HeaderView> views(const std::vector<OwnedHeader>& headers) {
  std::vector<HeaderView> all;
  for (const auto& header : headers) all.push_back({header.name, view(header.value)});
  return all;
}

// Every record of a batch, unpacked.
inline std::vector<OwnedRecord> read_all(const BatchView& batch) {
  const auto unpacked = decompress(batch.codec().value(), batch.records(), 100 << 20);
  INFO("codec: ", std::string(name_of(*batch.codec())));
  INFO("error: ", unpacked ? std::string() : unpacked.error().message);
  REQUIRE(unpacked.has_value());
  std::vector<OwnedRecord> records;
  const auto walked =
      for_each_record(*unpacked, batch.record_count(),
                      [&](const RecordView& record) { records.push_back(owned(batch, record)); });
  REQUIRE(walked.has_value());
  return records;
}

// Text of a few letters, so that there is something to compress.
inline std::string random_text(std::mt19937_64& random, std::size_t longest) {
  std::string text(random() % (longest + 1), ' ');
  for (char& c : text) c = static_cast<char>('a' + random() % 4);
  return text;
}
inline std::optional<std::string> maybe_text(std::mt19937_64& random, std::size_t longest) {
  if (random() % 4 == 0) return std::nullopt;
  return random_text(random, longest);
}

inline constexpr Codec all_codecs[] = {Codec::none, Codec::gzip, Codec::snappy, Codec::lz4,
                                       Codec::zstd};

}  // namespace tarry::records
