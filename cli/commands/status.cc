#include "cli/commands/status.h"

#include <chrono>
#include <cmath>
#include <cstdint>
#include <memory>
#include <string>
#include <thread>

#include <fmt/core.h>

#include "base/clock.h"
#include "base/log.h"
#include "base/time_text.h"
#include "cli/admin_choice.h"
#include "cli/command_tree.h"
#include "cli/io/exit_status.h"
#include "cli/io/interrupt.h"
#include "cli/io/json.h"
#include "cli/io/json_path.h"
#include "cli/io/number_text.h"
#include "cli/io/output.h"
#include "cli/io/table.h"
#include "cli/io/text.h"
#include "cli/local_time.h"
#include "cli/options.h"
#include "cli/time_word.h"

namespace tarry::cli {
namespace {

using namespace std::chrono_literals;
using std::chrono::milliseconds;
using std::chrono::steady_clock;

constexpr auto watch_every = 1s;

struct StatusOptions {
  BrokerOptions broker;
  bool watch = false;
};

// The values of an answer as cells of a table; "-" for a value that it does not have.
class Answer {
 public:
  explicit Answer(const Json& json) : json_(json) {}

  const Json* find(const char* path) const { return find_at(json_, path); }
  std::string text(const char* path) const {
    const Json* value = find(path);
    if (value == nullptr) return "-";
    if (value->is_number_unsigned()) return grouped(value->get<std::uint64_t>());
    if (value->is_number_float()) return figure_text(value->get<double>());
    // Text from the network may hold control characters, which cell() makes visible.
    return cell(value->is_string() ? value->get<std::string>() : text_of(*value));
  }
  std::string number(const char* path) const {  // Without grouping: an id, a port.
    const Json* value = find(path);
    return value == nullptr ? "-" : cell(text_of(*value));
  }
  std::string bytes(const char* path) const {
    const Json* value = find(path);
    return value != nullptr && value->is_number_unsigned() ? size_text(value->get<std::uint64_t>())
                                                           : "-";
  }
  std::string sum_of_bytes(const char* one, const char* other) const {
    const Json *first = find(one), *second = find(other);
    const bool is_known = first != nullptr && second != nullptr && first->is_number_unsigned() &&
                          second->is_number_unsigned();
    return is_known ? size_text(first->get<std::uint64_t>() + second->get<std::uint64_t>()) : "-";
  }
  std::string duration(const char* path) const {
    const Json* value = find(path);
    if (value == nullptr || !value->is_number()) return "-";
    const milliseconds time(static_cast<std::int64_t>(value->get<double>()));
    // From ten seconds on nobody needs the milliseconds.
    return format_duration(time >= 10s ? std::chrono::floor<std::chrono::seconds>(time) : time);
  }
  std::string milliseconds_of(const char* path) const {
    const Json* value = find(path);
    return value != nullptr && value->is_number() ? milliseconds_text(value->get<double>()) : "-";
  }
  // "2026-11-21T11:00:00.250+01:00, in 29m" on a terminal.
  std::string time(const char* path, const Output& out) const {
    const auto at = time_at(json_, path);
    if (!at) return "-";
    if (!out.is_terminal()) return format_time(*at);
    return fmt::format("{}, {}", local_time(*at, true), rough_distance(*at - wall_now()));
  }

 private:
  const Json& json_;
};

void show(const Json& json, Output& out) {
  const Answer status(json);
  Table table({{""}, {.head = "", .wraps = true}});
  const auto row = [&](const char* name, std::string value, Style style = Style::plain) {
    table.row({name, std::move(value)}, style);
  };
  row("state", fmt::format("{}, up {}", status.text("/state"), status.duration("/uptime_ms")));
  row("version", status.text("/version"));
  row("cluster", fmt::format("{}, node {}", status.text("/cluster_id"), status.number("/node_id")));
  row("kafka", status.text("/listeners/kafka"));
  row("admin", status.text("/listeners/admin"));
  row("data", fmt::format("{}, {}", status.text("/data"), status.bytes("/storage/bytes")));
  // That of the data directory first, and of log.dirs if it is elsewhere.
  if (const Json* disks = status.find("/storage/file_systems");
      disks != nullptr && disks->is_array()) {
    const bool is_full = status.text("/state") == "disk full";
    for (const auto& each : *disks) {
      const Answer disk(each);
      // As df and the doctor count: what is kept for root is neither used nor free.
      row("disk",
          fmt::format("{}: {} of {} free; below {} no records are accepted",
                      disk.text("/directory"), disk.bytes("/free_bytes"),
                      disk.sum_of_bytes("/used_bytes", "/free_bytes"),
                      status.bytes("/storage/reserve_bytes")),
          is_full ? Style::red : Style::plain);
    }
  }
  const Json* shards = status.find("/shards");
  row("shards", shards != nullptr && shards->is_array() ? std::to_string(shards->size()) : "-");
  row("topics",
      fmt::format("{}, {} partitions", status.text("/topics"), status.text("/partitions")));
  row("connections", fmt::format("{} of at most {}", status.text("/connections"),
                                 status.text("/max_connections")));
  row("pending", status.text("/delayed/pending"));
  row("next due", status.time("/delayed/next_due", out));
  // Records are overdue for a moment only, so a line that stays red deserves a look.
  row("overdue", status.text("/delayed/overdue"),
      status.number("/delayed/overdue") == "0" ? Style::plain : Style::red);
  row("delivered", fmt::format("{}, {} of them early", status.text("/delayed/delivered_total"),
                               status.text("/delayed/early_total")));
  row("cancelled", status.text("/delayed/cancelled_total"));
  row("lag",
      fmt::format("p50 {}, p99 {}, max {}, in the last {}",
                  status.milliseconds_of("/delayed/lag_ms/p50"),
                  status.milliseconds_of("/delayed/lag_ms/p99"),
                  status.milliseconds_of("/delayed/lag_ms/max"), status.duration("/window_ms")));
  row("wheel", fmt::format("{} timers", status.text("/wheel/timers")));
  if (const Json* purgatory = status.find("/purgatory");
      purgatory != nullptr && purgatory->is_object()) {
    std::string waiting;
    // The kinds are the broker's own words: one that is added there is shown without a change here.
    for (const auto& [kind, counts] : purgatory->items()) {
      waiting += fmt::format("{}{} {}", waiting.empty() ? "" : ", ", cell(kind),
                             Answer(counts).text("/waiting"));
    }
    row("waiting", waiting.empty() ? "-" : waiting);
  }
  row("fsyncs", status.text("/storage/fsyncs_total"));
  row("memory", status.bytes("/process/rss_bytes"));
  row("cpu", fmt::format("{} s", status.text("/process/cpu_seconds")));
  row("open files", status.text("/process/open_fds"));
  table.print(out);
}

int run(const StatusOptions& options) {
  auto admin = choose_admin(options.broker, AdminUse::reads);
  if (!admin) return admin.error().report();
  Output out;
  // --watch is ended by Ctrl-C as a rule, which must not cut an answer off in the middle.
  end_in_order_on_signals();
  for (bool first = true;; first = false) {
    const auto body = admin->get("/status");
    if (!body) return out.end(failure(body.error().message));
    const Json status = parse_json(*body);
    // Some other server may listen at that address.
    if (!status.is_object())
      return out.end(
          failure(fmt::format("the admin's answer is not a JSON object: {}", printable(*body))));
    if (options.broker.json) {
      out.line(text_of(status));
    } else {
      if (options.watch && out.is_terminal()) {
        out.write("\x1b[H\x1b[2J");  // To the top of an empty screen.
      } else if (!first) {
        // A pipe or a file cannot be cleared, so an empty line separates the answers.
        out.line("");
      }
      show(status, out);
    }
    out.flush();
    // In short steps, so that an interrupt ends the wait.
    const auto until = steady_clock::now() + watch_every;
    while (options.watch && steady_clock::now() < until && !was_interrupted())
      std::this_thread::sleep_for(50ms);
    if (!options.watch || was_interrupted() || out.is_over()) return out.end(done);
  }
}

}  // namespace

void add_status(CLI::App& program, Chosen& chosen) {
  auto options = std::make_shared<StatusOptions>();
  auto* command = program.add_subcommand("status", "Shows what a broker is doing");
  add_broker_options(*command, options->broker);
  add_data_option(*command, options->broker);
  command->add_flag("--watch", options->watch, "Repeats the output every second");
  add_examples(*command, {"tarry status", "tarry status --watch"});
  command->callback([options, &chosen] { chosen.run = [options] { return run(*options); }; });
}

}  // namespace tarry::cli
