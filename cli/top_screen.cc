#include "cli/top_screen.h"

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <map>

#include <fmt/core.h>

#include "cli/io/number_text.h"
#include "cli/io/output.h"
#include "cli/io/table.h"
#include "cli/io/text.h"
#include "cli/local_time.h"

namespace tarry::cli {
namespace {

constexpr std::size_t lines_without_terminal = 10;

// An Output whose text is a string.
// The screen is written in one piece, because a terminal shows half of a picture as a flicker.
class TextOutput {
 public:
  explicit TextOutput(const TopLayout& layout)
      : file_(::open_memstream(&text_, &size_)),
        output_(file_, true, layout.columns, layout.has_colours) {}
  ~TextOutput() {
    std::fclose(file_);
    std::free(text_);
  }
  TextOutput(const TextOutput&) = delete;
  TextOutput& operator=(const TextOutput&) = delete;

  Output& output() { return output_; }
  std::string text() {
    std::fflush(file_);
    return std::string(text_, size_);
  }

 private:
  char* text_ = nullptr;
  std::size_t size_ = 0;
  std::FILE* const file_;
  Output output_;
};

std::string per_second(double rate) {
  return rate < 999.5 ? figure_text(rate) : grouped(static_cast<std::uint64_t>(rate + 0.5));
}

class TopText {
 public:
  TopText(const TopSample& now, const TopSample* before, const TopLayout& layout)
      : now_(now), before_(before), layout_(layout), to_(layout) {
    if (before != nullptr)
      between_ = std::chrono::duration_cast<std::chrono::milliseconds>(now.at - before->at);
  }

  std::string text() {
    head();
    lists();
    std::string text = to_.text();
    // A line feed at the end would scroll the screen.
    while (text.ends_with('\n')) text.pop_back();
    if (layout_.rows == 0) return text;
    // Lines that do not fit are left out, and not scrolled in.
    std::size_t end = 0;
    for (std::size_t row = 0; row < layout_.rows && end != text.npos; ++row)
      end = text.find('\n', end == 0 && row == 0 ? 0 : end + 1);
    return end == text.npos ? text : text.substr(0, end);
  }

 private:
  void line(const std::string& text, Style style = Style::plain) {
    auto& out = to_.output();
    out.line(out.in(style, layout_.columns == 0 ? text : shortened(text, layout_.columns)));
  }

  std::string rate(std::uint64_t now, std::uint64_t before) const {
    // After one look there is no rate yet, which is not the same as none.
    return before_ == nullptr ? "-" : per_second(rate_of(now, before, between_));
  }

  void head() {
    line(fmt::format("tarry {} at {}, {}, up {}, {}", cell(now_.version), cell(now_.admin),
                     cell(now_.state), rough_duration(now_.uptime), local_time(now_.at, false)),
         Style::bold);
    if (!layout_.problem.empty()) line(layout_.problem, Style::red);
    line(fmt::format("pending {}, overdue {}{}, next {}", grouped(now_.pending),
                     grouped(now_.overdue), overdue_since(), next()),
         now_.overdue == 0 ? Style::plain : Style::red);
    const TopSample none;
    const TopSample& before = before_ == nullptr ? none : *before_;
    line(fmt::format("per second: {} requests, {} records appended, {} delivered, {} cancelled",
                     rate(now_.requests, before.requests), rate(now_.appended, before.appended),
                     rate(now_.delivered, before.delivered),
                     rate(now_.cancelled, before.cancelled)));
    line(fmt::format("lag of the last {}: p50 {}, p99 {}, max {}", rough_duration(now_.window),
                     milliseconds_text(now_.lag_p50), milliseconds_text(now_.lag_p99),
                     milliseconds_text(now_.lag_max)));
    // Seconds of CPU over milliseconds of time, in per cent.
    const double cpu = before_ == nullptr || between_.count() <= 0
                           ? 0
                           : (now_.cpu_seconds - before.cpu_seconds) * 100'000 /
                                 static_cast<double>(between_.count());
    line(fmt::format("memory {}, disk {}, CPU {} %, {}", size_text(now_.memory_bytes),
                     size_text(now_.disk_bytes),
                     before_ == nullptr ? "-" : figure_text(std::max(cpu, 0.0)),
                     counted(now_.connections, "connection", "connections")));
  }

  std::string overdue_since() const {
    if (now_.overdue == 0 || !now_.next_due || *now_.next_due >= now_.at) return {};
    return " for " + rough_duration(now_.at - *now_.next_due);
  }
  // The time until the first record that is not overdue.
  std::string next() const {
    if (!now_.due.empty()) return rough_distance(now_.due.front().due - now_.at);
    if (now_.overdue > 0 || !now_.next_due) return "-";
    return rough_distance(*now_.next_due - now_.at);
  }

  // The lists share the lines that are left; what one does not need the others have.
  void lists() {
    std::size_t room = 3 * lines_without_terminal;
    if (layout_.rows > 0) {
      // The head has five lines; each list has an empty one before it, and a head of its own.
      const std::size_t taken = 5 + (layout_.problem.empty() ? 0 : 1) + 3 * 2;
      room = layout_.rows > taken + 3 ? layout_.rows - taken : 3;
    }
    const std::size_t sizes[] = {now_.due.size(), now_.topics.size(), now_.groups.size()};
    std::size_t shares[] = {0, 0, 0};
    const std::size_t max_lines = layout_.rows == 0 ? lines_without_terminal : room;
    // They take a line each in turn, until none is left or none is needed.
    for (bool given = true; given && room > 0;) {
      given = false;
      for (std::size_t i = 0; i < 3 && room > 0; ++i) {
        if (shares[i] >= std::min(sizes[i], max_lines)) continue;
        ++shares[i];
        --room;
        given = true;
      }
    }
    due(shares[0]);
    topics(shares[1]);
    groups(shares[2]);
  }

  void due(std::size_t count) {
    line("");
    Table table({{"DUE NEXT"},
                 {"IN"},
                 {"TOPIC", false, true, 2},
                 {"ID", false, true},
                 {"KEY", false, true, 1}});
    for (std::size_t i = 0; i < count; ++i) {
      const auto& record = now_.due[i];
      table.row({local_time(record.due, false), rough_distance(record.due - now_.at),
                 cell(record.topic), cell(record.name), cell(record.key)},
                record.due < now_.at ? Style::red : Style::plain);
    }
    if (count == 0) {
      table.row(
          {now_.pending == 0 ? "nothing is pending" : "nothing else is pending", "", "", "", ""},
          Style::dim);
    }
    table.print(to_.output());
  }

  void topics(std::size_t count) {
    line("");
    auto topics = now_.topics;
    // Topics with pending records come first, then the largest.
    std::ranges::stable_sort(topics, std::ranges::greater{}, [](const auto& topic) {
      return std::pair(topic.pending, topic.records);
    });
    std::map<std::string, std::uint64_t> earlier;
    if (before_ != nullptr)
      for (const auto& topic : before_->topics) earlier[topic.name] = topic.records;
    Table table({{"TOPIC", false, true},
                 {"PENDING", true},
                 {"APPENDED/S", true},
                 {"RECORDS", true, false, 2},
                 {"SIZE", true, false, 1},
                 {"PARTITIONS", true, false, 3}});
    for (std::size_t i = 0; i < count; ++i) {
      const auto& topic = topics[i];
      // A topic that the last look did not have has no rate yet.
      const auto found = earlier.find(topic.name);
      table.row({cell(topic.name), grouped(topic.pending),
                 found == earlier.end() ? "-" : rate(topic.records, found->second),
                 grouped(topic.records), size_text(topic.bytes), grouped(topic.partitions)});
    }
    table.print(to_.output());
  }

  void groups(std::size_t count) {
    if (count == 0) return;
    line("");
    auto groups = now_.groups;
    std::ranges::stable_sort(groups, std::ranges::greater{}, &TopSample::Group::lag);
    Table table({{"GROUP", false, true}, {"LAG", true}, {"STATE"}, {"MEMBERS", true, false, 1}});
    for (std::size_t i = 0; i < count; ++i) {
      const auto& group = groups[i];
      table.row({cell(group.name), group.lag ? grouped(*group.lag) : "-", cell(group.state),
                 grouped(group.members)},
                group.lag.value_or(0) > 0 && group.members == 0 ? Style::yellow : Style::plain);
    }
    table.print(to_.output());
  }

  const TopSample& now_;
  const TopSample* const before_;
  const TopLayout& layout_;
  std::chrono::milliseconds between_{};
  TextOutput to_;
};

}  // namespace

double rate_of(std::uint64_t now, std::uint64_t before, std::chrono::milliseconds between) {
  // A counter that has gone back is that of a broker that was started meanwhile.
  if (now <= before || between.count() <= 0) return 0;
  return static_cast<double>(now - before) * 1000 / static_cast<double>(between.count());
}

std::string top_text(const TopSample& now, const TopSample* before, const TopLayout& layout) {
  return TopText(now, before, layout).text();
}

}  // namespace tarry::cli
