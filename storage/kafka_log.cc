#include "storage/kafka_log.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <limits>
#include <string_view>
#include <utility>

#include <fmt/core.h>

#include "base/log.h"

namespace tarry::storage {
namespace {

// An entry of .txnindex: version i16, producer id i64, first offset i64, last offset i64, last
// stable offset i64.
constexpr std::size_t aborted_entry_bytes = 2 + 4 * 8;
constexpr std::size_t max_aborted_index_bytes = std::size_t{256} << 20;
constexpr std::size_t max_checkpoint_bytes = std::size_t{64} << 20;
constexpr std::int16_t abort_marker = 0;
constexpr std::string_view swap_suffix = ".swap";

std::string_view take_line(std::string_view& text) {
  const auto line = text.substr(0, text.find('\n'));
  text.remove_prefix(std::min(line.size() + 1, text.size()));
  return line;
}

template <typename Number>
std::optional<Number> number_in(std::string_view text) {
  Number value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc{} || end != text.data() + text.size() || text.empty()) return std::nullopt;
  return value;
}

// The type in the key of a control batch's record.
std::optional<std::int16_t> marker_type(const records::BatchView& batch) {
  std::optional<std::int16_t> type;
  const auto read = records::for_each_record(
      batch.records(), batch.record_count(), [&](const records::RecordView& record) {
        if (record.key && record.key->size() >= 4)
          type = load_be<std::int16_t>(record.key->data() + 2);
      });
  return read ? type : std::nullopt;
}

// Describes what is at `position` instead of a batch that can be read.
Error unreadable(const File& file, std::uint64_t position, const std::string& why) {
  std::array<std::uint8_t, records::field::magic + 1> front{};
  const auto got = file.pread(position, front);
  if (got && *got == front.size()) {
    const auto offset = load_be<std::int64_t>(front.data());
    const auto magic = static_cast<std::int8_t>(front[records::field::magic]);
    if (magic == 0 || magic == 1) {
      return {Errc::unsupported,
              fmt::format("{}: the record at offset {}, position {}, has format {}; only format 2 "
                          "is read: let Kafka write it again, with a tool that copies topics",
                          file.path(), offset, position, magic)};
    }
    return {Errc::corrupt,
            fmt::format("{}: the batch at position {}, offset {}, is broken: {}; if the Kafka "
                        "broker did not stop cleanly, start it and stop it once",
                        file.path(), position, offset, why)};
  }
  return {Errc::corrupt, fmt::format("{}: position {}: {}", file.path(), position, why)};
}

}  // namespace

Result<std::vector<CheckpointedOffset>> read_offset_checkpoint(Disk& disk,
                                                               const std::string& path) {
  std::vector<CheckpointedOffset> out;
  const auto bytes = read_file(disk, path, max_checkpoint_bytes);
  if (!bytes && bytes.error().code == Errc::not_found) return out;
  if (!bytes) return std::unexpected(bytes.error());
  if (bytes->empty()) return out;  // Kafka makes it so, and writes it later.
  std::string_view text = as_text(*bytes);
  const auto wrong = [&](std::string_view line) {
    return fail(Errc::corrupt,
                fmt::format("{}: \"{}\" is not expected there", path, printable(line)));
  };
  if (const auto version = take_line(text); version != "0") return wrong(version);
  const auto count_line = take_line(text);
  const auto count = number_in<std::uint32_t>(count_line);
  if (!count) return wrong(count_line);
  for (std::uint32_t i = 0; i < *count; ++i) {
    const auto line = take_line(text);
    const auto last = line.rfind(' ');
    const auto middle = last == line.npos || last == 0 ? line.npos : line.rfind(' ', last - 1);
    if (middle == line.npos || middle == 0) return wrong(line);
    const auto partition = number_in<PartitionIndex>(line.substr(middle + 1, last - middle - 1));
    const auto offset = number_in<Offset>(line.substr(last + 1));
    if (!partition || !offset) return wrong(line);
    out.push_back({std::string(line.substr(0, middle)), *partition, *offset});
  }
  return out;
}

std::optional<PartitionName> parse_partition_directory(std::string_view name) {
  const auto dash = name.rfind('-');
  if (dash == name.npos || dash == 0) return std::nullopt;
  const auto digits = name.substr(dash + 1);
  const auto partition = number_in<PartitionIndex>(digits);
  if (!partition || *partition < 0 || std::to_string(*partition) != digits) return std::nullopt;
  return PartitionName{std::string(name.substr(0, dash)), *partition};
}

Result<> KafkaLog::list_segments() {
  const auto entries = disk_.list(directory_);
  if (!entries) return std::unexpected(entries.error());
  for (const auto& entry : *entries) {
    if (entry.name.ends_with(swap_suffix)) {
      return fail(Errc::invalid,
                  fmt::format("{}/{}: Kafka was killed while it replaced segments by compacted "
                              "ones; start it, stop it cleanly, and run this again",
                              directory_, entry.name));
    }
    if (const auto base = segment_base(entry.name)) bases_.push_back(*base);
  }
  std::ranges::sort(bases_);
  log_start_ = bases_.empty() ? start_.value_or(0) : std::max(start_.value_or(0), bases_.front());
  // Segments that lie wholly before the start are deleted records.
  while (bases_.size() > 1 && bases_[1] <= log_start_) bases_.erase(bases_.begin());
  return {};
}

Result<> KafkaLog::read_aborted(Offset base) {
  const auto path = segment_path(directory_, base, ".txnindex");
  const auto bytes = read_file(disk_, path, max_aborted_index_bytes);
  if (!bytes && bytes.error().code == Errc::not_found) return {};
  if (!bytes) return std::unexpected(bytes.error());
  for (std::size_t at = 0; at + aborted_entry_bytes <= bytes->size(); at += aborted_entry_bytes) {
    const auto* entry = bytes->data() + at;
    if (const auto version = load_be<std::int16_t>(entry); version != 0) {
      return fail(Errc::unsupported, fmt::format("{}: entry {} has version {}; only 0 is read",
                                                 path, at / aborted_entry_bytes, version));
    }
    aborted_[load_be<std::int64_t>(entry + 2)].push_back(
        {load_be<std::int64_t>(entry + 10), load_be<std::int64_t>(entry + 18) + 1});
  }
  return {};
}

Result<> KafkaLog::for_each_batch(
    const std::function<Result<>(std::size_t, const records::BatchView&)>& take) {
  Offset next = 0;
  for (std::size_t i = 0; i < bases_.size(); ++i) {
    const auto file = disk_.open(segment_path(directory_, bases_[i], ".log"), {});
    if (!file) return std::unexpected(file.error());
    const auto size = (*file)->size();
    if (!size) return std::unexpected(size.error());
    SegmentScanner scanner(**file, 0, *size, std::size_t{1} << 20);
    for (;;) {
      const auto position = scanner.position();
      const auto place = scanner.next();
      if (!place && place.error().code != Errc::corrupt) return std::unexpected(place.error());
      if (!place) return std::unexpected(unreadable(**file, position, place.error().message));
      if (!*place) break;
      const auto bytes = scanner.bytes();
      if (!bytes) return std::unexpected(bytes.error());
      const auto batch = records::BatchView::parse(*bytes);
      // The offset behind it has to be one too.
      const bool in_order = (*place)->first >= std::max(next, bases_[i]) &&
                            (*place)->last < std::numeric_limits<Offset>::max();
      if (!batch || !batch->crc_matches() || !in_order) {
        return std::unexpected(unreadable(
            **file, position,
            !batch     ? batch.error().message
            : in_order ? std::string("its checksum is wrong")
                       : fmt::format("it follows offset {}", std::max(next, bases_[i]) - 1)));
      }
      next = (*place)->last + 1;
      if (auto taken = take(i, *batch); !taken) return taken;
    }
  }
  return {};
}

// Learns from markers which offsets of which producer were aborted.
Result<> KafkaLog::note_batch(const records::BatchView& batch) {
  if (!batch.is_control() || !batch.is_transactional()) return {};
  // Kafka's cleaner has taken out a whole transaction and keeps this as its producer's last batch.
  if (batch.record_count() == 0) return {};
  const auto type = marker_type(batch);
  if (!type) {
    return fail(Errc::corrupt, fmt::format("{}: the control batch at offset {} has no marker",
                                           directory_, batch.base_offset()));
  }
  auto& last = last_marker_.try_emplace(batch.producer_id(), Offset{-1}).first->second;
  if (*type == abort_marker)
    aborted_[batch.producer_id()].push_back({last + 1, batch.base_offset()});
  last = batch.last_offset();
  return {};
}

// Sorted and apart, so that one search finds the range that has an offset.
void KafkaLog::merge_ranges() {
  for (auto& [producer, ranges] : aborted_) {
    std::ranges::sort(ranges, {}, &Range::from);
    std::vector<Range> merged;
    for (const auto& range : ranges) {
      if (!merged.empty() && range.from <= merged.back().until) {
        merged.back().until = std::max(merged.back().until, range.until);
      } else {
        merged.push_back(range);
      }
    }
    ranges = std::move(merged);
  }
}

KafkaLog::Fate KafkaLog::fate_of(const records::BatchView& batch) const {
  if (batch.last_offset() < log_start_) return Fate::before_start;
  if (batch.is_control()) return Fate::control;
  if (!batch.is_transactional()) return Fate::kept;
  if (const auto found = aborted_.find(batch.producer_id()); found != aborted_.end()) {
    const auto behind =
        std::ranges::upper_bound(found->second, batch.base_offset(), {}, &Range::from);
    if (behind != found->second.begin() && batch.base_offset() < (behind - 1)->until)
      return Fate::aborted;
  }
  const auto marker = last_marker_.find(batch.producer_id());
  const bool is_finished = marker != last_marker_.end() && marker->second > batch.last_offset();
  return is_finished ? Fate::kept : Fate::unfinished;
}

Result<KafkaLog::Survey> KafkaLog::survey(const std::function<void(std::uint64_t)>& step) {
  if (auto listed = list_segments(); !listed) return std::unexpected(listed.error());
  Survey out;
  out.start = out.end = log_start_;
  for (const Offset base : bases_) {
    if (auto read = read_aborted(base); !read) return std::unexpected(read.error());
    out.end = std::max(out.end, base);
  }
  const auto count = [&](const records::BatchView& batch) {
    const auto records = static_cast<std::uint64_t>(std::max(batch.record_count(), 0));
    switch (fate_of(batch)) {
      case Fate::before_start:
        break;
      case Fate::control:
        ++out.control_batches;
        break;
      case Fate::aborted:
        ++out.aborted_batches;
        out.aborted_records += records;
        break;
      case Fate::unfinished:
        ++out.unfinished_batches;
        out.unfinished_records += records;
        break;
      case Fate::kept:
        ++out.kept_batches;
        out.kept_records += records;
        out.kept_bytes += batch.size();
        break;
    }
  };
  // A transaction is known to be committed or aborted at its marker, which stands behind its
  // batches.
  const auto waits_for_marker = [](const records::BatchView& batch) {
    return batch.is_transactional() && !batch.is_control();
  };
  bool any_waits = false;
  const auto read = for_each_batch([&](std::size_t, const records::BatchView& batch) -> Result<> {
    out.bytes += batch.size();
    out.end = std::max(out.end, batch.next_offset());
    if (step) step(batch.size());
    if (waits_for_marker(batch)) {
      any_waits = true;
    } else {
      count(batch);
    }
    return note_batch(batch);
  });
  if (!read) return std::unexpected(read.error());
  merge_ranges();
  if (!any_waits) return out;
  const auto counted = for_each_batch([&](std::size_t, const records::BatchView& batch) {
    if (waits_for_marker(batch)) count(batch);
    return Result<>();
  });
  if (!counted) return std::unexpected(counted.error());
  return out;
}

Result<> KafkaLog::for_each_kept(const TakeBatch& take) {
  return for_each_batch([&](std::size_t segment, const records::BatchView& batch) -> Result<> {
    return fate_of(batch) == Fate::kept ? take(segment, batch) : Result<>();
  });
}

}  // namespace tarry::storage
