#include "bench/timing_report.h"

#include <algorithm>
#include <ostream>

#include <fmt/core.h>

namespace tarry::bench {

void TableReporter::ReportRuns(const std::vector<Run>& runs) {
  ConsoleReporter::ReportRuns(runs);
  for (const Run& run : runs) {
    has_failed_ |= run.error_occurred;
    if (run.run_type != Run::RT_Iteration || run.error_occurred) continue;
    // ROW/PEER/iterations:1/manual_time[/repeats:3]
    const std::string& name = run.run_name.function_name;
    const auto slash = name.find('/');
    const auto value = run.counters.find("value");
    if (slash == std::string::npos || value == run.counters.end()) continue;
    const std::string peer = name.substr(slash + 1);
    if (std::ranges::find(peers_, peer) == peers_.end()) peers_.push_back(peer);
    values_[name].push_back(value->second);
  }
}

double TableReporter::median_of(const std::string& row, const std::string& peer) const {
  const auto found = values_.find(row + "/" + peer);
  if (found == values_.end()) return -1;
  auto values = found->second;
  std::ranges::nth_element(values, values.begin() + static_cast<std::ptrdiff_t>(values.size() / 2));
  return values[values.size() / 2];
}

void TableReporter::Finalize() {
  ConsoleReporter::Finalize();
  if (peers_.empty()) return;
  const auto number = [](double value) {
    return fmt::format("{:.{}f}", value, value < 100 ? 1 : 0);
  };
  std::string table = fmt::format("\n{:36}", "medians; how many times ours");
  for (const auto& peer : peers_) table += fmt::format("{:>16}", peer);
  table += '\n';
  for (const Row& row : rows_) {
    const double ours = median_of(row.name, peers_.front());
    std::string line = fmt::format("{:30} {:5}", row.title, row.unit);
    bool is_empty = true;
    for (const auto& peer : peers_) {
      const double value = median_of(row.name, peer);
      is_empty &= value < 0;
      if (value < 0) {
        line += fmt::format("{:>16}", "-");
      } else if (peer == peers_.front() || ours <= 0) {
        line += fmt::format("{:>16}", number(value));
      } else {
        line += fmt::format("{:>9}{:>6}x", number(value), number(value / ours));
      }
    }
    if (!is_empty) table += line + '\n';
  }
  GetOutputStream() << table << std::flush;
}

}  // namespace tarry::bench
