#include "web/token.h"

#include <fcntl.h>
#include <pwd.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <system_error>
#include <utility>

#include <fmt/core.h>

#include "base/ascii_case.h"
#include "base/token_proof.h"

namespace tarry::web {
namespace {

// An operator may put a token of his own there; a shorter one could be guessed.
constexpr std::size_t min_token_bytes = 32;
constexpr std::size_t max_token_bytes = 256;

class Descriptor {
 public:
  explicit Descriptor(int descriptor) : descriptor_(descriptor) {}
  ~Descriptor() {
    if (descriptor_ >= 0) ::close(descriptor_);
  }
  Descriptor(const Descriptor&) = delete;
  Descriptor& operator=(const Descriptor&) = delete;
  int get() const { return descriptor_; }
  bool is_open() const { return descriptor_ >= 0; }

 private:
  const int descriptor_;
};

std::unexpected<Error> failed(const std::string& path, const char* call) {
  const int error = errno;
  return fail(Errc::io,
              fmt::format("{}: {}: {}", path, call, std::generic_category().message(error)));
}

bool is_token(std::string_view text) {
  return text.size() >= min_token_bytes && text.size() <= max_token_bytes &&
         std::ranges::all_of(text, [](char c) { return c > 0x20 && c < 0x7f; });
}

// The user that this process runs as.
std::string user_name() {
  std::array<char, 1024> buffer;
  passwd entry{}, *found = nullptr;
  if (::getpwuid_r(::geteuid(), &entry, buffer.data(), buffer.size(), &found) == 0 &&
      found != nullptr)
    return found->pw_name;
  return std::to_string(::geteuid());
}

std::string random_digits(Random& random) {
  std::string text;
  for (int i = 0; i < 4; ++i) text += fmt::format("{:016x}", random.u64());
  return text;
}

// A file beside it, renamed when it is whole: a crash leaves a token or none.
Result<> make(const std::string& path, const std::string& text) {
  const std::string beside = path + ".tmp";
  // A crash may have left it behind, and O_EXCL would refuse it.
  ::unlink(beside.c_str());
  const Descriptor file(
      ::open(beside.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0600));
  if (!file.is_open()) return failed(beside, "open");
  const std::string line = text + "\n";
  const auto written = ::write(file.get(), line.data(), line.size());
  if (written != static_cast<ssize_t>(line.size())) {
    // A write that was cut short sets no errno.
    if (written >= 0) errno = ENOSPC;
    return failed(beside, "write");
  }
  // Before the rename: otherwise a crash may keep the name and lose the bytes.
  if (::fsync(file.get()) != 0) return failed(beside, "fsync");
  if (::rename(beside.c_str(), path.c_str()) != 0) return failed(path, "rename");
  return {};
}

}  // namespace

Result<std::string> read_secret(const std::string& path, std::size_t max_bytes) {
  // O_NONBLOCK, because opening a pipe would wait for its writer; fstat() refuses it below.
  const Descriptor file(::open(path.c_str(), O_RDONLY | O_NOFOLLOW | O_CLOEXEC | O_NONBLOCK));
  if (!file.is_open()) {
    const bool is_absent = errno == ENOENT;
    const bool is_forbidden = errno == EACCES;
    auto error = failed(path, "open");
    if (is_forbidden) error.error().message += fmt::format("; chown {}: {}", user_name(), path);
    if (is_absent) error.error().code = Errc::not_found;
    return error;
  }
  struct stat about {};
  if (::fstat(file.get(), &about) != 0) return failed(path, "stat");
  if (!S_ISREG(about.st_mode))
    return fail(Errc::invalid, fmt::format("{} is not a file: remove it", path));
  if ((about.st_mode & 077) != 0) {
    return fail(Errc::invalid,
                fmt::format("{} has mode {:04o}, so other users could read the token: chmod 600 it",
                            path, about.st_mode & 07777));
  }
  // One byte more than is allowed shows that there are more.
  std::string text(max_bytes + 1, '\0');
  const auto got = ::read(file.get(), text.data(), text.size());
  if (got < 0) return failed(path, "read");
  text.resize(static_cast<std::size_t>(got));
  if (text.size() > max_bytes)
    return fail(Errc::invalid, fmt::format("{} has more than {} bytes", path, max_bytes));
  return text;
}

Result<Token> Token::from_text(std::string_view text) {
  if (is_token(text)) return Token(std::string(text));
  return fail(Errc::invalid, fmt::format("a token has {} to {} printable characters",
                                         min_token_bytes, max_token_bytes));
}

Result<Token> Token::open(const std::string& path, Random& random) {
  // Room for a line's end, and for what shows that a text is too long.
  auto text = read_secret(path, max_token_bytes * 2);
  // Only a token that is not there is made: one that cannot be read may be in use by clients.
  if (!text && text.error().code == Errc::not_found) {
    std::string made_up = random_digits(random);
    if (const auto made = make(path, made_up); !made) return std::unexpected(made.error());
    return Token(std::move(made_up));
  }
  if (!text) return std::unexpected(text.error());
  while (text->ends_with('\n') || text->ends_with('\r')) text->pop_back();
  if (!is_token(*text)) {
    return fail(Errc::invalid,
                fmt::format("{} does not hold a token ({} to {} printable "
                            "characters): remove it; the next start creates a new one",
                            path, min_token_bytes, max_token_bytes));
  }
  return Token(std::move(*text));
}

bool Token::matches(std::string_view text) const {
  // All of ours is looked at, whatever comes: only that lengths differ can be told from outside.
  unsigned differs = text.size() == text_.size() ? 0 : 1;
  for (std::size_t i = 0; i < text_.size(); ++i) {
    const char given = i < text.size() ? text[i] : '\0';
    differs |= static_cast<unsigned>(static_cast<unsigned char>(given) ^
                                     static_cast<unsigned char>(text_[i]));
  }
  return differs == 0;
}

std::string Token::proof(std::string_view nonce, std::string_view address) const {
  return token_proof(text_, nonce, address);
}

std::optional<std::string_view> bearer_token(std::string_view header) {
  constexpr std::string_view scheme = "Bearer ";
  if (header.size() < scheme.size() ||
      !equals_ignoring_case(header.substr(0, scheme.size()), scheme))
    return std::nullopt;
  header.remove_prefix(scheme.size());
  while (header.starts_with(' ')) header.remove_prefix(1);
  return header;
}

bool Token::authorizes(std::string_view header) const {
  const auto token = bearer_token(header);
  return token && matches(*token);
}

}  // namespace tarry::web
