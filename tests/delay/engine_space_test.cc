#include "delay/engine.h"

#include <chrono>
#include <string>
#include <vector>

#include "tests/delay/host.h"

namespace tarry::delay {
namespace {

TEST_SUITE("space") {
  TEST_CASE(
      "records that are cancelled or deleted by force long before they are due leave the disk") {
    for (const bool deleted : {false, true}) {
      CAPTURE(deleted);
      TestHost host;
      const std::string value(100, 'v');
      for (int batch = 0; batch < 50; ++batch) {
        std::vector<TestRecord> records;
        for (int i = 0; i < 100; ++i) {
          const std::string id = std::to_string(batch) + "." + std::to_string(i);
          records.push_back({value, {{"x-delay", "40h"}, {"x-schedule-id", id}}});
        }
        REQUIRE(host.produce(orders, records).has_value());
      }
      host.schedule(others, "stays", "40h");
      host.settle();
      host.checkpoint();
      host.settle();
      CHECK(host.engine->stats().tier.records == 0);  // All of it is on the disk alone.
      if (deleted) {
        host.checks_store = false;
        host.deleted.insert(orders.topic);
        host.drop(orders.topic);
        host.engine->topic_deleted(orders.topic);
      } else {
        for (int batch = 0; batch < 50; ++batch) {
          for (int i = 0; i < 100; ++i)
            (void)host.cancel(orders, std::to_string(batch) + "." + std::to_string(i));
        }
        host.settle();
        host.checkpoint();
      }
      host.settle();
      CHECK(host.engine->stats().tier.freed_bytes > 500'000);
      host.pass(std::chrono::hours{41});
      CHECK(host.values(others) == Strings{"stays"});
      CHECK(host.values(orders).empty());
    }
  }
}

}  // namespace
}  // namespace tarry::delay
