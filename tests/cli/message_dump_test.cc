#include "cli/message_dump.h"

#include <fstream>
#include <sstream>
#include <string>

#include <doctest/doctest.h>

#include "tests/test_data.h"

namespace tarry::cli {
TEST_SUITE_BEGIN("message_dump");

TEST_CASE("every message that Kafka wrote comes out with its fields and its bytes") {
  std::ifstream file(test_data("protocol/golden/messages.txt"));
  int compared = 0;
  for (std::string line; std::getline(file, line);) {
    std::istringstream words(line);
    std::string key, kind, version, hex, sign;
    if (!(words >> key >> kind >> version >> hex >> sign) || (sign != "=" && sign != "~")) continue;
    const std::string json = line.substr(line.find(" " + sign + " ") + 3);
    const std::string dumped = dumped_message(line);
    if (dumped.starts_with("error: no API")) continue;  // Not one of ours.
    ++compared;
    CAPTURE(line);
    // After ~ a tagged field stands at its default, which is not written again.
    if (sign == "=") {
      CHECK(dumped == json + '\t' + hex);
    } else {
      CHECK(dumped.substr(0, dumped.find('\t')) == json);
    }
  }
  CHECK(compared > 600);
}

TEST_CASE("an empty body is -, there and back; text after the body is ignored") {
  CHECK(dumped_message("18 q 0 -") == "{}\t-");
  CHECK(dumped_message("18 q 0") == "{}\t-");
  CHECK(dumped_message("  18\tq  0 - = whatever\r") == "{}\t-");
}

TEST_CASE("a line that cannot be decoded is reported with the reason") {
  const auto error = [](const char* line, const char* word) {
    const std::string dumped = dumped_message(line);
    CAPTURE(dumped);
    CHECK(dumped.starts_with("error: "));
    CHECK(dumped.find(word) != std::string::npos);
    CHECK(dumped.find('\n') == std::string::npos);
  };
  error("", "KEY");
  error("x q 0 -", "'x'");
  error("18 z 0 -", "'z'");
  error("18 q one -", "'one'");
  error("18 q 0 0", "odd");
  error("18 q 0 0g", "'0g'");
  error("18 q 0 00", "error");  // More than the body has.
  error("18 q 77 -", "77");     // No such version.
  error("9999 q 0 -", "9999");  // No such API.
  error("99999999 q 0 -", "99999999");
  error("0 q 9 00", "error");  // Ends early.
}

TEST_SUITE_END();
}  // namespace tarry::cli
