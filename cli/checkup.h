#pragma once

// The judgement of `tarry doctor` on the facts that it finds: of this machine before a start, and
// of a broker that runs.
//
//   facts (limits, disk, clock, /status) --> check_...() --> Finding: ok, warning or problem
//
// A problem keeps a broker from starting or from its work; a warning does not, but somebody should
// know it.  Every text that is not ok says what to do.  Pure.

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/clock.h"

namespace tarry::cli {

struct Finding {
  enum class Level { ok, warning, problem };

  std::string check;  // "open files"
  Level level = Level::ok;
  std::string text;
};
std::string_view word_of(Finding::Level level);

// `limit`: the hard limit, up to which a broker raises its own.  `wanted` connections are
// configured, `served` can be.
Finding check_open_files(std::uint64_t limit, std::uint64_t wanted, std::uint64_t served);

struct DiskFacts {
  std::string directory;
  std::uint64_t free_bytes = 0, total_bytes = 0;
  std::uint64_t free_inodes = 0,
                total_inodes = 0;    // If the total is 0, the file system has no such limit.
  std::uint64_t reserve_bytes = 0;   // tarry.disk.reserve.bytes; that of a broker that runs.
  std::uint64_t journal_bytes = 0;   // The most that the journals may have; 0: not known.
  std::uint64_t file_system = 0;     // statfs's f_type.
  std::optional<bool> takes_direct;  // O_DIRECT; empty: not tried.
};
std::vector<Finding> check_disk(const DiskFacts& disk);

// `reserve_bytes`: tarry.disk.reserve.bytes, which the checkpoints of a full disk have to do with.
Finding check_reserve(std::uint64_t reserve_bytes);

// `error_us`: how far the clock may be off, by the kernel's account.
Finding check_clock(bool is_synchronised, std::int64_t error_us);

// A certificate that can be loaded.  `whose`: "listener SSL: CN=broker.example, valid until ...".
Finding check_certificate(std::string_view whose, WallTime valid_until, WallTime now);

// A listener that anyone who reaches its port may use.
Finding check_access(std::string_view address, bool is_loopback, bool asks_who);

// An address that the broker tells its clients.  `problem`: why nobody on this machine can connect
// to it; empty: it takes connections.
Finding check_advertised(std::string_view listener, std::string_view address,
                         std::string_view problem);

// `limits`: what the settings of memory allow together; `beside`: what a broker may need beside
// that; `machine`: what there is.
Finding check_memory(std::uint64_t limits, std::uint64_t beside, std::uint64_t machine);

// The admin's GET /status.
std::vector<Finding> check_status(std::string_view status);

}  // namespace tarry::cli
