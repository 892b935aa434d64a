#include "storage/chunk.h"

#include <fmt/core.h>

#include <algorithm>
#include <array>
#include <limits>
#include <numeric>
#include <utility>

#include "base/assert.h"
#include "base/crc32c.h"
#include "base/time_text.h"
#include "storage/fields.h"

namespace tarry::storage {
namespace {

constexpr std::uint8_t chunk_version = 2;
constexpr std::uint8_t version_without_principals = 1;
constexpr std::size_t header_bytes = 40;
constexpr std::size_t crc_from = 8;
constexpr std::size_t partition_bytes = 20;
constexpr std::size_t source_bytes = partition_bytes + sizeof(PrincipalId);
constexpr std::size_t few_sources = 8;
// The size of an entry that consists only of its lengths.
constexpr std::size_t smallest_entry = 8;

std::uint64_t zigzag(std::int64_t value) {
  return (static_cast<std::uint64_t>(value) << 1) ^ static_cast<std::uint64_t>(value >> 63);
}
std::int64_t unzigzag(std::uint64_t value) {
  return static_cast<std::int64_t>(value >> 1) ^ -static_cast<std::int64_t>(value & 1);
}

// The difference of any two numbers, which wraps around and comes back.
std::uint64_t difference(std::int64_t a, std::int64_t b) {
  return zigzag(
      static_cast<std::int64_t>(static_cast<std::uint64_t>(a) - static_cast<std::uint64_t>(b)));
}
std::int64_t sum(std::int64_t base, std::uint64_t zigzagged) {
  return static_cast<std::int64_t>(static_cast<std::uint64_t>(base) +
                                   static_cast<std::uint64_t>(unzigzag(zigzagged)));
}

constexpr std::size_t max_varint_bytes = 10;

std::uint8_t* put_varint(std::uint8_t* to, std::uint64_t value) {
  for (; value >= 0x80; value >>= 7) *to++ = static_cast<std::uint8_t>(value | 0x80);
  *to++ = static_cast<std::uint8_t>(value);
  return to;
}

// Reads numbers of an entry.  Past the end everything is zero and whole() is false.
class Varints {
 public:
  explicit Varints(Bytes bytes) : at_(bytes.data()), end_(bytes.data() + bytes.size()) {}

  std::uint64_t number() {
    std::uint64_t value = 0;
    for (int shift = 0; shift < 64; shift += 7) {
      if (at_ == end_) break;
      const std::uint8_t byte = *at_++;
      value |= static_cast<std::uint64_t>(byte & 0x7f) << shift;
      if (byte < 0x80) return value;
    }
    whole_ = false;
    at_ = end_;
    return 0;
  }
  Bytes take(std::uint64_t count) {
    if (count > static_cast<std::uint64_t>(end_ - at_)) {
      whole_ = false;
      at_ = end_;
      return {};
    }
    const Bytes out(at_, count);
    at_ += count;
    return out;
  }
  const std::uint8_t* position() const { return at_; }
  bool whole() const { return whole_; }

 private:
  const std::uint8_t* at_;
  const std::uint8_t* end_;
  bool whole_ = true;
};

// The same of an entry that append() wrote, or that read_entries() has gone over: it needs no
// bounds.
class SoundVarints {
 public:
  explicit SoundVarints(const std::uint8_t* at) : at_(at) {}

  std::uint64_t number() {
    std::uint64_t value = *at_++;
    if (value < 0x80) return value;  // Most numbers are small.
    value &= 0x7f;
    for (unsigned shift = 7;; shift += 7) {
      const std::uint64_t byte = *at_++;
      value |= (byte & 0x7f) << shift;
      if (byte < 0x80) return value;
    }
  }
  Bytes take(std::uint64_t count) {
    const Bytes out(at_, count);
    at_ += count;
    return out;
  }

 private:
  const std::uint8_t* at_;
};

std::unexpected<Error> bad_chunk(const Bucket& bucket, std::string_view why) {
  return fail(Errc::corrupt, fmt::format("a chunk of {} is damaged: {}", bucket.text(), why));
}

}  // namespace

std::string Bucket::text() const {
  static constexpr std::array<std::string_view, bucket_levels> names{"month",  "hour", "minute",
                                                                     "second", "tick", "run"};
  return fmt::format("{} {}", names[static_cast<std::size_t>(level)], format_time(start));
}

std::uint32_t Chunk::source_index(const Source& source) {
  // A look at a few is cheaper than a hash.
  if (sources_.size() <= few_sources) {
    for (std::size_t i = sources_.size(); i-- > 0;)
      if (sources_[i] == source) return static_cast<std::uint32_t>(i);
  } else if (const auto at = index_.find(source); at != index_.end()) {
    return at->second;
  }
  const auto place = static_cast<std::uint32_t>(sources_.size());
  sources_.push_back(source);
  if (sources_.size() == few_sources + 1) {
    for (std::uint32_t i = 0; i < sources_.size(); ++i) index_.emplace(sources_[i], i);
  } else if (sources_.size() > few_sources) {
    index_.emplace(source, place);
  }
  return place;
}

// Before the entry is in offsets_.
void Chunk::note(const PendingKey& key) {
  if (offsets_.empty()) {
    first_ = last_ = key.sequence;
    earliest_ = latest_ = key.due;
    return;
  }
  // The first number out of order ends the binary search of find().
  if (key.sequence <= last_) sorted_ = false;
  first_ = std::min(first_, key.sequence);
  last_ = std::max(last_, key.sequence);
  earliest_ = std::min(earliest_, key.due);
  latest_ = std::max(latest_, key.due);
}

// Memory for `more` bytes of entries.  It doubles, but not past what a full chunk needs: those that
// are full are most of a tier's memory, and would take nearly twice as much.
void Chunk::make_room(std::size_t more) {
  constexpr std::size_t full = full_bytes + full_bytes / 32;
  const std::size_t need = own_.size() + more;
  if (need <= own_.capacity()) return;
  const std::size_t twice = 2 * own_.capacity();
  own_.reserve(std::max(need, own_.size() < full_bytes ? std::min(twice, full) : twice));
}

void Chunk::append(const PendingView& entry) {
  TARRY_ASSERT(parsed_.empty(), "a chunk that was read takes no more entries");
  TARRY_ASSERT(bucket_.holds(entry.key.due), "an entry lies in the bucket of its due time");
  if (offsets_.empty()) {
    base_sequence_ = entry.key.sequence;
    base_accepted_ = to_ms(entry.accepted);
  }
  note(entry.key);
  // Differences to what the entries have in common are short: an entry costs some 14 bytes besides
  // its record.
  offsets_.push_back(static_cast<std::uint32_t>(own_.size()));
  // They are put together first, because the chunk would be asked for room with each byte.
  std::array<std::uint8_t, 7 * max_varint_bytes> numbers;
  std::uint8_t* end = numbers.data();
  const auto put_next = [&end](std::uint64_t number) { end = put_varint(end, number); };
  put_next(difference(static_cast<std::int64_t>(entry.key.sequence),
                      static_cast<std::int64_t>(base_sequence_)));
  put_next(static_cast<std::uint64_t>(to_ms(entry.key.due) - to_ms(bucket_.start)));
  put_next(difference(to_ms(entry.first), to_ms(entry.key.due)));
  put_next(difference(to_ms(entry.accepted), base_accepted_));
  // Zero is kept for this, so that every other expiry is one more.
  put_next(entry.expires == never_expires
               ? 0
               : 1 + difference(to_ms(entry.expires), to_ms(entry.key.due)));
  put_next(source_index({entry.partition, entry.principal}));
  put_next(entry.id.size());
  make_room(static_cast<std::size_t>(end - numbers.data()) + entry.id.size() + max_varint_bytes +
            entry.record.size());
  append_bytes(own_, {numbers.data(), end});
  append_bytes(own_, as_bytes(entry.id));
  append_bytes(own_, {numbers.data(), put_varint(numbers.data(), entry.record.size())});
  append_bytes(own_, entry.record);
}

PendingKey Chunk::key_at(std::size_t index) const {
  SoundVarints in(entries().data() + offsets_[index]);
  const Sequence sequence =
      static_cast<Sequence>(sum(static_cast<std::int64_t>(base_sequence_), in.number()));
  return {bucket_.start + std::chrono::milliseconds(static_cast<std::int64_t>(in.number())),
          sequence};
}

PendingView Chunk::at(std::size_t index) const {
  SoundVarints in(entries().data() + offsets_[index]);
  PendingView out;
  out.key.sequence =
      static_cast<Sequence>(sum(static_cast<std::int64_t>(base_sequence_), in.number()));
  out.key.due = bucket_.start + std::chrono::milliseconds(static_cast<std::int64_t>(in.number()));
  out.first = from_ms(sum(to_ms(out.key.due), in.number()));
  out.accepted = from_ms(sum(base_accepted_, in.number()));
  const std::uint64_t expires = in.number();
  if (expires != 0) out.expires = from_ms(sum(to_ms(out.key.due), expires - 1));
  const Source& source = sources_[in.number()];
  out.partition = source.partition;
  out.principal = source.principal;
  out.id = as_text(in.take(in.number()));
  out.record = in.take(in.number());
  return out;
}

std::optional<std::size_t> Chunk::find(Sequence sequence) const {
  if (offsets_.empty() || sequence < first_ || sequence > last_) return std::nullopt;
  if (!sorted_) {
    // Most chunks are written, loaded and delivered without a question for a single number.
    for (; in_table_ < offsets_.size(); ++in_table_)
      by_sequence_[key_at(in_table_).sequence] = static_cast<std::uint32_t>(in_table_);
    const auto known = by_sequence_.find(sequence);
    return known == by_sequence_.end() ? std::nullopt : std::optional<std::size_t>(known->second);
  }
  // The numbers have few gaps as a rule, so a look or two at where it should be finds it, each of
  // which is in no cache; otherwise what is left is halved.
  constexpr int guesses = 3;
  std::size_t from = 0, until = offsets_.size();
  Sequence low = first_, high = last_;  // It lies between them.
  for (int looks = 0; from < until; ++looks) {
    std::size_t at = from + (until - from) / 2;
    if (looks < guesses && low < high) {
      const double share = static_cast<double>(sequence - low) / static_cast<double>(high - low);
      at = from + static_cast<std::size_t>(share * static_cast<double>(until - from - 1));
    }
    const Sequence found = key_at(at).sequence;
    if (found == sequence) return at;
    if (found < sequence) {
      from = at + 1;
      low = found;
    } else {
      until = at;
      high = found;
    }
  }
  return std::nullopt;
}

std::size_t Chunk::entry_bytes(std::size_t index) const {
  const std::size_t end = index + 1 < offsets_.size() ? offsets_[index + 1] : entries().size();
  return end - offsets_[index];
}

std::size_t Chunk::memory_bytes() const {
  return sizeof(Chunk) + own_.capacity() + parsed_.size() +
         offsets_.capacity() * sizeof(std::uint32_t) + sources_.capacity() * sizeof(Source) +
         (index_.size() + (sorted_ ? 0 : offsets_.size())) * 48;
}

// The places of those that encode() writes.
std::vector<std::uint32_t> Chunk::order_of(const LiveEntries& live) const {
  std::vector<std::uint32_t> order;
  order.reserve(offsets_.size());
  for (std::uint32_t i = 0; i < offsets_.size(); ++i)
    if (live.empty() || live[i]) order.push_back(i);
  if (!sorted_) {
    std::vector<Sequence> sequences(offsets_.size());
    for (const auto i : order) sequences[i] = key_at(i).sequence;
    // Stable, because of a number that was appended twice the last entry counts, as in find().
    std::ranges::stable_sort(order, {}, [&](std::uint32_t i) { return sequences[i]; });
  }
  return order;
}

Buffer Chunk::encode(const LiveEntries& live) const {
  // Most are written while all of it is pending and in order: then their bytes are one piece.
  const bool is_whole = sorted_ && (live.empty() || std::ranges::find(live, false) == live.end());
  std::vector<std::uint32_t> order;
  if (!is_whole) order = order_of(live);

  Buffer out(header_bytes);
  out.reserve(header_bytes + sources_.size() * source_bytes + entries().size());
  out[0] = chunk_version;
  out[1] = static_cast<std::uint8_t>(bucket_.level);
  store_be(&out[8], to_ms(bucket_.start));
  store_be(&out[16], base_sequence_);
  store_be(&out[24], base_accepted_);
  store_be(&out[32], static_cast<std::uint32_t>(is_whole ? offsets_.size() : order.size()));
  store_be(&out[36], static_cast<std::uint32_t>(sources_.size()));
  // All of them, also those without a live entry: the entries name them by their place.
  for (const auto& [partition, principal] : sources_) {
    put(out, partition);
    append_be(out, principal);
  }
  if (is_whole) append_bytes(out, entries());
  for (const auto i : order) append_bytes(out, entries().subspan(offsets_[i], entry_bytes(i)));
  store_be(&out[4], crc32c(Bytes(out).subspan(crc_from)));
  return out;
}

Result<Chunk> Chunk::parse(const Bucket& bucket, SharedBytes bytes) {
  const Bytes in = bytes.view();
  if (in.size() < header_bytes)
    return bad_chunk(bucket, fmt::format("it has {} bytes, less than a header", in.size()));
  const bool has_principals = in[0] == chunk_version;
  if (!has_principals && in[0] != version_without_principals) {
    return fail(Errc::unsupported,
                fmt::format("a chunk of {} has version {}; this version of Tarry reads {} and {}",
                            bucket.text(), in[0], version_without_principals, chunk_version));
  }
  const auto stated = load_be<std::uint32_t>(&in[4]);
  const auto computed = crc32c(in.subspan(crc_from));
  if (stated != computed) {
    return bad_chunk(
        bucket, fmt::format("its checksum is {:08x}, its bytes have {:08x}", stated, computed));
  }
  // A chunk under another's key would put records at another time.
  if (in[1] != static_cast<std::uint8_t>(bucket.level) ||
      load_be<std::int64_t>(&in[8]) != to_ms(bucket.start))
    return bad_chunk(bucket, "it names another bucket");

  Chunk out(bucket);
  out.base_sequence_ = load_be<Sequence>(&in[16]);
  out.base_accepted_ = load_be<std::int64_t>(&in[24]);
  const auto entries = load_be<std::uint32_t>(&in[32]);
  const auto partitions = load_be<std::uint32_t>(&in[36]);
  const std::size_t left = in.size() - header_bytes;
  // Both counts are compared with the bytes that are there before memory is taken for them.
  const std::size_t row_bytes = has_principals ? source_bytes : partition_bytes;
  if (partitions > left / row_bytes || entries > (left - partitions * row_bytes) / smallest_entry)
    return bad_chunk(bucket, fmt::format("{} entries and {} partitions do not fit into {} bytes",
                                         entries, partitions, in.size()));
  const std::size_t begin = header_bytes + partitions * row_bytes;
  Fields table(in.subspan(header_bytes, partitions * row_bytes));
  for (std::uint32_t i = 0; i < partitions; ++i) {
    Source& source = out.sources_.emplace_back(table.partition());
    if (has_principals) source.principal = table.number<PrincipalId>();
  }
  if (entries == 0) return bad_chunk(bucket, "it has no entry");
  out.parsed_ = bytes.part(begin, in.size() - begin);
  out.offsets_.reserve(entries);
  if (auto read = out.read_entries(); !read) return std::unexpected(read.error());
  if (out.offsets_.size() != entries)
    return bad_chunk(bucket,
                     fmt::format("it states {} entries and has {}", entries, out.offsets_.size()));
  return out;
}

// Finds where each begins, and that at() may read it without a look at its bounds.
Result<> Chunk::read_entries() {
  const Bytes all = parsed_.view();
  const auto span = static_cast<std::uint64_t>(span_of(bucket_.level).count());
  Varints in(all);
  while (in.position() != all.data() + all.size()) {
    const auto offset = static_cast<std::uint32_t>(in.position() - all.data());
    const auto sequence =
        static_cast<Sequence>(sum(static_cast<std::int64_t>(base_sequence_), in.number()));
    const std::uint64_t due = in.number();
    // First due time, acceptance and expiry are differences that wrap around, so any value is
    // valid.
    for (int i = 0; i < 3; ++i) in.number();
    const std::uint64_t partition = in.number();
    in.take(in.number());
    in.take(in.number());
    // A due time outside its bucket would not be found there.
    if (!in.whole() || due >= span || partition >= sources_.size())
      return bad_chunk(bucket_, fmt::format("its entry at byte {} is malformed", offset));
    note({bucket_.start + std::chrono::milliseconds(static_cast<std::int64_t>(due)), sequence});
    offsets_.push_back(offset);
  }
  return {};
}

}  // namespace tarry::storage
