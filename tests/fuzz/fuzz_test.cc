// Every input that scripts/fuzz has kept (corpus/TARGET.hex), and the golden bytes, without
// libFuzzer; then inputs that are made of those for a few seconds.

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <ctime>
#include <fstream>
#include <string>
#include <string_view>
#include <vector>

#include <doctest/doctest.h>

#include "tests/fuzz/targets.h"
#include "tests/given.h"
#include "tests/protocol/golden.h"
#include "tests/test_data.h"

namespace tarry::fuzz {
namespace {

std::vector<Buffer> corpus_of(const Target& target) {
  std::ifstream file(test_data("fuzz/corpus/" + std::string(target.name) + ".hex"));
  std::vector<Buffer> inputs;
  for (std::string line; std::getline(file, line);)
    if (!line.starts_with('#')) inputs.push_back(protocol::from_hex(line));
  return inputs;
}

// The processor's time of this thread: another process must not shorten a test.
std::chrono::nanoseconds time_used() {
  timespec now{};
  ::clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
  return std::chrono::seconds(now.tv_sec) + std::chrono::nanoseconds(now.tv_nsec);
}

constexpr std::size_t max_made_bytes = 2048;
constexpr std::chrono::milliseconds time_for_target{3000};

// Numbers at which decoders change their mind.
constexpr std::uint8_t edges[] = {0, 1, 0x7f, 0x80, 0xfe, 0xff};

void change_once(Buffer& input, const std::vector<Buffer>& corpus, SeededRandom& random) {
  const auto below = [&](std::size_t end) { return static_cast<std::size_t>(random.u64() % end); };
  const auto place = [&](std::size_t at) {
    return input.begin() + static_cast<std::ptrdiff_t>(at);
  };
  const std::size_t at = below(input.size() + 1);
  const std::size_t count = std::min(1 + below(8), input.size() - at);
  switch (below(6)) {
    case 0:  // A bit.
      if (at < input.size()) input[at] ^= static_cast<std::uint8_t>(1u << below(8));
      return;
    case 1:  // A number.
      for (std::size_t i = at; i < at + count; ++i) input[i] = edges[below(std::size(edges))];
      return;
    case 2:
      input.erase(place(at), place(at + count));
      return;
    case 3:
      input.insert(place(at), 1 + below(8), static_cast<std::uint8_t>(below(256)));
      return;
    case 4: {  // A piece of it once more.
      const Buffer piece(place(at), place(at + count));
      input.insert(place(below(input.size() + 1)), piece.begin(), piece.end());
      return;
    }
    default: {  // The end of another one.
      const Buffer& other = corpus[below(corpus.size())];
      const auto from = other.begin() + static_cast<std::ptrdiff_t>(below(other.size() + 1));
      input.erase(place(at), input.end());
      input.insert(input.end(), from, other.end());
    }
  }
}

TEST_SUITE("fuzz") {
  TEST_CASE("no input that fuzzing has kept breaks a decoder") {
    for (const auto& target : targets) {
      CAPTURE(target.name);
      const auto inputs = corpus_of(target);
      for (const auto& input : inputs) {
        target.run(input);
      }
      CHECK_MESSAGE(!inputs.empty(), "there is a corpus");
    }
  }

  // With a seed alone, and so by hand: what one run in many finds would fail a change that has
  // nothing to do with it.
  TEST_CASE("no input made of kept ones breaks a decoder, in three seconds for each" *
            doctest::skip(std::getenv("TARRY_FUZZ_SEED") == nullptr)) {
    const char* const given = std::getenv("TARRY_FUZZ_SEED");
    // A new one in each run: with the same the test would never see anything new.
    const std::uint64_t seed = given != nullptr ? std::strtoull(given, nullptr, 10)
                                                : static_cast<std::uint64_t>(std::time(nullptr));
    for (const auto& target : targets) {
      // A target that breaks ends the process, so this is said before.
      std::printf("fuzz: %.*s with TARRY_FUZZ_SEED=%llu\n", static_cast<int>(target.name.size()),
                  target.name.data(), static_cast<unsigned long long>(seed));
      std::fflush(stdout);
      SeededRandom random(seed);
      const auto corpus = corpus_of(target);
      REQUIRE(!corpus.empty());
      const auto until = time_used() + time_for_target;
      std::size_t made = 0;
      for (; time_used() < until; ++made) {
        Buffer input = corpus[static_cast<std::size_t>(random.u64() % corpus.size())];
        for (auto changes = 1 + random.u64() % 4; changes > 0; --changes)
          change_once(input, corpus, random);
        if (input.size() > max_made_bytes) input.resize(max_made_bytes);
        target.run(input);
      }
      CHECK(made > 0);
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
