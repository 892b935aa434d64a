#pragma once

// Chunk: some hundreds of pending records of one bucket, packed: what the overflow wheel keeps in
// memory, writes and reads as one piece.
//
//   append() ... append()      in memory, a tail of its bucket
//   encode(live)               a row of RocksDB: header, partitions, the live entries by sequence
//   parse(bytes)               the same entries again, checked
//
//   0  u8   version, 2                         entry, numbers are varints, z: zigzag
//   1  u8   level                              z  sequence - base sequence
//   2  u16  0                                     due - the bucket's start
//   4  u32  CRC-32C of bytes 8..end            z  first due - due (0 unless it was moved)
//   8  i64  the bucket's start, ms             z  accepted - base accepted
//  16  u64  base sequence                         expires: 0 never, else 1 + zigzag(expires - due)
//  24  i64  base accepted, ms                     partition's place in the table
//  32  u32  entries                               id: length, bytes (0: none)
//  36  u32  partitions                            record: length, bytes
//  40  partitions: topic 16, partition i32, principal u32
//      entries
//
// A partition stands in the table once for each principal that produced records of it: so an entry
// costs nothing for its principal.  In version 1, which is read too, the table has no principals.
//
// An entry costs its record and some 14 bytes.  An entry's bytes do not depend on the others, so
// that encode() copies them and leaves removed ones out.
//
// Invariants
//   - Entries have the order in which they were appended; encode() writes them in the order of
//     their sequence numbers.
//   - Every entry's due time lies in the bucket.
//
// Belongs to whoever has it.  A chunk that nobody appends to may be read by any thread, and find()
// be called by one of them.

#include <cstddef>
#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "base/bytes.h"
#include "base/clock.h"
#include "base/ids.h"
#include "base/result.h"
#include "storage/bucket.h"
#include "storage/journal_record.h"
#include "storage/pending.h"

namespace tarry::storage {

// A pending record, as a view.
struct PendingView {
  PendingKey key;  // Due now, and the sequence number.
  WallTime first;  // The due time that it was accepted with: its handle has it.
  TopicPartition partition;
  WallTime accepted;
  WallTime expires = never_expires;
  std::string_view id;
  Bytes record;
  PrincipalId principal = unknown_principal;

  PendingKey handle() const { return {first, key.sequence}; }
  bool was_moved() const { return first != key.due; }
  PendingRecord owned() const {
    return {key,     partition,       accepted,
            expires, std::string(id), Buffer(record.begin(), record.end()),
            first,   principal};
  }
  PendingShare share() const { return PendingShare::of(principal, id.size(), record.size()); }
};

// A flag for each of a chunk's entries, by its place: it is still pending.
using LiveEntries = std::vector<bool>;

class Chunk {
 public:
  // A chunk that has as many bytes takes no more entries.
  static constexpr std::size_t full_bytes = 128u << 10;

  explicit Chunk(const Bucket& bucket) : bucket_(bucket) {}
  // Errc::corrupt, with what is wrong, for anything that encode() did not make.  Keeps `bytes`.
  static Result<Chunk> parse(const Bucket& bucket, SharedBytes bytes);

  // The entry's due time lies in the bucket.
  void append(const PendingView& entry);

  const Bucket& bucket() const { return bucket_; }
  std::size_t size() const { return offsets_.size(); }
  bool is_full() const { return entries().size() >= full_bytes; }
  PendingView at(std::size_t index) const;
  PendingKey key_at(std::size_t index) const;
  // Two steps by which an entry, or the first `bytes` of it, comes near the processor before it is
  // read.
  void prefetch_offset(std::size_t index) const { __builtin_prefetch(&offsets_[index]); }
  void prefetch(std::size_t index, std::size_t bytes) const {
    constexpr std::size_t cache_line = 64;
    const std::uint8_t* const entry = entries().data() + offsets_[index];
    for (std::size_t at = 0; at < bytes; at += cache_line) __builtin_prefetch(entry + at);
  }

  // False: no entry has the key.  Costs nothing, unlike find() in a chunk without order.
  bool may_have(const PendingKey& key) const {
    return !offsets_.empty() && first_ <= key.sequence && key.sequence <= last_ &&
           earliest_ <= key.due && key.due <= latest_;
  }
  // The place of `sequence`; the last one, if it was appended more than once.  Where numbers were
  // appended out of order it notes their places, so that one thread at a time may call it.
  std::optional<std::size_t> find(Sequence sequence) const;

  Sequence first() const { return first_; }  // The smallest and the largest sequence number.
  Sequence last() const { return last_; }
  WallTime earliest() const { return earliest_; }
  WallTime latest() const { return latest_; }
  std::size_t entry_bytes(std::size_t index) const;
  // With the places, which an unsorted chunk may note at any time.
  std::size_t memory_bytes() const;

  // The entries for which `live` is true (all, if it is empty), by sequence number.
  Buffer encode(const LiveEntries& live) const;

 private:
  Bytes entries() const { return parsed_.empty() ? Bytes(own_) : parsed_.view(); }
  // A row of the table.
  struct Source {
    TopicPartition partition;
    PrincipalId principal = unknown_principal;

    bool operator==(const Source&) const = default;
  };
  struct SourceHash {
    std::size_t operator()(const Source& source) const noexcept {
      return std::hash<TopicPartition>{}(source.partition) + source.principal;
    }
  };

  std::uint32_t source_index(const Source& source);
  std::vector<std::uint32_t> order_of(const LiveEntries& live) const;
  void make_room(std::size_t more);
  void note(const PendingKey& key);
  Result<> read_entries();

  Bucket bucket_;
  Sequence base_sequence_ = 0;
  std::int64_t base_accepted_ = 0;
  Sequence first_ = 0, last_ = 0;
  WallTime earliest_{}, latest_{};
  bool sorted_ = true;  // By sequence number, each once.
  // Only if they are not: the place of each number's last entry, as far as find() has looked.
  mutable std::unordered_map<Sequence, std::uint32_t> by_sequence_;
  mutable std::size_t in_table_ = 0;  // So many of the entries are in it.
  std::vector<Source> sources_;
  // Only where there are many; few are searched from the back.
  std::unordered_map<Source, std::uint32_t, SourceHash> index_;
  std::vector<std::uint32_t> offsets_;  // The places of the entries in entries().
  Buffer own_;                          // The bytes of a chunk that is being filled,
  SharedBytes parsed_;                  // or the bytes of one that was read.
};

}  // namespace tarry::storage
