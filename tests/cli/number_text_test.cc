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

TEST_CASE("a figure has no exponent, however large it is, and a long time no milliseconds") {
  CHECK(milliseconds_text(0) == "0 ms");
  CHECK(milliseconds_text(0.3456) == "0.346 ms");
  CHECK(milliseconds_text(0.0000001) == "0.001 ms");
  CHECK(milliseconds_text(12) == "12 ms");
  CHECK(milliseconds_text(999.4) == "999 ms");
  CHECK(milliseconds_text(999.5) == "1 s");
  CHECK(milliseconds_text(5512.3) == "5.51 s");
  CHECK(milliseconds_text(59'949) == "59.9 s");
  CHECK(milliseconds_text(59'950) == "1m");
  CHECK(milliseconds_text(125'000) == "2m5s");
  CHECK(figure_text(0.048613) == "0.0486");
  CHECK(figure_text(999.6) == "1000");
  CHECK(figure_text(123456.7) == "123457");
}

TEST_SUITE_END();
}  // namespace tarry::cli
