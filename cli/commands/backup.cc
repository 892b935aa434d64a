#include "cli/commands/backup.h"

#include <cstdint>
#include <filesystem>
#include <memory>
#include <string>
#include <system_error>

#include <fmt/core.h>

#include "base/log.h"
#include "cli/admin_choice.h"
#include "cli/command_tree.h"
#include "cli/commands/delayed_common.h"
#include "cli/io/exit_status.h"
#include "cli/io/json.h"
#include "cli/io/number_text.h"
#include "cli/io/output.h"
#include "cli/io/progress.h"
#include "cli/io/text.h"
#include "cli/options.h"

namespace tarry::cli {
namespace {

struct BackupOptions {
  BrokerOptions broker;
  std::string directory;
};

std::uint64_t amount_in(const Json& line, const char* name) {
  return line.contains(name) && line[name].is_number_unsigned() ? line[name].get<std::uint64_t>()
                                                                : 0;
}

int back_up(const BackupOptions& options) {
  std::error_code failed;
  // The broker would read a relative path from its own working directory.
  const auto directory = std::filesystem::absolute(options.directory, failed).lexically_normal();
  if (failed) return failure(fmt::format("{}: {}", printable(options.directory), failed.message()));
  auto admin = choose_admin(options.broker, AdminUse::changes);
  if (!admin) return admin.error().report();

  Json last;
  // The lines come while the copy is made, which may take hours.
  Progress progress("bytes copied");
  const auto asked =
      admin->change_by_lines("POST", "/backup", text_of(Json{{"directory", directory.string()}}),
                             [&](std::string_view line) {
                               last = parse_json(line);
                               if (last.is_object()) progress.at(amount_in(last, "copied"));
                             });
  progress.clear();
  if (!asked) return failure(asked.error().message);
  // The answer begins with status 200 before the copy is made, so an error comes as its last line.
  if (last.is_object() && last.contains("error")) return failure(field(last, "error"));
  if (!last.is_object() || field(last, "state") != "done")
    return failure("the broker ended before the backup was complete; it left no usable copy");

  Output out;
  if (options.broker.json) {
    out.line(text_of(last));
  } else {
    out.line(fmt::format("{}: {}, {} bytes copied in {} ms", field(last, "directory"),
                         counted(amount_in(last, "files"), "file", "files"),
                         grouped(amount_in(last, "copied")), grouped(amount_in(last, "took_ms"))));
  }
  return out.end(done);
}

}  // namespace

void add_backup(CLI::App& program, Chosen& chosen) {
  const auto [command, options] = add_broker_command<BackupOptions>(
      program, chosen, "backup",
      "Makes a consistent copy of a running broker's data; a broker can be started from the copy",
      back_up);
  command
      ->add_option(
          "DIR", options->directory,
          "The directory for the copy, on the broker's machine; it must be empty or not exist yet")
      ->required();
  add_data_option(*command, options->broker);
  add_examples(*command, {"tarry backup /srv/backups/2026-11-21",
                          "tarry serve --data /srv/backups/2026-11-21 --listen 127.0.0.1:0 "
                          "--admin 127.0.0.1:0"});
}

}  // namespace tarry::cli
