#include "broker/security/token_logins.h"

#include <sys/stat.h>

#include <cerrno>
#include <chrono>
#include <cstring>

#include <fmt/core.h>

#include "base/log.h"
#include "base/read_small_file.h"

namespace tarry::broker {
namespace {

constexpr std::chrono::seconds between_looks{1};

std::string mark_of(const struct stat& file) {
  return fmt::format("{} {} {}.{}", file.st_ino, file.st_size, file.st_mtim.tv_sec,
                     file.st_mtim.tv_nsec);
}

}  // namespace

std::shared_ptr<const JsonWebKeys> TokenLogins::keys() const {
  const std::lock_guard lock(mutex_);
  return keys_;
}

bool TokenLogins::is_due(MonoTime now) {
  const auto since = now.time_since_epoch();
  auto next = next_look_.load();
  if (since.count() < next) return false;
  // If several shards ask at the same time, one of them gets the turn.
  return next_look_.compare_exchange_strong(next,
                                            MonoTime::duration(since + between_looks).count());
}

Result<> TokenLogins::read(bool always) {
  // If the file does not answer, threads that only look at it do not queue up behind the first.
  std::unique_lock one_at_a_time(reading_, std::defer_lock);
  if (always) {
    one_at_a_time.lock();
  } else if (!one_at_a_time.try_lock()) {
    return {};
  }
  const auto unusable = [this](std::string_view why) {
    return fail(Errc::invalid, fmt::format("sasl.oauthbearer.jwks.endpoint.url=file://{}: {}",
                                           printable(key_file_), why));
  };
  struct stat status {};
  const bool is_there = ::stat(key_file_.c_str(), &status) == 0;
  // Remembered before it is read: what cannot be used is complained about once.
  std::string mark = is_there ? mark_of(status) : std::string("none");
  if (!always && mark == last_file_) return {};
  last_file_ = std::move(mark);
  if (!is_there) return unusable(std::strerror(errno));
  if (!S_ISREG(status.st_mode)) return unusable("it is not a regular file");
  const auto text = read_small_file(key_file_, max_key_file_bytes);
  if (!text) {
    // It may become readable without a change of the file that its mark would show.
    if (text.error().code == Errc::io) last_file_.clear();
    return unusable(text.error().message);
  }
  auto parsed = JsonWebKeys::parse(*text);
  if (!parsed) return unusable(parsed.error().message);
  // Only for the exchange, so that logins do not wait for the disk.
  const std::lock_guard lock(mutex_);
  keys_ = std::move(*parsed);
  return {};
}

void TokenLogins::read_again(bool always) {
  if (const auto done = read(always); !done)
    log_error(
        "broker",
        "the new token keys cannot be used, so the keys that were read earlier stay in use: {}",
        done.error().message);
}

}  // namespace tarry::broker
