#include "storage/journal_format.h"

#include <algorithm>
#include <charconv>
#include <cstring>

#include <fmt/core.h>

#include "base/assert.h"
#include "base/crc32c.h"

namespace tarry::storage {
namespace {

constexpr std::uint64_t file_magic = 0x54415252594a4e4c;  // "TARRYJNL"
constexpr std::uint32_t round_magic = 0x544a5244;         // "TJRD"
constexpr std::string_view extension = ".journal";

}  // namespace

void JournalFileHeader::write(std::span<std::uint8_t> block) const {
  TARRY_ASSERT(block.size() == block_bytes, "a file's header is one block");
  std::ranges::fill(block, std::uint8_t{0});
  store_be(block.data(), file_magic);
  store_be(block.data() + 12, journal_version);
  store_be(block.data() + 16, shard);
  store_be(block.data() + 24, incarnation);
  store_be(block.data() + 32, salt);
  store_be(block.data() + 40, first);
  store_be(block.data() + 48, begin);
  // The checksum covers what stands after it, so it is written last.
  store_be(block.data() + 8, crc32c(block.subspan(12)));
}

void RoundHeader::write(std::uint8_t* to) const {
  store_be(to, round_magic);
  store_be(to + 8, salt);
  store_be(to + 16, incarnation);
  store_be(to + 24, number);
  store_be(to + 32, lsn);
  store_be(to + 40, synced_to);
  store_be(to + 48, payload_bytes);
  store_be(to + 52, records);
  store_be(to + 56, payload_crc);
  store_be(to + 60, std::uint32_t{0});
  store_be(to + 4, crc32c(Bytes(to + 8, round_header_bytes - 8)));
}

Result<std::optional<JournalFileHeader>> parse_file_header(Bytes block) {
  if (block.size() < block_bytes) return std::nullopt;
  const auto* at = block.data();
  // Not an error: a crash may leave a header that is torn, or was never written.
  if (load_be<std::uint64_t>(at) != file_magic ||
      load_be<std::uint32_t>(at + 8) != crc32c(block.first(block_bytes).subspan(12)))
    return std::nullopt;
  if (const auto version = load_be<std::uint32_t>(at + 12); version != journal_version)
    return fail(Errc::unsupported,
                fmt::format("the journal has version {}; this program reads version {}", version,
                            journal_version));
  JournalFileHeader header;
  header.shard = load_be<std::uint32_t>(at + 16);
  header.incarnation = load_be<std::uint64_t>(at + 24);
  header.salt = load_be<std::uint64_t>(at + 32);
  header.first = load_be<Lsn>(at + 40);
  header.begin = load_be<Lsn>(at + 48);
  return header;
}

std::optional<RoundHeader> parse_round_header(Bytes block) {
  if (block.size() < round_header_bytes) return std::nullopt;
  const auto* at = block.data();
  if (load_be<std::uint32_t>(at) != round_magic ||
      load_be<std::uint32_t>(at + 4) != crc32c(Bytes(at + 8, round_header_bytes - 8)))
    return std::nullopt;
  RoundHeader header;
  header.salt = load_be<std::uint64_t>(at + 8);
  header.incarnation = load_be<std::uint64_t>(at + 16);
  header.number = load_be<std::uint64_t>(at + 24);
  header.lsn = load_be<Lsn>(at + 32);
  header.synced_to = load_be<Lsn>(at + 40);
  header.payload_bytes = load_be<std::uint32_t>(at + 48);
  header.records = load_be<std::uint32_t>(at + 52);
  header.payload_crc = load_be<std::uint32_t>(at + 56);
  return header;
}

std::string journal_file_name(Lsn first) {
  return fmt::format("{:016x}{}", first, extension);
}

std::optional<Lsn> parse_journal_file_name(std::string_view name) {
  if (name.size() != 16 + extension.size() || !name.ends_with(extension)) return std::nullopt;
  Lsn first = 0;
  const auto [end, error] = std::from_chars(name.data(), name.data() + 16, first, 16);
  if (error != std::errc{} || end != name.data() + 16) return std::nullopt;
  if (journal_file_name(first) != name) return std::nullopt;  // Capitals.
  return first;
}

}  // namespace tarry::storage
