#pragma once

// dump_segment(): prints the batches of a segment file, in the format of Kafka's DumpLogSegments:
//
//   Dumping logs/orders-0/00000000000000000000.log
//   Log starting offset: 0
//   baseOffset: 0 lastOffset: 1 count: 2 baseSequence: -1 ... compresscodec: none crc: 1 isvalid:
//   true | offset: 0 CreateTime: 1700000000000 keySize: 1 valueSize: 2 sequence: -1 headerKeys: []
//   ...
//
// As JSON a batch is one line: {"file":..,"baseOffset":..,...,"records":[..]}.
//
// Invariant: every batch up to the first bytes that are not a batch is printed, also one
// with a wrong checksum (isvalid: false); a finding has its file and position.  No file is changed.
// Memory holds one batch, as it is in the file and decompressed.

#include <cstdint>
#include <functional>
#include <string>

#include "base/result.h"
#include "storage/file.h"

namespace tarry::cli {

class Output;

struct SegmentDump {
  bool records = false;  // The records of each batch are printed too.
  bool json = false;
};

// The findings in a segment that could be read.
struct SegmentFindings {
  std::uint64_t batches = 0;
  std::uint64_t wrong = 0;
  std::string first;  // The first of them, with its place.
};

// Calls `step` with the number of batches so far.  Errors: the file cannot be read.
Result<SegmentFindings> dump_segment(storage::Disk& disk, const std::string& path,
                                     const SegmentDump& how, Output& out,
                                     const std::function<void(std::uint64_t)>& step = {});

}  // namespace tarry::cli
