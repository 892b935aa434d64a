#include "base/log.h"

#include <poll.h>
#include <pthread.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <condition_variable>
#include <csignal>
#include <memory>
#include <mutex>
#include <new>
#include <thread>
#include <utility>

#include <spdlog/pattern_formatter.h>
#include <spdlog/sinks/base_sink.h>

#include "base/log_format.h"
#include "base/log_thread.h"
#include "base/utf8.h"

namespace tarry {
namespace {

std::atomic<LogLevel> least_level{LogLevel::info};
std::atomic<LogFormat> line_format{LogFormat::text};

// The names that tarry.log.level takes.
std::string_view name_of(spdlog::level::level_enum level) {
  switch (level) {
    case spdlog::level::debug:
      return "debug";
    case spdlog::level::warn:
      return "warn";
    case spdlog::level::err:
      return "error";
    default:
      return "info";
  }
}

// `text` is UTF-8 and has no control characters.
void append_json(std::string& out, std::string_view text) {
  out += '"';
  for (const char c : text) {
    if (c == '"' || c == '\\') out += '\\';
    out += c;
  }
  out += '"';
}

// Writes a message as a line with its newline; the message's logger name is the category.
class LineFormatter {
 public:
  std::string line_of(const spdlog::details::log_msg& message) {
    if (line_format == LogFormat::text) return formatted(text_, message);
    std::string out = fmt::format(R"({{"time":"{}","level":"{}","component":)",
                                  formatted(time_, message), name_of(message.level));
    append_json(out, {message.logger_name.data(), message.logger_name.size()});
    out += R"(,"message":)";
    append_json(out, {message.payload.data(), message.payload.size()});
    out += "}\n";
    return out;
  }

 private:
  static std::string formatted(spdlog::pattern_formatter& formatter,
                               const spdlog::details::log_msg& message) {
    spdlog::memory_buf_t text;
    formatter.format(message, text);
    return {text.data(), text.size()};
  }

  static constexpr auto zone = spdlog::pattern_time_type::local;
  spdlog::pattern_formatter text_{"%Y-%m-%dT%H:%M:%S.%e%z %L %n: %v", zone, "\n"};
  spdlog::pattern_formatter time_{"%Y-%m-%dT%H:%M:%S.%e%z", zone, ""};
};

spdlog::level::level_enum level_of(LogLevel level) {
  switch (level) {
    case LogLevel::debug:
      return spdlog::level::debug;
    case LogLevel::info:
      return spdlog::level::info;
    case LogLevel::warn:
      return spdlog::level::warn;
    case LogLevel::error:
      return spdlog::level::err;
    case LogLevel::off:
      return spdlog::level::off;
  }
  return spdlog::level::info;
}

// Waits for the reader.  Returns false when the line cannot be written; there is no other place to
// report that.
bool write_all(int descriptor, std::string_view bytes) {
  while (!bytes.empty()) {
    const ssize_t written = ::write(descriptor, bytes.data(), bytes.size());
    if (written >= 0) {
      bytes.remove_prefix(static_cast<std::size_t>(written));
    } else if (errno == EAGAIN) {
      // The program that started us has set stderr to non-blocking.
      pollfd writable{descriptor, POLLOUT, 0};
      ::poll(&writable, 1, -1);
    } else if (errno != EINTR) {
      return false;
    }
  }
  return true;
}

std::string text_of_dropped(std::uint64_t lines) {
  const auto text = fmt::format(
      "{} log lines were dropped here, because writing to stderr blocked or failed", lines);
  // A formatter of its own: this runs on the log's thread, and the sink's belongs to the thread
  // that logs just now.
  return LineFormatter().line_of(spdlog::details::log_msg("log", spdlog::level::warn, text));
}

}  // namespace

class LogQueue {
 public:
  LogQueue(int descriptor, std::size_t max_bytes)
      : descriptor_(descriptor), max_bytes_(max_bytes) {}

  // With its newline.
  void push(std::string_view line) {
    const std::lock_guard held(mutex_);
    ++pushed_;
    // Behind a line that was dropped none is queued: what is missing is missing at one place.
    const bool has_room = dropped_ == 0 && lines_.size() + line.size() <= max_bytes_;
    if (!has_room || !append(line)) ++dropped_;
    changed_.notify_all();
  }

  bool flush(std::chrono::milliseconds patience) {
    std::unique_lock held(mutex_);
    // Lines that come meanwhile are not waited for, or a busy process would never be done.  Each
    // line that is written or dropped begins the patience anew.
    const auto last = pushed_;
    while (done_ < last) {
      const auto before = done_;
      if (!changed_.wait_for(held, patience, [&] { return done_ != before; })) return false;
    }
    return true;
  }

  void stop() {
    const std::lock_guard held(mutex_);
    stopping_ = true;
    changed_.notify_all();
  }

  // Until stop(), and all is written.
  void run() {
    std::string batch;
    std::uint64_t missing = 0;  // Lines that were lost since one could be written.
    std::unique_lock held(mutex_);
    while (true) {
      changed_.wait(held, [&] { return !lines_.empty() || dropped_ > 0 || stopping_; });
      if (lines_.empty() && dropped_ == 0) return;
      batch.clear();
      batch.swap(lines_);
      const auto dropped = std::exchange(dropped_, 0);
      // Written without the lock: a reader that has stopped holds up this thread and nobody who
      // logs.
      held.unlock();
      for (std::string_view rest = batch; !rest.empty();) {
        const auto size = rest.find('\n') + 1;
        missing = write_line(rest.substr(0, size), missing);
        rest.remove_prefix(size);
        note_done(1);
      }
      // These were dropped behind the whole batch, because push() queues nothing behind a dropped
      // line.
      if (dropped > 0) missing = write_line({}, missing + dropped);
      note_done(dropped);
      held.lock();
    }
  }

 private:
  bool append(std::string_view line) {
    try {
      lines_.append(line);
      return true;
    } catch (const std::bad_alloc&) {
      return false;
    }
  }

  // Before the line, what is missing is said.  Returns what is missing then.
  std::uint64_t write_line(std::string_view line, std::uint64_t missing) {
    if (missing > 0 && write_all(descriptor_, text_of_dropped(missing))) missing = 0;
    if (line.empty()) return missing;
    return missing == 0 && write_all(descriptor_, line) ? 0 : missing + 1;
  }

  void note_done(std::uint64_t lines) {
    const std::lock_guard held(mutex_);
    done_ += lines;
    changed_.notify_all();
  }

  const int descriptor_;
  const std::size_t max_bytes_;
  std::mutex mutex_;
  std::condition_variable changed_;
  std::string lines_;          // lines_.size() <= max_bytes_
  std::uint64_t dropped_ = 0;  // Behind lines_.
  std::uint64_t pushed_ = 0;   // Lines of all push().
  std::uint64_t done_ = 0;     // Written or dropped; done_ <= pushed_.
  bool stopping_ = false;
};

namespace {

enum class Backslash { escaped, kept };

// The one rule for values and for lines: a control character, and a byte that is not UTF-8, is
// written as \xNN.
std::string escape(std::string_view text, Backslash backslash) {
  std::string out;
  out.reserve(text.size());
  while (!text.empty()) {
    const std::size_t size = utf8_character_size(text);
    const auto character = text.substr(0, std::max<std::size_t>(1, size));
    if (size == 0 || is_control_character(character) ||
        (character == "\\" && backslash == Backslash::escaped)) {
      for (const char c : character) out += fmt::format("\\x{:02x}", static_cast<unsigned char>(c));
    } else {
      out += character;
    }
    text.remove_prefix(character.size());
  }
  return out;
}

// The destination of all threads' lines.  It is never destroyed, because a thread may log while the
// process ends.
struct Stderr {
  std::mutex mutex;
  std::shared_ptr<LogQueue> queue;  // Null: there is no LogThread.
};
Stderr& the_stderr() {
  static auto* const made = new Stderr;
  return *made;
}

// With its newline.
void write_line(std::string_view line) {
  Stderr& to = the_stderr();
  const std::lock_guard held(to.mutex);
  if (to.queue) {
    to.queue->push(line);
  } else {
    write_all(STDERR_FILENO, line);  // There is nowhere to say that it failed.
  }
}

// The sink that all threads share.
class Sink final : public spdlog::sinks::base_sink<std::mutex> {
 protected:
  void sink_it_(const spdlog::details::log_msg& message) override {
    write_line(lines_.line_of(message));
  }
  void flush_() override {}

 private:
  LineFormatter lines_;  // One message at a time.
};

void write_message(const char* category, spdlog::level::level_enum level, std::string_view line) {
  static auto* const sink = new Sink;
  const std::string escaped = escape_control_characters(line);
  sink->log(spdlog::details::log_msg(category, level, escaped));
}

}  // namespace

LogThread::LogThread(int descriptor, std::size_t max_bytes)
    : queue_(std::make_shared<LogQueue>(descriptor, max_bytes)) {
  // Signals are for the threads that wait for them.
  sigset_t all, before;
  ::sigfillset(&all);
  ::pthread_sigmask(SIG_SETMASK, &all, &before);
  // Detached, because a thread that is blocked in write(2) cannot be joined.  It shares the queue
  // with us, so either may end first.
  std::thread([queue = queue_] {
    ::pthread_setname_np(::pthread_self(), "tarry-log");
    queue->run();
  }).detach();
  ::pthread_sigmask(SIG_SETMASK, &before, nullptr);
  Stderr& to = the_stderr();
  const std::lock_guard held(to.mutex);
  to.queue = queue_;
}

LogThread::~LogThread() {
  {
    Stderr& to = the_stderr();
    const std::lock_guard held(to.mutex);
    to.queue = nullptr;
  }
  queue_->stop();
  queue_->flush(patience);
}

bool flush_log(std::chrono::milliseconds patience) {
  Stderr& to = the_stderr();
  std::unique_lock held(to.mutex);
  const auto queue = to.queue;
  // Other threads go on logging while this one waits.
  held.unlock();
  return !queue || queue->flush(patience);
}

void write_to_stderr(std::string_view line) {
  if (line_format == LogFormat::text) return write_line(escape_control_characters(line) + '\n');
  // In JSON every line of stderr is an object.  The component says what the prefix says.
  constexpr std::string_view prefix = "tarry: ";
  if (line.starts_with(prefix)) line.remove_prefix(prefix.size());
  write_message("tarry", spdlog::level::err, line);
}

void set_log_level(LogLevel level) {
  least_level = level;
}
void set_log_format(LogFormat format) {
  line_format = format;
}
bool log_enabled(LogLevel level) {
  return level >= least_level && level != LogLevel::off;
}
void write_log(LogLevel level, const char* category, std::string_view line) {
  if (log_enabled(level)) write_message(category, level_of(level), line);
}

std::string printable(std::string_view text, std::size_t limit) {
  std::string out = escape(text.substr(0, limit), Backslash::escaped);
  if (text.size() > limit) out += "...";
  return out;
}

std::string escape_control_characters(std::string_view line) {
  return escape(line, Backslash::kept);
}

}  // namespace tarry
