#pragma once

// tarry bench delayed: how late a broker delivers delayed records.

#include "cli/command.h"

namespace tarry::cli {

// Into the group `bench`.
void add_bench_delayed(CLI::App& group, Chosen& chosen);

}  // namespace tarry::cli
