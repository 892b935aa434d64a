#pragma once

// Table: cells below one another, for people and for programs.
//
// People at a terminal get columns with a head, which fit its width: wide cells are cut, with an
// ellipsis at their end, and where that is not enough columns are left out.  A last column of
// sentences goes on below itself instead.  A program that reads from a pipe gets all cells with one
// tab between them and no head, so that `cut` and `awk` work.
//
// It belongs to the command.  One thread.

#include <cstddef>
#include <string>
#include <vector>

#include "cli/io/style.h"

namespace tarry::cli {

class Output;

// The caller makes cells safe to print, by cell() of text.h.
class Table {
 public:
  struct Column {
    std::string head;
    bool is_number = false;  // Numbers stand on the right.
    // How the column behaves on a narrow terminal.
    bool may_shrink = false;  // Its cells may be cut.
    int leaves = 0;           // Its place in the order in which columns are left out; 0: never.
    bool wraps = false;       // If it is the last: its cells go on below themselves.
  };
  explicit Table(std::vector<Column> columns);

  // Takes as many cells as there are columns.
  void row(std::vector<std::string> cells, Style style = Style::plain);
  // Prints the rows that were put in since the last time; the head comes before the first.  Columns
  // only get wider, so that pages stand below one another; what was left out once stays so.
  void print(Output& to);

 private:
  struct Row {
    std::vector<std::string> cells;
    Style style;
  };
  void print_plain(Output& to) const;
  void wrap(std::size_t width);
  void fit(std::size_t width);
  std::size_t total() const;
  bool shrink(std::size_t width, std::size_t least);
  std::string line_of(const std::vector<std::string>& cells) const;

  const std::vector<Column> columns_;
  std::vector<std::size_t> natural_;  // The widest cell of each column so far.
  std::vector<std::size_t> widths_;   // As they are printed, by fit(); <= natural_.
  std::vector<bool> is_left_out_;
  std::vector<Row> rows_;
  bool head_printed_ = false;
};

}  // namespace tarry::cli
