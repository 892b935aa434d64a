#include "cli/commands/dump.h"

#include <unistd.h>

#include <charconv>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include <fmt/core.h>

#include "base/bytes.h"
#include "base/log.h"
#include "cli/command_tree.h"
#include "cli/index_dump.h"
#include "cli/io/exit_status.h"
#include "cli/io/line_reader.h"
#include "cli/io/output.h"
#include "cli/io/progress.h"
#include "cli/journal_dump.h"
#include "cli/message_dump.h"
#include "cli/options.h"
#include "cli/pending_dump.h"
#include "cli/segment_dump.h"
#include "storage/file.h"

namespace tarry::cli {
namespace {

struct SegmentOptions {
  std::vector<std::string> files;
  bool records = false;
  bool json = false;
};

int dump_segments(const SegmentOptions& options) {
  storage::PosixDisk disk;
  Output out;
  // The files are read as they are, without the directory's lock, so a broker may be writing them:
  // what looks torn at the end of the last one may be on its way.
  Progress progress("batches");
  // The error names the first finding and counts the others: one damaged place makes many.
  std::uint64_t wrong = 0, before = 0;
  std::string first;
  for (const auto& path : options.files) {
    const auto found =
        dump_segment(disk, path, {options.records, options.json}, out, [&](std::uint64_t count) {
          // On a terminal the batches themselves show how far it is.
          if (!out.is_terminal()) progress.at(before + count);
        });
    if (!found) {
      if (wrong++ == 0) first = found.error().message;
      // The other files are dumped all the same.
      continue;
    }
    // The progress counts over all files.
    before += found->batches;
    if (found->wrong > 0 && wrong == 0) first = found->first;
    wrong += found->wrong;
  }
  progress.clear();
  out.flush();
  if (wrong == 0) return out.end(done);
  return out.end(failure(wrong == 1 ? first : fmt::format("{} (and {} more)", first, wrong - 1)));
}

struct OfflineOptions {
  std::vector<std::string> places;
  bool json = false;
};

// Dumps one place after the other.
template <typename Dump>
int dump_each(const OfflineOptions& options, Dump dump) {
  Output out;
  std::uint64_t wrong = 0;
  std::string first;
  for (const auto& place : options.places) {
    const auto found = dump(place, options.json, out);
    // The first finding is told, of whichever place.
    if (wrong == 0) first = found ? found->first : found.error().message;
    wrong += found ? found->wrong : 1;
  }
  out.flush();
  if (wrong == 0) return out.end(done);
  return out.end(failure(wrong == 1 ? first : fmt::format("{} (and {} more)", first, wrong - 1)));
}

int dump_indexes(const OfflineOptions& options) {
  storage::PosixDisk disk;
  return dump_each(options, [&](const std::string& path, bool json, Output& out) {
    return dump_index(disk, path, json, out);
  });
}

int dump_journals(const OfflineOptions& options) {
  storage::PosixDisk disk;
  return dump_each(options, [&](const std::string& path, bool json, Output& out) {
    return dump_journal(disk, path, json, out);
  });
}

int dump_pending_stores(const OfflineOptions& options) {
  return dump_each(options, dump_pending);
}

int dump_messages() {
  Output out;
  // The output is flushed while no line is there, so that a program can ask line by line.
  LineReader lines(STDIN_FILENO, "standard input", [&] { out.flush(); });
  while (!out.is_over()) {
    const auto line = lines.next();
    if (!line) return out.end(failure(line.error().message));
    if (!*line) break;
    // A line that cannot be decoded is answered with a line as well, so that both sides stay in
    // step.
    out.line(dumped_message(**line));
  }
  return out.end(done);
}

}  // namespace

void add_dump(CLI::App& program, Chosen& chosen) {
  auto* group = add_group(program, chosen, "dump",
                          "Decodes files of a data directory and protocol messages, offline");
  {
    auto options = std::make_shared<SegmentOptions>();
    auto* command =
        group->add_subcommand("segment", "Prints the batches of a partition's .log files");
    command->add_option("FILE", options->files, "Segments, as in logs/orders-0/*.log")
        ->option_text("FILE...")
        ->required();
    command->add_flag("--records", options->records, "Prints the records of each batch too");
    command->add_flag("--json", options->json, "Prints JSON, one batch per line");
    command->callback(
        [options, &chosen] { chosen.run = [options] { return dump_segments(*options); }; });
    add_examples(*command, {"tarry dump segment tarry-data/logs/orders-0/*.log",
                            "tarry dump segment --records --json 00000000000000000000.log"});
  }
  const auto add_offline = [&](const char* name, const char* help, const char* places,
                               const char* what, int (*run)(const OfflineOptions&)) {
    auto options = std::make_shared<OfflineOptions>();
    auto* command = group->add_subcommand(name, help);
    command->add_option(places, options->places, what)
        ->option_text(std::string(places) + "...")
        ->required();
    command->add_flag("--json", options->json, "Prints JSON, one object per line");
    command->callback(
        [options, run, &chosen] { chosen.run = [options, run] { return run(*options); }; });
    return command;
  };
  add_examples(*add_offline("index", "Prints the entries of .index and .timeindex files", "FILE",
                            "Indexes; each is compared with the .log file beside it", dump_indexes),
               {"tarry dump index tarry-data/logs/orders-0/00000000000000000000.index",
                "tarry dump index --json tarry-data/logs/orders-0/*.timeindex"});
  add_examples(*add_offline("journal", "Prints the rounds of journal files and what they record",
                            "FILE", "Files of a shard's journal", dump_journals),
               {"tarry dump journal tarry-data/journal/0/*.journal",
                "tarry dump journal --json tarry-data/journal/0/0000000000000000.journal"});
  add_examples(
      *add_offline(
          "pending",
          "Prints the pending records of a data directory: those on disk, then the newest, "
          "which are in the journals alone",
          "DIR", "Data directories that no broker uses, or their db/pending", dump_pending_stores),
      {"tarry dump pending tarry-data", "tarry dump pending --json tarry-data/db/pending"});
  {
    auto* command =
        group->add_subcommand("message",
                              "Decodes messages of Kafka's protocol: reads lines of KEY q|p "
                              "VERSION HEX (q: a request, p: a response) and prints for each the "
                              "fields as JSON, a tab, and the bytes encoded again");
    command->callback([&chosen] { chosen.run = dump_messages; });
    add_examples(*command,
                 {"tarry dump message < messages.txt", "echo '18 q 0 -' | tarry dump message"});
  }
  for (auto* command : group->get_subcommands([](CLI::App*) { return true; }))
    take_broker_options(*command);
  add_examples(*group, {"tarry dump segment tarry-data/logs/orders-0/*.log",
                        "tarry dump message < messages.txt"});
}

}  // namespace tarry::cli
