#pragma once

// SIGINT and SIGTERM, for a command that ends its work in order.

namespace tarry::cli {

// From now on the first SIGINT or SIGTERM makes was_interrupted() true; the second one ends the
// process.
void end_in_order_on_signals();
bool was_interrupted();

}  // namespace tarry::cli
