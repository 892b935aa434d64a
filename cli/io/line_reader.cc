#include "cli/io/line_reader.h"

#include <poll.h>
#include <unistd.h>

#include <cerrno>
#include <system_error>
#include <utility>

#include <fmt/core.h>

#include "cli/io/interrupt.h"

namespace tarry::cli {
namespace {

constexpr std::size_t piece = 256 << 10;
constexpr int pause_ms = 20;

}  // namespace

LineReader::LineReader(int descriptor, std::string name, std::function<void()> while_waiting)
    : descriptor_(descriptor), name_(std::move(name)), while_waiting_(std::move(while_waiting)) {}

Result<bool> LineReader::read_more() {
  while (while_waiting_) {
    // First without waiting: the owner works only when there is nothing to read.
    pollfd readable{descriptor_, POLLIN, 0};
    const int ready = ::poll(&readable, 1, 0);
    if (ready != 0) break;
    while_waiting_();
    if (was_interrupted()) return false;
    if (::poll(&readable, 1, pause_ms) != 0) break;
  }
  const std::size_t size = buffer_.size();
  buffer_.resize(size + piece);
  while (true) {
    // An interrupt is taken for the end of the input.
    const auto got = was_interrupted() ? 0 : ::read(descriptor_, buffer_.data() + size, piece);
    if (got < 0 && errno == EINTR) continue;
    const int error = errno;
    buffer_.resize(size + static_cast<std::size_t>(got < 0 ? 0 : got));
    if (got < 0) {
      return fail(Errc::io, fmt::format("{}: {}", name_, std::generic_category().message(error)));
    }
    return got > 0;
  }
}

Result<std::optional<std::string_view>> LineReader::next() {
  while (true) {
    const auto newline = buffer_.find('\n', scanned_);
    if (newline != buffer_.npos) {
      const std::string_view line(buffer_.data() + from_, newline - from_);
      from_ = scanned_ = newline + 1;
      ++lines_;
      return line;
    }
    scanned_ = buffer_.size();
    if (at_end_) {
      // The same Ctrl-C may have ended the program that writes, in the middle of a line.
      if (from_ == buffer_.size() || was_interrupted()) return std::nullopt;
      const std::string_view line(buffer_.data() + from_, buffer_.size() - from_);
      from_ = buffer_.size();
      ++lines_;
      return line;
    }
    if (buffer_.size() - from_ > max_line_bytes) {
      return fail(Errc::too_large, fmt::format("{}: line {} is longer than {} bytes", name_,
                                               lines_ + 1, max_line_bytes));
    }
    // Lines are erased only when more has to be read: each erasing moves the rest of the buffer.
    buffer_.erase(0, std::exchange(from_, 0));
    scanned_ = buffer_.size();
    const auto more = read_more();
    if (!more) return std::unexpected(more.error());
    at_end_ = !*more;
  }
}

}  // namespace tarry::cli
