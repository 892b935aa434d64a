#pragma once

// What a command says: its answer on stdout, how far it is on stderr.
//
// People at a terminal get tables with a head; a program that reads from a pipe gets the same cells
// with one tab between them and no head, so that `cut` and `awk` work; --json gives it one JSON
// text a line.
//
// What always holds: a reader that goes away (`| head`) ends a command quietly, as done; any other
// failure to write is told once, by end().
//
// One thread.

#include <chrono>
#include <cstdint>
#include <cstdio>
#include <string>
#include <string_view>
#include <vector>

namespace tarry::cli {

// Buffered; flush() when nothing more comes for a while.
class Output {
 public:
  // Not the owner of `file`.  From now on SIGPIPE is ignored in this process.
  explicit Output(std::FILE* file = stdout);
  Output(std::FILE* file, bool is_terminal) : file_(file), is_terminal_(is_terminal) {}

  bool is_terminal() const { return is_terminal_; }
  void write(std::string_view text);
  void line(std::string_view text) {
    write(text);
    write("\n");
  }
  void flush();

  // Whether all that was written until now is out of our hands.
  bool flushed() {
    flush();
    return !is_over();
  }

  // Nobody hears us any more: what is not begun need not be begun.
  bool is_over() const { return error_ != 0; }
  // The exit status of a command that would else end with `status`.
  int end(int status);

 private:
  std::FILE* const file_;
  const bool is_terminal_;
  int error_ = 0;  // The errno of the first write that failed.
};

// Cells below one another.  Cells are made safe by cell() (text.h), by whoever puts them in.
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

// "12 345 records" on stderr, over and over on one line, when stderr is a terminal and the work has
// lasted a second.
class Progress {
 public:
  explicit Progress(std::string what);
  ~Progress() { clear(); }
  Progress(const Progress&) = delete;
  Progress& operator=(const Progress&) = delete;

  void at(std::uint64_t count);
  void clear();  // Takes the line away; what is printed next is in its place.

 private:
  const std::string what_;
  const bool is_terminal_;
  std::chrono::steady_clock::time_point next_;
  bool shown_ = false;
};

// 12 345 678
std::string grouped(std::uint64_t number);
// 3.4 MiB
std::string size_text(std::uint64_t bytes);
// "1 record", "2 records", "0 records"
std::string counted(std::uint64_t number, std::string_view one, std::string_view many);

}  // namespace tarry::cli
