#include "cli/checkup.h"

#include <algorithm>
#include <chrono>
#include <utility>

#include <fmt/core.h>

#include "base/log.h"
#include "cli/io/json.h"
#include "cli/io/json_path.h"
#include "cli/io/number_text.h"
#include "cli/io/text.h"
#include "cli/local_time.h"

namespace tarry::cli {
namespace {

using Level = Finding::Level;

// Below it a broker has little time until it is full.
constexpr double little_space = 0.1;
// A checkpoint writes at most so much: the rows that may gather in memory, those that come while
// the disk is asked, and what is written beside them (broker/checkpoint).
constexpr std::uint64_t checkpoint_bytes = std::uint64_t{64} << 20;
// A broker with fewer has hardly room for its own files.
constexpr std::uint64_t few_files = 4096;
// A certificate that ends within this time should be renewed now.
constexpr std::chrono::days renewal_time{30};
// The rest of the machine's memory is for other programs and for the page cache.
constexpr double max_memory_share = 0.9;
// The lateness up to which a delivery is still useful to most.
constexpr double late_ms = 1000;
// A burst, or what was due during a pause, may take so long; a record that is overdue for longer
// waits for something that somebody has to do.  (As in packaging/alerts.yml.)
constexpr std::chrono::seconds long_overdue{30}, stuck_overdue{300};

struct FileSystem {
  std::uint64_t type;
  const char* name;
  Level level;
  const char* advice;  // Empty if it is ok.
};
// The numbers of statfs(2).
constexpr FileSystem file_systems[] = {
    {0xEF53, "ext4", Level::ok, ""},
    {0x58465342, "xfs", Level::ok, ""},
    {0x9123683E, "btrfs", Level::ok, ""},
    {0x2FC12FC1, "zfs", Level::ok, ""},
    {0x01021994, "tmpfs", Level::warning,
     "it is in memory, and is empty after a restart of the machine; give --data a directory on a "
     "disk"},
    {0x794C7630, "overlayfs", Level::warning,
     "it is in the container's own layer, and is deleted with the container; mount a volume for "
     "--data"},
    {0x6969, "nfs", Level::warning,
     "a network file system may lose locks and syncs; give --data a directory on a local disk"},
    {0xFF534D42, "cifs", Level::warning,
     "a network file system may lose locks and syncs; give --data a directory on a local disk"},
};

std::string word_in(const Json& status, const char* name) {
  return status.contains(name) && status[name].is_string() ? status[name].get<std::string>()
                                                           : std::string();
}
// An array or an object; empty if the answer has something else there.
Json part_of(const Json& status, const char* name) {
  return status.contains(name) && status[name].is_structured() ? status[name] : Json::object();
}

Finding check_shards(const Json& status) {
  std::string full;
  for (const auto& shard : part_of(status, "shards"))
    if (shard.is_object() && shard.contains("has_room") && shard["has_room"] == false)
      full += (full.empty() ? "" : ", ") + std::to_string(number_at(shard, "/shard"));
  if (full.empty()) return {"room for records", Level::ok, "every shard accepts records"};
  if (word_in(status, "state") != "disk full") {
    return {"room for records", Level::problem,
            fmt::format("shard {} refuses records; the broker's log says why", full)};
  }
  return {
      "room for records", Level::problem,
      fmt::format(
          "shard {} refuses records because the disk is full; free some space, or delete topics",
          full)};
}

Finding check_partitions(const Json& status) {
  constexpr std::size_t max_named = 3;
  const Json out = part_of(status, "out_of_service");
  std::string names;
  std::size_t named = 0;
  for (const auto& each : out) {
    if (!each.is_object()) continue;
    if (++named > max_named) break;
    names += fmt::format("{}{}-{} ({})", names.empty() ? "" : "; ", cell(text_at(each, "/topic")),
                         number_at(each, "/partition"), cell(text_at(each, "/reason")));
  }
  if (named == 0) return {"partitions", Level::ok, "every open partition is in service"};
  if (named > max_named) names += "; /status names the others";
  return {"partitions", Level::problem,
          fmt::format("out of service: {}; their pending records are kept: stop the broker, run "
                      "`tarry repair` and start it again, or remove the cause",
                      names)};
}

Finding check_refusals(const Json& status) {
  std::string errors;
  const Json counts = part_of(status, "produce_errors");
  for (const auto& [name, count] : counts.items())
    errors += fmt::format("{}{} {}", errors.empty() ? "" : ", ", cell(text_of(count)), cell(name));
  // A warning at most: the batches may have been refused for mistakes of their producers.
  if (errors.empty()) return {"refusals", Level::ok, "no batch of records was refused"};
  return {"refusals", Level::warning,
          fmt::format("batches refused since the start: {}; the log says why", errors)};
}

Finding check_deliveries(const Json& status) {
  const auto overdue = number_at(status, "/delayed/overdue");
  const auto early = number_at(status, "/delayed/early_total");
  const auto damaged = number_at(status, "/delayed/damaged_total");
  const double lag = figure_at(status, "/delayed/lag_ms/p99");
  // Only the worst is reported.
  if (damaged != 0) {
    return {"deliveries", Level::problem,
            fmt::format("{} could not be read; the log names each",
                        counted(damaged, "pending record", "pending records"))};
  }
  if (early != 0) {
    return {"deliveries", Level::problem,
            fmt::format("{} delivered before the due time; check the machine's clock",
                        counted(early, "record", "records"))};
  }
  // The lag is that of records that were delivered, and those that are stuck are not among them.
  const auto oldest = time_at(status, "/delayed/next_due");
  const auto at = from_ms(static_cast<std::int64_t>(number_at(status, "/at_ms")));
  if (overdue > 0 && oldest && at - *oldest > long_overdue) {
    return {
        "deliveries", at - *oldest > stuck_overdue ? Level::problem : Level::warning,
        fmt::format("{} overdue, the oldest for {}; `tarry delayed list --to now` lists them, and "
                    "the broker's log says why",
                    counted(overdue, "record is", "records are"), rough_duration(at - *oldest))};
  }
  if (lag > late_ms) {
    return {
        "deliveries", Level::warning,
        fmt::format("in the last five minutes one delivery in a hundred was late by {} or more, {}",
                    milliseconds_text(lag),
                    overdue > 0 ? "and records are overdue now; `tarry top` shows what is due"
                                : "but nothing is overdue now: expected if records fell due "
                                  "while the broker did not run; otherwise look at the disk")};
  }
  return {"deliveries", Level::ok,
          fmt::format("p99 of the lag: {}, overdue records: {}", milliseconds_text(lag),
                      grouped(overdue))};
}

Finding check_connections(const Json& status) {
  const auto now = number_at(status, "/connections"), limit = number_at(status, "/max_connections");
  const std::string text = fmt::format("{} of at most {}", grouped(now), grouped(limit));
  // A warning from nine tenths on, because a client beyond the limit sees no more than a closed
  // connection.
  if (limit == 0 || now * 10 < limit * 9) return {"connections", Level::ok, text};
  return {"connections", Level::warning,
          text + "; raise max.connections and the limit of open files, or use fewer"};
}

// The broker tells how many connections its limit of open files allows.
Finding check_served(const Json& status) {
  const auto served = number_at(status, "/max_connections");
  const auto wanted = number_at(status, "/wanted_connections");
  if (served >= wanted) {
    return {"open files", Level::ok,
            fmt::format("the limit allows {} connections", grouped(served))};
  }
  return {"open files", Level::warning,
          fmt::format("the limit allows {} connections, but max.connections is {}; raise it if you "
                      "need that many (`ulimit -n`, LimitNOFILE=)",
                      grouped(served), wanted)};
}

std::vector<Finding> check_open_listeners(const Json& status) {
  std::vector<Finding> findings;
  for (const auto& address : part_of(status, "open_listeners"))
    if (address.is_string())
      findings.push_back(check_access(address.get<std::string>(), false, false));
  if (findings.empty()) {
    findings.push_back(
        {"access", Level::ok, "no listener gives other machines access without a login"});
  }
  return findings;
}

}  // namespace

std::string_view word_of(Level level) {
  switch (level) {
    case Level::ok:
      return "ok";
    case Level::warning:
      return "warning";
    case Level::problem:
      break;
  }
  return "problem";
}

Finding check_open_files(std::uint64_t limit, std::uint64_t wanted, std::uint64_t served) {
  const std::string text =
      fmt::format("the limit is {}, enough for {} connections", grouped(limit), grouped(served));
  if (limit < few_files) {
    return {"open files", Level::problem,
            text + fmt::format("; raise it to {} or more (`ulimit -n`, LimitNOFILE=)", few_files)};
  }
  if (served >= wanted) return {"open files", Level::ok, text};
  return {"open files", Level::warning,
          fmt::format("{}, not max.connections={}; raise it if you need so many connections "
                      "(`ulimit -n`, LimitNOFILE=)",
                      text, wanted)};
}

std::vector<Finding> check_disk(const DiskFacts& disk) {
  std::vector<Finding> findings;
  const std::string free = fmt::format("{}: {} of {} free", cell(disk.directory),
                                       size_text(disk.free_bytes), size_text(disk.total_bytes));
  if (disk.total_bytes < disk.reserve_bytes) {
    findings.push_back({"disk space", Level::problem,
                        fmt::format("{}, and the disk is smaller than "
                                    "tarry.disk.reserve.bytes={}: records are refused; lower the "
                                    "reserve, or give a larger disk",
                                    free, disk.reserve_bytes)});
  } else if (disk.free_bytes < disk.reserve_bytes) {
    findings.push_back(
        {"disk space", Level::problem,
         fmt::format(
             "{}, less than tarry.disk.reserve.bytes={}: records would be refused; free some space",
             free, disk.reserve_bytes)});
  } else if (disk.total_bytes < disk.reserve_bytes + disk.journal_bytes) {
    findings.push_back(
        {"disk space", Level::warning,
         fmt::format("{}, but journals and tarry.disk.reserve.bytes alone may take {}: lower "
                     "tarry.journal.max.bytes or tarry.shards, or add a disk",
                     free, size_text(disk.reserve_bytes + disk.journal_bytes))});
  } else if (static_cast<double>(disk.free_bytes) <
             little_space * static_cast<double>(disk.total_bytes)) {
    findings.push_back({"disk space", Level::warning, free + "; free some space, or add a disk"});
  } else {
    findings.push_back({"disk space", Level::ok, free});
  }
  // Some file systems have no fixed number of them, and say 0.
  if (disk.total_inodes > 0 && disk.free_inodes < few_files) {
    findings.push_back({"disk space", Level::warning,
                        fmt::format("{}: only {} more files can be created; delete some",
                                    cell(disk.directory), disk.free_inodes)});
  }
  const auto* known = std::ranges::find(file_systems, disk.file_system, &FileSystem::type);
  // Only a known weakness of a file system is worth a warning.
  if (known == std::end(file_systems)) {
    findings.push_back({"file system", Level::ok, fmt::format("type {:#x}", disk.file_system)});
  } else {
    findings.push_back({"file system", known->level,
                        known->level == Level::ok
                            ? std::string(known->name)
                            : fmt::format("{}: {}", known->name, known->advice)});
  }
  if (disk.takes_direct) {
    findings.push_back(
        *disk.takes_direct
            ? Finding{"O_DIRECT", Level::ok, "writes bypass the page cache"}
            : Finding{"O_DIRECT", Level::warning,
                      "the file system refuses it: writes go through the page cache, and are "
                      "slower; use ext4 or xfs"});
  }
  return findings;
}

Finding check_reserve(std::uint64_t reserve_bytes) {
  const std::string text = fmt::format("tarry.disk.reserve.bytes={}", reserve_bytes);
  if (reserve_bytes >= checkpoint_bytes) return {"disk reserve", Level::ok, text};
  return {"disk reserve", Level::warning,
          fmt::format("{}, but a checkpoint may need {}, and on a full disk the space of cancelled "
                      "records is freed only after one; set it to {} or more",
                      text, size_text(checkpoint_bytes), checkpoint_bytes)};
}

Finding check_clock(bool is_synchronised, std::int64_t error_us) {
  if (!is_synchronised) {
    return {"clock", Level::warning,
            "the kernel reports that it is not synchronised, and deliveries follow it; run chrony "
            "or systemd-timesyncd (in a container: on its host)"};
  }
  return {"clock", Level::ok,
          fmt::format("synchronised, off by at most {}",
                      milliseconds_text(static_cast<double>(error_us) / 1000))};
}

Finding check_certificate(std::string_view whose, WallTime valid_until, WallTime now) {
  if (valid_until - now >= renewal_time) return {"certificates", Level::ok, cell(whose)};
  const auto left = std::chrono::duration_cast<std::chrono::milliseconds>(valid_until - now);
  return {"certificates", Level::warning,
          fmt::format("{}: it expires in {}; renew it, and send the broker SIGHUP", cell(whose),
                      rough_duration(left))};
}

Finding check_access(std::string_view address, bool is_loopback, bool asks_who) {
  if (is_loopback) {
    return {"access", Level::ok, fmt::format("{}: only this machine can connect", cell(address))};
  }
  if (asks_who) return {"access", Level::ok, fmt::format("{}: clients log in", cell(address))};
  return {"access", Level::warning,
          fmt::format("{} is not loopback, and clients do not log in: anyone who can reach the "
                      "port has full access; use SASL, or ssl.client.auth=required",
                      cell(address))};
}

Finding check_advertised(std::string_view listener, std::string_view address,
                         std::string_view problem) {
  const std::string told =
      fmt::format("clients of the listener {} are told {}", cell(listener), cell(address));
  if (problem.empty()) return {"advertised", Level::ok, told + ", which takes connections"};
  return {"advertised", Level::warning,
          fmt::format("{}, which cannot be reached from here ({}): if clients cannot either, set "
                      "advertised.listeners to an address that leads to the broker",
                      told, problem)};
}

Finding check_memory(std::uint64_t limits, std::uint64_t beside, std::uint64_t machine) {
  const std::string text = fmt::format(
      "the settings allow {}, up to {} may be needed beside that, and the machine "
      "or its container has {}",
      size_text(limits), size_text(beside), size_text(machine));
  if (static_cast<double>(limits + beside) <= max_memory_share * static_cast<double>(machine))
    return {"memory", Level::ok, text};
  return {"memory", Level::warning,
          text +
              "; lower tarry.memory.bytes, tarry.delay.memory.bytes, or for each shard "
              "tarry.log.tail.bytes and tarry.group.offsets.bytes"};
}

std::vector<Finding> check_status(std::string_view status_text) {
  const Json status = parse_json(status_text);
  if (!status.is_object()) {
    return {{"broker", Level::problem,
             fmt::format("the answer is not a JSON object: {}", printable(status_text))}};
  }
  std::vector<Finding> findings;
  const std::string state = word_in(status, "state");
  findings.push_back({"broker", state == "running" ? Level::ok : Level::problem,
                      fmt::format("{} {}{}", cell(word_in(status, "version")), cell(state),
                                  state == "running" ? "" : "; its log says why")});
  findings.push_back(check_shards(status));
  findings.push_back(check_partitions(status));
  findings.push_back(check_deliveries(status));
  findings.push_back(check_refusals(status));
  findings.push_back(check_connections(status));
  // The relay has no listeners.
  if (status.contains("open_listeners")) {
    findings.push_back(check_served(status));
    for (auto& finding : check_open_listeners(status)) findings.push_back(std::move(finding));
  }
  return findings;
}

}  // namespace tarry::cli
