#pragma once

// Table: cells below one another, for people and for programs.
//
// People at a terminal get columns with a head.  A program that reads from a pipe gets the same
// cells with one tab between them and no head, so that `cut` and `awk` work.
//
// It belongs to the command.  One thread.

#include <cstddef>
#include <string>
#include <vector>

namespace tarry::cli {

class Output;

// The caller makes cells safe to print, by cell() of text.h.
class Table {
 public:
  struct Column {
    std::string head;
    bool is_number = false;  // Numbers stand on the right.
  };
  explicit Table(std::vector<Column> columns);

  void row(std::vector<std::string> cells);  // As many as there are columns.
  // Prints the rows that were put in since the last time; the head comes before the first.  Columns
  // only get wider, so that pages stand below one another.
  void print(Output& to);

 private:
  const std::vector<Column> columns_;
  std::vector<std::size_t> widths_;
  std::vector<std::vector<std::string>> rows_;
  bool head_printed_ = false;
};

}  // namespace tarry::cli
