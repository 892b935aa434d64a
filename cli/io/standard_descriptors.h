#pragma once

// The descriptors of stdin, stdout and stderr, when the one that starts a program has closed them.

namespace tarry::cli {

// Holds each of the three that is closed.  Otherwise the next file or connection that is opened
// gets its number: what is printed goes into a file of the broker or to a client, and what is read
// as standard input never ends.  A read or write of one that is held fails with EBADF, as it would
// have failed.  For the start of main(), before anything is opened.
void hold_standard_descriptors();

}  // namespace tarry::cli
