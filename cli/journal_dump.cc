#include "cli/journal_dump.h"

#include <optional>
#include <utility>
#include <variant>

#include <fmt/core.h>

#include "base/bytes.h"
#include "base/crc32c.h"
#include "base/time_text.h"
#include "cli/io/json.h"
#include "cli/io/output.h"
#include "storage/journal_format.h"
#include "storage/journal_record.h"
#include "storage/pending.h"
#include "storage/recovery.h"

namespace tarry::cli {
namespace {

namespace st = storage;

Json of_partition(const char* name, const TopicPartition& partition) {
  return {
      {"operation", name}, {"topic", partition.topic.text()}, {"partition", partition.partition}};
}

// Its principal's number, where that is known.
void put_principal(Json& to, PrincipalId principal) {
  if (principal != unknown_principal) to["principal"] = principal;
}

void put_id(Json& to, std::string_view id) {
  if (!id.empty()) put_bytes(to, "id", id);
}

const char* name_of_removal(st::RemovalReason how) {
  switch (how) {
    case st::RemovalReason::delivered:
      return "delivered";
    case st::RemovalReason::cancelled:
      return "cancelled";
    case st::RemovalReason::replaced:
      return "replaced";
    case st::RemovalReason::expired:
      return "expired";
    case st::RemovalReason::moved:
      return "moved";
    case st::RemovalReason::delivered_on_arrival:
      return "delivered_on_arrival";
  }
  return "unknown";
}

// Shows an operation without its records and secrets.
struct OperationJson {
  Json operator()(const st::LogAppended& op) const {
    Json json = of_partition("LogAppended", op.partition);
    json["appended_ms"] = to_ms(op.appended);
    // Batches of a journal that is damaged may have none.
    if (const auto offsets = st::offsets_of(op.batches)) {
      json["baseOffset"] = offsets->first;
      json["lastOffset"] = offsets->second - 1;
    }
    json["bytes"] = op.batches.size();
    return json;
  }
  Json operator()(const st::PendingAdded& op) const {
    Json json = of_partition("PendingAdded", op.partition);
    json["sequence"] = op.sequence;
    // A record that was moved keeps the handle of its first due time.
    json["handle"] = st::encode_handle({op.first_due.value_or(op.due), op.sequence});
    json["due_ms"] = to_ms(op.due);
    json["accepted_ms"] = to_ms(op.accepted);
    if (op.expires != st::never_expires) json["expires_ms"] = to_ms(op.expires);
    put_id(json, op.id);
    json["bytes"] = op.record.size();
    put_principal(json, op.principal);
    return json;
  }
  Json operator()(const st::PendingRemoved& op) const {
    Json json = of_partition("PendingRemoved", op.partition);
    json["sequence"] = op.sequence;
    json["handle"] = st::encode_handle({op.first_due.value_or(op.due), op.sequence});
    json["due_ms"] = to_ms(op.due);
    json["how"] = name_of_removal(op.how);
    json["at_ms"] = to_ms(op.at);
    put_id(json, op.id);
    if (op.offset >= 0) json["offset"] = op.offset;
    if (op.moved_to) json["moved_to_ms"] = to_ms(*op.moved_to);
    put_principal(json, op.share.principal);
    return json;
  }
  Json operator()(const st::ProducerAnswered& op) const {
    Json json = of_partition("ProducerAnswered", op.partition);
    json["producerId"] = op.producer_id;
    json["producerEpoch"] = op.epoch;
    json["baseSequence"] = op.first_sequence;
    json["lastSequence"] = op.last_sequence;
    json["baseOffset"] = op.base_offset;
    return json;
  }
  Json operator()(const st::TopicCreated& op) const {
    Json json{{"operation", "TopicCreated"}, {"topic", op.topic.text()}};
    put_bytes(json, "name", op.name);
    json["partitions"] = op.partitions;
    json["configs"] = op.configs.size();
    return json;
  }
  Json operator()(const st::TopicDeleted& op) const {
    return {{"operation", "TopicDeleted"}, {"topic", op.topic.text()}};
  }
  Json operator()(const st::PartitionsAdded& op) const {
    return {{"operation", "PartitionsAdded"},
            {"topic", op.topic.text()},
            {"partitions", op.partitions}};
  }
  Json operator()(const st::ConfigsSet& op) const {
    return {
        {"operation", "ConfigsSet"}, {"topic", op.topic.text()}, {"configs", op.configs.size()}};
  }
  Json operator()(const st::ProducerIdsGiven& op) const {
    return {{"operation", "ProducerIdsGiven"}, {"next", op.next}};
  }
  Json operator()(const st::SequencesGiven& op) const {
    return {{"operation", "SequencesGiven"}, {"next", op.next}};
  }
  Json operator()(const st::LogStartMoved& op) const {
    Json json = of_partition("LogStartMoved", op.partition);
    json["start"] = op.start;
    return json;
  }
  // Values may be passwords, so only their number is shown.
  Json operator()(const st::BrokerConfigsSet& op) const {
    return {{"operation", "BrokerConfigsSet"}, {"configs", op.configs.size()}};
  }
  Json operator()(const st::GroupStored& op) const { return of_group("GroupStored", op.group); }
  Json operator()(const st::GroupRemoved& op) const { return of_group("GroupRemoved", op.group); }
  Json operator()(const st::OffsetsCommitted& op) const {
    Json json = of_group("OffsetsCommitted", op.group);
    json["offsets"] = Json::array();
    for (const auto& each : op.offsets) {
      json["offsets"].push_back(Json{{"topic", each.partition.topic.text()},
                                     {"partition", each.partition.partition},
                                     {"offset", each.offset}});
    }
    return json;
  }
  Json operator()(const st::OffsetsRemoved& op) const {
    Json json = of_group("OffsetsRemoved", op.group);
    json["partitions"] = op.partitions.size();
    return json;
  }
  // Their keys name users; their values are secrets.
  Json operator()(const st::SecurityRowSet& op) const {
    Json json{{"operation", "SecurityRowSet"}};
    put_bytes(json, "key", op.key);
    return json;
  }
  Json operator()(const st::SecurityRowRemoved& op) const {
    Json json{{"operation", "SecurityRowRemoved"}};
    put_bytes(json, "key", op.key);
    return json;
  }

 private:
  static Json of_group(const char* name, std::string_view group) {
    Json json{{"operation", name}};
    put_bytes(json, "group", group);
    return json;
  }
};

// LSNs are in hexadecimal, as in the names of journal files.
std::string lsn_text(Lsn lsn) {
  return fmt::format("{:016x}", lsn);
}

// "PendingAdded topic: x partition: 0 ..."
std::string operation_line(const Json& json) {
  std::string line;
  for (const auto& [name, value] : json.items()) {
    const auto text = value.is_string() ? cell(value.get<std::string>()) : text_of(value);
    // The first field is the name of the operation, which needs no "operation:" before it.
    line += line.empty() ? text : fmt::format(" {}: {}", name, text);
  }
  return line;
}

class JournalDumper {
 public:
  JournalDumper(std::string path, const st::JournalFileHeader& header, const st::File& file,
                std::uint64_t size, bool json, Output& out)
      : path_(std::move(path)), header_(header), file_(file), size_(size), json_(json), out_(out) {}

  Result<DumpFindings> run() {
    begin();
    std::uint64_t damaged_from = 0;  // 0: not.  No round is there, because the header is.
    // A round begins with a block.  If no round of this journal begins at a block, the next one is
    // tried, so that rounds behind damage are found.
    for (std::uint64_t at = st::block_bytes; at < size_ && !out_.is_over();) {
      const auto round = round_at(at);
      if (!round) return std::unexpected(round.error());
      if (!*round) {
        if (damaged_from == 0) damaged_from = at;
        at += st::block_bytes;
        continue;
      }
      if (damaged_from != 0) {
        findings_.add(
            fmt::format("{}: position {}: {} bytes are damaged, because a whole round "
                        "of the same journal follows",
                        cell(path_), damaged_from, at - damaged_from));
        // Damage at the end is no finding: a file that is used again ends in older rounds.
        damaged_from = 0;
      }
      if (auto printed = print(at, **round); !printed) return std::unexpected(printed.error());
      // At least one block further, whatever a round says of its size.
      at = std::max(at + st::block_bytes, (*round)->end() - header_.first);
    }
    return findings_;
  }

 private:
  void begin() {
    if (json_) {
      out_.line(text_of(Json{{"file", path_},
                             {"shard", header_.shard},
                             {"incarnation", header_.incarnation},
                             {"first", lsn_text(header_.first)},
                             {"begin", lsn_text(header_.begin)}}));
      return;
    }
    out_.line("Dumping " + cell(path_));
    out_.line(fmt::format("shard: {} incarnation: {} first: {} begin: {}", header_.shard,
                          header_.incarnation, lsn_text(header_.first), lsn_text(header_.begin)));
  }

  // Empty: no round of this incarnation begins here.
  Result<std::optional<st::RoundHeader>> round_at(std::uint64_t at) const {
    Buffer bytes(st::round_header_bytes);
    const auto got = file_.pread(at, bytes);
    if (!got) return std::unexpected(got.error());
    if (*got < bytes.size()) return std::nullopt;
    const auto round = st::parse_round_header(bytes);
    // A journal file is used again: salt and incarnation tell its rounds from those of an earlier
    // life, and the LSN from those of another place.
    const bool ours = round && round->salt == header_.salt &&
                      round->incarnation == header_.incarnation && round->lsn == header_.first + at;
    return ours ? round : std::nullopt;
  }

  Result<> print(std::uint64_t at, const st::RoundHeader& round) {
    Buffer payload;
    // A size that goes beyond the file is not allocated.
    if (round.payload_bytes <= size_ - std::min(size_, at + st::round_header_bytes))
      payload.resize(round.payload_bytes);
    const auto got = file_.pread(at + st::round_header_bytes, payload);
    if (!got) return std::unexpected(got.error());
    const bool valid = *got == round.payload_bytes && payload.size() == round.payload_bytes &&
                       crc32c(payload) == round.payload_crc;
    print_round(round, valid);
    ++findings_.entries;
    if (!valid) {
      findings_.add(fmt::format("{}: position {}: the round at LSN {} is torn or damaged",
                                cell(path_), at, lsn_text(round.lsn)));
      return {};
    }
    std::size_t place = 0;
    for (std::uint32_t i = 0; i < round.records; ++i) {
      const auto left = payload.size() - place;
      const std::size_t length = left < 4 ? 0 : load_be<std::uint32_t>(payload.data() + place);
      // Reported once: after a wrong length no further record can be found.
      if (left < 4 || left - 4 < length) {
        findings_.add(fmt::format("{}: position {}: record {} of {} is longer than its round",
                                  cell(path_), at, i + 1, round.records));
        return {};
      }
      print_record(round.lsn + st::round_header_bytes + place,
                   Bytes(payload).subspan(place + 4, length));
      place += 4 + length;
    }
    return {};
  }

  void print_round(const st::RoundHeader& round, bool valid) {
    if (json_) {
      out_.line(text_of(Json{{"round", round.number},
                             {"lsn", lsn_text(round.lsn)},
                             {"records", round.records},
                             {"bytes", round.payload_bytes},
                             {"synced", lsn_text(round.synced_to)},
                             {"isvalid", valid}}));
      return;
    }
    out_.line(fmt::format("round: {} lsn: {} records: {} bytes: {} synced: {} isvalid: {}",
                          round.number, lsn_text(round.lsn), round.records, round.payload_bytes,
                          lsn_text(round.synced_to), valid));
  }

  void print_record(Lsn lsn, Bytes record) {
    const auto read = st::for_each_operation(record, [&](const st::Operation& op) -> Result<> {
      const Json operation = std::visit(OperationJson{}, op);
      if (!json_) {
        out_.line(fmt::format("| lsn: {} {}", lsn_text(lsn), operation_line(operation)));
        return {};
      }
      Json json{{"lsn", lsn_text(lsn)}};
      json.update(operation);
      out_.line(text_of(json));
      return {};
    });
    if (!read) {
      findings_.add(fmt::format("{}: the record at LSN {}: {}", cell(path_), lsn_text(lsn),
                                read.error().message));
    }
  }

  const std::string path_;
  const st::JournalFileHeader header_;
  const st::File& file_;
  const std::uint64_t size_;
  const bool json_;
  Output& out_;
  DumpFindings findings_;
};

}  // namespace

Result<DumpFindings> dump_journal(storage::Disk& disk, const std::string& path, bool json,
                                  Output& out) {
  const auto file = disk.open(path, {});
  if (!file) return std::unexpected(file.error());
  const auto size = (*file)->size();
  if (!size) return std::unexpected(size.error());
  Buffer block(st::block_bytes);
  const auto got = (*file)->pread(0, block);
  if (!got) return std::unexpected(got.error());
  // A file that is shorter than a block has no header, which parse_file_header() says.
  block.resize(*got);
  const auto header = st::parse_file_header(block);
  if (!header)
    return fail(header.error().code, fmt::format("{}: {}", cell(path), header.error().message));
  if (!*header) {
    return fail(Errc::corrupt,
                fmt::format("{}: it does not begin with the header of a journal file", cell(path)));
  }
  return JournalDumper(path, **header, **file, *size, json, out).run();
}

}  // namespace tarry::cli
