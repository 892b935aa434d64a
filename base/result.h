#pragma once

// Result<T>: a value, or an error of the environment: a disk, a file, a setting.  (A mistake of our
// own is a TARRY_ASSERT; a client's mistake is a Kafka error code.)
//
// The message is for the operator: it names the thing and its value, and what to do when there is
// something to do.  The code is for the program: each code is one that some caller handles
// differently.

#include <expected>
#include <string>
#include <utility>

namespace tarry {

enum class Errc {
  corrupt,      // Bytes that are not what was written: a checksum, a count, a magic number.
  io,           // A call to the system failed.  Never tried again.
  no_space,     // The disk is full; freeing space mends it.
  not_found,    // It does not exist.
  exists,       // It exists already.
  invalid,      // The given value is not allowed.
  unsupported,  // This program does not know that kind or version.
  in_use,       // Another process uses it.
  too_large,    // A named limit is exceeded.
  fenced,       // Taken out of service until the operator has looked.
  stopped,      // The broker is stopping.
  exhausted,    // No file descriptor or no memory is left: nothing was done, and it may pass.
};

struct Error {
  Errc code;
  std::string message;
};

template <typename T = void>
using Result = std::expected<T, Error>;

inline std::unexpected<Error> fail(Errc code, std::string message) {
  return std::unexpected(Error{code, std::move(message)});
}

}  // namespace tarry
