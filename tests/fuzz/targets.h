#pragma once

// Fuzz targets: one function for each decoder of bytes that come from outside, from clients, from
// the disk or from an operator's files.  Each takes any bytes at all; what it must not do is crash,
// read what is not there, take much longer or more memory than its input is long, or break what it
// checks itself (what was decoded is encoded and decoded again).
//
//   scripts/fuzz TARGET SECONDS   --> main.cc, libFuzzer  --> target
//   fuzz_tests (in scripts/test)  --> fuzz_test.cc, corpus --> target
//
// `requests` is the one that has state: its bytes are decisions, and a whole broker is behind it.
//
// A checksum keeps made-up bytes from all code behind it, so the targets whose formats have one
// make it right themselves.

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>

#include "base/bytes.h"

namespace tarry::fuzz {

// The input of one run, read from the front.  Bytes that are not there are 0.
class Input {
 public:
  explicit Input(Bytes bytes) : left_(bytes) {}

  bool empty() const { return left_.empty(); }
  std::uint8_t u8() {
    const auto byte = take(1);
    return byte.empty() ? std::uint8_t{0} : byte[0];
  }
  std::uint16_t u16() {
    const unsigned high = u8();
    return static_cast<std::uint16_t>(high << 8 | u8());
  }
  std::size_t below(std::size_t end) { return u16() % end; }
  Bytes take(std::size_t count) {
    const auto front = left_.first(std::min(count, left_.size()));
    left_ = left_.subspan(front.size());
    return front;
  }
  // So many bytes as the first one or two of them say.
  Bytes piece() { return take(u8()); }
  Bytes long_piece() { return take(u16()); }
  Bytes rest() { return take(left_.size()); }

 private:
  Bytes left_;
};

struct Target {
  std::string_view name;
  void (*run)(Bytes input);
};

void fuzz_frame(Bytes input);
void fuzz_message(Bytes input);
void fuzz_consumer(Bytes input);
void fuzz_batch(Bytes input);
void fuzz_schedule(Bytes input);
void fuzz_recurrence(Bytes input);
void fuzz_journal(Bytes input);
void fuzz_segment(Bytes input);
void fuzz_rows(Bytes input);
void fuzz_chunk(Bytes input);
void fuzz_group(Bytes input);
void fuzz_login(Bytes input);
void fuzz_settings(Bytes input);
void fuzz_http(Bytes input);
void fuzz_config(Bytes input);
void fuzz_stored(Bytes input);
void fuzz_requests(Bytes input);

inline constexpr std::array targets{
    Target{"frame", fuzz_frame},            // A client's frame: header, then the request.
    Target{"message", fuzz_message},        // Any message of any API and version, both directions.
    Target{"consumer", fuzz_consumer},      // Subscriptions and assignments of consumers.
    Target{"batch", fuzz_batch},            // A produced batch, in all codecs.
    Target{"schedule", fuzz_schedule},      // The headers that schedule a record.
    Target{"recurrence", fuzz_recurrence},  // Cron expressions, time zones, stored recurrences.
    Target{"journal", fuzz_journal},        // A journal's files, and the operations in a record.
    Target{"segment", fuzz_segment},        // A partition's log with its two index files.
    Target{"rows", fuzz_rows},              // Keys and values of the databases.
    Target{"chunk", fuzz_chunk},            // A chunk of pending records, and their bodies.
    Target{"group", fuzz_group},            // A stored consumer group.
    Target{"login", fuzz_login},            // PLAIN, SCRAM, bearer tokens and their keys.
    Target{"settings", fuzz_settings},      // Properties files, and the values of settings.
    Target{"http", fuzz_http},              // The admin's targets, hosts, cookies and bodies.
    Target{"config", fuzz_config},      // Listeners, principals, users, quotas, topics' configs.
    Target{"stored", fuzz_stored},      // Rows of producers and offsets, small files of a log.
    Target{"requests", fuzz_requests},  // Valid requests, in any order, against a model.
};

}  // namespace tarry::fuzz
