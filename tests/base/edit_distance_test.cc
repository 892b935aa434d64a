#include "base/edit_distance.h"

#include <algorithm>
#include <string>
#include <utility>

#include <doctest/doctest.h>

namespace tarry {
namespace {

TEST_SUITE("edit distance") {
  TEST_CASE("a character that is added, removed or changed counts one each") {
    CHECK(edit_distance("log.retention.ms", "log.retention.ms") == 0);
    CHECK(edit_distance("log.retention.mss", "log.retention.ms") == 1);
    CHECK(edit_distance("log.retention.s", "log.retention.ms") == 1);
    CHECK(edit_distance("log_retention_ms", "log.retention.ms") == 2);
    CHECK(edit_distance("kitten", "sitting") == 3);
    CHECK(edit_distance("sitting", "kitten") == 3);
    CHECK(edit_distance("", "abc") == 3);
    CHECK(edit_distance("abc", "") == 3);
    CHECK(edit_distance("", "") == 0);
  }

  TEST_CASE("one letter off is one insertion, deletion, substitution or transposition") {
    const std::string word = "x-delay";
    for (const char* off : {"x-dealy", "x-dely", "x-delayy", "xx-delay", "x-delai", "xdelay",
                            "-delay", "x_delay", "-xdelay", "x--delay", "X-Dealy", "x-DELY"}) {
      CHECK_MESSAGE(is_one_letter_off(off, word), off);
      CHECK_MESSAGE(is_one_letter_off(word, off), off);
    }
    for (const char* other :
         {"x-delay", "X-DELAY", "x-dle", "x-yaled", "x-delayed", "delay", "", "x"}) {
      CHECK_MESSAGE(!is_one_letter_off(other, word), other);
      CHECK_MESSAGE(!is_one_letter_off(word, other), other);
    }
    CHECK(is_one_letter_off("", "a"));
    CHECK(!is_one_letter_off("", ""));
    CHECK(!is_one_letter_off("", "ab"));
  }

  TEST_CASE("one letter off agrees with the slow distance over all words of four letters") {
    const auto word_of = [](int number) {
      std::string word;
      for (; number > 0; number /= 4) word.push_back(static_cast<char>('a' + number % 4 - 1));
      word.erase(std::remove(word.begin(), word.end(), 'a' - 1), word.end());
      return word;
    };
    const auto slow = [](const std::string& a, const std::string& b) {
      if (edit_distance(a, b) == 1) return true;
      for (std::size_t i = 0; i + 1 < a.size(); ++i) {
        std::string exchanged = a;
        std::swap(exchanged[i], exchanged[i + 1]);
        if (exchanged == b && a != b) return true;
      }
      return false;
    };
    for (int a = 0; a < 256; ++a) {
      for (int b = 0; b < 256; ++b) {
        if (is_one_letter_off(word_of(a), word_of(b)) != slow(word_of(a), word_of(b)))
          FAIL_CHECK(word_of(a) << " and " << word_of(b));
      }
    }
  }
}

}  // namespace
}  // namespace tarry
