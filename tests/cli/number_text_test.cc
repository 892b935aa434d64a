#include "cli/io/number_text.h"

#include <cstdint>

#include <doctest/doctest.h>

namespace tarry::cli {
TEST_SUITE_BEGIN("number text");

TEST_CASE("numbers as people read them") {
  CHECK(grouped(0) == "0");
  CHECK(grouped(999) == "999");
  CHECK(grouped(1234567) == "1 234 567");
  CHECK(size_text(1023) == "1023 B");
  CHECK(size_text(1536) == "1.5 KiB");
  CHECK(size_text(std::uint64_t{5} << 30) == "5.0 GiB");
  CHECK(counted(1, "record", "records") == "1 record");
  CHECK(counted(0, "record", "records") == "0 records");
}

TEST_SUITE_END();
}  // namespace tarry::cli
