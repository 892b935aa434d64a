#pragma once

// tarry doctor: what keeps a broker on this machine from starting, or from its work.
//
//   this machine, or a running broker --> facts --> checkup.h judges --> lines and exit status
//
// It looks and changes nothing: a port that it tries is given back, and a data directory is not
// created.  It gathers the facts as a start would, so it includes server/, which other commands do
// not; for that reason it is part of the program and not of the library of commands.  On the main
// thread.

#include "cli/command.h"

namespace tarry::cli {

void add_doctor(CLI::App& program, Chosen& chosen);

}  // namespace tarry::cli
