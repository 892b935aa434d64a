// Every input that scripts/fuzz has kept (corpus/TARGET.hex), and the golden bytes, without
// libFuzzer.

#include <fstream>
#include <string>

#include <doctest/doctest.h>

#include "tests/fuzz/targets.h"
#include "tests/protocol/golden.h"
#include "tests/test_data.h"

namespace tarry::fuzz {
namespace {

TEST_SUITE("fuzz") {
  TEST_CASE("no input that fuzzing has kept breaks a decoder") {
    for (const auto& target : targets) {
      CAPTURE(target.name);
      std::ifstream file(test_data("fuzz/corpus/" + std::string(target.name) + ".hex"));
      std::size_t inputs = 0;
      for (std::string line; std::getline(file, line);) {
        if (line.starts_with('#')) continue;
        CAPTURE(line);
        target.run(protocol::from_hex(line));
        ++inputs;
      }
      CHECK_MESSAGE(inputs > 0, "there is a corpus");
    }
  }

  TEST_CASE("no byte of a golden message can be changed so that a decoder breaks") {
    for (const auto& message : protocol::golden_messages()) {
      CAPTURE(message.title);
      Buffer input;
      input.push_back(static_cast<std::uint8_t>(message.key));
      input.push_back(static_cast<std::uint8_t>(2 * message.version + (message.request ? 0 : 1)));
      append_bytes(input, message.bytes);
      fuzz_message(input);
      if (message.bytes.size() > 200) continue;
      for (std::size_t at = 2; at < input.size(); at += 3) {
        Buffer changed = input;
        changed[at] ^= 0x81;
        fuzz_message(changed);
        fuzz_message(Bytes(input).first(at));
      }
    }
  }
}

}  // namespace
}  // namespace tarry::fuzz
