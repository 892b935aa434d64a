#pragma once

// SIGINT and SIGTERM, for a command that ends its work in order; SIGHUP, for one that reads files
// again.

namespace tarry::cli {

// From now on the first SIGINT or SIGTERM makes was_interrupted() true; the second one ends the
// process.
void end_in_order_on_signals();
bool was_interrupted();

// From now on SIGHUP ends nothing, and take_hangup() is true once behind it.
void note_hangups();
bool take_hangup();

}  // namespace tarry::cli
