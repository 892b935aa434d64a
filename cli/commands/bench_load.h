#pragma once

// tarry bench produce, consume and e2e: how fast a broker accepts and serves records, and how long
// one takes from its producer to a consumer.

#include "cli/command.h"

namespace tarry::cli {

// Into the group `bench`.
void add_bench_load(CLI::App& group, Chosen& chosen);

}  // namespace tarry::cli
