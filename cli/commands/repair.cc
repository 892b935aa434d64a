#include "cli/commands/repair.h"

#include <cstdint>
#include <filesystem>
#include <memory>
#include <string>
#include <string_view>
#include <system_error>
#include <vector>

#include <fmt/core.h>

#include "base/log.h"
#include "cli/command_tree.h"
#include "cli/io/exit_status.h"
#include "cli/io/json.h"
#include "cli/io/number_text.h"
#include "cli/io/output.h"
#include "cli/io/progress.h"
#include "cli/io/text.h"
#include "cli/options.h"
#include "storage/data_directory.h"
#include "storage/directory_lock.h"
#include "storage/file.h"
#include "storage/log_directory.h"
#include "storage/repair.h"

namespace tarry::cli {
namespace {

using storage::DirectoryLock;
using storage::RepairFinding;

struct RepairOptions {
  std::string directory;
  std::string logs;
  bool dry_run = false, truncate = false, json = false;
};

// The problem without the file's name, which is told before it.
std::string problem_of(const RepairFinding& finding) {
  const std::string prefix = finding.file + ": ";
  return finding.problem.starts_with(prefix) ? finding.problem.substr(prefix.size())
                                             : finding.problem;
}

Json json_of(const RepairFinding& finding) {
  Json json{{"file", finding.file}, {"kind", storage::name_of(finding.kind)}};
  if (finding.position) json["position"] = *finding.position;
  json["problem"] = problem_of(finding);
  json["repairable"] = finding.can_repair();
  if (finding.can_repair()) json["repair"] = finding.repair;
  if (finding.lost_until > finding.lost_from) {
    json["lost"] = Json{{"first_offset", finding.lost_from},
                        {"last_offset", finding.lost_until - 1},
                        {"records_at_most", finding.lost_until - finding.lost_from}};
  }
  if (finding.moved_bytes > 0) json["moved_bytes"] = finding.moved_bytes;
  if (!finding.moved_to.empty()) json["moved_to"] = finding.moved_to;
  return json;
}

void print_finding(const RepairFinding& finding, Output& out) {
  const auto place =
      finding.position ? fmt::format("position {}: ", *finding.position) : std::string();
  out.line(fmt::format("{}: {}{}", cell(finding.file), place, cell(problem_of(finding))));
  out.line(finding.can_repair()
               ? fmt::format("  repair: {}", cell(finding.repair))
               : std::string("  repair: none; restore the data directory from a backup"));
  if (finding.lost_until > finding.lost_from) {
    out.line(fmt::format("  lost: offsets {} to {}, at most {}", finding.lost_from,
                         finding.lost_until - 1,
                         counted(static_cast<std::uint64_t>(finding.lost_until - finding.lost_from),
                                 "record", "records")));
  }
  if (!finding.moved_to.empty()) {
    out.line(fmt::format("  kept: {} bytes in {}", finding.moved_bytes, cell(finding.moved_to)));
  }
}

void print_summary(const storage::Repair& repair, std::size_t found, std::size_t left, bool json,
                   Output& out) {
  if (json) {
    out.line(text_of(Json{{"partitions", repair.partitions()},
                          {"batches", repair.batches()},
                          {"damaged", found},
                          {"left", left},
                          {"notes", repair.notes()}}));
    return;
  }
  for (const auto& note : repair.notes()) out.line(cell(note));
  out.line(fmt::format(
      "{} and {} checked, {} damaged", counted(repair.partitions(), "partition", "partitions"),
      counted(repair.batches(), "batch", "batches"), counted(found, "place", "places")));
}

int repair(const RepairOptions& options) {
  if (options.dry_run == options.truncate) {
    return usage_error(options.dry_run ? "--dry-run and --truncate: give one of the two"
                                       : "give --dry-run (only check) or --truncate (repair)");
  }
  std::error_code failed;
  auto data = std::filesystem::absolute(options.directory, failed).lexically_normal();
  // DIR may end in a slash, which would be an empty name.
  if (!data.has_filename()) data = data.parent_path();
  const std::string logs = options.logs.empty()
                               ? (data / "logs").string()
                               : std::filesystem::absolute(options.logs, failed).string();
  storage::PosixDisk disk;
  if (const auto whole =
          storage::DataDirectory::must_be_whole(disk, data.string(), options.truncate);
      !whole)
    return failure(whole.error().message);
  // --dry-run has a lock, too: files that a broker writes meanwhile would look damaged.
  const auto use = options.truncate ? DirectoryLock::For::writing : DirectoryLock::For::reading;
  const auto lock = DirectoryLock::take(data.string(), use, "stop it first");
  if (!lock) return failure(lock.error().message);
  const auto logs_lock =
      storage::lock_log_directory(disk, data.string(), logs, use, "stop it first");
  if (!logs_lock) return failure(logs_lock.error().message);

  storage::Repair repair(disk, data.string(), logs);
  Progress progress("batches");
  const auto inspected = repair.inspect([&](std::uint64_t batches) { progress.at(batches); });
  progress.clear();
  if (!inspected) return failure(inspected.error().message);
  const auto findings = repair.findings();
  Output out;
  for (const auto& finding : findings) {
    if (options.json) {
      out.line(text_of(json_of(finding)));
    } else {
      print_finding(finding, out);
    }
  }
  // Everything is shown before anything is changed.
  out.flush();
  std::size_t left = findings.size();
  if (options.truncate) {
    Progress checked("batches checked again");
    const auto remaining = repair.run([&](std::uint64_t batches) { checked.at(batches); });
    checked.clear();
    if (!remaining) {
      return out.end(failure(
          fmt::format("{}; the command can be run again", cell(remaining.error().message))));
    }
    left = remaining->size();
  }
  print_summary(repair, findings.size(), left, options.json, out);
  if (left == 0) return out.end(done);
  return out.end(failure(
      options.truncate ? fmt::format("{} could not be repaired", counted(left, "place", "places"))
                       : fmt::format("{} damaged; nothing was changed",
                                     counted(left, "place is", "places are"))));
}

}  // namespace

void add_repair(CLI::App& program, Chosen& chosen) {
  auto options = std::make_shared<RepairOptions>();
  auto* command = program.add_subcommand(
      "repair", "Finds and repairs damage in the data directory of a broker that is not running");
  command->add_option("DIR", options->directory, "The data directory")->required();
  command->add_flag("--dry-run", options->dry_run,
                    "Shows what is damaged, what a repair would do and what would be lost; changes "
                    "nothing");
  command->add_flag(
      "--truncate", options->truncate,
      "Repairs: cuts damaged segments at the last whole batch, keeps the cut parts in "
      "files beside them, and rebuilds indexes");
  command
      ->add_option("--log-dir", options->logs,
                   "The directory of the partitions, if log.dirs is set [default: DIR/logs]")
      ->option_text("DIR");
  command->add_flag("--json", options->json, "Prints JSON, one object per line");
  take_broker_options(*command);
  command->callback([options, &chosen] { chosen.run = [options] { return repair(*options); }; });
  add_examples(*command, {"tarry repair tarry-data --dry-run",
                          "tarry repair /var/lib/tarry --truncate --json"});
}

}  // namespace tarry::cli
