#pragma once

// Result<T>: a value, or what went wrong in the world (never our own mistake, which is
// TARRY_ASSERT, and never a client's, which is a Kafka error code).
//
// The message is for the operator: it names the thing and its value, and what to do when
// there is something to do.  The code is for the program: what differs in what it does next.

#include <expected>
#include <string>
#include <utility>

namespace tarry {

enum class Errc {
  corrupt,      // Bytes that are not what was written: a checksum, a count, a magic number.
  io,           // A call to the system failed.  Never tried again.
  no_space,     // The disk is full; freeing space mends it.
  not_found,    // There is no such thing.
  exists,       // There is one already.
  invalid,      // What was given is not allowed.
  unsupported,  // Of a kind or version that we do not know.
  in_use,       // Somebody else has it.
  too_large,    // Past a limit that has a name.
  fenced,       // Taken out of service until the operator has looked.
  stopped,      // We are on our way down.
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
