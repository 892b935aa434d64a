#include <doctest/doctest.h>

#include "relay/refusal_search.h"

namespace tarry::relay {

using Kind = RefusalSearch::Kind;

TEST_CASE(
    "the second attempt with a refused record knows which one it is, and the third is plain") {
  RefusalSearch search;
  CHECK_FALSE(search.is_careful(Kind::sending));
  CHECK(search.ended(Kind::sending, true));
  CHECK(search.is_careful(Kind::sending));
  CHECK_FALSE(search.ended(Kind::sending, true));
  CHECK_FALSE(search.is_careful(Kind::sending));
}

TEST_CASE("a record that a transaction refuses is found though records are sent between attempts") {
  RefusalSearch search;
  CHECK_FALSE(search.ended(Kind::sending, false));
  CHECK(search.ended(Kind::transaction, true));
  CHECK_FALSE(search.ended(Kind::sending, false));
  CHECK(search.is_careful(Kind::transaction));
  CHECK_FALSE(search.ended(Kind::transaction, true));
}

TEST_CASE(
    "a record that is refused after a search was given up is searched for, and not taken for the "
    "one before") {
  RefusalSearch search;
  CHECK(search.ended(Kind::sending, true));
  CHECK(search.ended(Kind::transaction, true));
  search.give_up(Kind::sending);
  CHECK_FALSE(search.is_careful(Kind::sending));
  CHECK(search.is_careful(Kind::transaction));
  CHECK(search.ended(Kind::sending, true));
}

}  // namespace tarry::relay
