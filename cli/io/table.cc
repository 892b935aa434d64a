#include "cli/io/table.h"

#include <algorithm>
#include <utility>

#include "base/assert.h"
#include "cli/io/output.h"
#include "cli/io/text.h"

namespace tarry::cli {

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

}  // namespace tarry::cli
