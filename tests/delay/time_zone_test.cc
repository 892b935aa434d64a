#include "delay/time_zone.h"

#include <doctest/doctest.h>

#include <cstdlib>
#include <ctime>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <random>

#include <fmt/format.h>

#include "base/time_text.h"
#include "delay/time_zones.h"
#include "tests/captured_log.h"
#include "tests/delay/system_zone.h"
#include "tests/delay/zone_files.h"
#include "tests/given.h"

namespace tarry::delay {
namespace {

using namespace std::chrono;

sys_seconds second_at(std::string_view text) {
  return floor<seconds>(parse_time(text).value());
}
local_seconds reads(std::string_view text) {
  return local_seconds{second_at(std::string(text) + "Z").time_since_epoch()};
}
std::string text(local_seconds reading) {
  auto shown = format_time(sys_seconds{reading.time_since_epoch()});
  return shown.substr(0, 19);
}
local_seconds reading(const TimeZone& zone, sys_seconds time) {
  return local_seconds{time.time_since_epoch() + zone.period_at(time).offset};
}

std::string bytes_of(const std::filesystem::path& path) {
  std::ifstream file(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), {}};
}

std::vector<std::string> names_of_system() {
  std::vector<std::string> names;
  const std::filesystem::path top = "/usr/share/zoneinfo";
  for (auto entry = std::filesystem::recursive_directory_iterator(top);
       entry != std::filesystem::recursive_directory_iterator(); ++entry) {
    const auto name = entry->path().lexically_relative(top).generic_string();
    if (name == "posix" || name == "right") entry.disable_recursion_pending();
    if (entry->is_regular_file() && bytes_of(entry->path()).starts_with("TZif"))
      names.push_back(name);
  }
  return names;
}

// The C library's answers: it reads the same files with code of its own.
class LibraryZone {
 public:
  explicit LibraryZone(const std::string& name) {
    if (const char* now = std::getenv("TZ")) before_ = now;
    ::setenv("TZ", (":/usr/share/zoneinfo/" + name).c_str(), 1);
    ::tzset();
  }
  ~LibraryZone() {
    if (before_)
      ::setenv("TZ", before_->c_str(), 1);
    else
      ::unsetenv("TZ");
    ::tzset();
  }
  static long offset(sys_seconds time) {
    const std::time_t seconds = time.time_since_epoch().count();
    std::tm fields{};
    REQUIRE(::localtime_r(&seconds, &fields) != nullptr);
    return fields.tm_gmtoff;
  }

 private:
  std::optional<std::string> before_;
};

TEST_SUITE("time zone") {
  TEST_CASE("UTC never differs from UTC") {
    const auto utc = TimeZone::utc();
    for (const char* time :
         {"0000-01-01T00:00:00Z", "2026-07-01T00:00:00Z", "9999-12-31T23:59:59Z"}) {
      CHECK(utc->period_at(second_at(time)).offset == seconds{0});
      CHECK(utc->first_moment(local_seconds{second_at(time).time_since_epoch()}) ==
            second_at(time));
    }
  }

  TEST_CASE("every zone of the machine has the C library's offset, in all years up to 9999") {
    const auto seed = std::random_device{}();
    CAPTURE(seed);
    SeededRandom random(seed);
    const auto names = names_of_system();
    REQUIRE(names.size() > 400);
    const auto begin = second_at("1902-01-01T00:00:00Z").time_since_epoch().count();
    const auto near = second_at("2040-01-01T00:00:00Z").time_since_epoch().count();
    const auto end = second_at("9999-12-30T00:00:00Z").time_since_epoch().count();
    for (const auto& name : names) {
      CAPTURE(name);
      const auto ours = TimeZone::parse(name, as_bytes(bytes_of("/usr/share/zoneinfo/" + name)));
      REQUIRE_MESSAGE(ours.has_value(), (ours ? "" : ours.error().message));
      const LibraryZone library(name);
      const auto check = [&](sys_seconds time) {
        if (ours->period_at(time).offset.count() == library.offset(time)) return;
        CAPTURE(time.time_since_epoch().count());
        CHECK(ours->period_at(time).offset.count() == library.offset(time));
      };
      for (int i = 0; i < tries(40); ++i) {
        const auto last = i % 2 == 0 ? near : end;
        const sys_seconds time{seconds{begin + static_cast<std::int64_t>(random.below(
                                                   static_cast<std::uint64_t>(last - begin)))}};
        check(time);
        // Where a period of ours ends is where it has to be seen.
        const auto period = ours->period_at(time);
        for (const auto edge : {period.begin, period.end}) {
          if (edge < sys_seconds{seconds{begin}} || edge > sys_seconds{seconds{end}}) continue;
          check(edge - seconds{1});
          check(edge);
        }
      }
    }
  }

  TEST_CASE("summer time continues after the end of a file's table") {
    CHECK(zone("Europe/Berlin").period_at(second_at("2050-07-01T00:00:00Z")).offset == hours{2});
    CHECK(zone("Europe/Berlin").period_at(second_at("2050-01-01T00:00:00Z")).offset == hours{1});
    CHECK(zone("America/New_York").period_at(second_at("9999-07-01T00:00:00Z")).offset ==
          hours{-4});
    CHECK(zone("Australia/Sydney").period_at(second_at("9998-12-31T00:00:00Z")).offset ==
          hours{11});
  }

  TEST_CASE("in a gap the first moment is the one after it, in a fold the first of the two") {
    const TimeZone& berlin = zone("Europe/Berlin");
    const auto gap = second_at("2027-03-28T01:00:00Z");
    CHECK(berlin.first_moment(reads("2027-03-28T01:59:59")) == gap - seconds{1});
    for (const char* skipped : {"2027-03-28T02:00:00", "2027-03-28T02:30:00", "2027-03-28T02:59:59",
                                "2027-03-28T03:00:00"})
      CHECK(berlin.first_moment(reads(skipped)) == gap);
    CHECK(berlin.first_moment(reads("2027-03-28T03:00:01")) == gap + seconds{1});

    CHECK(berlin.first_moment(reads("2027-10-31T02:00:00")) == second_at("2027-10-31T00:00:00Z"));
    CHECK(berlin.first_moment(reads("2027-10-31T02:59:59")) == second_at("2027-10-31T00:59:59Z"));
    CHECK(berlin.first_moment(reads("2027-10-31T03:00:00")) == second_at("2027-10-31T02:00:00Z"));
  }

  TEST_CASE("in the second pass through a fold the highest reading stays that of the first") {
    const TimeZone& berlin = zone("Europe/Berlin");
    CHECK(text(berlin.highest_reading(second_at("2027-10-31T00:30:00Z"))) == "2027-10-31T02:30:00");
    CHECK(text(berlin.highest_reading(second_at("2027-10-31T00:59:59Z"))) == "2027-10-31T02:59:59");
    CHECK(text(berlin.highest_reading(second_at("2027-10-31T01:00:00Z"))) == "2027-10-31T02:59:59");
    CHECK(text(berlin.highest_reading(second_at("2027-10-31T01:59:59Z"))) == "2027-10-31T02:59:59");
    CHECK(text(berlin.highest_reading(second_at("2027-10-31T02:00:00Z"))) == "2027-10-31T03:00:00");
    CHECK(text(berlin.highest_reading(second_at("2027-03-28T01:00:00Z"))) == "2027-03-28T03:00:00");
  }

  TEST_CASE("clocks change by half an hour, two hours and a day somewhere") {
    const TimeZone& lord_howe = zone("Australia/Lord_Howe");
    CHECK(lord_howe.first_moment(reads("2026-10-04T02:15:00")) ==
          second_at("2026-10-03T15:30:00Z"));
    CHECK(lord_howe.first_moment(reads("2026-10-04T02:30:00")) ==
          second_at("2026-10-03T15:30:00Z"));
    CHECK(lord_howe.first_moment(reads("2027-04-04T01:45:00")) ==
          second_at("2027-04-03T14:45:00Z"));
    const TimeZone& troll = zone("Antarctica/Troll");
    CHECK(troll.first_moment(reads("2027-03-28T01:30:00")) == second_at("2027-03-28T01:00:00Z"));
    CHECK(troll.first_moment(reads("2027-03-28T02:59:00")) == second_at("2027-03-28T01:00:00Z"));
    CHECK(troll.first_moment(reads("2027-10-31T01:30:00")) == second_at("2027-10-30T23:30:00Z"));
    // Samoa had no 30 December 2011.
    CHECK(zone("Pacific/Apia").first_moment(reads("2011-12-30T12:00:00")) ==
          second_at("2011-12-30T10:00:00Z"));
    // Ireland's summer time is its standard time, and its winter time goes back.
    CHECK(zone("Europe/Dublin").period_at(second_at("2060-01-01T00:00:00Z")).offset == hours{0});
    CHECK(zone("Europe/Dublin").period_at(second_at("2060-07-01T00:00:00Z")).offset == hours{1});
  }

  TEST_CASE("both questions are answered as by looking at each second") {
    // A fold of 30 s, a gap of 60 s, two folds behind one another and one inside the other, a gap
    // in a fold; all within ten minutes.
    const std::vector<ZoneChange> changes = {{60, -30}, {120, 30},  {200, 0},   {210, -20},
                                             {300, 40}, {310, -60}, {330, -50}, {331, -60}};
    const TimeZone made = made_zone(0, changes, "");
    const auto shown = [&](std::int64_t time) {
      std::int64_t offset = 0;
      for (const auto& change : changes) {
        if (change.at <= time) offset = change.offset;
      }
      return time + offset;
    };
    for (std::int64_t time = -200; time < 800; ++time) {
      CHECK(made.period_at(sys_seconds{seconds{time}}).offset.count() == shown(time) - time);
      std::int64_t highest = std::numeric_limits<std::int64_t>::min();
      for (std::int64_t before = -300; before <= time; ++before)
        highest = std::max(highest, shown(before));
      CHECK(made.highest_reading(sys_seconds{seconds{time}}).time_since_epoch().count() == highest);
      std::int64_t first = -400;
      while (shown(first) < time) ++first;
      CHECK(made.first_moment(local_seconds{seconds{time}}).time_since_epoch().count() == first);
    }
  }

  TEST_CASE("a rule of any form is understood") {
    struct Case {
      const char *rule, *time;
      seconds offset;
    };
    for (const Case& each : std::vector<Case>{
             {"UTC0", "2027-07-01T00:00:00Z", hours{0}},
             {"<+0530>-5:30", "2027-07-01T00:00:00Z", minutes{330}},
             {"IST-5:30:15", "2027-07-01T00:00:00Z", seconds{19'815}},
             {"EST+5EDT,M3.2.0,M11.1.0", "2027-03-14T07:00:00Z", hours{-4}},
             {"EST+5EDT,M3.2.0,M11.1.0", "2027-03-14T06:59:59Z", hours{-5}},
             // Day 60 is always 1 March when it is counted without leap days,
             {"AAA0BBB,J60/0,J61/0", "2028-03-01T12:00:00Z", hours{1}},
             {"AAA0BBB,J60/0,J61/0", "2027-03-01T12:00:00Z", hours{1}},
             // and 29 February in a leap year when it is counted from 0 with them.
             {"AAA0BBB,59/0,60/0", "2028-02-29T12:00:00Z", hours{1}},
             {"AAA0BBB,59/0,60/0", "2027-03-01T12:00:00Z", hours{1}},
             // Summer all year.
             {"XXX3EDT4,0/0,J365/23", "2027-01-01T03:00:00Z", hours{-4}},
             {"XXX3EDT4,0/0,J365/23", "2027-12-31T23:59:59Z", hours{-4}},
             {"XXX3EDT4,0/0,J365/23", "2028-06-01T00:00:00Z", hours{-4}},
             // Times beyond a day and before it.
             {"EET-2EEST,M3.4.4/50,M10.4.4/50", "2027-03-26T23:59:59Z", hours{2}},
             {"EET-2EEST,M3.4.4/50,M10.4.4/50", "2027-03-27T00:00:00Z", hours{3}},
             {"<-02>2<-01>,M3.5.0/-1,M10.5.0/0", "2027-03-28T01:00:00Z", hours{-1}},
             {"<-02>2<-01>,M3.5.0/-1,M10.5.0/0", "2027-03-28T00:59:59Z", hours{-2}},
         }) {
      CAPTURE(each.rule);
      CAPTURE(each.time);
      CHECK(made_zone(0, {}, each.rule).period_at(second_at(each.time)).offset == each.offset);
    }
  }

  TEST_CASE("a file whose last line is not a rule is refused") {
    for (const char* bad : {"X",
                            "CET",
                            "CET-1CEST",
                            "CET-1CEST,",
                            "CET-1CEST,M3.5.0",
                            "CET-1CEST,M3.5.0,M10.5.0/3x",
                            "CET-1CEST,M13.5.0,M10.5.0",
                            "CET-1CEST,M0.5.0,M10.5.0",
                            "CET-1CEST,M3.0.0,M10.5.0",
                            "CET-1CEST,M3.6.0,M10.5.0",
                            "CET-1CEST,M3.5.7,M10.5.0",
                            "CET-1CEST,J0,J5",
                            "CET-1CEST,J366,J5",
                            "CET-1CEST,366,5",
                            "CET-25",
                            "CET-1:60",
                            "CET-1CEST,M3.5.0/168,J1",
                            "<+01-1",
                            "<>-1",
                            "CET--1",
                            "CET-1 ",
                            "CET-99999999999999999999"}) {
      CAPTURE(bad);
      const auto zone = TimeZone::parse("Made/Up", zone_file(0, {}, bad));
      REQUIRE_FALSE(zone.has_value());
      CHECK(zone.error().code == Errc::corrupt);
      CHECK(zone.error().message.find("Made/Up") != std::string::npos);
    }
  }

  TEST_CASE("a damaged file is refused, or read without harm, wherever it was cut or changed") {
    const auto use = [](const Result<TimeZone>& zone) {
      if (!zone) {
        CHECK(zone.error().code == Errc::corrupt);
        return;
      }
      for (const auto time : {sys_seconds::min(), second_at("1900-01-01T00:00:00Z"),
                              second_at("2027-07-01T00:00:00Z"), second_at("9999-12-31T00:00:00Z"),
                              sys_seconds::max()}) {
        const auto period = zone->period_at(time);
        CHECK(period.begin < period.end);
        zone->highest_reading(time);
        zone->first_moment(local_seconds{time.time_since_epoch()});
      }
    };
    for (const auto& whole : {zone_file(60, {{-1'000'000, 3600}, {0, 7200}, {1'000'000, 3600}},
                                        "CET-1CEST,M3.5.0,M10.5.0/3"),
                              zone_file(0, {}, "EST5EDT,M3.2.0,M11.1.0")}) {
      use(TimeZone::parse("Made/Up", whole));
      for (std::size_t size = 0; size < whole.size(); ++size)
        CHECK_FALSE(TimeZone::parse("Made/Up", Bytes(whole).first(size)).has_value());
      for (std::size_t i = 0; i < whole.size(); ++i) {
        for (const int change : {1, 0x7f, 0x80, 0xff}) {
          Buffer damaged = whole;
          damaged[i] = static_cast<std::uint8_t>(damaged[i] ^ change);
          use(TimeZone::parse("Made/Up", damaged));
        }
      }
    }
    CHECK_FALSE(TimeZone::parse("Made/Up", Buffer(TimeZone::max_file_bytes + 1)).has_value());
  }

  TEST_CASE("a file of the first version has a table of 32 bits and no rule") {
    Buffer file;
    append_zone_block(file, 0, 4, 0, {{0, 3600}, {86'400, 0}});
    const auto zone = TimeZone::parse("Old", file);
    REQUIRE(zone.has_value());
    CHECK(zone->period_at(second_at("1970-01-01T12:00:00Z")).offset == hours{1});
    CHECK(zone->period_at(second_at("2027-07-01T00:00:00Z")).offset == hours{0});
  }

  TEST_CASE("times beyond all calendars are answered too") {
    for (const auto* name : {"Europe/Berlin", "UTC", "Asia/Tokyo"}) {
      const TimeZone& any = zone(name);
      for (const auto time : {sys_seconds::min(), sys_seconds::max()}) {
        any.period_at(time);
        any.highest_reading(time);
        any.first_moment(local_seconds{time.time_since_epoch()});
      }
    }
  }

  TEST_CASE("first_moment(l) <= t exactly if l <= highest_reading(t)") {
    const auto seed = std::random_device{}();
    CAPTURE(seed);
    SeededRandom random(seed);
    for (const char* name : {"Europe/Berlin", "Australia/Lord_Howe", "Africa/Casablanca",
                             "Antarctica/Troll", "Pacific/Apia", "America/Nuuk"}) {
      CAPTURE(name);
      const TimeZone& any = zone(name);
      for (int i = 0; i < tries(2'000); ++i) {
        const sys_seconds somewhere{
            seconds{static_cast<std::int64_t>(random.below(4'000'000'000))}};
        // A period that has always been begins where asked times are cut off.
        const auto near = std::max(any.period_at(somewhere).begin, sys_seconds{});
        const sys_seconds time =
            near + seconds{static_cast<std::int64_t>(random.below(20'000)) - 10'000};
        const local_seconds shown =
            reading(any, near) + seconds{static_cast<std::int64_t>(random.below(20'000)) - 10'000};
        CHECK((any.first_moment(shown) <= time) == (shown <= any.highest_reading(time)));
      }
    }
  }
}

TEST_SUITE("time zones") {
  TEST_CASE("UTC needs no files") {
    const TimeZones none("/nonexistent");
    REQUIRE(none.find("UTC").has_value());
    const auto berlin = none.find("Europe/Berlin");
    REQUIRE_FALSE(berlin.has_value());
    CHECK(berlin.error().code == Errc::not_found);
    CHECK(berlin.error().message.find("install tzdata") != std::string::npos);
  }

  TEST_CASE("on a machine without time zones each error, and one log line, say to install tzdata") {
    CapturedLog log;
    const TimeZones none("/nonexistent");
    REQUIRE(none.find("UTC").has_value());
    CHECK(log.count("tzdata") == 0);
    for (const char* name : {"Europe/Berlin", "Europe/Berlin", "America/New_York"}) {
      const auto found = none.find(name);
      REQUIRE_FALSE(found.has_value());
      CHECK(found.error().message == fmt::format("\"{}\" is not known: /nonexistent has no time "
                                                 "zones; install tzdata and restart, or use UTC",
                                                 name));
    }
    CHECK(log.count("/nonexistent has no time zones, so x-cron-tz takes only UTC; install tzdata "
                    "and restart") == 1);
    CHECK(log.count("tzdata") == 1);

    const TimeZones zones("/usr/share/zoneinfo");
    CHECK_FALSE(zones.find("Mars/Olympus_Mons").has_value());
    CHECK(log.count("tzdata") == 1);
  }

  TEST_CASE("names that were read ahead are not read again, and that there are none is not told") {
    CapturedLog log;
    char made[] = "/tmp/tarry-zones-XXXXXX";
    REQUIRE(::mkdtemp(made) != nullptr);
    const TimeZones zones(made);
    zones.prepare();
    CHECK(log.count("tzdata") == 0);
    std::filesystem::copy_file("/usr/share/zoneinfo/Europe/Berlin", std::string(made) + "/Late");
    CHECK_FALSE(zones.find("Late").has_value());
    CHECK(log.count("tzdata") == 1);
    CHECK(TimeZones(made).find("Late").has_value());
    std::filesystem::remove_all(made);
  }

  TEST_CASE("every zone of the machine can be found by its name, and is read once") {
    const TimeZones zones("/usr/share/zoneinfo");
    for (const auto& name : names_of_system()) {
      if (name == "Factory" || name == "localtime" || name == "posixrules") continue;
      CAPTURE(name);
      const auto found = zones.find(name);
      REQUIRE(found.has_value());
      CHECK((*found)->name() == name);
      CHECK(zones.find(name)->get() == found->get());
    }
  }

  TEST_CASE("an unknown name is refused with the nearest one, if one is near") {
    const auto& zones = TimeZones::of_system();
    const auto message = [&](std::string_view name) {
      const auto found = zones.find(name);
      return found ? std::string("(found)") : found.error().message;
    };
    CHECK(message("Europe/Berln") ==
          "\"Europe/Berln\" is not a time zone; did you mean Europe/Berlin?");
    CHECK(message("europe/berlin").ends_with("did you mean Europe/Berlin?"));
    CHECK(message("Berlin").ends_with("did you mean Europe/Berlin?"));
    CHECK(message("America/New York").ends_with("did you mean America/New_York?"));
    CHECK(message("Europe/Kiew").ends_with("did you mean Europe/Kiev?"));
    CHECK(message("utc").ends_with("did you mean UTC?"));
    // Abbreviations are all near to one another.
    CHECK(message("PST") ==
          "\"PST\" is not a time zone; write an IANA name such as Europe/Berlin or UTC");
    CHECK(
        message("Mars/Olympus_Mons").ends_with("write an IANA name such as Europe/Berlin or UTC"));
    CHECK(message(std::string(10'000, 'E')).size() < 200);
    CHECK(message("Europe/\x1b[2J\n") ==
          "\"Europe/\\x1b[2J\\x0a\" is not a time zone; write an IANA name such as Europe/Berlin "
          "or UTC");
  }

  TEST_CASE("an unknown name is compared with few others, and none of them is passed over") {
    const auto names = names_of_system();
    REQUIRE(names.size() > 300);
    const TimeZones zones("/usr/share/zoneinfo");
    const auto near_to = [](std::string_view name) {
      return fmt::format("did you mean {}?", name);
    };
    constexpr std::size_t each = 8;  // Of some six hundred.
    std::uint64_t asked = 0;
    // One character of a long name is another one, so it is near to this name and hardly to others.
    for (const auto& name : names) {
      if (name.size() < 12 || name.size() > 60) continue;
      std::string wrong = name;
      wrong[name.size() / 2] = '#';
      CAPTURE(wrong);
      const auto found = zones.find(wrong);
      REQUIRE_FALSE(found.has_value());
      CHECK(found.error().message.contains("did you mean "));
      ++asked;
    }
    CHECK(zones.find("Europe/Ber#in").error().message.ends_with(near_to("Europe/Berlin")));
    CHECK(
        zones.find("Antarctica/Mc#urdo").error().message.ends_with(near_to("Antarctica/McMurdo")));
    // The letters of others in another order.
    for (const char* name :
         {"Aerica/Ntarctcaoes", "Amerita/Indeana/Pitirsbrug", "Aciremag/Kerri"}) {
      CHECK(zones.find(name).error().message.ends_with("or UTC"));
      ++asked;
    }
    CHECK(asked > 200);
    CHECK(zones.compared() < each * asked);
  }

  TEST_CASE("no name leads out of the directory, to a folder, or to a file that is not a zone") {
    for (const char* name :
         {"", "/etc/passwd", "../../../etc/passwd", "Europe", "Europe/", "posix/UTC",
          "right/Europe/Berlin", "zone.tab", "tzdata.zi", "localtime", "Factory",
          "Europe/../Europe/Berlin", "Europe//Berlin", "./UTC"}) {
      CAPTURE(name);
      const auto found = TimeZones::of_system().find(name);
      REQUIRE_FALSE(found.has_value());
      CHECK(found.error().code == Errc::not_found);
    }
    CHECK_FALSE(TimeZones::of_system().find(std::string_view("Europe/Berlin\0", 14)).has_value());
  }

  TEST_CASE("a damaged file is an error that names the zone") {
    char made[] = "/tmp/tarry-zones-XXXXXX";
    REQUIRE(::mkdtemp(made) != nullptr);
    std::filesystem::create_directory(std::string(made) + "/Made");
    std::ofstream(std::string(made) + "/Made/Up") << "no zone";
    const TimeZones zones(made);
    const auto found = zones.find("Made/Up");
    REQUIRE_FALSE(found.has_value());
    CHECK(found.error().code == Errc::corrupt);
    CHECK(found.error().message ==
          "the file of time zone Made/Up is damaged: it is not a TZif file");
    std::filesystem::remove_all(made);
  }
}

}  // namespace
}  // namespace tarry::delay
