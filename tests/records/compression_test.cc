#include "records/compression.h"

#include <cstdlib>
#include <limits>
#include <new>

#include <lz4frame.h>
#include <snappy.h>
#include <zlib.h>
#include <zstd.h>

#include "tests/records/golden.h"

namespace {
std::size_t largest_allocation = 0;  // The largest of one call, since it was last set to 0.
}

// Counts, for the tests that say what may not be allocated.  Not inlined: g++ would see malloc()
// and free() at one end only and take them for a mismatch.
[[gnu::noinline]] void* operator new(std::size_t size) {
  largest_allocation = std::max(largest_allocation, size);
  if (void* memory = std::malloc(size)) return memory;
  throw std::bad_alloc();
}
[[gnu::noinline]] void operator delete(void* memory) noexcept {
  std::free(memory);
}
[[gnu::noinline]] void operator delete(void* memory, std::size_t) noexcept {
  std::free(memory);
}

namespace tarry::records {
namespace {

Buffer random_bytes(std::mt19937_64& random, std::size_t size) {
  Buffer bytes(size);
  for (auto& byte : bytes) byte = static_cast<std::uint8_t>(random());
  return bytes;
}

Buffer raw_snappy(Bytes input) {
  Buffer packed(snappy::MaxCompressedLength(input.size()));
  std::size_t size = 0;
  snappy::RawCompress(reinterpret_cast<const char*>(input.data()), input.size(),
                      reinterpret_cast<char*>(packed.data()), &size);
  packed.resize(size);
  return packed;
}

// A zstd frame whose header does not say how much it holds, as a stream's does not.
Buffer streamed_zstd(Bytes input) {
  ZSTD_CCtx* context = ZSTD_createCCtx();
  Buffer packed(ZSTD_compressBound(input.size()) + 64);
  ZSTD_outBuffer out{packed.data(), packed.size(), 0};
  ZSTD_inBuffer in{input.data(), input.size(), 0};
  ZSTD_compressStream2(context, &out, &in, ZSTD_e_flush);
  ZSTD_compressStream2(context, &out, &in, ZSTD_e_end);
  ZSTD_freeCCtx(context);
  packed.resize(out.pos);
  REQUIRE(ZSTD_getFrameContentSize(packed.data(), packed.size()) == ZSTD_CONTENTSIZE_UNKNOWN);
  return packed;
}

Buffer sized_lz4(Bytes input, LZ4F_blockMode_t mode) {
  LZ4F_preferences_t preferences = LZ4F_INIT_PREFERENCES;
  preferences.frameInfo.contentSize = input.size();
  preferences.frameInfo.blockSizeID = LZ4F_max4MB;
  preferences.frameInfo.blockMode = mode;
  preferences.frameInfo.contentChecksumFlag = LZ4F_contentChecksumEnabled;
  Buffer packed(LZ4F_compressFrameBound(input.size(), &preferences));
  packed.resize(
      LZ4F_compressFrame(packed.data(), packed.size(), input.data(), input.size(), &preferences));
  return packed;
}

Buffer best_gzip(Bytes input) {
  z_stream stream{};
  REQUIRE(deflateInit2(&stream, 9, Z_DEFLATED, 31, 9, Z_DEFAULT_STRATEGY) == Z_OK);
  Buffer packed(deflateBound(&stream, input.size()));
  stream.next_in = const_cast<std::uint8_t*>(input.data());
  stream.avail_in = static_cast<uInt>(input.size());
  stream.next_out = packed.data();
  stream.avail_out = static_cast<uInt>(packed.size());
  REQUIRE(deflate(&stream, Z_FINISH) == Z_STREAM_END);
  packed.resize(stream.total_out);
  deflateEnd(&stream);
  return packed;
}

Buffer joined(Buffer front, Bytes back) {
  append_bytes(front, back);
  return front;
}

TEST_SUITE("compression") {
  TEST_CASE("compressed data decompresses to itself, in every codec and every size") {
    const auto seed = std::random_device{}();
    INFO("seed: ", seed);
    std::mt19937_64 random(seed);
    for (const Codec codec : all_codecs)
      for (const std::size_t size :
           {0u, 1u, 15u, 61u, 1000u, 32767u, 32768u, 32769u, 65536u, 65537u, 200'000u, 1'048'588u})
        for (const bool dense : {false, true}) {
          Buffer input = random_bytes(random, size);
          if (dense)
            for (auto& byte : input) byte = static_cast<std::uint8_t>('a' + byte % 3);
          const Buffer packed = compress(codec, input);
          if (codec == Codec::none && size == 0) continue;
          const auto unpacked = decompress(codec, packed, size);
          REQUIRE(unpacked.has_value());
          REQUIRE(*unpacked == input);
          if (size > 0) {
            const auto capped = decompress(codec, packed, size - 1);
            REQUIRE_FALSE(capped.has_value());
            CHECK(capped.error().code == Errc::too_large);
          }
        }
  }

  TEST_CASE("compressing into a buffer keeps its former contents") {
    for (const Codec codec : all_codecs) {
      Buffer buffer = {1, 2, 3};
      compress_onto(codec, as_bytes("hello hello hello"), buffer);
      CHECK(Buffer(buffer.begin(), buffer.begin() + 3) == Buffer{1, 2, 3});
      const auto unpacked = decompress(codec, Bytes(buffer).subspan(3), 100);
      REQUIRE(unpacked.has_value());
      CHECK(as_text(*unpacked) == "hello hello hello");
    }
  }

  TEST_CASE("every form that clients write is read") {
    std::mt19937_64 random(5);
    Buffer input;
    while (input.size() < 300'000) append_bytes(input, as_bytes(random_text(random, 500)));
    const auto reads = [&](Codec codec, Bytes packed) {
      const auto unpacked = decompress(codec, packed, input.size());
      REQUIRE(unpacked.has_value());
      CHECK(*unpacked == input);
    };
    reads(Codec::snappy, raw_snappy(input));
    reads(Codec::snappy, compress(Codec::snappy, input));
    reads(Codec::zstd, streamed_zstd(input));
    reads(Codec::lz4, sized_lz4(input, LZ4F_blockIndependent));
    reads(Codec::lz4, sized_lz4(input, LZ4F_blockLinked));
    reads(Codec::gzip, best_gzip(input));
    const Bytes front = Bytes(input).first(100'000), back = Bytes(input).subspan(100'000);
    for (const Codec codec : {Codec::gzip, Codec::snappy, Codec::zstd})
      reads(codec, joined(compress(codec, front), compress(codec, back)));
  }

  TEST_CASE("snappy is written in the frames that Java's library reads") {
    const Buffer packed = compress(Codec::snappy, Buffer(40'000, 'x'));
    CHECK(to_hex(Bytes(packed).first(16)) == "82534e41505059000000000100000001");
    const auto first = load_be<std::uint32_t>(packed.data() + 16);
    const auto second = load_be<std::uint32_t>(packed.data() + 20 + first);
    CHECK(16 + 4 + first + 4 + second == packed.size());
  }

  TEST_CASE("lz4 is written as Java's reader wants it: independent blocks of 64 KiB") {
    const Buffer packed = compress(Codec::lz4, Buffer(100'000, 'x'));
    CHECK(to_hex(Bytes(packed).first(6)) == "04224d186040");
  }

  TEST_CASE("a bomb of any codec stops at the cap and allocates no more than that at once") {
    const Buffer zeros(64 << 20);
    const std::size_t cap = 1 << 20;
    struct Bomb {
      Codec codec;
      Buffer bytes;
    };
    std::vector<Bomb> bombs;
    bombs.push_back({Codec::gzip, best_gzip(zeros)});
    bombs.push_back({Codec::snappy, compress(Codec::snappy, zeros)});
    bombs.push_back({Codec::snappy, raw_snappy(zeros)});
    bombs.push_back({Codec::lz4, compress(Codec::lz4, zeros)});
    bombs.push_back({Codec::lz4, sized_lz4(zeros, LZ4F_blockLinked)});
    bombs.push_back({Codec::zstd, compress(Codec::zstd, zeros)});
    bombs.push_back({Codec::zstd, streamed_zstd(zeros)});
    for (const Bomb& bomb : bombs) {
      CAPTURE(std::string(name_of(bomb.codec)));
      CAPTURE(bomb.bytes.size());
      largest_allocation = 0;
      const auto unpacked = decompress(bomb.codec, bomb.bytes, cap);
      CHECK(largest_allocation <= std::max(cap, 4 * bomb.bytes.size() + 256));
      CHECK(largest_allocation <= cap);
      REQUIRE_FALSE(unpacked.has_value());
      CHECK(unpacked.error().code == Errc::too_large);
    }
    CHECK(zeros.size() / compress(Codec::zstd, zeros).size() > 10'000);
  }

  TEST_CASE("after input that was refused the next one is read as if nothing had been") {
    std::mt19937_64 random(9);
    const Buffer good = random_bytes(random, 100'000);
    const auto check = [&](Codec codec, const Buffer& bad) {
      CHECK_FALSE(decompress(codec, bad, 150'000).has_value());
      CHECK_FALSE(decompress(codec, bad, 10).has_value());
      CHECK(decompress(codec, compress(codec, good), good.size()).value() == good);
    };
    for (const Codec codec : {Codec::gzip, Codec::snappy, Codec::lz4, Codec::zstd}) {
      Buffer bad = compress(codec, good);
      bad.resize(bad.size() / 2);
      check(codec, bad);
    }
    check(Codec::lz4, sized_lz4(Buffer(200'000, 'x'), LZ4F_blockLinked));
    check(Codec::zstd, streamed_zstd(Buffer(200'000, 'x')));
  }

  TEST_CASE("a few bytes that claim to hold much do not get the memory for it") {
    const std::size_t cap = std::size_t{64} << 20;
    const auto small = [&](Codec codec, Bytes bytes) {
      largest_allocation = 0;
      const auto unpacked = decompress(codec, bytes, cap);
      CHECK_FALSE(unpacked.has_value());
      CHECK(largest_allocation <= 512 << 10);
    };
    // Snappy: 60 MiB to come, raw and in a frame.
    const Buffer snappy_claim = {0x80, 0x80, 0x80, 0x1e, 0x00, 'x'};
    small(Codec::snappy, snappy_claim);
    Buffer framed = compress(Codec::snappy, {});
    append_be(framed, static_cast<std::int32_t>(snappy_claim.size()));
    append_bytes(framed, snappy_claim);
    small(Codec::snappy, framed);
    // Zstd: the header of a frame of 60 MiB, and no block.
    Buffer frame = compress(Codec::zstd, Buffer(60 << 20));
    frame.resize(12);
    REQUIRE(ZSTD_getFrameContentSize(frame.data(), frame.size()) == 60 << 20);
    small(Codec::zstd, frame);
  }

  TEST_CASE("input that ends early is refused, wherever it ends") {
    std::mt19937_64 random(6);
    const Buffer input = random_bytes(random, 300);
    for (const Codec codec : {Codec::gzip, Codec::snappy, Codec::lz4, Codec::zstd}) {
      CAPTURE(std::string(name_of(codec)));
      const Buffer packed = compress(codec, input);
      for (std::size_t size = 0; size < packed.size(); ++size) {
        const Buffer copy(packed.begin(), packed.begin() + static_cast<std::ptrdiff_t>(size));
        const auto unpacked = decompress(codec, copy, 1000);
        // The frames of snappy have no end of their own: at a border there is nothing to notice.
        if (codec == Codec::snappy && size == 16) continue;
        REQUIRE_FALSE(unpacked.has_value());
      }
    }
  }

  TEST_CASE("bytes after the end are refused") {
    for (const Codec codec : {Codec::gzip, Codec::snappy, Codec::lz4, Codec::zstd}) {
      CAPTURE(std::string(name_of(codec)));
      const Buffer packed = compress(codec, as_bytes("hello"));
      for (const std::string_view tail : {"x", "some more bytes behind it"})
        CHECK_FALSE(decompress(codec, joined(packed, as_bytes(tail)), 1000).has_value());
    }
    const Buffer lz4 = compress(Codec::lz4, as_bytes("hello"));
    CHECK_FALSE(decompress(Codec::lz4, joined(lz4, lz4), 1000).has_value());
  }

  TEST_CASE("input with any bit flipped neither crashes nor goes past the cap") {
    std::mt19937_64 random(7);
    const std::string text =
        random_text(random, 0) + std::string(200, 'a') + "bcd" + std::string(200, 'b');
    std::vector<std::pair<Codec, Buffer>> inputs;
    for (const Codec codec : {Codec::gzip, Codec::snappy, Codec::lz4, Codec::zstd})
      inputs.emplace_back(codec, compress(codec, as_bytes(text)));
    inputs.emplace_back(Codec::snappy, raw_snappy(as_bytes(text)));
    inputs.emplace_back(Codec::zstd, streamed_zstd(as_bytes(text)));
    for (auto& [codec, packed] : inputs)
      for (std::size_t bit = 0; bit < packed.size() * 8; ++bit) {
        packed[bit / 8] = static_cast<std::uint8_t>(packed[bit / 8] ^ (1u << (bit % 8)));
        if (const auto unpacked = decompress(codec, packed, 4096))
          REQUIRE(unpacked->size() <= 4096);
        packed[bit / 8] = static_cast<std::uint8_t>(packed[bit / 8] ^ (1u << (bit % 8)));
      }
  }

  TEST_CASE("noise is refused by every codec") {
    std::mt19937_64 random(8);
    for (int i = 0; i < 2000; ++i) {
      const Buffer noise = random_bytes(random, random() % 200);
      for (const Codec codec : {Codec::gzip, Codec::lz4, Codec::zstd})
        REQUIRE_FALSE(decompress(codec, noise, 4096).has_value());
      if (const auto unpacked = decompress(Codec::snappy, noise, 4096))
        REQUIRE(unpacked->size() <= 4096);
    }
  }

  TEST_CASE("an unknown codec number is not a codec") {
    CHECK(codec_of(0) == Codec::none);
    CHECK(codec_of(4) == Codec::zstd);
    CHECK_FALSE(codec_of(5).has_value());
    CHECK_FALSE(codec_of(-1).has_value());
  }
}

}  // namespace
}  // namespace tarry::records
