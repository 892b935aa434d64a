#include <doctest/doctest.h>

#include "relay/kafka_producers.h"

namespace tarry::relay {

TEST_CASE(
    "what a transaction did of which a record was not confirmed is unknown, and refuses none") {
  TransactionResult aborted;
  aborted.outcome = Outcome::aborted;
  aborted.refused.emplace_back(3, "too large");
  aborted.silent_targets = {"orders"};
  aborted.error = "not all records were confirmed in time";
  const auto done = unconfirmed(aborted);
  CHECK(done.outcome == Outcome::unknown);
  CHECK(done.refused.empty());
  CHECK(done.silent_targets == aborted.silent_targets);
  CHECK(done.error == aborted.error);
}

}  // namespace tarry::relay
