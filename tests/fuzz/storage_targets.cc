#include <string>
#include <vector>

#include "base/assert.h"
#include "base/crc32c.h"
#include "broker/groups/group_record.h"
#include "delay/pending_record.h"
#include "delay/time_zones.h"
#include "records/record_batch.h"
#include "storage/bucket_rows.h"
#include "storage/chunk.h"
#include "storage/index.h"
#include "storage/journal_format.h"
#include "storage/journal_record.h"
#include "storage/journal_recovery.h"
#include "storage/pending.h"
#include "storage/producer_states.h"
#include "storage/segment.h"
#include "tests/fuzz/targets.h"
#include "tests/given.h"
#include "tests/memory_disk.h"

namespace tarry::fuzz {

namespace {

void put_file(storage::Disk& disk, const std::string& path, Bytes bytes) {
  auto file = disk.open(path, {.write = true, .create = storage::OpenOptions::Create::if_absent});
  TARRY_ASSERT(file.has_value() && (*file)->pwrite(0, bytes) && (*file)->sync(),
               "a file can be made");
}

// Journal records as they were written, and as many as stand before anything was damaged.
struct WrittenJournal {
  Buffer file;
  std::vector<Buffer> records;
};

// A file whose rounds are whole, of the records that the input says; then bytes of it are changed.
WrittenJournal written_journal(Input& from) {
  WrittenJournal journal;
  journal.file.resize(storage::block_bytes);
  const storage::JournalFileHeader header{3, 1, 77, 0, 0};
  header.write(journal.file);
  const std::size_t rounds = from.u8() % 5;
  Lsn synced = storage::block_bytes;
  for (std::size_t number = 1; number <= rounds; ++number) {
    Buffer payload;
    const std::size_t records = 1 + from.u8() % 3;
    for (std::size_t i = 0; i < records; ++i) {
      const Bytes record = from.piece();
      append_be(payload, static_cast<std::uint32_t>(record.size()));
      append_bytes(payload, record);
      journal.records.emplace_back(record.begin(), record.end());
    }
    storage::RoundHeader round;
    round.salt = 77;
    round.incarnation = 1;
    round.number = number;
    round.lsn = journal.file.size();
    round.synced_to = from.u8() % 2 == 0 ? synced : storage::block_bytes;
    round.payload_bytes = static_cast<std::uint32_t>(payload.size());
    round.records = static_cast<std::uint32_t>(records);
    round.payload_crc = crc32c(payload);
    const std::size_t at = journal.file.size();
    journal.file.resize(static_cast<std::size_t>(round.end()));
    round.write(journal.file.data() + at);
    std::ranges::copy(payload, journal.file.begin() +
                                   static_cast<std::ptrdiff_t>(at + storage::round_header_bytes));
    synced = round.end();
  }
  for (std::size_t changes = from.u8() % 4; changes > 0; --changes) {
    const std::size_t at = from.u16() % journal.file.size();
    journal.file[at] = from.u8();
  }
  if (from.u8() % 4 == 1) journal.file.resize(from.u16() % (journal.file.size() + 1));
  return journal;
}

void read_operations(Bytes record) {
  storage::RecordBuilder again;
  std::vector<storage::Operation> operations;
  const auto read =
      storage::for_each_operation(record, [&](const storage::Operation& operation) -> Result<> {
        operations.push_back(operation);
        return {};
      });
  if (!read) return;
  for (const auto& operation : operations)
    std::visit([&](const auto& op) { again.add(op); }, operation);
  Buffer bytes;
  for (const Bytes piece : again.pieces()) append_bytes(bytes, piece);
  std::size_t count = 0;
  const auto twice = storage::for_each_operation(bytes, [&](const storage::Operation&) -> Result<> {
    ++count;
    return {};
  });
  TARRY_ASSERT(twice.has_value() && count == operations.size(), "what was read can be written");
}

// Whole batches and, if the input says so, something else behind them.
Buffer written_log(Input& from) {
  Buffer log;
  Offset next = 0;
  for (std::size_t batches = from.u8() % 6; batches > 0; --batches) {
    const Bytes records = from.piece();
    const std::size_t at = log.size();
    log.resize(at + records::batch_header_size);
    append_bytes(log, records);
    std::uint8_t* const batch = log.data() + at;
    const auto last = static_cast<std::int32_t>(from.u8() % 8);
    store_be(batch + records::field::base_offset, next);
    store_be(batch + records::field::batch_length, static_cast<std::int32_t>(log.size() - at - 12));
    batch[records::field::magic] = 2;
    store_be(batch + records::field::last_offset_delta, last);
    store_be(batch + records::field::max_timestamp, static_cast<std::int64_t>(from.u16()));
    store_be(batch + records::field::record_count, last + 1);
    store_be(batch + records::field::producer_id, static_cast<std::int64_t>(from.u8()) - 1);
    store_be(batch + records::field::crc,
             crc32c(Bytes(log).subspan(at + records::field::attributes)));
    next += last + 1;
  }
  for (std::size_t changes = from.u8() % 4; changes > 0 && !log.empty(); --changes) {
    const std::size_t at = from.u16() % log.size();
    log[at] = from.u8();
  }
  append_bytes(log, from.piece());
  return log;
}

}  // namespace

void fuzz_journal(Bytes input) {
  Input from(input);
  if (from.u8() % 2 == 0) {
    read_operations(from.rest());
    return;
  }
  const WrittenJournal journal = written_journal(from);
  SeededRandom random(1);
  storage::MemoryDisk disk(random);
  TARRY_ASSERT(disk.make_directories("j"), "a directory can be made");
  put_file(disk, "j/" + storage::journal_file_name(0), journal.file);
  const Bytes checkpoint = from.rest();
  if (!checkpoint.empty()) put_file(disk, "j/checkpoint", checkpoint);
  std::size_t count = 0;
  (void)storage::recover_journal(disk, "j", [&](Lsn, Bytes record) -> Result<> {
    // A checkpoint may leave out the first ones.
    if (checkpoint.empty()) {
      TARRY_ASSERT(
          count < journal.records.size() && std::ranges::equal(record, journal.records[count]),
          "recovery gives what was written, from the first record on");
    }
    ++count;
    return {};
  });
}

void fuzz_segment(Bytes input) {
  Input from(input);
  const Buffer log = written_log(from);
  SeededRandom random(1);
  storage::MemoryDisk disk(random);
  TARRY_ASSERT(disk.make_directories("p"), "a directory can be made");
  put_file(disk, storage::segment_path("p", 0, ".log"), log);
  const std::uint8_t what = from.u8();
  const Offset wanted = from.u8();
  const std::uint8_t cut = from.u8();
  if (what % 2 == 0) put_file(disk, storage::segment_path("p", 0, ".index"), from.piece());
  if (what % 4 < 2) put_file(disk, storage::segment_path("p", 0, ".timeindex"), from.rest());
  const auto closed = storage::load_closed_segment(disk, "p", 0, 1000);
  if (closed) (void)storage::position_before(disk, "p", *closed, wanted);
  auto file = disk.open(storage::segment_path("p", 0, ".log"), {});
  TARRY_ASSERT(file.has_value(), "the log is there");
  if (closed) (void)storage::checked_position_before(disk, "p", **file, *closed, wanted);

  const storage::LogConfig config;
  const auto loaded = storage::load_active_segment(disk, "p", 0, config);
  if (!loaded) return;
  const auto& state = loaded->state;
  TARRY_ASSERT(state.bytes <= log.size(), "nothing is added to it");
  TARRY_ASSERT(loaded->damage || state.bytes == log.size(), "what is left out is told");
  const auto position = storage::position_before(disk, "p", state, wanted);
  TARRY_ASSERT(!position || *position <= state.bytes, "a scan begins in the file");
  storage::ProducerStates producers;
  (void)producers.replay_batches(Bytes(log).first(state.bytes), WallTime{});
  if (cut % 2 == 0) {
    const auto left = storage::cut_segment(disk, "p", 0, cut, config);
    if (left) TARRY_ASSERT(left->next == cut && left->bytes <= state.bytes, "it is cut there");
  }
}

void fuzz_rows(Bytes input) {
  Input from(input);
  const std::uint8_t what = from.u8();
  if (what % 8 == 0) {
    const Bytes key = from.piece();
    if (const auto row = storage::decode_chunk_row(key, from.rest())) {
      const auto& [owner, chunk] = *row;
      TARRY_ASSERT(std::ranges::equal(storage::chunk_row_key(owner, chunk.key), key),
                   "a key says what it was made of");
    }
  } else if (what % 8 == 1) {
    if (const auto place = storage::decode_place(from.rest())) {
      const auto again = storage::decode_place(storage::place_value(*place));
      TARRY_ASSERT(again.has_value() && again->unfinished == place->unfinished, "as it was");
    }
  } else if (what % 8 == 2) {
    const auto events = storage::decode_events(input.subspan(1));
    const auto last = storage::decode_last_event(input.subspan(1));
    if (events && !events->empty()) TARRY_ASSERT(last.has_value(), "the last of several is one");
    if (events) {
      const auto again = storage::decode_events(storage::encode_events(*events));
      TARRY_ASSERT(again.has_value() && again->size() == events->size(), "as they were");
    }
  } else if (what % 8 == 3) {
    storage::Marks marks;
    for (int i = 0; i < 4 && !from.empty(); ++i) {
      const Bytes key = from.piece();
      if (!marks.add(key, from.piece())) return;
    }
    marks.finish();
    (void)marks.is_gone(from.u16(), {});
  } else if (what % 8 == 4) {
    (void)storage::decode_home_key(from.rest());
  } else if (what % 8 == 5) {
    (void)storage::decode_count_key(from.rest());
  } else if (what % 8 == 6) {
    if (const auto key = storage::parse_handle(as_text(from.rest())))
      TARRY_ASSERT(storage::parse_handle(storage::encode_handle(*key)) == *key, "as it was");
  } else {
    (void)storage::segment_base(as_text(input.subspan(1)));
    if (const auto first = storage::parse_journal_file_name(as_text(from.rest())))
      TARRY_ASSERT(storage::parse_journal_file_name(storage::journal_file_name(*first)) == *first,
                   "as it was");
  }
}

void fuzz_chunk(Bytes input) {
  Input from(input);
  const auto level = static_cast<storage::BucketLevel>(from.u8() % storage::bucket_levels);
  if (level == storage::BucketLevel::run) {  // Nothing but a pending record's body.
    const auto body = delay::PendingRecordBody::parse(from.rest());
    if (!body) return;
    (void)delay::plain_headers(body->record);
    const delay::TimeZones zones("/nowhere");
    (void)delay::Recurrence::parse(body->recurrence, zones);
    return;
  }
  const auto bucket = storage::bucket_of(
      level, WallTime{std::chrono::milliseconds{std::int64_t{from.u16()} * 60'000'000}});
  const Bytes bytes = from.rest();
  const auto chunk = storage::Chunk::parse(bucket, SharedBytes(Buffer(bytes.begin(), bytes.end())));
  if (!chunk) return;
  for (std::size_t i = 0; i < chunk->size(); ++i) {
    const auto entry = chunk->at(i);
    TARRY_ASSERT(bucket.holds(entry.key.due), "an entry is due in its chunk's bucket");
    TARRY_ASSERT(chunk->find(entry.key.sequence).has_value(), "each entry is found");
  }
  const auto again = storage::Chunk::parse(bucket, SharedBytes(chunk->encode({})));
  TARRY_ASSERT(again.has_value() && again->size() <= chunk->size(), "what was read can be written");
}

void fuzz_group(Bytes input) {
  const auto group = broker::decode_group(input);
  if (!group) return;
  const auto again = broker::decode_group(broker::encode_group(*group));
  TARRY_ASSERT(again.has_value() && *again == *group, "what was read can be written");
}

}  // namespace tarry::fuzz
