#pragma once

// The commands of `tarry` that can run in a test: all but those that need the server.

#include "cli/command.h"
#include "cli/commands/acl.h"
#include "cli/commands/bench.h"
#include "cli/commands/completion.h"
#include "cli/commands/config.h"
#include "cli/commands/consume.h"
#include "cli/commands/delayed.h"
#include "cli/commands/dump.h"
#include "cli/commands/explain.h"
#include "cli/commands/group.h"
#include "cli/commands/help.h"
#include "cli/commands/produce.h"
#include "cli/commands/status.h"
#include "cli/commands/top.h"
#include "cli/commands/topic.h"
#include "cli/commands/user.h"

namespace tarry::cli {

struct Program {
  CLI::App app{"", "tarry"};
  Chosen chosen;

  Program() {
    app.require_subcommand(1);
    for (const auto add :
         {add_topic, add_produce, add_consume, add_delayed, add_group_commands, add_status, add_top,
          add_config_commands, add_user_commands, add_acl_commands, add_bench, add_dump,
          add_explain, add_completion, add_help})
      add(app, chosen);
  }
  Program(const Program&) = delete;
  Program& operator=(const Program&) = delete;
};

}  // namespace tarry::cli
