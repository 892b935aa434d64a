#pragma once

// The five codecs of record batches, one call each way.
//
//   codec    what it reads                                what it writes
//   gzip     RFC 1952, members one behind the other       one member, level 6
//   snappy   a raw block, or xerial frames (see below)    xerial frames of 32 KiB
//   lz4      one frame (not the bare block)               a frame, independent blocks of 64 KiB
//   zstd     frames, with and without a content size      a frame with one, level 3
//
// Xerial frames are what Java's snappy library puts around blocks:
//
//     82 'S' 'N' 'A' 'P' 'P' 'Y' 00 | i32 version | i32 compatible version |
//     { i32 length, raw snappy block }*
//
// Kafka's own clients and brokers have always written these, so every client had to learn to read
// them; some of the older ones learned nothing else.  librdkafka writes raw blocks, so we read
// both. lz4's blocks are independent because Java's reader refuses others.
//
// Invariants: the output never grows past `cap`, whatever size the input unpacks to or claims.
// Memory follows the bytes that were really unpacked, not the size in a header (while the output
// grows, the old and the new copy exist together).  Input that ends early, continues past its end
// or fails a checksum is refused as a whole.
//
// Errors: Errc::too_large beyond the cap, Errc::corrupt for input that is not the codec's.  Any
// thread; each keeps the codecs' working memory for its next call.

#include <cstddef>
#include <cstdint>
#include <optional>

#include "base/bytes.h"
#include "base/result.h"

namespace tarry::records {

// Numbers as in a batch's attributes.
enum class Codec : std::uint8_t { none = 0, gzip = 1, snappy = 2, lz4 = 3, zstd = 4 };

inline std::optional<Codec> codec_of(int number) {
  if (number < 0 || number > 4) return std::nullopt;
  return static_cast<Codec>(number);
}

const char* name_of(Codec codec);  // As in Kafka's compression.type.

Result<Buffer> decompress(Codec codec, Bytes input, std::size_t cap);

// Compressing cannot fail: `input` is below 2 GiB, as a batch is, and want of memory throws.
Buffer compress(Codec codec, Bytes input);
// The same, appended to `to`.
void compress_onto(Codec codec, Bytes input, Buffer& to);

}  // namespace tarry::records
