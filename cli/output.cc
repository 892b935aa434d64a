#include "cli/output.h"

#include <poll.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <csignal>
#include <system_error>
#include <utility>

#include <fmt/core.h>

#include "base/assert.h"
#include "cli/commands/command.h"
#include "cli/text.h"

namespace tarry::cli {

using namespace std::chrono_literals;

Output::Output(std::FILE* file) : file_(file), is_terminal_(::isatty(::fileno(file)) == 1) {
  std::signal(SIGPIPE, SIG_IGN);
}

void Output::write(std::string_view text) {
  if (error_ == 0 && std::fwrite(text.data(), 1, text.size(), file_) != text.size()) error_ = errno;
}

void Output::flush() {
  if (error_ == 0 && std::fflush(file_) != 0) error_ = errno;
  // A pipe whose reader went away says so without being written to.
  pollfd reader{::fileno(file_), 0, 0};
  if (error_ == 0 && ::poll(&reader, 1, 0) == 1 && (reader.revents & POLLERR) != 0) error_ = EPIPE;
}

int Output::end(int status) {
  flush();
  if (error_ == 0) return status;
  if (error_ == EPIPE) return status == failed ? failed : done;
  return failure(fmt::format("standard output: {}", std::generic_category().message(error_)));
}

Table::Table(std::vector<Column> columns) : columns_(std::move(columns)) {
  for (const auto& column : columns_) widths_.push_back(width_of(column.head));
}

void Table::row(std::vector<std::string> cells) {
  TARRY_ASSERT(cells.size() == columns_.size(), "a row has as many cells as its table columns");
  rows_.push_back(std::move(cells));
}

void Table::print(Output& to) {
  if (!to.is_terminal()) {
    for (const auto& row : rows_) {
      for (std::size_t i = 0; i < row.size(); ++i) {
        if (i > 0) to.write("\t");
        to.write(row[i]);
      }
      to.write("\n");
    }
    rows_.clear();
    return;
  }
  for (const auto& row : rows_) {
    for (std::size_t i = 0; i < row.size(); ++i)
      widths_[i] = std::max(widths_[i], width_of(row[i]));
  }
  const auto print_row = [&](auto text_of) {
    std::string line;
    for (std::size_t i = 0; i < columns_.size(); ++i) {
      const std::string& text = text_of(i);
      const std::string padding(widths_[i] - std::min(widths_[i], width_of(text)), ' ');
      if (i > 0) line += "  ";
      if (columns_[i].is_number) line += padding;
      line += text;
      if (!columns_[i].is_number && i + 1 < columns_.size()) line += padding;
    }
    to.line(line);
  };
  const bool has_head =
      std::ranges::any_of(columns_, [](const Column& column) { return !column.head.empty(); });
  if (has_head && !std::exchange(head_printed_, true)) {
    print_row([&](std::size_t i) -> const std::string& { return columns_[i].head; });
  }
  for (const auto& row : rows_)
    print_row([&](std::size_t i) -> const std::string& { return row[i]; });
  rows_.clear();
}

Progress::Progress(std::string what)
    : what_(std::move(what)),
      is_terminal_(::isatty(STDERR_FILENO) == 1),
      next_(std::chrono::steady_clock::now() + 1s) {}

void Progress::at(std::uint64_t count) {
  if (!is_terminal_) return;
  const auto now = std::chrono::steady_clock::now();
  if (now < next_) return;
  next_ = now + 200ms;
  shown_ = true;
  fmt::print(stderr, "\r{} {}\x1b[K", grouped(count), what_);
  std::fflush(stderr);
}

void Progress::clear() {
  if (std::exchange(shown_, false)) fmt::print(stderr, "\r\x1b[K");
}

std::string grouped(std::uint64_t number) {
  std::string text = std::to_string(number);
  for (std::size_t i = text.size(); i > 3; i -= 3) text.insert(i - 3, " ");
  return text;
}

std::string size_text(std::uint64_t bytes) {
  if (bytes < 1024) return fmt::format("{} B", bytes);
  double value = static_cast<double>(bytes);
  std::size_t unit = 0;
  constexpr const char* units[] = {"B", "KiB", "MiB", "GiB", "TiB", "PiB"};
  while (value >= 1024 && unit + 1 < std::size(units)) {
    value /= 1024;
    ++unit;
  }
  return fmt::format("{:.1f} {}", value, units[unit]);
}

std::string counted(std::uint64_t number, std::string_view one, std::string_view many) {
  return fmt::format("{} {}", number, number == 1 ? one : many);
}

}  // namespace tarry::cli
