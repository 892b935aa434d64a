#pragma once

// The number of connections that the limit of open files (RLIMIT_NOFILE) leaves room for.
//
// Every connection is a descriptor.  Without a reserve the connections would take the last one, and
// a checkpoint, a delivery or a compaction could open no file any more.

#include <cstddef>
#include <cstdint>

namespace tarry::server {

// Descriptors that are not for connections of clients: both databases keep 128 tables open each and
// a compaction opens some tens more, the admin has 116 connections, and the rest is for journals,
// segments that are read or flushed, and each shard's event loop.
constexpr std::uint64_t reserved_files = 512;
constexpr std::uint64_t reserved_files_per_shard = 16;

// `max.connections`, or as many as fit below the limit.  A limit that is smaller than two reserves
// is shared half and half, so that a broker with a very low limit still serves some clients.
std::size_t connections_within(std::uint64_t open_files, std::size_t max_connections,
                               std::uint32_t shards);

// The soft limit of this process.
std::uint64_t open_files_limit();

}  // namespace tarry::server
