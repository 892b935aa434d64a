// tarry: one binary, one sub-command for each thing that is done with it.

#include <algorithm>
#include <exception>
#include <sstream>
#include <string>
#include <vector>

#include "base/log.h"
#include "base/log_thread.h"
#include "cli/command.h"
#include "cli/command_tree.h"
#include "cli/commands/acl.h"
#include "cli/commands/backup.h"
#include "cli/commands/bench.h"
#include "cli/commands/completion.h"
#include "cli/commands/config.h"
#include "cli/commands/consume.h"
#include "cli/commands/delayed.h"
#include "cli/commands/doctor.h"
#include "cli/commands/dump.h"
#include "cli/commands/explain.h"
#include "cli/commands/group.h"
#include "cli/commands/help.h"
#include "cli/commands/import_log.h"
#include "cli/commands/produce.h"
#include "cli/commands/relay.h"
#include "cli/commands/repair.h"
#include "cli/commands/serve.h"
#include "cli/commands/status.h"
#include "cli/commands/top.h"
#include "cli/commands/topic.h"
#include "cli/commands/user.h"
#include "cli/io/exit_status.h"
#include "cli/io/output.h"
#include "cli/io/standard_descriptors.h"
#include "cli/wrong_words.h"

namespace tarry::cli {
namespace {

// In the order of the help.
constexpr void (*commands[])(CLI::App& program, Chosen& chosen) = {
    add_serve,      add_relay,           add_topic,          add_produce,      add_consume,
    add_delayed,    add_explain,         add_group_commands, add_status,       add_top,
    add_doctor,     add_config_commands, add_user_commands,  add_acl_commands, add_backup,
    add_import_log, add_repair,          add_bench,          add_dump,         add_completion,
    add_help,
};

// Words in it may be printable already.
std::string one_line(std::string text) {
  while (!text.empty() && text.back() == '\n') text.pop_back();
  std::ranges::replace(text, '\n', ' ');
  return escape_control_characters(text.substr(0, 1000));
}

// The first word chooses the command; CLI11 would only say that one is missing.
const char* unknown_command(const CLI::App& program, int count, char** words) {
  // --help and --version are the program's own.
  if (count < 2 || program.get_option_no_throw(words[1]) != nullptr) return nullptr;
  const auto known = program.get_subcommands([](const CLI::App*) { return true; });
  const bool is_known = std::ranges::any_of(
      known, [&](const CLI::App* command) { return command->get_name() == words[1]; });
  return is_known ? nullptr : words[1];
}

int run(int count, char** words) {
  CLI::App program{
      "A message broker that speaks Kafka's protocol and can hold a record until its "
      "delivery time",
      "tarry"};
  program.set_version_flag("--version", "tarry " TARRY_VERSION);
  program.require_subcommand(1);
  Chosen chosen;
  for (const auto add : commands) add(program, chosen);
  add_examples(program, {"tarry serve --data ./tarry-data",
                         "tarry produce orders -v 'pay up' --delay 30m --id order-4711",
                         "tarry delayed list orders"});
  // Before the parse, because a line that is being typed is not a command yet.
  if (const auto status =
          answer_completion(program, std::vector<std::string>(words + 1, words + count)))
    return *status;

  if (count < 2) return usage_error("a command is missing; `tarry --help` shows all");
  if (const char* word = unknown_command(program, count, words)) {
    return usage_error(unknown_command_text(program, word));
  }
  try {
    program.parse(count, words);
  } catch (const CLI::ParseError& error) {
    if (error.get_exit_code() == 0) {  // --help, --version
      std::ostringstream text;
      program.exit(error, text, text);
      Output out;
      out.write(text.str());
      return out.end(done);
    }
    return usage_error(one_line(parse_error_text(program, error)));
  }
  // A command says in one line what is wrong, and the log would say it again; `serve` sets its own.
  set_log_level(LogLevel::error);
  return chosen.run();
}

}  // namespace
}  // namespace tarry::cli

// jemalloc reads it before anything runs.  Few arenas: memory that one thread frees, others use.
extern "C" const char* malloc_conf;
const char* malloc_conf = "narenas:4";

int main(int count, char** words) {
  tarry::cli::hold_standard_descriptors();
  try {
    return tarry::cli::run(count, words);
  } catch (const std::exception& error) {
    return tarry::cli::failure(tarry::cli::one_line(error.what()));
  }
}
