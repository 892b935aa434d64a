#include "cli/commands/top.h"

#include <unistd.h>

#include <chrono>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <thread>
#include <utility>

#include <fmt/core.h>

#include "base/log.h"
#include "base/time_text.h"
#include "cli/admin_choice.h"
#include "cli/command_tree.h"
#include "cli/io/exit_status.h"
#include "cli/io/interrupt.h"
#include "cli/io/json.h"
#include "cli/io/json_path.h"
#include "cli/io/output.h"
#include "cli/io/screen.h"
#include "cli/io/style.h"
#include "cli/options.h"
#include "cli/time_word.h"
#include "cli/top_screen.h"

namespace tarry::cli {
namespace {

using namespace std::chrono_literals;
using std::chrono::milliseconds;
using std::chrono::steady_clock;

constexpr std::size_t due_asked = 40;
// Each look asks for four answers, one of which reads the store.
constexpr auto min_interval = 200ms;

struct TopOptions {
  BrokerOptions broker;
  std::string every = "2s";
  bool once = false;
};

// One look at the broker.
class Sampler {
 public:
  Sampler(AdminClient& admin, std::string address) : admin_(admin), address_(std::move(address)) {}

  Result<TopSample> look() {
    TopSample sample;
    sample.admin = address_;
    const auto status = asked("/status");
    if (!status) return std::unexpected(status.error());
    put_status(*status, sample);
    const auto topics = asked("/topics");
    if (!topics) return std::unexpected(topics.error());
    for (const auto& topic : list_in(*topics, "topics")) {
      sample.topics.push_back({text_at(topic, "/name"), number_at(topic, "/partitions"),
                               number_at(topic, "/pending"), number_at(topic, "/offsets"),
                               number_at(topic, "/bytes")});
    }
    // Without a beginning, records that are stuck would be all that it lists.
    const auto due = asked(fmt::format("/delayed?from=now&limit={}", due_asked));
    if (!due) return std::unexpected(due.error());
    for (const auto& record : list_in(*due, "records")) {
      const auto id = text_at(record, "/id");
      sample.due.push_back({text_at(record, "/topic"), id.empty() ? text_at(record, "/handle") : id,
                            text_at(record, "/key"),
                            time_at(record, "/due_ms").value_or(WallTime{})});
    }
    put_groups(sample);
    // At the end: the rates are over the time between two answers.
    sample.at = wall_now();
    return sample;
  }

 private:
  Result<Json> asked(const std::string& target) {
    const auto body = admin_.get(target);
    if (!body) return std::unexpected(body.error());
    Json json = parse_json(*body);
    if (json.is_object()) return json;
    return fail(Errc::io,
                fmt::format("the admin's answer is not a JSON object: {}", printable(*body)));
  }

  static Json list_in(const Json& json, const char* name) {
    return json.contains(name) && json[name].is_array() ? json[name] : Json::array();
  }

  static void put_status(const Json& status, TopSample& sample) {
    sample.version = text_at(status, "/version");
    sample.state = text_at(status, "/state");
    sample.uptime = milliseconds(number_at(status, "/uptime_ms"));
    sample.window = milliseconds(number_at(status, "/window_ms"));
    sample.pending = number_at(status, "/delayed/pending");
    sample.overdue = number_at(status, "/delayed/overdue");
    sample.next_due = time_at(status, "/delayed/next_due");
    sample.connections = number_at(status, "/connections");
    sample.memory_bytes = number_at(status, "/process/rss_bytes");
    sample.disk_bytes = number_at(status, "/storage/bytes");
    sample.lag_p50 = figure_at(status, "/delayed/lag_ms/p50");
    sample.lag_p99 = figure_at(status, "/delayed/lag_ms/p99");
    sample.lag_max = figure_at(status, "/delayed/lag_ms/max");
    sample.requests = number_at(status, "/requests_total");
    sample.appended = number_at(status, "/appended_records_total");
    sample.delivered = number_at(status, "/delayed/delivered_total");
    sample.cancelled = number_at(status, "/delayed/cancelled_total");
    sample.cpu_seconds = figure_at(status, "/process/cpu_seconds");
  }

  void put_groups(TopSample& sample) {
    const auto groups = asked("/groups");
    // The rest of the sample is shown without them.
    if (!groups) return;
    for (const auto& group : list_in(*groups, "groups")) {
      // The lag is unknown while one of the group's partitions is closed.
      const bool has_lag = group.contains("lag") && group["lag"].is_number();
      sample.groups.push_back({text_at(group, "/group"), text_at(group, "/state"),
                               number_at(group, "/members"),
                               has_lag ? std::optional(number_at(group, "/lag")) : std::nullopt});
    }
  }

  AdminClient& admin_;
  const std::string address_;
};

Json json_of(const TopSample& now, const TopSample& before) {
  const auto between = std::chrono::duration_cast<milliseconds>(now.at - before.at);
  Json json{{"at_ms", to_ms(now.at)},
            {"state", now.state},
            {"pending", now.pending},
            {"overdue", now.overdue},
            {"next_due_ms", now.next_due ? Json(to_ms(*now.next_due)) : Json(nullptr)},
            {"requests_per_s", rate_of(now.requests, before.requests, between)},
            {"appended_per_s", rate_of(now.appended, before.appended, between)},
            {"delivered_per_s", rate_of(now.delivered, before.delivered, between)},
            {"cancelled_per_s", rate_of(now.cancelled, before.cancelled, between)},
            {"lag_ms", {{"p50", now.lag_p50}, {"p99", now.lag_p99}, {"max", now.lag_max}}}};
  json["due"] = json["topics"] = json["groups"] = Json::array();
  for (const auto& each : now.due)
    json["due"].push_back({{"topic", each.topic},
                           {"name", each.name},
                           {"key", each.key},
                           {"due_ms", to_ms(each.due)}});
  for (const auto& each : now.topics)
    json["topics"].push_back(
        {{"topic", each.name}, {"pending", each.pending}, {"records", each.records}});
  for (const auto& each : now.groups)
    json["groups"].push_back({{"group", each.name},
                              {"state", each.state},
                              {"lag", each.lag ? Json(*each.lag) : Json(nullptr)}});
  return json;
}

// Two looks, so that there are rates.
int print_once(Sampler& sampler, const TopOptions& options, milliseconds every) {
  end_in_order_on_signals();
  // Its rates are those since the look before.
  const auto before = sampler.look();
  if (!before) return failure(before.error().message);
  const auto until = steady_clock::now() + every;
  // In short steps, so that an interrupt ends the wait.
  while (steady_clock::now() < until && !was_interrupted()) std::this_thread::sleep_for(50ms);
  const auto now = sampler.look();
  if (!now) return failure(now.error().message);
  Output out;
  if (options.broker.json) {
    out.line(text_of(json_of(*now, *before)));
  } else {
    out.line(
        top_text(*now, &*before, {out.width(), 0, out.is_terminal() && colours_allowed(), {}}));
  }
  return out.end(done);
}

int live(Sampler& sampler, milliseconds every) {
  // A broker that cannot be asked is said before the screen is taken.
  auto now = sampler.look();
  if (!now) return failure(now.error().message);
  std::optional<TopSample> before;
  std::string problem;
  Screen screen(STDIN_FILENO, STDOUT_FILENO);
  while (true) {
    const auto size = screen.size();
    const TopLayout layout{size.columns, size.rows, colours_allowed(), problem};
    if (!screen.show(top_text(*now, before ? &*before : nullptr, layout))) return done;
    char key = 0;
    const auto event = screen.wait(every, key);
    if (event == Screen::Event::ended ||
        (event == Screen::Event::key && (key == 'q' || key == 'Q')))
      return done;
    // The samples are drawn anew: another look would make the rates those of a moment.
    if (event == Screen::Event::resized) continue;
    if (event == Screen::Event::key && key != ' ') continue;
    auto next = sampler.look();
    // A signal may have come while the broker was asked.
    if (screen.ended()) return done;
    if (next) {
      before = std::move(*now);
      *now = std::move(*next);
      problem.clear();
    } else {
      // Both samples stay as they are, so the next rates cover the gap.
      problem = "these figures are old: " + next.error().message;
    }
  }
}

int run(const TopOptions& options) {
  const auto every = *parse_duration(options.every);
  if (every < min_interval)
    return usage_error(
        fmt::format("--every: {} is too short; give 200ms or more", printable(options.every)));
  auto admin = choose_admin(options.broker, AdminUse::reads);
  if (!admin) return admin.error().report();
  Sampler sampler(*admin, options.broker.admin);
  const bool has_terminal = ::isatty(STDIN_FILENO) == 1 && ::isatty(STDOUT_FILENO) == 1;
  if (options.once || options.broker.json || !has_terminal)
    return print_once(sampler, options, every);
  return live(sampler, every);
}

}  // namespace

void add_top(CLI::App& program, Chosen& chosen) {
  auto options = std::make_shared<TopOptions>();
  auto* command = program.add_subcommand(
      "top", "Shows a broker live: rates, lag, what is due next, topics and groups; q quits");
  add_broker_options(*command, options->broker);
  add_data_option(*command, options->broker);
  command->add_option("--every", options->every, "The time between two updates (default 2s)")
      ->option_text("D")
      ->check(is_duration)
      ->take_last();
  command->add_flag("--once", options->once,
                    "Prints one update in the format for output that is not a terminal, and ends");
  add_examples(*command, {"tarry top", "tarry top --once --every 5s"});
  command->callback([options, &chosen] { chosen.run = [options] { return run(*options); }; });
}

}  // namespace tarry::cli
