#include "records/compression.h"

#include <algorithm>
#include <array>
#include <limits>
#include <memory>
#include <new>
#include <string_view>

#include <fmt/core.h>
#include <lz4frame.h>
#include <snappy.h>
#include <zlib.h>
#include <zstd.h>

#include "base/assert.h"

namespace tarry::records {
namespace {

constexpr std::size_t max_input_bytes = std::numeric_limits<std::int32_t>::max();

// The output of a decompression, up to a cap.  Grows with what was written, by doubling; at the cap
// the codec gets one byte that does not count, which it must leave alone.
class Output {
 public:
  Output(std::size_t cap, std::size_t expected) : cap_(cap) {
    bytes_.resize(std::min(cap, expected));
  }

  std::span<std::uint8_t> room() {
    if (used_ == bytes_.size() && used_ < cap_) {
      const std::size_t larger = std::min(cap_, std::max<std::size_t>(2 * used_, 1024));
      bytes_.reserve(larger);  // Exactly: resize() alone would take room beyond the cap.
      bytes_.resize(larger);
    }
    if (used_ == cap_) return {&beyond_, 1};
    return std::span(bytes_).subspan(used_);
  }
  // `count` bytes of room() were written; false when that was beyond the cap.
  bool wrote(std::size_t count) {
    if (used_ == cap_) return count == 0;
    used_ += count;
    return true;
  }
  Buffer take() {
    bytes_.resize(used_);
    return std::move(bytes_);
  }

 private:
  const std::size_t cap_;
  Buffer bytes_;
  std::size_t used_ = 0;  // <= bytes_.size() <= cap_.
  std::uint8_t beyond_ = 0;
};

// Enough for most, and little when the input is little.
std::size_t usual_size(Bytes input) {
  return 4 * input.size() + 256;
}

std::unexpected<Error> corrupt(Codec codec, std::string_view why) {
  return fail(Errc::corrupt,
              fmt::format("the {} data is incomplete or damaged: {}", name_of(codec), why));
}
std::unexpected<Error> beyond(Codec codec, Bytes input, std::size_t cap) {
  return fail(Errc::too_large, fmt::format("{} bytes of {} data unpack to more than {}",
                                           input.size(), name_of(codec), cap));
}

// ---- gzip

constexpr int gzip_window_bits = 15 + 16;  // zlib's way to ask for RFC 1952.
constexpr int gzip_level = 6;
constexpr int gzip_memory_level = 8;  // zlib's default.

class Inflater {
 public:
  Inflater() {
    if (inflateInit2(&stream, gzip_window_bits) != Z_OK) throw std::bad_alloc();
  }
  ~Inflater() { inflateEnd(&stream); }
  Inflater& operator=(Inflater&&) = delete;

  z_stream stream{};
};

class Deflater {
 public:
  Deflater() {
    if (deflateInit2(&stream, gzip_level, Z_DEFLATED, gzip_window_bits, gzip_memory_level,
                     Z_DEFAULT_STRATEGY) != Z_OK)
      throw std::bad_alloc();
  }
  ~Deflater() { deflateEnd(&stream); }
  Deflater& operator=(Deflater&&) = delete;

  z_stream stream{};
};

Result<Buffer> unpack_gzip(Bytes input, std::size_t cap) {
  thread_local Inflater inflater;
  z_stream& stream = inflater.stream;
  // A batch that was refused may have left the thread's stream anywhere.
  inflateReset(&stream);
  stream.next_in = const_cast<std::uint8_t*>(input.data());  // zlib only reads it.
  stream.avail_in = static_cast<uInt>(input.size());
  Output output(cap, usual_size(input));
  for (;;) {
    const auto room = output.room();
    // zlib counts in 32 bits.
    const auto given =
        static_cast<uInt>(std::min<std::size_t>(room.size(), std::numeric_limits<uInt>::max()));
    stream.next_out = room.data();
    stream.avail_out = given;
    const int state = inflate(&stream, Z_NO_FLUSH);
    if (!output.wrote(given - stream.avail_out)) return beyond(Codec::gzip, input, cap);
    if (state == Z_STREAM_END) {
      if (stream.avail_in == 0) return output.take();
      inflateReset(&stream);  // Another member follows.
    } else if (state == Z_MEM_ERROR) {
      throw std::bad_alloc();
    } else if (state == Z_BUF_ERROR) {
      return corrupt(Codec::gzip, "it ends too early");
    } else if (state != Z_OK) {
      return corrupt(Codec::gzip, stream.msg != nullptr ? stream.msg : "it is damaged");
    }
  }
}

void pack_gzip(Bytes input, Buffer& to) {
  thread_local Deflater deflater;
  z_stream& stream = deflater.stream;
  deflateReset(&stream);
  const std::size_t at = to.size();
  const std::size_t bound = deflateBound(&stream, input.size());
  to.resize(at + bound);
  stream.next_in = const_cast<std::uint8_t*>(input.data());
  stream.avail_in = static_cast<uInt>(input.size());
  stream.next_out = to.data() + at;
  stream.avail_out = static_cast<uInt>(bound);
  const int state = deflate(&stream, Z_FINISH);
  TARRY_ASSERT(state == Z_STREAM_END, "deflateBound() leaves room for all");
  to.resize(to.size() - stream.avail_out);
}

// ---- snappy

constexpr std::array<std::uint8_t, 8> xerial_magic = {0x82, 'S', 'N', 'A', 'P', 'P', 'Y', 0};
constexpr std::size_t xerial_header_size = xerial_magic.size() + 4 + 4;
constexpr std::size_t xerial_block_size = std::size_t{32} << 10;
constexpr std::int32_t xerial_version = 1;
// The densest element is a copy: 3 bytes that make 64.  A block that claims more than this is
// corrupt.
constexpr std::size_t snappy_densest = 22;

bool begins_with_magic(Bytes bytes) {
  return bytes.size() >= xerial_magic.size() &&
         std::equal(xerial_magic.begin(), xerial_magic.end(), bytes.begin());
}

const char* chars(const std::uint8_t* bytes) {
  return reinterpret_cast<const char*>(bytes);
}
char* chars(std::uint8_t* bytes) {
  return reinterpret_cast<char*>(bytes);
}

Result<> unpack_snappy_block(Bytes input, Bytes block, Buffer& to, std::size_t cap) {
  std::size_t size = 0;
  if (!snappy::GetUncompressedLength(chars(block.data()), block.size(), &size))
    return corrupt(Codec::snappy, "a block has no length");
  if (size > cap - to.size()) return beyond(Codec::snappy, input, cap);
  if (size > snappy_densest * block.size())
    return corrupt(Codec::snappy, "a block claims to hold more than it can");
  const std::size_t at = to.size();
  // Grows by doubling, but not past the cap.
  if (to.capacity() < at + size) to.reserve(std::min(cap, std::max(at + size, 2 * at)));
  to.resize(at + size);
  if (!snappy::RawUncompress(chars(block.data()), block.size(), chars(to.data() + at)))
    return corrupt(Codec::snappy, "a block is damaged");
  return {};
}

Result<Buffer> unpack_snappy(Bytes input, std::size_t cap) {
  Buffer output;
  // A raw block, as librdkafka writes it.
  if (!begins_with_magic(input)) {
    if (auto done = unpack_snappy_block(input, input, output, cap); !done)
      return std::unexpected(done.error());
    return output;
  }
  output.reserve(std::min(cap, usual_size(input)));
  Bytes rest = input;
  while (!rest.empty()) {
    if (begins_with_magic(rest)) {  // At the front, and where one stream follows another.
      if (rest.size() < xerial_header_size) return corrupt(Codec::snappy, "it ends too early");
      rest = rest.subspan(xerial_header_size);
      continue;
    }
    if (rest.size() < 4) return corrupt(Codec::snappy, "it ends too early");
    const auto length = load_be<std::uint32_t>(rest.data());
    rest = rest.subspan(4);
    if (length > rest.size()) return corrupt(Codec::snappy, "a block extends past the end");
    if (auto done = unpack_snappy_block(input, rest.first(length), output, cap); !done)
      return std::unexpected(done.error());
    rest = rest.subspan(length);
  }
  return output;
}

void pack_snappy(Bytes input, Buffer& to) {
  append_bytes(to, xerial_magic);
  append_be(to, xerial_version);
  append_be(to, xerial_version);  // The oldest that can read it.
  while (!input.empty()) {
    const Bytes block = input.first(std::min(input.size(), xerial_block_size));
    input = input.subspan(block.size());
    const std::size_t at = to.size();
    to.resize(at + 4 + snappy::MaxCompressedLength(block.size()));
    std::size_t size = 0;
    snappy::RawCompress(chars(block.data()), block.size(), chars(to.data() + at + 4), &size);
    store_be(to.data() + at, static_cast<std::int32_t>(size));
    to.resize(at + 4 + size);
  }
}

// ---- lz4

struct FreeLz4 {
  void operator()(LZ4F_dctx* context) const { LZ4F_freeDecompressionContext(context); }
};

Result<Buffer> unpack_lz4_with(LZ4F_dctx* context, Bytes input, std::size_t cap) {
  Output output(cap, usual_size(input));
  Bytes rest = input;
  for (;;) {
    const auto room = output.room();
    std::size_t written = room.size();
    std::size_t taken = rest.size();
    const std::size_t state =
        LZ4F_decompress(context, room.data(), &written, rest.data(), &taken, nullptr);
    if (LZ4F_isError(state)) return corrupt(Codec::lz4, LZ4F_getErrorName(state));
    rest = rest.subspan(taken);
    if (!output.wrote(written)) return beyond(Codec::lz4, input, cap);
    if (state == 0) {  // The frame is complete.  Java's reader sees nothing behind it.
      if (!rest.empty()) return corrupt(Codec::lz4, "something follows its frame");
      return output.take();
    }
    if (taken == 0 && written == 0) return corrupt(Codec::lz4, "it ends too early");
  }
}

Result<Buffer> unpack_lz4(Bytes input, std::size_t cap) {
  thread_local std::unique_ptr<LZ4F_dctx, FreeLz4> context;
  if (!context) {
    LZ4F_dctx* made = nullptr;
    if (LZ4F_isError(LZ4F_createDecompressionContext(&made, LZ4F_VERSION))) throw std::bad_alloc();
    context.reset(made);
  }
  auto unpacked = unpack_lz4_with(context.get(), input, cap);
  // LZ4F_resetDecompressionContext() keeps how much of a broken-off frame was to come (seen with
  // lz4 1.9.4) and finds the next frame wrong by it: after a failure begin with a new one.
  if (!unpacked) context.reset();
  return unpacked;
}

void pack_lz4(Bytes input, Buffer& to) {
  LZ4F_preferences_t preferences = LZ4F_INIT_PREFERENCES;
  preferences.frameInfo.blockSizeID = LZ4F_max64KB;
  // Java's reader refuses blocks that depend on one another.
  preferences.frameInfo.blockMode = LZ4F_blockIndependent;
  const std::size_t at = to.size();
  to.resize(at + LZ4F_compressFrameBound(input.size(), &preferences));
  const std::size_t size =
      LZ4F_compressFrame(to.data() + at, to.size() - at, input.data(), input.size(), &preferences);
  // There is room for the worst case, so only memory can be missing.
  if (LZ4F_isError(size)) throw std::bad_alloc();
  to.resize(at + size);
}

// ---- zstd

constexpr int zstd_level = 3;
// A frame may ask for a window, which is as much memory: what level 22 asks for still goes.
constexpr int zstd_largest_window_log = 27;
// A content size is believed at once up to this ratio or this size; beyond, memory grows as the
// content comes.
constexpr std::size_t zstd_believed_ratio = 256;
constexpr std::size_t zstd_believed_size = std::size_t{256} << 10;
// A thread keeps a context for its next call unless a large window made it larger than this.
constexpr std::size_t zstd_kept_context = std::size_t{4} << 20;

struct FreeZstd {
  void operator()(ZSTD_DCtx* context) const { ZSTD_freeDCtx(context); }
  void operator()(ZSTD_CCtx* context) const { ZSTD_freeCCtx(context); }
};

Result<Buffer> unpack_zstd_with(ZSTD_DCtx* context, Bytes input, std::size_t cap) {
  std::size_t expected = usual_size(input);
  const unsigned long long content = ZSTD_getFrameContentSize(input.data(), input.size());
  if (content != ZSTD_CONTENTSIZE_UNKNOWN && content != ZSTD_CONTENTSIZE_ERROR) {
    if (content > cap) return beyond(Codec::zstd, input, cap);
    // With room for all of it zstd writes straight there, without a window of its own.
    if (content <= std::max(zstd_believed_ratio * input.size(), zstd_believed_size))
      expected = std::max<std::size_t>(content, 1);
  }
  Output output(cap, expected);
  ZSTD_inBuffer in{input.data(), input.size(), 0};
  for (;;) {
    const auto room = output.room();
    ZSTD_outBuffer out{room.data(), room.size(), 0};
    const std::size_t before = in.pos;
    const std::size_t state = ZSTD_decompressStream(context, &out, &in);
    if (ZSTD_isError(state)) return corrupt(Codec::zstd, ZSTD_getErrorName(state));
    if (!output.wrote(out.pos)) return beyond(Codec::zstd, input, cap);
    if (state == 0 && in.pos == in.size) return output.take();
    // Nothing was taken and nothing came, so the input ends before the frame does.
    if (out.pos == 0 && in.pos == before) return corrupt(Codec::zstd, "it ends too early");
  }
}

Result<Buffer> unpack_zstd(Bytes input, std::size_t cap) {
  thread_local std::unique_ptr<ZSTD_DCtx, FreeZstd> context;
  if (!context) {
    context.reset(ZSTD_createDCtx());
    if (!context) throw std::bad_alloc();
    ZSTD_DCtx_setParameter(context.get(), ZSTD_d_windowLogMax, zstd_largest_window_log);
  }
  // The session alone: the limit of the window is kept.
  ZSTD_DCtx_reset(context.get(), ZSTD_reset_session_only);
  auto unpacked = unpack_zstd_with(context.get(), input, cap);
  if (ZSTD_sizeof_DCtx(context.get()) > zstd_kept_context) context.reset();
  return unpacked;
}

void pack_zstd(Bytes input, Buffer& to) {
  thread_local const std::unique_ptr<ZSTD_CCtx, FreeZstd> context(ZSTD_createCCtx());
  if (!context) throw std::bad_alloc();
  const std::size_t at = to.size();
  to.resize(at + ZSTD_compressBound(input.size()));
  const std::size_t size = ZSTD_compressCCtx(context.get(), to.data() + at, to.size() - at,
                                             input.data(), input.size(), zstd_level);
  if (ZSTD_isError(size)) throw std::bad_alloc();
  to.resize(at + size);
}

}  // namespace

const char* name_of(Codec codec) {
  switch (codec) {
    case Codec::none:
      return "none";
    case Codec::gzip:
      return "gzip";
    case Codec::snappy:
      return "snappy";
    case Codec::lz4:
      return "lz4";
    case Codec::zstd:
      return "zstd";
  }
  return "unknown";
}

Result<Buffer> decompress(Codec codec, Bytes input, std::size_t cap) {
  if (input.size() > max_input_bytes)
    return fail(Errc::too_large, fmt::format("{} bytes are more than a batch holds", input.size()));
  if (codec != Codec::none && input.empty()) return corrupt(codec, "it is empty");
  switch (codec) {
    case Codec::none:
      if (input.size() > cap) return beyond(codec, input, cap);
      return Buffer(input.begin(), input.end());
    case Codec::gzip:
      return unpack_gzip(input, cap);
    case Codec::snappy:
      return unpack_snappy(input, cap);
    case Codec::lz4:
      return unpack_lz4(input, cap);
    case Codec::zstd:
      return unpack_zstd(input, cap);
  }
  return fail(Errc::unsupported, fmt::format("codec {} is not known", static_cast<int>(codec)));
}

void compress_onto(Codec codec, Bytes input, Buffer& to) {
  TARRY_ASSERT(input.size() <= max_input_bytes, "the compressed records have to fit into a batch");
  switch (codec) {
    case Codec::none:
      return append_bytes(to, input);
    case Codec::gzip:
      return pack_gzip(input, to);
    case Codec::snappy:
      return pack_snappy(input, to);
    case Codec::lz4:
      return pack_lz4(input, to);
    case Codec::zstd:
      return pack_zstd(input, to);
  }
}

Buffer compress(Codec codec, Bytes input) {
  Buffer packed;
  compress_onto(codec, input, packed);
  return packed;
}

}  // namespace tarry::records
