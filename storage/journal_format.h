#pragma once

// The bytes of a journal file.  docs/formats/journal.md says what a crash may leave of them.
//
//   journal/SHARD/0000000000000000.journal     the name is the LSN of the file's first byte
//
//   LSN  F          F+4096            r                       r'
//        | header   | round           | round                 | ...    old bytes, zeros
//                     |
//                     +-- header, 64 bytes | u32 length, record | ... | zeros up to 4096
//
//   file header, one block, big-endian      round header, 64 bytes, big-endian
//     0  u64  "TARRYJNL"                      0  u32  "TJRD"
//     8  u32  CRC-32C of bytes 12..4095       4  u32  CRC-32C of bytes 8..63
//    12  u32  version, 1                      8  u64  salt
//    16  u32  shard                          16  u64  incarnation
//    20  u32  0                              24  u64  number: the first of an incarnation is 1
//    24  u64  incarnation                    32  u64  lsn: where this round is
//    32  u64  salt                           40  u64  synced to: all before this LSN was synced
//    40  u64  first lsn: the name            48  u32  bytes of payload, without the zeros
//    48  u64  begin: where this incarnation  52  u32  records
//             cut what was there before      56  u32  CRC-32C of the payload
//    56  0 ...                               60  u32  0
//
// An LSN counts every byte, headers and zeros too, so a place in a file is its LSN less the
// file's; a file begins at the LSN at which the one before it ended.
//
// The salt is 64 random bits of an incarnation (one broker's life).  A client never sees it, so
// nothing that a client sends can look like a round; and rounds of another incarnation, or of
// this file's earlier life (they have other LSNs), are never taken for this one's.

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "base/bytes.h"
#include "base/ids.h"
#include "base/result.h"
#include "storage/file.h"

namespace tarry::storage {

inline constexpr std::size_t round_header_bytes = 64;
inline constexpr std::uint32_t journal_version = 1;

// Kafka's frames are far below it; it bounds what recovery allocates for one round.
inline constexpr std::size_t max_journal_record_bytes = 128 << 20;

struct JournalFileHeader {
  std::uint32_t shard = 0;
  std::uint64_t incarnation = 0;  // Counts from 1.
  std::uint64_t salt = 0;
  Lsn first = 0;
  Lsn begin = 0;  // Its first file begins here too.

  void write(std::span<std::uint8_t> block) const;  // All 4096 bytes.
};

struct RoundHeader {
  std::uint64_t salt = 0;
  std::uint64_t incarnation = 0;
  std::uint64_t number = 0;
  Lsn lsn = 0;
  Lsn synced_to = 0;
  std::uint32_t payload_bytes = 0;
  std::uint32_t records = 0;
  std::uint32_t payload_crc = 0;

  Lsn end() const { return lsn + round_up_to_block(round_header_bytes + payload_bytes); }
  void write(std::uint8_t* to) const;
};

// Empty when it is no header: another magic or a wrong CRC.  Errc::unsupported when it is one, of
// a version that we do not know.
Result<std::optional<JournalFileHeader>> parse_file_header(Bytes block);
std::optional<RoundHeader> parse_round_header(Bytes block);

// "00000000001f4000.journal" and back; empty for what is no journal file's name.
std::string journal_file_name(Lsn first);
std::optional<Lsn> parse_journal_file_name(std::string_view name);

}  // namespace tarry::storage
