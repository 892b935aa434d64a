#include "server/connection_rates.h"

#include <chrono>
#include <memory>
#include <string_view>

#include <doctest/doctest.h>

namespace tarry::server {
namespace {

using namespace std::chrono_literals;
using Limit = ConnectionRates::Limit;

struct RatesFixture {
  explicit RatesFixture(Limit of_broker, Limit of_one = std::nullopt, Limit of_other = std::nullopt,
                        Limit of_address = std::nullopt)
      : shared(std::make_shared<ConnectionRates::Broker>(of_broker, meters)) {
    shared->limit_of = [of_address](std::string_view ip) {
      return ip == "10.0.0.7" || ip == "::1" ? of_address : std::nullopt;
    };
    one.emplace(of_one, shared);
    other.emplace(of_other, shared);
  }

  broker::QuotaMeters meters{{.count = 2, .length = 1s}};
  std::shared_ptr<ConnectionRates::Broker> shared;
  std::optional<ConnectionRates> one, other;
  MonoTime now = MonoTime{} + 1h;
};

TEST_SUITE("connection rates") {
  TEST_CASE("without a limit nobody waits") {
    RatesFixture rates({});
    for (int i = 0; i < 1000; ++i)
      CHECK(rates.one->begin("10.0.0.7:1", rates.now).next_after == 0ms);
  }

  TEST_CASE("a listener that is too fast accepts its next connection later, another at once") {
    RatesFixture rates({}, 10);
    for (int i = 0; i < 10; ++i) CHECK(rates.one->begin("10.0.0.7:1", rates.now).next_after == 0ms);
    CHECK(rates.one->begin("10.0.0.8:1", rates.now).next_after == 100ms);
    CHECK(rates.other->begin("10.0.0.8:1", rates.now).next_after == 0ms);
    CHECK(rates.one->begin("10.0.0.8:1", rates.now + 3s).next_after == 0ms);
  }

  TEST_CASE("a limit that is changed holds from the next connection on") {
    RatesFixture rates({});
    for (int i = 0; i < 10; ++i) CHECK(rates.one->begin("10.0.0.7:1", rates.now).next_after == 0ms);
    rates.one->set_limit(10);
    for (int i = 0; i < 10; ++i) CHECK(rates.one->begin("10.0.0.7:1", rates.now).next_after == 0ms);
    CHECK(rates.one->begin("10.0.0.8:1", rates.now).next_after == 100ms);
    rates.one->set_limit(std::nullopt);
    CHECK(rates.one->begin("10.0.0.8:1", rates.now).next_after == 0ms);
  }

  TEST_CASE("the broker's limit holds for all listeners together") {
    RatesFixture rates(10);
    for (int i = 0; i < 5; ++i) {
      CHECK(rates.one->begin("10.0.0.7:1", rates.now).next_after == 0ms);
      CHECK(rates.other->begin("10.0.0.7:1", rates.now).next_after == 0ms);
    }
    CHECK(rates.other->begin("10.0.0.7:1", rates.now).next_after == 100ms);
  }

  TEST_CASE("an address that is too fast is closed later, and does not count") {
    RatesFixture rates({}, {}, {}, 2);
    for (int i = 0; i < 2; ++i) CHECK(rates.one->begin("10.0.0.7:1", rates.now).close_after == 0ms);
    for (int i = 0; i < 100; ++i) {
      const auto admission = rates.one->begin("10.0.0.7:1", rates.now);
      CHECK(admission.close_after == 500ms);
      CHECK(admission.next_after == 0ms);
    }
    CHECK(rates.one->begin("10.0.0.8:1", rates.now).close_after == 0ms);
    CHECK(rates.one->begin("10.0.0.7:1", rates.now + 2s).close_after == 0ms);
  }

  TEST_CASE("an address of IPv6 is known without its brackets") {
    RatesFixture rates({}, {}, {}, 1);
    CHECK(rates.one->begin("[::1]:1", rates.now).close_after == 0ms);
    CHECK(rates.one->begin("[::1]:2", rates.now).close_after == 1s);
  }

  TEST_CASE("the text of a rate is a number, and no text no limit") {
    CHECK(rate_limit("100") == 100.0);
    CHECK_FALSE(rate_limit("").has_value());
  }
}

}  // namespace
}  // namespace tarry::server
