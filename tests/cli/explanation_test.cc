// explain(): the same answers as a broker's, without one.

#include "cli/explanation.h"

#include <cstdlib>
#include <ctime>
#include <string>
#include <utility>
#include <vector>

#include <doctest/doctest.h>

#include "base/time_text.h"
#include "cli/local_time.h"

namespace tarry::cli {
namespace {

using namespace std::chrono_literals;
using Headers = RecordHeaders;

const WallTime at = *parse_time("2026-11-21T10:00:00Z");

Explanation explained(const Headers& headers, const std::vector<std::string>& configs = {}) {
  return explain(headers, *topic_delay_of(configs), at);
}

void check_explains_refusal(const Headers& headers, const std::vector<std::string>& words,
                            const std::vector<std::string>& configs = {}) {
  const auto explanation = explained(headers, configs);
  CHECK(explanation.result == "refused");
  CHECK_FALSE(explanation.due);
  CAPTURE(explanation.error);
  for (const auto& word : words) CHECK(explanation.error.find(word) != std::string::npos);
}

// The machine's time zone, for one test.
class Zone {
 public:
  explicit Zone(const char* name) {
    if (const char* before = std::getenv("TZ")) before_ = before;
    ::setenv("TZ", name, 1);
  }
  ~Zone() { before_.empty() ? ::unsetenv("TZ") : ::setenv("TZ", before_.c_str(), 1); }
  Zone(const Zone&) = delete;
  Zone& operator=(const Zone&) = delete;

 private:
  std::string before_;
};

TEST_SUITE_BEGIN("explanation");

TEST_CASE("a delay counts from the arrival, and a time is the time that it says") {
  auto explanation = explained({{"x-delay", "30m"}});
  CHECK(explanation.result == "delayed");
  CHECK(explanation.due == at + 30min);
  CHECK_FALSE(explanation.expires);
  CHECK(explanation.id.empty());

  explanation = explained({{"x-deliver-at", "2026-11-21T12:00:00+01:00"},
                           {"x-schedule-id", "order-1"},
                           {"x-expire-at", "2026-11-22T00:00:00Z"}});
  CHECK(explanation.due == at + 1h);
  CHECK(explanation.expires == at + 14h);
  CHECK(explanation.id == "order-1");
}

TEST_CASE(
    "a record that is due already is immediate, and one that cannot be delivered in time has "
    "expired") {
  CHECK(explained({{"x-delay", "0"}}).result == "immediate");
  const auto past = explained({{"x-deliver-at", "2026-11-21T09:59:00Z"}});
  CHECK(past.result == "immediate");
  CHECK(past.due == at - 1min);
  CHECK(explained({{"x-delay", "1h"}, {"x-expire-at", "2026-11-21T10:30:00Z"}}).result ==
        "expired");
}

TEST_CASE("a cancellation names its id, and headers that schedule nothing say so") {
  const auto cancel = explained({{"x-schedule-action", "cancel"}, {"x-schedule-id", "mine"}});
  CHECK(cancel.result == "cancel");
  CHECK(cancel.id == "mine");
  CHECK_FALSE(cancel.due);
  CHECK(explained({{"x-schedule-id", "mine"}}).result == "nothing");
  CHECK(explained({{"trace", "1"}, {"empty", ""}}).result == "nothing");
}

TEST_CASE("a refusal is the broker's own text: it has the header and the value") {
  check_explains_refusal({{"x-delay", "soon"}}, {"x-delay", "soon"});
  check_explains_refusal({{"x-delay", ""}}, {"x-delay"});
  check_explains_refusal({{"x-delay", "1s"}, {"x-delay", "2s"}}, {"x-delay", "twice", "1s", "2s"});
  check_explains_refusal({{"x-delay", "1s"}, {"x-deliver-at", "1800000000000"}},
                         {"x-deliver-at", "x-delay"});
  check_explains_refusal({{"x-schedule-action", "cancel"}}, {"x-schedule-id"});
  check_explains_refusal({{"x-delay", "1s"}, {"x-schedule-id", "@mine"}},
                         {"x-schedule-id", "@mine"});
}

TEST_CASE(
    "a name in capitals schedules, and for one that is one letter off the right one is suggested") {
  CHECK(explained({{"X-Delay", "30m"}}).due == at + 30min);
  const auto slip = explained({{"x-dealy", "30m"}, {"x-trace", "1"}});
  CHECK(slip.result == "nothing");
  REQUIRE(slip.slips.size() == 1);
  CHECK(slip.slips[0] == std::pair<std::string, std::string>{"x-dealy", "x-delay"});
  CHECK(explained({{"x-delay", "30m"}}).slips.empty());
}

TEST_CASE(
    "a recurring record has its next five runs, the first of them its due time, or as many as it "
    "ends with") {
  const auto every = explained({{"x-every", "1h"}, {"x-count", "9"}});
  CHECK(every.result == "delayed");
  CHECK(every.due == at + 1h);
  CHECK(every.upcoming == std::vector<WallTime>{at + 1h, at + 2h, at + 3h, at + 4h, at + 5h});
  CHECK(every.recurrence.find("every 1h") != std::string::npos);
  CHECK(explained({{"x-every", "1h"}, {"x-count", "2"}}).upcoming.size() == 2);

  // Saturday, 2026-11-21 11:00 in Berlin.
  const auto cron = explained({{"x-cron", "0 9 * * MON"}, {"x-cron-tz", "Europe/Berlin"}});
  CHECK(cron.due == *parse_time("2026-11-23T09:00:00+01:00"));
  REQUIRE(cron.upcoming.size() == 5);
  CHECK(cron.upcoming[4] == *parse_time("2026-12-21T09:00:00+01:00"));
  check_explains_refusal({{"x-cron", "0 25 * * *"}}, {"x-cron", "0 25 * * *"});
  CHECK(explained({{"x-delay", "1h"}}).upcoming.empty());
}

TEST_CASE("seconds where milliseconds are meant are refused, as a broker does") {
  check_explains_refusal({{"x-deliver-at", "1795258800"}}, {"x-deliver-at", "1795258800"});
}

TEST_CASE("the topic's configs count as on a broker") {
  const auto by_default = explained({{"other", "1"}}, {"tarry.delay.ms=1h"});
  CHECK(by_default.result == "delayed");
  CHECK(by_default.due == at + 1h);
  CHECK(explained({{"x-delay", "1s"}}, {"tarry.delay.ms=3600000"}).due == at + 1s);
  CHECK(explained({{"x-delay", "soon"}}, {"tarry.delay.enable=False"}).result == "nothing");
  check_explains_refusal({{"x-delay", "2h"}}, {"tarry.delay.max.ms", "x-delay"},
                         {"tarry.delay.max.ms=1h"});
  CHECK(explained({{"x-delay", "2h"}}, {"tarry.delay.max.ms=1h", "tarry.delay.max.ms=-1"}).result ==
        "delayed");
}

TEST_CASE("an unknown config, or an invalid value, is refused with its name") {
  for (const auto& [word, part] :
       std::vector<std::pair<std::string, std::string>>{{"retention.ms=1", "retention.ms"},
                                                        {"tarry.delay.ms=soon", "soon"},
                                                        {"tarry.delay.ms=-1", "-1"},
                                                        {"tarry.delay.enable=maybe", "maybe"}}) {
    CAPTURE(word);
    const auto topic = topic_delay_of({word});
    REQUIRE_FALSE(topic);
    CHECK(topic.error().message.find(part) != std::string::npos);
  }
}

TEST_CASE("local time has the zone's offset of that day, west of Greenwich and in summer too") {
  {
    const Zone zone("Europe/Berlin");
    CHECK(local_text(at) == "2026-11-21T11:00:00.000+01:00 (CET)");
    CHECK(local_text(*parse_time("2026-07-01T00:00:00.250Z")) ==
          "2026-07-01T02:00:00.250+02:00 (CEST)");
  }
  {
    const Zone zone("America/St_Johns");
    CHECK(local_text(at) == "2026-11-21T06:30:00.000-03:30 (NST)");
  }
  const Zone zone("UTC");
  CHECK(local_text(from_ms(-1)) == "1969-12-31T23:59:59.999+00:00 (UTC)");
  CHECK(local_text(WallTime::max()).empty());
}

TEST_SUITE_END();

}  // namespace
}  // namespace tarry::cli
