#include "base/log.h"

#include <string>
#include <utility>
#include <vector>

#include <doctest/doctest.h>

#include "base/log_thread.h"

namespace tarry {
namespace {

TEST_SUITE("log") {
  TEST_CASE("text from the network cannot begin a line of its own in the log") {
    CHECK(printable("topic\n2026 E forged") == "topic\\x0a2026 E forged");
    CHECK(printable(std::string(300, 'a')).size() == 259);
    CHECK(printable("back\\slash") == "back\\x5cslash");
  }

  TEST_CASE("a value and a whole line are escaped by one rule: UTF-8 stays, all else is \\xNN") {
    for (const auto& [text, escaped] : {
             std::pair{"\n\x1b[2J\x7f", "\\x0a\\x1b[2J\\x7f"},
             std::pair{"\xc3\x84rger \xe2\x82\xac", "\xc3\x84rger \xe2\x82\xac"},
             std::pair{"\xff \xc3 \xe2\x82 \x9b", "\\xff \\xc3 \\xe2\\x82 \\x9b"},  // No UTF-8.
             std::pair{"\xc2\x9b", "\\xc2\\x9b"},           // Begins a terminal's command.
             std::pair{"\xe2\x80\xae", "\\xe2\\x80\\xae"},  // Turns the text around.
         }) {
      CHECK(printable(text) == escaped);
      CHECK(escape_control_characters(text) == escaped);
    }
    CHECK(printable("\xc3\x84", 1) == "\\xc3...");
  }

  TEST_CASE("no character that Unicode has for breaking a line or turning text around is written") {
    std::vector<std::string> bad{"\xc2\x85"};
    for (int low = 0xa8; low <= 0xae; ++low)
      bad.push_back("\xe2\x80" + std::string(1, static_cast<char>(low)));
    for (int low = 0xa6; low <= 0xa9; ++low)
      bad.push_back("\xe2\x81" + std::string(1, static_cast<char>(low)));
    for (const auto& each : bad) {
      const std::string escaped = printable("topic" + each + "forged");
      CHECK(escaped.starts_with("topic\\x"));
      CHECK(escaped.find(each) == std::string::npos);
      CHECK(escape_control_characters("topic" + each + "forged") == escaped);
    }
  }

  TEST_CASE(
      "an escape that a client wrote can be distinguished from one of ours, and none is escaped "
      "twice") {
    const std::string ours = printable("a\nb"), theirs = printable("a\\x0ab");
    CHECK(ours == "a\\x0ab");
    CHECK(theirs == "a\\x5cx0ab");
    CHECK(escape_control_characters(ours) == ours);
    CHECK(escape_control_characters(theirs) == theirs);
  }
}

}  // namespace
}  // namespace tarry
