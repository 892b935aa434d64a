#include "storage/kafka_log.h"

#include <doctest/doctest.h>
#include <fmt/core.h>
#include <sys/resource.h>

#include <csignal>
#include <filesystem>
#include <limits>
#include <string>
#include <vector>

#include "base/bytes.h"
#include "base/crc32c.h"
#include "batches.h"
#include "records/record_batch.h"
#include "storage/kafka_groups.h"
#include "storage/log.h"
#include "storage/log_import.h"
#include "storage/segment.h"
#include "tests/memory_disk.h"
#include "tests/storage/scratch.h"

TEST_SUITE_BEGIN("kafka log");

namespace tarry::storage {
namespace {

struct KafkaBatch {
  Offset base = 0;
  int records = 10;
  ProducerId producer = -1;
  bool transactional = false;
  records::Codec codec = records::Codec::none;
};

Buffer kafka_batch(const KafkaBatch& wanted) {
  records::BatchOptions options;
  options.base_offset = wanted.base;
  options.leader_epoch = 5;
  options.codec = wanted.codec;
  options.producer_id = wanted.producer;
  options.producer_epoch = wanted.producer < 0 ? std::int16_t{-1} : std::int16_t{0};
  options.base_sequence = wanted.producer < 0 ? -1 : 0;
  options.transactional = wanted.transactional;
  records::BatchBuilder builder(options);
  for (int i = 0; i < wanted.records; ++i) {
    const auto text = fmt::format("record {}", wanted.base + i);
    builder.append(from_ms(1'700'000'000'000 + wanted.base + i), std::nullopt, as_bytes(text));
  }
  return builder.finish();
}

Buffer kafka_marker(Offset base, ProducerId producer, bool commits) {
  records::BatchOptions options;
  options.base_offset = base;
  options.leader_epoch = 5;
  options.producer_id = producer;
  options.producer_epoch = 0;
  options.transactional = options.control = true;
  records::BatchBuilder builder(options);
  const Buffer key{0, 0, 0, static_cast<std::uint8_t>(commits ? 1 : 0)}, value{0, 0, 0, 0, 0, 0};
  builder.append(from_ms(1'700'000'000'000 + base), Bytes(key), Bytes(value));
  return builder.finish();
}

// What the cleaner keeps of a transaction that it has taken out: a batch without its marker.
Buffer kafka_emptied_marker(Offset base, ProducerId producer) {
  Buffer batch = kafka_marker(base, producer, true);
  batch.resize(records::batch_header_size);
  store_be(batch.data() + records::field::batch_length,
           static_cast<std::int32_t>(batch.size() - records::batch_length_end));
  store_be(batch.data() + records::field::record_count, std::int32_t{0});
  store_be(batch.data() + records::field::crc,
           crc32c(Bytes(batch).subspan(records::field::attributes)));
  return batch;
}

struct KafkaDirectory {
  explicit KafkaDirectory(Disk& disk, std::string path) : disk(disk), path(std::move(path)) {
    REQUIRE(disk.make_directories(this->path));
  }

  void put(Offset base, const char* suffix, const std::vector<Buffer>& batches) {
    Buffer bytes;
    for (const auto& batch : batches) append_bytes(bytes, batch);
    REQUIRE(replace_file(disk, segment_path(path, base, suffix), bytes));
  }

  Disk& disk;
  const std::string path;
};

std::vector<Offset> kept_of(KafkaLog& log) {
  std::vector<Offset> out;
  const auto read = log.for_each_kept([&](std::size_t, const records::BatchView& batch) {
    out.push_back(batch.base_offset());
    return Result<>();
  });
  REQUIRE(read);
  return out;
}

// Two committed, two aborted and two unfinished transactions among other batches.
void put_transactions(KafkaDirectory& directory) {
  directory.put(
      0, ".log",
      {kafka_batch({0}), kafka_batch({.base = 10, .producer = 7, .transactional = true}),
       kafka_batch({.base = 20, .producer = 8, .transactional = true}), kafka_marker(30, 7, false),
       kafka_batch({.base = 31, .producer = 7, .transactional = true})});
  directory.put(41, ".log",
                {kafka_marker(41, 8, true), kafka_marker(42, 7, true),
                 kafka_batch({.base = 43, .producer = 9, .transactional = true}),
                 kafka_batch({.base = 53, .producer = 7}),
                 kafka_batch({.base = 63, .producer = 7, .transactional = true}),
                 kafka_marker(73, 7, false)});
}

TEST_CASE("batches of aborted and of unfinished transactions are left out, and so are markers") {
  SeededRandom random{1};
  MemoryDisk disk{random};
  KafkaDirectory directory(disk, "kafka/orders-0");
  put_transactions(directory);
  KafkaLog log(disk, directory.path, std::nullopt);
  std::uint64_t bytes = 0;
  const auto survey = log.survey([&](std::uint64_t more) { bytes += more; });
  REQUIRE(survey);
  CHECK(survey->start == 0);
  CHECK(survey->end == 74);
  CHECK(survey->kept_batches == 4);
  CHECK(survey->kept_records == 40);
  CHECK(survey->control_batches == 4);
  CHECK(survey->aborted_records == 20);
  CHECK(survey->unfinished_records == 10);
  CHECK(survey->bytes == bytes);
  CHECK(kept_of(log) == std::vector<Offset>{0, 20, 31, 53});
}

TEST_CASE("a control batch of which the cleaner has kept nothing but its header is no damage") {
  SeededRandom random{1};
  MemoryDisk disk{random};
  KafkaDirectory directory(disk, "kafka/orders-0");
  directory.put(0, ".log",
                {kafka_batch({0}), kafka_emptied_marker(10, 7), kafka_batch({.base = 11})});
  KafkaLog log(disk, directory.path, std::nullopt);
  const auto survey = log.survey([](std::uint64_t) {});
  if (!survey) FAIL(survey.error().message);
  CHECK(survey->end == 21);
  CHECK(kept_of(log) == std::vector<Offset>{0, 11});
}

TEST_CASE("an entry of .txnindex leaves a batch out whose marker is not there any more") {
  SeededRandom random{1};
  MemoryDisk disk{random};
  KafkaDirectory directory(disk, "kafka/orders-0");
  directory.put(
      0, ".log",
      {kafka_batch({.base = 0, .producer = 7, .transactional = true}),
       kafka_batch({.base = 10, .producer = 7, .transactional = true}), kafka_marker(20, 7, true)});
  Buffer entry;
  append_be(entry, std::int16_t{0});
  for (const std::int64_t number : {7, 0, 9, 10}) append_be(entry, number);
  directory.put(0, ".txnindex", {entry});
  KafkaLog log(disk, directory.path, std::nullopt);
  REQUIRE(log.survey({}));
  CHECK(kept_of(log) == std::vector<Offset>{10});
  entry[1] = 1;
  directory.put(0, ".txnindex", {entry});
  KafkaLog later(disk, directory.path, std::nullopt);
  CHECK(later.survey({}).error().code == Errc::unsupported);
}

TEST_CASE("records before the log's start are not read") {
  SeededRandom random{1};
  MemoryDisk disk{random};
  KafkaDirectory directory(disk, "kafka/orders-0");
  directory.put(0, ".log", {Buffer(100, 0xee)});
  directory.put(10, ".log", {kafka_batch({10}), kafka_batch({20})});
  KafkaLog log(disk, directory.path, 20);
  const auto survey = log.survey({});
  REQUIRE(survey);
  CHECK(survey->start == 20);
  CHECK(log.segments() == std::vector<Offset>{10});
  CHECK(kept_of(log) == std::vector<Offset>{20});
}

TEST_CASE("a broken batch and an older format are refused with file, position and offset") {
  SeededRandom random{1};
  MemoryDisk disk{random};
  KafkaDirectory directory(disk, "kafka/orders-0");
  const auto good = kafka_batch({0});
  auto bad = kafka_batch({10});
  bad.back() ^= 1;
  directory.put(0, ".log", {good, bad});
  const auto position = fmt::format("position {}", good.size());
  {
    KafkaLog log(disk, directory.path, std::nullopt);
    const auto survey = log.survey({});
    REQUIRE_FALSE(survey);
    CHECK(survey.error().code == Errc::corrupt);
    CHECK(survey.error().message.contains(segment_path(directory.path, 0, ".log")));
    CHECK(survey.error().message.contains(position));
    CHECK(survey.error().message.contains("offset 10"));
  }
  bad[records::field::magic] = 1;
  directory.put(0, ".log", {good, bad});
  KafkaLog log(disk, directory.path, std::nullopt);
  const auto survey = log.survey({});
  REQUIRE_FALSE(survey);
  CHECK(survey.error().code == Errc::unsupported);
  CHECK(survey.error().message.contains("offset 10"));
  CHECK(survey.error().message.contains("format 1"));
}

TEST_CASE(
    "an offset checkpoint and the name of a partition's directory are read as Kafka means them") {
  SeededRandom random{1};
  MemoryDisk disk{random};
  REQUIRE(disk.make_directories("kafka"));
  const std::string path = "kafka/log-start-offset-checkpoint";
  CHECK(read_offset_checkpoint(disk, path)->empty());
  REQUIRE(replace_file(disk, path, {}));
  CHECK(read_offset_checkpoint(disk, path)->empty());
  REQUIRE(replace_file(disk, path, as_bytes("0\n2\norders 0 17\na-b_c.d 12 0\n")));
  const auto read = read_offset_checkpoint(disk, path);
  REQUIRE(read);
  REQUIRE(read->size() == 2);
  CHECK((*read)[0].topic == "orders");
  CHECK((*read)[0].offset == 17);
  CHECK((*read)[1].partition == 12);
  for (const char* wrong : {"1\n0\n", "0\n1\n", "0\n1\norders 0\n", "0\n1\norders x 1\n"}) {
    REQUIRE(replace_file(disk, path, as_bytes(std::string_view(wrong))));
    CHECK_FALSE(read_offset_checkpoint(disk, path));
  }
  CHECK(parse_partition_directory("a-b-12")->topic == "a-b");
  CHECK(parse_partition_directory("a-b-12")->partition == 12);
  for (const char* none : {"orders", "-0", "orders-", "orders-01",
                           "orders-0.0123456789abcdef-delete", "orders-0.x-future"})
    CHECK_FALSE(parse_partition_directory(none));
}

TEST_CASE("the last commit of a group counts, and one without a value removes it") {
  const auto key = [](std::string_view group, std::int16_t version = 1) {
    Buffer out;
    append_be(out, version);
    for (const std::string_view text : {group, std::string_view("orders")}) {
      append_be(out, static_cast<std::int16_t>(text.size()));
      append_bytes(out, as_bytes(text));
    }
    append_be(out, std::int32_t{3});
    return out;
  };
  const auto value = [](Offset offset, std::int16_t version) {
    Buffer out;
    append_be(out, version);
    append_be(out, offset);
    if (version >= 3) append_be(out, std::int32_t{4});
    if (version >= 4) {
      append_be(out, std::int8_t{3});
    } else {
      append_be(out, std::int16_t{2});
    }
    append_bytes(out, as_bytes("me"));
    append_be(out, std::int64_t{1'700'000'000'000});
    return out;
  };
  KafkaGroups groups;
  for (const auto version : std::vector<std::int16_t>{0, 1, 2, 3, 4}) {
    CHECK(groups.take(key("a"), Bytes(value(10 + version, version))));
    REQUIRE(groups.of_topic("orders").size() == 1);
    const auto one = groups.of_topic("orders").front();
    CHECK(one.group == "a");
    CHECK(one.partition == 3);
    CHECK(one.offset == 10 + version);
    CHECK(one.metadata == "me");
  }
  CHECK(groups.take(key("b"), Bytes(value(7, 3))));
  CHECK(groups.of_topic("orders").size() == 2);
  CHECK(groups.take(key("a"), std::nullopt));
  CHECK(groups.of_topic("orders").size() == 1);
  CHECK(groups.of_topic("order").empty());
  CHECK(groups.take(key("a", 2), std::nullopt));           // A group's members.
  CHECK_FALSE(groups.take(key("a"), Bytes(value(7, 5))));  // A later format.
  CHECK_FALSE(groups.take(key("a", -1), std::nullopt));
  CHECK_FALSE(groups.take({}, std::nullopt));
  CHECK(groups.take(key("b"), Bytes(value(-1, 3))));  // None, to a consumer.
  CHECK(groups.of_topic("orders").empty());
}

TEST_CASE("records of the newer kinds of groups are skipped and counted, and are nothing unknown") {
  SeededRandom random{1};
  MemoryDisk disk{random};
  KafkaDirectory directory(disk, "kafka/__consumer_offsets-0");
  records::BatchOptions options;
  records::BatchBuilder builder(options);
  // A group's members, then those of consumer, share and streams groups, and their assignments.
  for (std::int16_t version = 2; version < 26; ++version) {
    Buffer key;
    append_be(key, version);
    append_be(key, std::int16_t{1});
    append_bytes(key, as_bytes("g"));
    builder.append(from_ms(1), Bytes(key), Bytes(key));
  }
  directory.put(0, ".log", {builder.finish()});
  KafkaLog log(disk, directory.path, std::nullopt);
  REQUIRE(log.survey({}));
  KafkaGroups groups;
  REQUIRE(groups.read(log));
  CHECK(groups.unknown() == 0);
  CHECK(groups.skipped() == 23);
}

TEST_CASE("a compaction that Kafka has to end is refused, one that it throws away is not read") {
  SeededRandom random{1};
  MemoryDisk disk{random};
  KafkaDirectory directory(disk, "kafka/orders-0");
  directory.put(0, ".log", {kafka_batch({0}), kafka_batch({10})});
  directory.put(0, ".log.cleaned", {kafka_batch({10})});
  directory.put(20, ".log.deleted", {kafka_batch({20})});
  {
    KafkaLog log(disk, directory.path, std::nullopt);
    REQUIRE(log.survey({}));
    CHECK(kept_of(log) == std::vector<Offset>{0, 10});
  }
  for (const char* suffix : {".log.swap", ".txnindex.swap"}) {
    directory.put(0, suffix, {kafka_batch({10})});
    KafkaLog log(disk, directory.path, std::nullopt);
    const auto survey = log.survey({});
    REQUIRE_FALSE(survey);
    CHECK(survey.error().message.contains(segment_path(directory.path, 0, suffix)));
    CHECK(survey.error().message.contains("start it, stop it cleanly"));
    REQUIRE(disk.remove(segment_path(directory.path, 0, suffix)));
  }
}

TEST_CASE("a batch whose offsets leave no room for another one is broken") {
  SeededRandom random{1};
  MemoryDisk disk{random};
  KafkaDirectory directory(disk, "kafka/orders-0");
  auto batch = kafka_batch({.records = 1});
  store_be(batch.data() + records::field::base_offset, std::numeric_limits<Offset>::max());
  directory.put(0, ".log", {batch});
  KafkaLog log(disk, directory.path, std::nullopt);
  CHECK(log.survey({}).error().code == Errc::corrupt);
}

struct ImportFixture {
  ScratchDirectory scratch;
  PosixDisk disk;
  SeededRandom random{5};
  KafkaDirectory source{disk, scratch.path("kafka/orders-0")};
  std::string data = scratch.path("data");

  ImportedTopic topic(KafkaLog& log) {
    const auto survey = log.survey({});
    if (!survey) FAIL(survey.error().message);
    return {"orders",
            "Vf3kPzqXQy6bYH0nS8rQ0w",
            {{"retention.ms", "-1"}},
            {{&log, *survey}},
            {{"billing", 0, 53, "m"}}};
  }
  LogImport open() {
    auto opened = LogImport::open(disk, data, "", random);
    if (!opened) FAIL(opened.error().message);
    return std::move(*opened);
  }
};

TEST_CASE("an imported log has the kept batches with their offsets and ends where Kafka's ended") {
  ImportFixture fixture;
  put_transactions(fixture.source);
  KafkaLog log(fixture.disk, fixture.source.path, 5);
  TopicId id;
  {
    auto target = fixture.open();
    const auto added = target.add(fixture.topic(log), from_ms(1), {});
    if (!added) FAIL(added.error().message);
    id = *added;
    CHECK(target.find("orders", "Vf3kPzqXQy6bYH0nS8rQ0w").value()->is_same);
    CHECK_FALSE(target.find("orders", "AAAAAAAAAAAAAAAAAAAAAA").value()->is_same);
    CHECK_FALSE(target.find("other", "").value());
  }
  auto meta = Database::open(fixture.data + "/db/meta");
  REQUIRE(meta);
  Catalog catalog(**meta);
  REQUIRE(catalog.load());
  const auto topic = catalog.image()->find("orders");
  REQUIRE(topic);
  CHECK(topic->id == id);
  CHECK(topic->partitions == 1);
  CHECK(topic->configs.at("retention.ms") == "-1");

  auto opened = Log::open(fixture.disk, fixture.data + "/logs/orders-0", id, {});
  REQUIRE(opened);
  CHECK_FALSE(opened->damage);
  auto& imported = opened->log;
  CHECK(imported.start_offset() == 5);
  CHECK(imported.end_offset() == 74);
  std::vector<Offset> bases;
  for (Offset from = 5; from < imported.end_offset();) {
    auto read = imported.read(from, imported.end_offset(), 1 << 20, true);
    const auto got = std::get<DiskRead>(read).run();
    REQUIRE(got);
    if (got->empty()) break;
    for (const auto& run : *got) {
      for (Bytes rest = run.view(); !rest.empty();) {
        const auto view = records::next_batch(rest);
        REQUIRE(view);
        CHECK(view->crc_matches());
        CHECK(view->leader_epoch() == 0);
        if (!view->is_control()) bases.push_back(view->base_offset());
        from = view->next_offset();
        rest = rest.subspan(view->size());
      }
    }
  }
  CHECK(bases == std::vector<Offset>{0, 20, 31, 53});
  // It goes on at the end, also when the journal has the log from there.
  REQUIRE(imported.truncate_to(74));
  CHECK(imported.end_offset() == 74);
}

TEST_CASE("the files of an import that was cut short are nobody's, and the next one removes them") {
  ImportFixture fixture;
  put_transactions(fixture.source);
  const std::string log_directory = fixture.data + "/logs/orders-0";
  {
    auto target = fixture.open();
    // As a kill before the flush leaves it: everything but the topic.
    REQUIRE(fixture.disk.make_directories(log_directory));
    REQUIRE(
        replace_file(fixture.disk, log_directory + "/partition.metadata",
                     as_bytes("version: 0\ntopic_id: " + fixture.random.topic_id().text() + "\n")));
    REQUIRE(replace_file(fixture.disk, log_directory + "/imported-from", {}));
    REQUIRE(replace_file(fixture.disk, segment_path(log_directory, 500, ".log"), {}));
    CHECK_FALSE(target.find("orders", "").value());
    KafkaLog log(fixture.disk, fixture.source.path, std::nullopt);
    REQUIRE(target.add(fixture.topic(log), from_ms(1), {}));
  }
  CHECK(fixture.disk.open(segment_path(log_directory, 500, ".log"), {}).error().code ==
        Errc::not_found);
  // A second run finds the topic and a source that fails leaves nothing.
  auto target = fixture.open();
  KafkaLog log(fixture.disk, fixture.source.path, std::nullopt);
  auto other = fixture.topic(log);
  other.name = "other";
  auto bytes = *read_file(fixture.disk, segment_path(fixture.source.path, 41, ".log"), 1 << 20);
  bytes.back() ^= 1;
  REQUIRE(replace_file(fixture.disk, segment_path(fixture.source.path, 41, ".log"), bytes));
  CHECK_FALSE(target.add(other, from_ms(1), {}));
  CHECK_FALSE(target.find("other", "").value());
  CHECK_FALSE(std::filesystem::exists(fixture.data + "/logs/other-0"));
  CHECK(std::filesystem::exists(log_directory));
}

TEST_CASE("an import removes no log beside its data directory, not even one that an import made") {
  ImportFixture fixture;
  put_transactions(fixture.source);
  const std::string logs = fixture.scratch.path("logs");
  const auto import_into = [&](const std::string& data) -> Result<> {
    auto target = LogImport::open(fixture.disk, data, logs, fixture.random);
    if (!target) return std::unexpected(target.error());
    KafkaLog log(fixture.disk, fixture.source.path, std::nullopt);
    const auto added = target->add(fixture.topic(log), from_ms(1), {});
    if (!added) return std::unexpected(added.error());
    return {};
  };
  REQUIRE(import_into(fixture.data));
  const auto owner = topic_of_log(fixture.disk, logs + "/orders-0").value();
  REQUIRE(owner);
  // The same command with another data directory, which knows nothing of these logs.
  const auto again = import_into(fixture.scratch.path("mistyped"));
  REQUIRE_FALSE(again);
  CHECK(again.error().code == Errc::invalid);
  CHECK(topic_of_log(fixture.disk, logs + "/orders-0").value() == owner);
}

TEST_CASE("an import that was killed before its first file had its name can be repeated") {
  ImportFixture fixture;
  put_transactions(fixture.source);
  const std::string log_directory = fixture.data + "/logs/orders-0";
  auto target = fixture.open();
  REQUIRE(fixture.disk.make_directories(log_directory));
  const auto begun = fixture.disk.open(log_directory + "/partition.metadata.tmp",
                                       {.write = true, .create = OpenOptions::Create::if_absent});
  REQUIRE(begun);
  REQUIRE((*begun)->pwrite(0, as_bytes("version: 0\ntopic")));
  KafkaLog log(fixture.disk, fixture.source.path, std::nullopt);
  const auto added = target.add(fixture.topic(log), from_ms(1), {});
  if (!added) FAIL(added.error().message);
  CHECK(*topic_of_log(fixture.disk, log_directory) == *added);
}

TEST_CASE("an import removes no directory with records that no import has made") {
  ImportFixture fixture;
  put_transactions(fixture.source);
  const std::string log_directory = fixture.data + "/logs/orders-0";
  auto target = fixture.open();
  REQUIRE(fixture.disk.make_directories(log_directory));
  REQUIRE(
      replace_file(fixture.disk, log_directory + "/partition.metadata",
                   as_bytes("version: 0\ntopic_id: " + fixture.random.topic_id().text() + "\n")));
  const auto file = segment_path(log_directory, 0, ".log");
  REQUIRE(replace_file(fixture.disk, file, kafka_batch({0})));
  KafkaLog log(fixture.disk, fixture.source.path, std::nullopt);
  const auto added = target.add(fixture.topic(log), from_ms(1), {});
  REQUIRE_FALSE(added);
  CHECK(added.error().message.contains("move it away"));
  CHECK(fixture.disk.open(file, {}));
}

TEST_CASE("a log of Kafka may begin or end far from its records") {
  constexpr Offset far = Offset{1} << 40;
  ImportFixture fixture;
  fixture.source.put(7, ".log", {});
  fixture.source.put(far, ".log", {kafka_batch({far}), kafka_batch({far + 10})});
  fixture.source.put(2 * far, ".log", {});
  KafkaLog log(fixture.disk, fixture.source.path, std::nullopt);
  const auto id = fixture.open().add(fixture.topic(log), from_ms(1), {});
  if (!id) FAIL(id.error().message);
  auto opened = Log::open(fixture.disk, fixture.data + "/logs/orders-0", *id, {});
  REQUIRE(opened);
  CHECK_FALSE(opened->damage);
  CHECK(opened->log.start_offset() == 7);
  CHECK(opened->log.end_offset() == 2 * far);
  std::vector<Offset> bases;
  for (Offset from = 7; from < 2 * far;) {
    auto read = opened->log.read(from, 2 * far, 1, true);
    const auto got = std::get<DiskRead>(read).run();
    REQUIRE(got);
    REQUIRE_FALSE(got->empty());
    const auto view = records::next_batch(got->front().view());
    REQUIRE(view);
    if (!view->is_control()) bases.push_back(view->base_offset());
    from = view->next_offset();
  }
  CHECK(bases == std::vector<Offset>{far, far + 10});
}

// No file grows beyond `bytes` while it lives.
class FileSizeLimit {
 public:
  explicit FileSizeLimit(rlim_t bytes) : handler_(std::signal(SIGXFSZ, SIG_IGN)) {
    REQUIRE(::getrlimit(RLIMIT_FSIZE, &before_) == 0);
    ::rlimit limit = before_;
    limit.rlim_cur = bytes;
    REQUIRE(::setrlimit(RLIMIT_FSIZE, &limit) == 0);
  }
  ~FileSizeLimit() {
    ::setrlimit(RLIMIT_FSIZE, &before_);
    std::signal(SIGXFSZ, handler_);
  }
  FileSizeLimit(const FileSizeLimit&) = delete;
  FileSizeLimit& operator=(const FileSizeLimit&) = delete;

 private:
  void (*const handler_)(int);
  ::rlimit before_{};
};

TEST_CASE("a topic whose rows could not be written is not published by the next one") {
  constexpr std::size_t limit = 1 << 20;
  ImportFixture fixture;
  put_transactions(fixture.source);
  const std::string meta = fixture.data + "/db/meta";
  std::string large;
  for (std::size_t at = 0; at < 4 * limit; ++at)
    large.push_back(static_cast<char>('0' + fixture.random.u64() % 64));
  {
    auto target = fixture.open();
    KafkaLog log(fixture.disk, fixture.source.path, std::nullopt);
    auto refused = fixture.topic(log);
    refused.configs["large"] = large;
    {
      const FileSizeLimit small(limit);
      CHECK_FALSE(target.add(refused, from_ms(1), {}));
    }
    CHECK_FALSE(target.find("orders", "").value());
    CHECK_FALSE(std::filesystem::exists(fixture.data + "/logs/orders-0"));
    KafkaLog again(fixture.disk, fixture.source.path, std::nullopt);
    auto next = fixture.topic(again);
    next.name = "next";
    const auto added = target.add(next, from_ms(1), {});
    if (!added) FAIL(added.error().message);
  }
  {
    auto target = fixture.open();
    CHECK(target.find("next", "").value());
    CHECK_FALSE(target.find("orders", "").value());
    // Without its database an import knows nothing, and goes on with nothing.
    std::filesystem::rename(meta, meta + ".away");
    KafkaLog log(fixture.disk, fixture.source.path, std::nullopt);
    CHECK_FALSE(target.add(fixture.topic(log), from_ms(1), {}));
    std::filesystem::rename(meta + ".away", meta);
    KafkaLog again(fixture.disk, fixture.source.path, std::nullopt);
    CHECK_FALSE(target.add(fixture.topic(again), from_ms(1), {}));
    CHECK_FALSE(target.find("orders", ""));
  }
  auto target = fixture.open();
  CHECK_FALSE(target.find("orders", "").value());
  KafkaLog log(fixture.disk, fixture.source.path, std::nullopt);
  CHECK(target.add(fixture.topic(log), from_ms(1), {}));
}

}  // namespace
}  // namespace tarry::storage

TEST_SUITE_END();
