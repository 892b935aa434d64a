#pragma once

// An Output that a test can read.

#include <cstdio>
#include <string>

#include "cli/io/output.h"

namespace tarry::cli {

class Captured {
 public:
  explicit Captured(bool is_terminal = false, std::size_t width = 0)
      : file_(std::tmpfile()), output_(file_, is_terminal, width) {}
  ~Captured() { std::fclose(file_); }
  Captured(const Captured&) = delete;
  Captured& operator=(const Captured&) = delete;

  Output& output() { return output_; }
  std::string text() {
    output_.flush();
    std::string text(static_cast<std::size_t>(std::ftell(file_)), '\0');
    std::rewind(file_);
    text.resize(std::fread(text.data(), 1, text.size(), file_));
    std::fseek(file_, 0, SEEK_END);
    return text;
  }

 private:
  std::FILE* const file_;
  Output output_;
};

}  // namespace tarry::cli
