#include "base/base64.h"

#include <doctest/doctest.h>

namespace tarry {

TEST_SUITE("base64") {
  TEST_CASE("base64 is RFC 4648's") {
    CHECK(base64("").empty());
    CHECK(base64("f") == "Zg==");
    CHECK(base64("fo") == "Zm8=");
    CHECK(base64("foo") == "Zm9v");
    CHECK(base64("foobar") == "Zm9vYmFy");
    CHECK(base64("any carnal pleas") == "YW55IGNhcm5hbCBwbGVhcw==");
  }

  TEST_CASE("bytes come back, at every length and for every byte") {
    std::string bytes;
    for (int i = 0; i < 300; ++i) {
      CHECK(from_base64(base64(bytes)) == bytes);
      bytes += static_cast<char>(i * 7);
    }
  }

  TEST_CASE("text that is not base64 with its padding is refused") {
    for (const auto* text : {"a", "ab", "abc", "ab!d", "a===", "YQ=", "YQ", "Y===", "YQ=a",
                             " YQ=", "Y-Q=", "====", "YW==YQ=="})
      CHECK_FALSE(from_base64(text));
  }
}

}  // namespace tarry
