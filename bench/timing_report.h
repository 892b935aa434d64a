#pragma once

// The output of timing_bench: each result as it comes, and at the end a table of all of them.
//
//                            tarry     keyed rounds     pooled heap  ...
//    insert, 1 M pending    2.6 ns      41.0  15.8x     33.1  12.7x       medians of all
//    repetitions hot pair               3.5 ns       ...                              and how many
//    times ours
//
// A benchmark's name is ROW/PEER, and its counter `value` is what the table shows; the row says
// what it is measured in.  bench/timing_table.py makes the same table for docs/benchmarks.md from
// JSON.

#include <benchmark/benchmark.h>

#include <unistd.h>

#include <map>
#include <string>
#include <utility>
#include <vector>

namespace tarry::bench {

struct Row {
  const char* name;
  const char* title;
  const char* unit;

  // The file that bench/timing_table.py reads.
  std::string label() const { return std::string(title) + " [" + unit + "]"; }
};

class TableReporter : public benchmark::ConsoleReporter {
 public:
  explicit TableReporter(std::vector<Row> rows)
      : ConsoleReporter(::isatty(1) != 0 ? OO_Color : OO_None), rows_(std::move(rows)) {}

  void ReportRuns(const std::vector<Run>& runs) override;
  void Finalize() override;
  bool has_failed() const { return has_failed_; }

 private:
  double median_of(const std::string& row, const std::string& peer) const;

  const std::vector<Row> rows_;
  std::vector<std::string> peers_;                     // As they came.
  std::map<std::string, std::vector<double>> values_;  // By ROW/PEER.
  bool has_failed_ = false;
};

}  // namespace tarry::bench
