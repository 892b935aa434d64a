#include "cli/segment_dump.h"

#include <fstream>
#include <sstream>

#include <doctest/doctest.h>

#include "base/bytes.h"
#include "base/json.h"
#include "base/random.h"
#include "tests/cli/captured.h"
#include "tests/given.h"
#include "tests/memory_disk.h"
#include "tests/test_data.h"

namespace tarry::cli {
namespace {

constexpr const char* path = "logs/orders-0/00000000000000000000.log";

struct Golden {
  Buffer bytes;
  Json fields;
};

// The batches that Kafka's own classes wrote.
std::vector<Golden> golden_batches() {
  std::ifstream file(test_data("records/golden/batches.txt"));
  std::vector<Golden> batches;
  for (std::string line; std::getline(file, line);) {
    const auto space = line.find(' ');
    if (line.starts_with('#') || space == std::string::npos) continue;
    Buffer bytes;
    for (std::size_t i = 0; i + 1 < space; i += 2)
      bytes.push_back(static_cast<std::uint8_t>(std::stoi(line.substr(i, 2), nullptr, 16)));
    batches.push_back({std::move(bytes), Json::parse(line.substr(space + 1))});
  }
  REQUIRE(batches.size() == 61);
  return batches;
}

class SegmentFile {
 public:
  explicit SegmentFile(const Buffer& bytes) : disk_(random_) {
    REQUIRE(disk_.make_directories("logs/orders-0").has_value());
    const auto file =
        disk_.open(path, {.write = true, .create = storage::OpenOptions::Create::must});
    REQUIRE(file.has_value());
    REQUIRE((*file)->pwrite(0, bytes).has_value());
  }

  SegmentFindings dump(const SegmentDump& how) {
    Captured out;
    const auto findings = dump_segment(disk_, path, how, out.output());
    REQUIRE(findings.has_value());
    text = out.text();
    return *findings;
  }
  std::vector<Json> batches() const {
    std::vector<Json> all;
    std::istringstream lines(text);
    for (std::string line; std::getline(lines, line);) all.push_back(Json::parse(line));
    return all;
  }

  std::string text;  // The text of the last dump.

 private:
  SeededRandom random_{7};
  storage::MemoryDisk disk_;
};

std::string hex(const std::string& text) {
  std::string digits;
  for (const char c : text) {
    digits += "0123456789abcdef"[static_cast<unsigned char>(c) >> 4];
    digits += "0123456789abcdef"[static_cast<unsigned char>(c) & 15];
  }
  return digits;
}

TEST_SUITE_BEGIN("segment_dump");

TEST_CASE("Kafka's own batches are shown with the fields that Kafka gave them") {
  auto golden = golden_batches();
  std::erase_if(golden, [](const Golden& batch) { return batch.fields.contains("control"); });
  Buffer all;
  for (const auto& batch : golden) append_bytes(all, batch.bytes);
  SegmentFile segment(all);
  const auto findings = segment.dump({.records = true, .json = true});
  CHECK(findings.batches == golden.size());
  CHECK(findings.first == "");
  const auto batches = segment.batches();
  REQUIRE(batches.size() == golden.size());
  std::size_t position = 0;
  for (std::size_t i = 0; i < golden.size(); ++i) {
    const auto& shown = batches[i];
    const auto& fields = golden[i].fields;
    CAPTURE(i);
    CHECK(shown["position"] == position);
    CHECK(shown["size"] == golden[i].bytes.size());
    CHECK(shown["isvalid"] == true);
    position += golden[i].bytes.size();
    CHECK(shown["baseOffset"] == fields["base"]);
    CHECK(shown["producerId"] == fields["pid"]);
    CHECK(shown["compresscodec"] == fields["codec"]);
    CHECK(shown["lastOffset"] == fields["last"]);
    CHECK(shown[fields["tsType"].get<std::string>()] == fields["maxTs"]);
    CHECK(shown["producerEpoch"] == fields["epoch"]);
    CHECK(shown["baseSequence"] == fields["seq"]);
    CHECK(shown["lastSequence"] == fields["lastSeq"]);
    CHECK(shown["isTransactional"] == fields["txn"]);
    CHECK(shown["crc"] == fields["crc"]);
    const auto& records = fields["records"];
    REQUIRE(shown["records"].size() == records.size());
    CHECK(shown["count"] == records.size());
    for (std::size_t r = 0; r < records.size(); ++r) {
      const auto& record = shown["records"][r];
      CHECK(record["offset"] == records[r]["o"]);
      CHECK(record["headers"].size() == records[r]["h"].size());
      if (record.contains("payload_base64") || record["payload"].is_null()) continue;
      CHECK(hex(record["payload"].get<std::string>()) == records[r]["v"].get<std::string>());
    }
  }
}

TEST_CASE("a transaction's marker is a control batch") {
  int markers = 0;
  for (const auto& batch : golden_batches()) {
    if (!batch.fields.contains("control")) continue;
    ++markers;
    SegmentFile segment(batch.bytes);
    CHECK(segment.dump({.records = true, .json = true}).wrong == 0);
    CHECK(segment.batches()[0]["isControl"] == true);
    CHECK(segment.batches()[0]["producerId"] == batch.fields["pid"]);
  }
  CHECK(markers == 2);
}

TEST_CASE("the text dump has Kafka's field names") {
  SegmentFile segment(golden_batches()[1].bytes);
  segment.dump({.records = true});
  CHECK(segment.text.starts_with(
      "Dumping logs/orders-0/00000000000000000000.log\nLog starting offset: 0\nbaseOffset: 1000 "));
  for (const auto* word : {"lastOffset: 1002 ", "count: 3 ", "baseSequence: -1 ", "producerId: -1 ",
                           "producerEpoch: -1 ", "position: 0 ", "CreateTime: 1700000000006 ",
                           "size: 156 ", "compresscodec: none ", "isvalid: true\n",
                           "\n| offset: 1001 ", "keySize: 2 ", "payload: value-1-"}) {
    CAPTURE(segment.text);
    CHECK_MESSAGE(segment.text.find(word) != std::string::npos, word);
  }
}

TEST_CASE("a batch whose checksum is wrong is shown as not valid, and those behind it too") {
  const auto golden = golden_batches();
  Buffer all = golden[0].bytes;
  append_bytes(all, golden[1].bytes);
  all[golden[0].bytes.size() - 2] ^= 1;
  SegmentFile segment(all);
  const auto findings = segment.dump({.json = true});
  CHECK(findings.batches == 2);
  CHECK(findings.wrong == 1);
  CHECK(findings.first.find("position 0") != std::string::npos);
  CHECK(segment.batches()[0]["isvalid"] == false);
  CHECK(segment.batches()[1]["isvalid"] == true);
}

TEST_CASE("a torn end is reported with its position, wherever it is torn") {
  const auto golden = golden_batches();
  const std::size_t whole = golden[0].bytes.size();
  for (std::size_t torn = 1; torn < golden[1].bytes.size(); torn += 7) {
    Buffer all = golden[0].bytes;
    append_bytes(all, Bytes(golden[1].bytes).first(torn));
    SegmentFile segment(all);
    const auto findings = segment.dump({});
    CHECK(findings.batches == 1);
    CHECK(findings.wrong == 1);
    CHECK(findings.first.find(std::to_string(whole)) != std::string::npos);
  }
}

TEST_CASE("bytes that are not a batch are reported; an empty file is fine") {
  SegmentFile zeros(Buffer(5000, 0));
  CHECK(zeros.dump({}).wrong == 1);
  SegmentFile empty(Buffer{});
  CHECK(empty.dump({}).wrong == 0);
}

TEST_SUITE_END();
}  // namespace
}  // namespace tarry::cli
