#include "cli/top_screen.h"

#include <chrono>
#include <sstream>
#include <string>
#include <vector>

#include <doctest/doctest.h>

#include "base/time_text.h"
#include "cli/io/text.h"

namespace tarry::cli {
namespace {

using namespace std::chrono_literals;

TopSample sample_at(WallTime at) {
  TopSample sample;
  sample.at = at;
  sample.version = "1.0";
  sample.state = "running";
  sample.admin = "127.0.0.1:8080";
  sample.uptime = 3h + 12min;
  sample.window = 5min;
  sample.lag_max = 5512;
  return sample;
}

std::vector<std::string> screen_lines_of(const std::string& text) {
  std::istringstream in(text);
  std::vector<std::string> lines;
  for (std::string line; std::getline(in, line);) lines.push_back(line);
  return lines;
}

const WallTime noon = *parse_time("2026-11-21T12:00:00Z");

TEST_SUITE_BEGIN("top screen");

TEST_CASE("rates are those between two looks, and a broker that has started again has none") {
  TopSample before = sample_at(noon), now = sample_at(noon + 2s);
  before.topics = {{"orders", 1, 0, 1000, 0}};
  now.topics = {{"orders", 1, 7, 3400, 1024}, {"new", 1, 9, 5, 0}};
  // A topic's records are those of its open partitions, so it may have more from one look to the
  // next without any that was appended.
  before.appended = 100;
  now.appended = 148;
  before.delivered = 10;
  now.delivered = 20;
  before.requests = 500;
  now.requests = 3;
  const auto text = top_text(now, &before, {});
  CHECK(text.find("per second: 0 requests, 24 records appended, 5 delivered, 0 cancelled") !=
        std::string::npos);
  CHECK(text.find("max 5.51 s") != std::string::npos);
  CHECK(top_text(now, nullptr, {}).find("per second: - requests") != std::string::npos);
  CHECK(rate_of(5, 3, 0s) == 0);
  // The one with most pending comes first; a topic that is new has no rate yet.
  const auto lines = screen_lines_of(text);
  const auto at = [&](const std::string& word) {
    for (std::size_t i = 0; i < lines.size(); ++i)
      if (lines[i].starts_with(word)) return i;
    return lines.size();
  };
  CHECK(at("new ") < at("orders "));
  CHECK(at("orders ") < lines.size());
}

TEST_CASE("the screen never has more lines or columns than the terminal, whatever there is") {
  TopSample now = sample_at(noon);
  for (int i = 0; i < 50; ++i) {
    const std::string name = std::string(70, 'n') + std::to_string(i);
    now.due.push_back({name, name, name, noon + i * 1min});
    now.topics.push_back({name, 3, 5, 7, 9});
    now.groups.push_back({name, "Stable", 1, 2});
  }
  for (const std::size_t columns : {50U, 80U, 200U}) {
    for (const std::size_t rows : {5U, 24U, 60U, 300U}) {
      CAPTURE(columns);
      CAPTURE(rows);
      const auto lines =
          screen_lines_of(top_text(now, nullptr, {columns, rows, false, "an old answer"}));
      CHECK(lines.size() <= rows);
      for (const auto& line : lines) {
        CAPTURE(line);
        CHECK(width_of(line) <= columns);
      }
      if (rows == 24) CHECK(lines.size() >= 20);
    }
  }
}

TEST_CASE("groups are listed by their lag, and an unknown one comes last as a dash") {
  TopSample now = sample_at(noon);
  now.groups = {{"a", "Stable", 1, std::nullopt}, {"b", "Stable", 1, 0}, {"c", "Empty", 0, 1234}};
  const auto lines = screen_lines_of(top_text(now, nullptr, {}));
  REQUIRE(lines.size() >= 3);
  CHECK(lines[lines.size() - 3].starts_with("c      1 234  Empty"));
  CHECK(lines[lines.size() - 2].starts_with("b          0  Stable"));
  CHECK(lines[lines.size() - 1].starts_with("a          -  Stable"));
}

TEST_CASE("overdue records and the next due time are shown, and why figures are old") {
  TopSample now = sample_at(noon);
  CHECK(top_text(now, nullptr, {}).find("nothing is pending") != std::string::npos);
  now.pending = 12'345;
  now.overdue = 1;
  now.next_due = noon - 3s;
  now.due = {{"orders", "order\n1", "", noon + 5min}};
  const auto text = top_text(now, nullptr, {0, 0, true, "no answer"});
  CHECK(text.find("pending 12 345, overdue 1 for 3s, next in 5m") != std::string::npos);
  CHECK(text.find("order\\n1") != std::string::npos);
  now.due.clear();
  CHECK(top_text(now, nullptr, {}).find("overdue 1 for 3s, next -") != std::string::npos);
  CHECK(top_text(now, nullptr, {}).find("nothing else is pending") != std::string::npos);
  CHECK(text.find("\x1b[31mno answer\x1b[0m") != std::string::npos);
  CHECK(top_text(now, nullptr, {0, 0, false, "no answer"}).find('\x1b') == std::string::npos);
}

TEST_SUITE_END();
}  // namespace
}  // namespace tarry::cli
