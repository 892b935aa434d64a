#include "cli/pending_note.h"

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <utility>

#include <fmt/core.h>

#include "base/percent_encoding.h"
#include "cli/admin_choice.h"
#include "cli/admin_client.h"
#include "cli/io/exit_status.h"
#include "cli/io/host_port.h"
#include "cli/io/json.h"
#include "cli/io/number_text.h"
#include "cli/io/text.h"
#include "cli/kafka/admin.h"
#include "cli/local_time.h"
#include "cli/time_word.h"

namespace tarry::cli {
namespace {

using namespace std::chrono_literals;
using std::chrono::steady_clock;

AdminSettings admin_settings_until(const BrokerOptions& options,
                                   steady_clock::time_point deadline) {
  auto settings = admin_settings(options);
  settings.deadline = deadline;
  return settings;
}

// The admin's address may be the default, and that of another broker.
bool is_of_same_broker(AdminClient& admin, const BrokerOptions& options,
                       steady_clock::time_point deadline) {
  const auto of_admin = run_of(admin);
  if (!of_admin) return false;
  auto settings = options.kafka();
  settings.deadline = deadline;
  auto kafka = KafkaAdmin::open(settings);
  if (!kafka) return false;
  const auto of_kafka = run_of(*kafka, *of_admin);
  return of_kafka && *of_kafka == *of_admin;
}

std::string ask_for_pending(const BrokerOptions& options, const std::string& topic) {
  // Nothing that goes wrong here is an error of the command, which has read what there was.
  if (!parse_host_port(options.admin)) return {};
  // One for all steps, each of which could take the whole timeout.
  const auto deadline = steady_clock::now() + options.timeout;
  AdminClient admin(admin_settings_until(options, deadline));
  if (!is_of_same_broker(admin, options, deadline)) return {};
  const auto of_topic = [&](const char* path) {
    const auto body = admin.get(fmt::format("{}topic={}", path, percent_encoded(topic)));
    return body ? parse_json(*body) : Json();
  };
  // An answer of another form gives no note, which is better than a wrong one.
  const Json count = of_topic("/delayed/count?");
  if (!count.is_object() || !count.contains("total") || !count["total"].is_number_unsigned())
    return {};
  const Json page = of_topic("/delayed?limit=1&");
  std::optional<WallTime> next;
  if (page.is_object() && page.contains("records") && page["records"].is_array() &&
      !page["records"].empty()) {
    const Json& first = page["records"][0];
    if (first.is_object() && first.contains("due_ms") && first["due_ms"].is_number_integer())
      next = from_ms(first["due_ms"].get<std::int64_t>());
  }
  return pending_text(count["total"].get<std::uint64_t>(), next, wall_now());
}

}  // namespace

std::string pending_text(std::uint64_t pending, std::optional<WallTime> next_due, WallTime now) {
  if (pending == 0) return {};
  std::string text = grouped(pending) + " pending";
  if (!next_due) return text;
  if (*next_due <= now) return text + ", next is due now";
  return fmt::format("{}, next {}", text, rough_distance(*next_due - now));
}

std::string elsewhere_text(const std::string& topic, const std::string& id,
                           std::vector<PartitionIndex> pending_in, PartitionIndex went_to,
                           const std::string& flags) {
  std::ranges::sort(pending_in);  // The admin has them by due time.
  std::erase(pending_in, went_to);
  if (pending_in.empty()) return {};
  std::string others;
  for (const auto partition : pending_in)
    others += (others.empty() ? "" : ", ") + std::to_string(partition);
  const bool is_one = pending_in.size() == 1;
  // Without -p the command would also cancel the record that was just sent.
  return fmt::format(
      "{}: this went to partition {}, and the id is pending in {} {} too, which it does not "
      "change; `tarry delayed cancel {} {} -p {}{}` cancels {}",
      cell(id), went_to, is_one ? "partition" : "partitions", others, cell(topic), cell(id),
      pending_in.front(), flags, is_one ? "that one" : "the first of these");
}

std::string elsewhere_note(BrokerOptions options, const std::string& topic, const std::string& id,
                           PartitionIndex went_to) {
  options.timeout = std::min(options.timeout, PendingNote::max_wait);
  options.timeout_given = false;
  if (!parse_host_port(options.admin)) return {};
  const auto deadline = steady_clock::now() + options.timeout;
  AdminClient admin(admin_settings_until(options, deadline));
  // The defaults of both addresses belong together; one that was given may name another broker.
  if ((options.brokers_given || options.admin_given) &&
      !is_of_same_broker(admin, options, deadline)) {
    return {};
  }
  const auto body =
      admin.get(fmt::format("/delayed/{}/{}", percent_encoded(topic), percent_encoded(id)));
  const Json found = body ? parse_json(*body) : Json();
  if (!found.is_object() || !found.contains("partitions") || !found["partitions"].is_array())
    return {};
  std::vector<PartitionIndex> pending_in;
  for (const auto& partition : found["partitions"])
    if (partition.is_number_integer()) pending_in.push_back(partition.get<PartitionIndex>());
  return elsewhere_text(topic, id, std::move(pending_in), went_to, broker_flags(options));
}

PendingNote::PendingNote(const BrokerOptions& options, std::string topic)
    : options_(options), topic_(std::move(topic)) {
  options_.timeout = std::min(options_.timeout, max_wait);
  options_.timeout_given = false;  // A broker that is starting has nothing to read either.
}

// The future's own destructor waits for the thread.
PendingNote::~PendingNote() = default;

void PendingNote::on_empty() {
  if (std::exchange(was_asked_, true)) return;
  asked_ = std::async(std::launch::async, [options = options_, topic = topic_] {
    return ask_for_pending(options, topic);
  });
}

void PendingNote::print_answer() {
  if (asked_.valid() && asked_.wait_for(0s) == std::future_status::ready) say();
}

void PendingNote::say() {
  if (!asked_.valid()) return;
  const std::string text = asked_.get();
  if (!text.empty()) complain(fmt::format("{}: {}", cell(topic_), text));
}

}  // namespace tarry::cli
