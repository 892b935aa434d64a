"""The five codecs of Kafka, by the C libraries that Tarry itself links (no Python package needed)."""

import ctypes
import zlib

NONE, GZIP, SNAPPY, LZ4, ZSTD = range(5)
NAMES = {NONE: "none", GZIP: "gzip", SNAPPY: "snappy", LZ4: "lz4", ZSTD: "zstd"}

_libraries = {}


def _library(name):
    if name not in _libraries:
        _libraries[name] = ctypes.CDLL(name)
    return _libraries[name]


def _size_function(library, name, *types):
    function = getattr(_library(library), name)
    function.restype, function.argtypes = ctypes.c_size_t, types
    return function


def compress(codec, data):
    if codec == NONE:
        return data
    if codec == GZIP:
        packer = zlib.compressobj(6, zlib.DEFLATED, 31)
        return packer.compress(data) + packer.flush()
    if codec == SNAPPY:
        size = ctypes.c_size_t(len(data) + len(data) // 6 + 64)
        out = ctypes.create_string_buffer(size.value)
        status = _library("libsnappy.so.1").snappy_compress(
            data, ctypes.c_size_t(len(data)), out, ctypes.byref(size))
        assert status == 0, f"snappy_compress: {status}"
        return out.raw[: size.value]
    if codec == LZ4:
        bound = _size_function("liblz4.so.1", "LZ4F_compressFrameBound", ctypes.c_size_t, ctypes.c_void_p)
        out = ctypes.create_string_buffer(bound(len(data), None))
        frame = _size_function("liblz4.so.1", "LZ4F_compressFrame", ctypes.c_void_p, ctypes.c_size_t,
                               ctypes.c_char_p, ctypes.c_size_t, ctypes.c_void_p)
        size = frame(out, len(out), data, len(data), None)
        return out.raw[:size]
    if codec == ZSTD:
        bound = _size_function("libzstd.so.1", "ZSTD_compressBound", ctypes.c_size_t)
        out = ctypes.create_string_buffer(bound(len(data)))
        pack = _size_function("libzstd.so.1", "ZSTD_compress", ctypes.c_void_p, ctypes.c_size_t,
                              ctypes.c_char_p, ctypes.c_size_t, ctypes.c_int)
        size = pack(out, len(out), data, len(data), 3)
        return out.raw[:size]
    raise ValueError(f"no codec {codec}")


def decompress(codec, data, room=16 << 20):
    """`room` bounds what lz4 and zstd, which need not say how much they hold, may grow to."""
    if codec == NONE:
        return data
    if codec == GZIP:
        return zlib.decompress(data, 31)
    if codec == SNAPPY:
        if data.startswith(b"\x82SNAPPY\x00"):  # Xerial's framing, as Java clients send it.
            out, at = b"", 16
            while at < len(data):
                size = int.from_bytes(data[at : at + 4], "big")
                out += decompress(SNAPPY, data[at + 4 : at + 4 + size])
                at += 4 + size
            return out
        library, size = _library("libsnappy.so.1"), ctypes.c_size_t()
        status = library.snappy_uncompressed_length(data, ctypes.c_size_t(len(data)), ctypes.byref(size))
        assert status == 0, "not snappy"
        out = ctypes.create_string_buffer(size.value or 1)
        status = library.snappy_uncompress(data, ctypes.c_size_t(len(data)), out, ctypes.byref(size))
        assert status == 0, "damaged snappy"
        return out.raw[: size.value]
    if codec == LZ4:
        library, context = _library("liblz4.so.1"), ctypes.c_void_p()
        library.LZ4F_createDecompressionContext(ctypes.byref(context), 100)
        step = _size_function("liblz4.so.1", "LZ4F_decompress", ctypes.c_void_p, ctypes.c_void_p,
                              ctypes.c_void_p, ctypes.c_char_p, ctypes.c_void_p, ctypes.c_void_p)
        out, rest = b"", data
        buffer = ctypes.create_string_buffer(1 << 18)
        while rest:
            made, taken = ctypes.c_size_t(len(buffer)), ctypes.c_size_t(len(rest))
            status = step(context, buffer, ctypes.byref(made), rest, ctypes.byref(taken), None)
            assert status < 1 << 40, "damaged lz4"
            out += buffer.raw[: made.value]
            rest = rest[taken.value :]
            assert len(out) <= room, "more lz4 than there is room for"
            if status == 0:
                break
        library.LZ4F_freeDecompressionContext(context)
        return out
    if codec == ZSTD:
        out = ctypes.create_string_buffer(room)
        unpack = _size_function("libzstd.so.1", "ZSTD_decompress", ctypes.c_void_p, ctypes.c_size_t,
                                ctypes.c_char_p, ctypes.c_size_t)
        size = unpack(out, len(out), data, len(data))
        assert size <= room, "damaged zstd"
        return out.raw[:size]
    raise ValueError(f"no codec {codec}")


def snappy_in_xerial_frame(data):
    """Snappy as the Java clients write it: a header of their own, then blocks with their lengths."""
    packed = compress(SNAPPY, data)
    return b"\x82SNAPPY\x00" + (1).to_bytes(4, "big") * 2 + len(packed).to_bytes(4, "big") + packed


def _xxh32(data):
    """xxHash of less than 16 bytes, seed 0: what an lz4 frame's header ends with."""
    mask = 0xFFFFFFFF
    h = (374761393 + len(data)) & mask
    for byte in data:
        h = (h + byte * 374761393) & mask
        h = ((h << 11 | h >> 21) & mask) * 2654435761 & mask
    h = (h ^ h >> 15) * 2246822519 & mask
    h = (h ^ h >> 13) * 3266489917 & mask
    return h ^ h >> 16


def bomb(codec, size):
    """A few bytes that unpack to `size` zeros (a little more at most)."""
    if codec == GZIP:
        packer, zeros = zlib.compressobj(9, zlib.DEFLATED, 31), bytes(1 << 20)
        return b"".join(packer.compress(zeros) for _ in range(size >> 20)) + packer.flush()
    if codec == ZSTD:  # A frame of blocks that each repeat one byte 128 KiB times.
        blocks = size >> 17
        repeat = lambda last: ((1 << 17) << 3 | 1 << 1 | last).to_bytes(3, "little") + b"\0"
        return bytes.fromhex("28b52ffd") + b"\x00\x58" + repeat(0) * (blocks - 1) + repeat(1)
    if codec == LZ4:  # 4 MiB blocks, each one literal and one long copy of it.
        descriptor = b"\x60\x70"
        length = (4 << 20) - 1 - 4 - 15 - 5
        block = b"\x1f\x00\x01\x00" + b"\xff" * (length // 255) + bytes([length % 255]) + b"\x50" + bytes(5)
        frame = bytes.fromhex("04224d18") + descriptor + bytes([_xxh32(descriptor) >> 8 & 0xFF])
        return frame + (len(block).to_bytes(4, "little") + block) * (size >> 22) + bytes(4)
    if codec == SNAPPY:  # One literal, then copies of 64 bytes.
        claimed, preamble = 1 + size // 64 * 64, b""
        while claimed >= 128:
            preamble += bytes([claimed & 127 | 128])
            claimed >>= 7
        return preamble + bytes([claimed]) + b"\x00\x00" + b"\xfe\x01\x00" * (size // 64)
    raise ValueError(f"no bomb of codec {codec}")
