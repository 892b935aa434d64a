// libFuzzer runs the target that TARRY_FUZZ names (scripts/fuzz sets it).

#include <cstdio>
#include <cstdlib>

// The broker's test tools check with it.
#define DOCTEST_CONFIG_IMPLEMENT
#include <doctest/doctest.h>

#include "tests/fuzz/targets.h"

namespace {
const tarry::fuzz::Target* chosen = nullptr;
}

extern "C" int LLVMFuzzerInitialize(int*, char***);
extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size);

extern "C" int LLVMFuzzerInitialize(int*, char***) {
  const char* const name = std::getenv("TARRY_FUZZ");
  for (const auto& target : tarry::fuzz::targets)
    if (name != nullptr && target.name == name) chosen = &target;
  if (chosen == nullptr) {
    std::fprintf(stderr, "TARRY_FUZZ has to name a target of tests/fuzz/targets.h\n");
    std::exit(2);
  }
  return 0;
}

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  chosen->run({data, size});
  return 0;
}
