#include "cli/io/table.h"

#include <algorithm>
#include <utility>

#include "base/assert.h"
#include "cli/io/output.h"
#include "cli/io/text.h"

namespace tarry::cli {
namespace {

constexpr std::size_t gap = 2;
// A cell that may be cut keeps so much as long as there are columns that may be left out, and so
// much in the end.
constexpr std::size_t readable = 20, min_readable = 8;

}  // namespace

Table::Table(std::vector<Column> columns)
    : columns_(std::move(columns)), is_left_out_(columns_.size(), false) {
  for (const auto& column : columns_) natural_.push_back(width_of(column.head));
}

void Table::row(std::vector<std::string> cells, Style style) {
  TARRY_ASSERT(cells.size() == columns_.size(), "a row has as many cells as its table columns");
  rows_.push_back({std::move(cells), style});
}

// Programs get tabs and no padding, so that cut and awk find the columns; cell() has escaped the
// tabs within cells.
void Table::print_plain(Output& to) const {
  for (const auto& [cells, style] : rows_) {
    for (std::size_t i = 0; i < cells.size(); ++i) {
      if (i > 0) to.write("\t");
      to.write(cells[i]);
    }
    to.write("\n");
  }
}

// A row whose last cell is wider than what the other columns leave becomes several, below one
// another.
void Table::wrap(std::size_t width) {
  std::size_t others = gap * (columns_.size() - 1);
  for (std::size_t i = 0; i + 1 < columns_.size(); ++i) {
    std::size_t widest = natural_[i];
    for (const auto& row : rows_) widest = std::max(widest, width_of(row.cells[i]));
    others += widest;
  }
  if (others + readable > width) return;  // Hardly a word for each line: lines are cut.
  std::vector<Row> rows;
  for (auto& [cells, style] : rows_) {
    for (auto& part : wrapped(cells.back(), width - others)) {
      auto line = std::exchange(cells, std::vector<std::string>(columns_.size()));
      line.back() = std::move(part);
      rows.push_back({std::move(line), style});
    }
  }
  rows_ = std::move(rows);
}

std::size_t Table::total() const {
  std::size_t sum = 0, columns = 0;
  for (std::size_t i = 0; i < columns_.size(); ++i) {
    if (is_left_out_[i]) continue;
    sum += widths_[i];
    ++columns;
  }
  return sum + (columns == 0 ? 0 : gap * (columns - 1));
}

// Cuts the widest column that may be cut, again and again; whether all is within `width`.
bool Table::shrink(std::size_t width, std::size_t least) {
  while (total() > width) {
    std::size_t widest = columns_.size();
    for (std::size_t i = 0; i < columns_.size(); ++i) {
      const auto floor = std::max(least, width_of(columns_[i].head));
      if (is_left_out_[i] || !columns_[i].may_shrink || widths_[i] <= floor) continue;
      if (widest == columns_.size() || widths_[i] > widths_[widest]) widest = i;
    }
    if (widest == columns_.size()) return false;
    --widths_[widest];
  }
  return true;
}

void Table::fit(std::size_t width) {
  widths_ = natural_;
  if (width == 0) return;
  // Cells are cut first.  If that is not enough, a column is left out, and the cells get their
  // width back for the next attempt; at last cells are cut until they can hardly be read.
  while (!shrink(width, readable)) {
    std::size_t next = columns_.size();
    for (std::size_t i = 0; i < columns_.size(); ++i) {
      if (is_left_out_[i] || columns_[i].leaves == 0) continue;
      if (next == columns_.size() || columns_[i].leaves < columns_[next].leaves) next = i;
    }
    if (next == columns_.size()) {
      shrink(width, min_readable);
      return;
    }
    is_left_out_[next] = true;
    widths_ = natural_;
  }
}

std::string Table::line_of(const std::vector<std::string>& cells) const {
  std::size_t last = columns_.size();
  while (last > 0 && is_left_out_[last - 1]) --last;
  std::string line;
  bool is_first = true;
  for (std::size_t i = 0; i < last; ++i) {
    if (is_left_out_[i]) continue;
    const std::string text = shortened(cells[i], std::max<std::size_t>(widths_[i], 1));
    const std::string padding(widths_[i] - std::min(widths_[i], width_of(text)), ' ');
    if (!std::exchange(is_first, false)) line += std::string(gap, ' ');
    if (columns_[i].is_number) line += padding;
    line += text;
    if (!columns_[i].is_number && i + 1 < last) line += padding;
  }
  return line;
}

void Table::print(Output& to) {
  // A program gets every column, and nothing is cut.
  if (!to.is_terminal()) {
    print_plain(to);
    rows_.clear();
    return;
  }
  if (columns_.back().wraps && to.width() > 0) wrap(to.width());
  for (const auto& row : rows_)
    for (std::size_t i = 0; i < columns_.size(); ++i)
      natural_[i] = std::max(natural_[i], width_of(row.cells[i]));
  fit(to.width());
  // If even that is not enough, lines are cut: none goes on in the next one.
  const auto within = [&](std::string line) {
    return to.width() == 0 ? line : shortened(line, to.width());
  };
  const bool has_head =
      std::ranges::any_of(columns_, [](const Column& column) { return !column.head.empty(); });
  // A table that is printed page by page has one head, and its columns grow but never shrink.
  if (has_head && !std::exchange(head_printed_, true)) {
    std::vector<std::string> heads;
    for (const auto& column : columns_) heads.push_back(column.head);
    to.line(to.in(Style::bold, within(line_of(heads))));
  }
  for (const auto& row : rows_) to.line(to.in(row.style, within(line_of(row.cells))));
  rows_.clear();
}

}  // namespace tarry::cli
