// Names that are one letter off from a header that schedules: found, counted, never obeyed.

#include <string>
#include <utility>
#include <vector>

#include "tests/delay/host.h"

namespace tarry::delay {
namespace {

HeaderSlips slips_of(const std::vector<TestRecord>& records, const TopicDelay& topic = {},
                     records::BatchOptions options = {}) {
  const Buffer batch = make_batch(records, now, options);
  const auto schedules = read_schedules(check(batch), topic, now, now);
  REQUIRE(schedules.has_value());
  CHECK(!schedules->any());
  return schedules->slips;
}

TEST_SUITE("header slips") {
  TEST_CASE(
      "a name one letter off is found wherever the slip is, in any case, and schedules nothing") {
    for (const char* name :
         {"x-dely",           "x-dealy",  "x-delayy",     "x-delax",     "X-Dealy",
          "xdelay",           "x_delay",  "-delay",       "y-delay",     "-xdelay",
          "xx-delay",         "x--delay", "x-deliver_at", "x-deliverat", "x-schedul-id",
          "x-shedule-action", "x-evry",   "x-corn",       "x-cront",     "x-cron_tz",
          "x-untill",         "x-counts", "x-expires-at"}) {
      CAPTURE(name);
      const auto slips = slips_of({{"a", {{"mine", "1"}, {name, "5s"}}}});
      CHECK(slips.total() == 1);
      REQUIRE(slips.names().size() == 1);
      CHECK(slips.names()[0].name == name);
      CHECK(slips.names()[0].meant.starts_with("x-"));
    }
    CHECK(slips_of({{"a", {{"x-dealy", "5s"}}}}).names()[0].meant == "x-delay");
    CHECK(slips_of({{"a", {{"x-schedule_id", "5s"}}}}).names()[0].meant == "x-schedule-id");
  }

  TEST_CASE("every slip of one letter in every name is found, by the search and by itself") {
    for (const std::string ours :
         {"x-deliver-at", "x-delay", "x-schedule-id", "x-schedule-action", "x-expire-at", "x-every",
          "x-cron", "x-cron-tz", "x-until", "x-count"}) {
      const auto check_slip = [&ours](const std::string& slip) {
        if (slip == ours) return;
        if (nearly_named(slip) != ours) FAIL_CHECK(slip);
        if (!slip.starts_with("x-")) return;
        const Buffer batch = make_batch({{"a", {{slip, "5s"}}}}, now);
        if (search_names(records::BatchView::parse(batch)->records()) != NamesFound::slips)
          FAIL_CHECK(slip << " in a batch");
      };
      for (std::size_t i = 0; i <= ours.size(); ++i) {
        for (const char letter : {'q', 'x', '-', 'e', '\x0d'}) {
          check_slip(std::string(ours).insert(i, 1, letter));
          if (i == ours.size()) continue;
          std::string changed = ours;
          changed[i] = letter;
          check_slip(changed);
        }
        if (i < ours.size()) check_slip(std::string(ours).erase(i, 1));
        if (i + 1 < ours.size()) {
          std::string exchanged = ours;
          std::swap(exchanged[i], exchanged[i + 1]);
          check_slip(exchanged);
        }
      }
    }
  }

  TEST_CASE("names of others, and those that delivery adds, are not slips") {
    for (const char* name : {"x-scheduled-for", "x-schedule-handle", "x-schedule-id", "x-trace-id",
                             "x-request-id", "x-forwarded-for", "delay", "x-", "x", "", "-",
                             "x-dle", "x-delayed", "x-day", "content-type"}) {
      CAPTURE(name);
      CHECK(slips_of({{"x-dealy", {{name, "x-dealy"}}}}).empty());
    }
  }

  TEST_CASE("every header of a batch counts, and a text in a body does not") {
    std::vector<TestRecord> records(300, {"\x0ex-dealy", {{"x-dealy", "5s"}, {"x-untill", "1"}}});
    records.push_back({"\x0ex-dealy"});
    const auto slips = slips_of(records);
    CHECK(slips.total() == 600);
    REQUIRE(slips.names().size() == 2);
    CHECK(slips.names()[0].count == 300);
    CHECK(slips_of({{"\x0ex-dealy", {{"mine", "\x0ex-dealy"}}}}).empty());
  }

  TEST_CASE(
      "a slip is found in a later record, in a compressed batch, and beside a default delay") {
    const std::vector<TestRecord> records{
        {"a", {{"mine", "1"}}}, {"b"}, {"c", {{"x-dealy", "5s"}}}};
    CHECK(slips_of(records).total() == 1);
    records::BatchOptions zstd;
    zstd.codec = records::Codec::zstd;
    CHECK(slips_of(records, {}, zstd).total() == 1);
    TopicDelay topic;
    topic.default_delay = milliseconds{1'000};
    const Buffer batch = make_batch(records, now);
    const auto schedules = read_schedules(check(batch), topic, now, now);
    REQUIRE(schedules.has_value());
    CHECK(schedules->any());
    CHECK(schedules->slips.total() == 1);
  }

  TEST_CASE("a slip beside a header that schedules is counted, and the schedule stands") {
    const Buffer batch = make_batch({{"a", {{"x-delay", "5s"}, {"x-expire_at", "1"}}}}, now);
    const auto schedules = read_schedules(check(batch), {}, now, now);
    REQUIRE(schedules.has_value());
    CHECK(schedules->of_records.size() == 1);
    CHECK(schedules->slips.total() == 1);
  }

  TEST_CASE("a topic that ignores headers has no slips") {
    TopicDelay topic;
    topic.enable = false;
    CHECK(slips_of({{"a", {{"x-dealy", "5s"}}}}, topic).empty());
  }

  TEST_CASE("at most as many names as the bound says are remembered, and every header is counted") {
    HeaderSlips slips;
    for (int i = 0; i < 20; ++i)
      slips.add("x-dela" + std::string(1, static_cast<char>('A' + i)), "x-delay");
    CHECK(slips.total() == 20);
    CHECK(slips.names().size() == HeaderSlips::max_names);
    HeaderSlips sum;
    sum.add(slips);
    sum.add(slips);
    CHECK(sum.total() == 40);
    CHECK(sum.names()[0].count == 2);
    sum.add("x-\ndelay", "x-delay");
    CHECK(sum.total() == 41);
  }
}

}  // namespace
}  // namespace tarry::delay
