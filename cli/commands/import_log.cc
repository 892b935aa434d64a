#include "cli/commands/import_log.h"

#include <cstdint>
#include <filesystem>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <system_error>
#include <utility>
#include <vector>

#include <fmt/core.h>

#include "base/glob.h"
#include "base/log.h"
#include "cli/command_tree.h"
#include "cli/config_words.h"
#include "cli/io/exit_status.h"
#include "cli/io/json.h"
#include "cli/io/number_text.h"
#include "cli/io/output.h"
#include "cli/io/progress.h"
#include "cli/io/table.h"
#include "cli/io/text.h"
#include "cli/kafka_source.h"
#include "cli/options.h"
#include "server/system_clock.h"
#include "server/system_random.h"
#include "server/topic_settings.h"
#include "storage/kafka_groups.h"
#include "storage/log_import.h"

namespace tarry::cli {
namespace {

namespace fs = std::filesystem;

struct ImportOptions {
  std::vector<std::string> directories;
  std::string data = "./tarry-data";
  std::string logs;
  std::vector<std::string> topics;
  std::vector<std::string> configs;
  std::optional<PartitionIndex> offsets_partitions;
  bool no_offsets = false, dry_run = false, json = false;
};

// As much stays free as a broker keeps back by default (tarry.disk.reserve.bytes).
constexpr std::uint64_t reserve_bytes = std::uint64_t{256} << 20;

// More than anybody gives __consumer_offsets.
constexpr PartitionIndex max_offsets_partitions = 100'000;

// The result for one topic.
struct Outcome {
  std::string topic;
  std::string state;  // imported, would be imported, exists, refused, not imported
  std::string id = {};
  std::string problem = {};
  std::vector<std::string> notes = {};
  std::size_t partitions = 0;
  std::size_t groups = 0;  // Committed offsets.
  storage::KafkaLog::Survey sum = {};

  bool is_wrong() const { return !problem.empty(); }
};

void add_to(storage::KafkaLog::Survey& sum, const storage::KafkaLog::Survey& one) {
  sum.kept_batches += one.kept_batches;
  sum.kept_records += one.kept_records;
  sum.kept_bytes += one.kept_bytes;
  sum.control_batches += one.control_batches;
  sum.aborted_batches += one.aborted_batches;
  sum.aborted_records += one.aborted_records;
  sum.unfinished_batches += one.unfinished_batches;
  sum.unfinished_records += one.unfinished_records;
}

Json json_of(const Outcome& outcome) {
  const auto& sum = outcome.sum;
  Json json{{"topic", outcome.topic},
            {"state", outcome.state},
            {"partitions", outcome.partitions},
            {"batches", sum.kept_batches},
            {"records", sum.kept_records},
            {"bytes", sum.kept_bytes},
            {"control_batches", sum.control_batches},
            {"aborted_batches", sum.aborted_batches},
            {"aborted_records", sum.aborted_records},
            {"unfinished_batches", sum.unfinished_batches},
            {"unfinished_records", sum.unfinished_records},
            {"committed_offsets", outcome.groups}};
  if (!outcome.id.empty()) json["id"] = outcome.id;
  if (outcome.is_wrong()) json["error"] = outcome.problem;
  json["notes"] = outcome.notes;
  return json;
}

class Importer {
 public:
  explicit Importer(const ImportOptions& options) : options_(options) {}

  int run() {
    std::error_code failed;
    for (const auto& directory : options_.directories) {
      auto path = fs::absolute(directory, failed).lexically_normal();
      directories_.push_back(path.has_filename() ? path.string() : path.parent_path().string());
    }
    for (auto& [key, value] : config_list(options_.configs)) configs_.insert_or_assign(key, value);
    // Before anything is read: a wrong config is wrong for all topics.
    if (const auto checked = server::check_new_topic("topic", 1, configs_); !checked)
      return usage_error(fmt::format("--config: {}", checked.error().message));
    auto source = storage_source();
    if (!source) return failure(source.error().message);
    source_ = std::move(*source);
    if (const auto status = look_at_target()) return *status;
    if (const auto status = survey()) return *status;
    if (const auto status = check_space()) return *status;
    if (!options_.dry_run) {
      if (const auto status = import_all()) return *status;
    }
    return print();
  }

 private:
  Result<KafkaSource> storage_source() {
    return KafkaSource::open(disk_, directories_, options_.offsets_partitions);
  }

  bool is_wanted(const std::string& topic) const {
    if (options_.topics.empty()) return true;
    for (const auto& glob : options_.topics)
      if (matches_glob(glob, topic)) return true;
    return false;
  }

  // Finds out which topics are there already, and what is wrong with the data directory before
  // everything is read.
  std::optional<int> look_at_target() {
    std::error_code failed;
    const auto data = fs::absolute(options_.data, failed).lexically_normal();
    const auto target =
        storage::LogImport::look(disk_, (data.has_filename() ? data : data.parent_path()).string(),
                                 options_.logs.empty() ? "" : log_directory());
    if (!target) return failure(target.error().message);
    if (!*target) return std::nullopt;
    for (const auto& topic : source_.topics) {
      if (!is_wanted(topic.name)) continue;
      const auto present = (*target)->find(topic.name, topic.id);
      if (!present) return failure(present.error().message);
      if (*present) present_.emplace(topic.name, **present);
    }
    return std::nullopt;
  }

  static void note_present(Outcome& outcome, const storage::LogImport::Present& present) {
    outcome.state = "exists";
    if (present.is_same) {
      outcome.notes.emplace_back("was imported before, and is left as it is");
    } else {
      outcome.problem = "a topic of this name exists; it is left as it is";
    }
  }

  // Reads and checks every batch of the wanted topics; an exit status when nothing can be done.
  std::optional<int> survey() {
    Progress progress("bytes checked");
    std::uint64_t bytes = 0;
    const auto step = [&](std::uint64_t more) { progress.at(bytes += more); };
    for (auto& topic : source_.topics) {
      if (!is_wanted(topic.name)) continue;
      Outcome outcome{topic.name, options_.dry_run ? "would be imported" : "imported"};
      outcome.partitions = topic.partitions.size();
      if (const auto present = present_.find(topic.name); present != present_.end()) {
        note_present(outcome, present->second);
        outcomes_.push_back(std::move(outcome));
        wanted_.push_back({topic.name, topic.id, {}, {}, {}});
        continue;
      }
      outcome.problem = topic.problem;
      storage::ImportedTopic wanted{topic.name, topic.id, configs_of(topic, outcome), {}, {}};
      for (auto& log : topic.partitions) {
        if (outcome.is_wrong()) break;
        const auto seen = log->survey(step);
        if (!seen) {
          outcome.problem = seen.error().message;
          break;
        }
        add_to(outcome.sum, *seen);
        wanted.partitions.push_back({log.get(), *seen});
      }
      if (outcome.is_wrong()) outcome.state = "refused";
      note_left_out(outcome);
      outcomes_.push_back(std::move(outcome));
      wanted_.push_back(std::move(wanted));
    }
    progress.clear();
    if (outcomes_.empty()) return failure("no topic matches --topic in these directories");
    if (!options_.no_offsets) read_groups(step);
    progress.clear();
    if (groups_problem_.empty() || options_.dry_run) return std::nullopt;
    return failure(groups_problem_);
  }

  storage::Configs configs_of(const KafkaSourceTopic& topic, Outcome& outcome) {
    auto configs = configs_;
    // Records that compaction has kept would be deleted by their age.
    if (topic.is_compacted) {
      configs.try_emplace("retention.ms", "-1");
      configs.try_emplace("retention.bytes", "-1");
      outcome.notes.emplace_back(
          "was compacted: it keeps its holes and is not compacted any more; its records are kept "
          "for ever unless --config or `tarry topic alter` sets retention.ms or retention.bytes");
    }
    auto checked = server::check_new_topic(
        topic.name, static_cast<std::int32_t>(topic.partitions.size()), configs);
    if (checked) return std::move(*checked);
    if (!outcome.is_wrong()) outcome.problem = checked.error().message;
    return configs;
  }

  static void note_left_out(Outcome& outcome) {
    const auto& sum = outcome.sum;
    if (sum.aborted_batches > 0) {
      outcome.notes.push_back(fmt::format("{} of aborted transactions left out",
                                          counted(sum.aborted_records, "record", "records")));
    }
    if (sum.unfinished_batches > 0) {
      outcome.notes.push_back(fmt::format("{} of transactions that were never finished left out",
                                          counted(sum.unfinished_records, "record", "records")));
    }
  }

  // Committed offsets of groups cannot be added to topics that are there: all of them are read, or
  // nothing is imported.
  static Result<> read_offsets(KafkaSource& source, storage::KafkaGroups& groups,
                               const std::function<void(std::uint64_t)>& step) {
    if (!source.offsets_problem.empty()) return fail(Errc::invalid, source.offsets_problem);
    for (auto& log : source.offsets) {
      if (const auto seen = log->survey(step); !seen) return std::unexpected(seen.error());
      if (auto read = groups.read(*log); !read) return read;
    }
    if (groups.unknown() == 0) return {};
    return fail(Errc::unsupported, fmt::format("the format of {} is not known",
                                               counted(groups.unknown(), "offset", "offsets")));
  }

  void read_groups(const std::function<void(std::uint64_t)>& step) {
    storage::KafkaGroups groups;
    if (const auto read = read_offsets(source_, groups, step); !read) {
      groups_problem_ = fmt::format(
          "__consumer_offsets: {}; nothing is imported, because committed offsets cannot be "
          "imported later (--no-offsets imports the topics without them)",
          read.error().message);
      return;
    }
    group_records_skipped_ = groups.skipped();
    for (std::size_t i = 0; i < wanted_.size(); ++i) {
      for (auto& each : groups.of_topic(wanted_[i].name)) {
        if (static_cast<std::size_t>(each.partition) >= wanted_[i].partitions.size()) continue;
        wanted_[i].offsets.push_back(
            {std::move(each.group), each.partition, each.offset, std::move(each.metadata)});
      }
      outcomes_[i].groups = wanted_[i].offsets.size();
    }
  }

  std::string log_directory() const {
    std::error_code failed;
    if (!options_.logs.empty()) return fs::absolute(options_.logs, failed).string();
    return (fs::absolute(options_.data, failed) / "logs").lexically_normal().string();
  }

  std::optional<int> check_space() {
    for (const auto& outcome : outcomes_)
      if (!outcome.is_wrong()) needed_ += outcome.sum.kept_bytes;
    // The directory may not be there yet; its parent has the file system.
    fs::path at = log_directory();
    std::error_code failed;
    while (!fs::exists(at, failed) && at.has_relative_path()) at = at.parent_path();
    const auto free = disk_.free_space(at.string());
    if (!free) return failure(free.error().message);
    free_ = *free;
    if (needed_ + reserve_bytes <= free_) return std::nullopt;
    const auto why =
        fmt::format("{} has {} bytes free; the copies need {}, and {} have to stay free",
                    at.string(), grouped(free_), grouped(needed_), grouped(reserve_bytes));
    if (!options_.dry_run) return failure(why);
    space_problem_ = why;
    return std::nullopt;
  }

  std::optional<int> import_all() {
    server::SystemRandom random;
    auto target = storage::LogImport::open(disk_, options_.data,
                                           options_.logs.empty() ? "" : log_directory(), random);
    if (!target) return failure(target.error().message);
    Progress progress("bytes copied");
    std::uint64_t bytes = 0;
    bool is_given_up = false;
    for (std::size_t i = 0; i < wanted_.size(); ++i) {
      auto& outcome = outcomes_[i];
      if (outcome.is_wrong() || present_.contains(outcome.topic)) continue;
      if (is_given_up) {
        outcome.state = "not imported";
        continue;
      }
      // A broker may have run meanwhile.
      const auto present = target->find(wanted_[i].name, wanted_[i].kafka_id);
      if (!present) return failure(present.error().message);
      if (*present) {
        note_present(outcome, **present);
        continue;
      }
      const auto id = target->add(wanted_[i], server::SystemClock().wall(),
                                  [&](std::uint64_t more) { progress.at(bytes += more); });
      if (id) {
        outcome.id = id->text();
        continue;
      }
      outcome.state = "refused";
      outcome.problem = id.error().message;
      // A disk that refuses one topic refuses the others too.
      is_given_up = id.error().code == Errc::no_space || id.error().code == Errc::io;
    }
    progress.clear();
    return std::nullopt;
  }

  int print() {
    Output out;
    Table table({{"TOPIC", false, true},
                 {"STATE"},
                 {"PARTITIONS", true},
                 {"RECORDS", true},
                 {"BYTES", true},
                 {"LEFT OUT", true},
                 {"OFFSETS", true}});
    std::size_t wrong = 0;
    std::string first;
    for (const auto& outcome : outcomes_) {
      if (outcome.is_wrong() && wrong++ == 0) first = outcome.topic + ": " + outcome.problem;
      if (options_.json) {
        out.line(text_of(json_of(outcome)));
      } else {
        table.row({cell(outcome.topic), outcome.state, std::to_string(outcome.partitions),
                   std::to_string(outcome.sum.kept_records), std::to_string(outcome.sum.kept_bytes),
                   std::to_string(outcome.sum.aborted_records + outcome.sum.unfinished_records),
                   std::to_string(outcome.groups)});
      }
    }
    if (options_.json) {
      Json last{{"needed_bytes", needed_}, {"free_bytes", free_}, {"internal", source_.internal}};
      last["group_records_skipped"] = group_records_skipped_;
      if (!groups_problem_.empty()) last["committed_offsets_error"] = groups_problem_;
      if (!space_problem_.empty()) last["space_error"] = space_problem_;
      out.line(text_of(last));
    } else {
      table.print(out);
      print_notes();
    }
    out.flush();
    if (wrong == 0 && space_problem_.empty() && groups_problem_.empty()) return out.end(done);
    if (wrong == 0) first = space_problem_.empty() ? groups_problem_ : space_problem_;
    return out.end(failure(wrong > 1 ? fmt::format("{} (and {} more)", first, wrong - 1) : first));
  }

  // On stderr, so that the table stays one for programs.
  void print_notes() const {
    for (const auto& outcome : outcomes_)
      for (const auto& note : outcome.notes) complain(outcome.topic + ": " + note);
    for (const auto& name : source_.internal)
      complain(name + ": is Kafka's own and is not imported as a topic");
    if (options_.no_offsets) {
      complain("committed offsets are left out (--no-offsets)");
    } else if (source_.offsets.empty()) {
      complain("no directory has __consumer_offsets: there are no committed offsets to import");
    }
    if (group_records_skipped_ > 0) {
      complain(fmt::format(
          "__consumer_offsets: {} of members and assignments skipped; the members join again",
          counted(group_records_skipped_, "record", "records")));
    }
    complain(fmt::format("{} bytes {}, {} were free", grouped(needed_),
                         options_.dry_run ? "would be copied" : "to copy", grouped(free_)));
  }

  const ImportOptions& options_;
  storage::PosixDisk disk_;
  std::vector<std::string> directories_;
  storage::Configs configs_;
  KafkaSource source_;
  std::map<std::string, storage::LogImport::Present> present_;  // Topics of the data directory.
  std::vector<Outcome> outcomes_;  // In the order of their topics, as wanted_.
  std::vector<storage::ImportedTopic> wanted_;
  std::string groups_problem_, space_problem_;
  std::uint64_t needed_ = 0, free_ = 0;
  std::uint64_t group_records_skipped_ = 0;
};

int import_log(const ImportOptions& options) {
  return Importer(options).run();
}

}  // namespace

void add_import_log(CLI::App& program, Chosen& chosen) {
  auto options = std::make_shared<ImportOptions>();
  auto* command = program.add_subcommand(
      "import-log",
      "Copies topics from the log directories of an Apache Kafka broker into a data directory; "
      "neither broker may be running");
  command->add_option("DIR", options->directories, "Log directories of Kafka (its log.dirs)")
      ->option_text("DIR...")
      ->required();
  command
      ->add_option("--data", options->data,
                   "The data directory; created if it does not exist [default: ./tarry-data]")
      ->option_text("DIR");
  command
      ->add_option(
          "--log-dir", options->logs,
          "The directory for the partitions, if the broker's log.dirs is set [default: logs "
          "in the data directory]")
      ->option_text("DIR");
  add_repeated(*command, "--topic", options->topics, "Only topics that match")->option_text("GLOB");
  add_repeated(*command, "--config", options->configs, "A config of all imported topics")
      ->option_text("KEY=VALUE")
      ->check(is_key_value);
  command->add_flag("--no-offsets", options->no_offsets,
                    "Leaves out the committed offsets of consumer groups");
  command
      ->add_option("--offsets-partitions", options->offsets_partitions,
                   "How many partitions __consumer_offsets has in Kafka, if its "
                   "offsets.topic.num.partitions is not 50")
      ->option_text("N")
      ->check(CLI::Range(1, max_offsets_partitions));
  command->add_flag("--dry-run", options->dry_run,
                    "Checks everything and shows what would be imported; changes nothing");
  command->add_flag("--json", options->json, "Prints JSON, one object per line");
  take_broker_options(*command);
  command->callback(
      [options, &chosen] { chosen.run = [options] { return import_log(*options); }; });
  add_examples(*command,
               {"tarry import-log /var/lib/kafka/data --data /var/lib/tarry --dry-run",
                "tarry import-log /kafka/1 /kafka/2 --topic 'orders*' --config retention.ms=30d"});
}

}  // namespace tarry::cli
