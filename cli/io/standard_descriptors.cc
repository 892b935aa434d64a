#include "cli/io/standard_descriptors.h"

#include <fcntl.h>
#include <unistd.h>

#include <initializer_list>

namespace tarry::cli {

void hold_standard_descriptors() {
  for (const int descriptor : {STDIN_FILENO, STDOUT_FILENO, STDERR_FILENO}) {
    if (::fcntl(descriptor, F_GETFD) >= 0) continue;
    // open() gives the lowest free number, which is this one: those below it are open or held.  It
    // is opened for what is not done with it.
    const int opened = ::open("/dev/null", descriptor == STDIN_FILENO ? O_WRONLY : O_RDONLY);
    if (opened < 0) return;  // Without /dev/null, nothing can be held.
  }
}

}  // namespace tarry::cli
