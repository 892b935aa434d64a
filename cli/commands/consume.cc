#include "cli/commands/consume.h"

#include <algorithm>
#include <chrono>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <variant>
#include <vector>

#include <fmt/core.h>

#include "base/clock.h"
#include "base/log.h"
#include "base/time_text.h"
#include "cli/command_tree.h"
#include "cli/io/exit_status.h"
#include "cli/io/interrupt.h"
#include "cli/io/number_text.h"
#include "cli/io/output.h"
#include "cli/io/text.h"
#include "cli/kafka/consumer.h"
#include "cli/kafka/group_consumer.h"
#include "cli/offset_word.h"
#include "cli/options.h"
#include "cli/pending_note.h"
#include "cli/record_format.h"

namespace tarry::cli {
namespace {

using namespace std::chrono_literals;
using std::chrono::steady_clock;

struct ConsumeOptions {
  BrokerOptions broker;
  std::string topic;
  std::string from = "start";
  std::optional<PartitionIndex> partition;
  std::optional<std::uint32_t> count;
  bool until_end = false;
  std::optional<std::string> idle;
  std::string format = "%s\\n";
  std::optional<std::string> group;
};

// While records come, output is written when there is this much of it, or this often.
constexpr std::size_t flush_bytes = 64 << 10;
constexpr auto flush_every = 100ms;

// Prints records, and knows when enough of them have come.
class RecordPrinter {
 public:
  RecordPrinter(const ConsumeOptions& options, RecordFormat format)
      : options_(options),
        format_(std::move(format)),
        idle_(options.idle ? *parse_duration(*options.idle) : 0ms),
        // The first answer may take as long as any other.
        quiet_since_(steady_clock::now() + options.broker.timeout),
        note_(options.broker, options.topic) {}

  bool is_over() const { return was_interrupted() || out_.is_over(); }
  // Whether all that was printed is written.
  bool flush() {
    flushed_at_ = steady_clock::now();
    unflushed_ = 0;
    return out_.flushed();
  }
  bool is_flush_due() const {
    // Compared with the last record, so that no clock is read for each.
    return unflushed_ >= flush_bytes || quiet_since_ - flushed_at_ >= flush_every;
  }
  int end(int status) {
    const int ended = out_.end(status);
    // Ctrl-C ends it at once.
    if (ended == done && count_ == 0 && !was_interrupted()) note_.say();
    return ended;
  }

  // All that there was has been read.
  void at_end() {
    if (count_ == 0) note_.on_empty();
  }
  void say_note() {
    if (count_ == 0) note_.print_answer();
  }

  // The broker has answered, so --idle counts from now on.
  // An answer never gives it more time than it has.
  void begin_quiet() { quiet_since_ = std::min(quiet_since_, steady_clock::now()); }
  // Returns whether it was the last one that was asked for.
  bool print(const ConsumedRecord& record) {
    quiet_since_ = steady_clock::now();
    text_.clear();
    if (options_.broker.json) {
      text_ = json_of(record, options_.topic) + '\n';
    } else {
      format_.append(record, options_.topic, text_);
    }
    out_.write(text_);
    unflushed_ += text_.size();
    return ++count_ == options_.count;
  }
  bool is_idle() const { return options_.idle && steady_clock::now() - quiet_since_ >= idle_; }

 private:
  const ConsumeOptions& options_;
  const RecordFormat format_;
  const std::chrono::milliseconds idle_;
  steady_clock::time_point quiet_since_;
  steady_clock::time_point flushed_at_ = steady_clock::now();
  std::size_t unflushed_ = 0;
  std::uint32_t count_ = 0;
  std::string text_;
  Output out_;
  PendingNote note_;
};

// The next record; flushes what was printed before it waits for one.
template <typename Consumer, typename Flush>
Result<KafkaConsumer::Next> next_of(Consumer& consumer, Flush flush) {
  auto next = consumer.next(0ms);
  // Nothing is at hand: what was printed must not stay in the buffer while this waits.
  if (next && std::holds_alternative<std::monostate>(*next)) {
    flush();
    next = consumer.next(50ms);
  }
  return next;
}

// A reader of a partition that is out of service would wait without a word: librdkafka asks for the
// records again and again.
class ServiceCheck {
 public:
  explicit ServiceCheck(const ConsumeOptions& options) : options_(options) {}

  // Asks about these partitions, if that is due.  Fails for a reader that waits for an end, which
  // would not come; every other one is told once.
  template <typename Consumer>
  Result<> run(Consumer& consumer, const std::vector<PartitionIndex>& partitions) {
    const auto now = steady_clock::now();
    // A lost connection is told by the consumer itself.
    if (now < due_ || consumer.is_lost()) return {};
    due_ = now + interval();
    auto served = consumer.check_in_service(partitions);
    if (served) {
      out_of_service_.reset();
    } else if (options_.until_end) {
      return served;
    } else {
      if (!out_of_service_)
        complain(served.error().message + "; reading continues when it is served again");
      out_of_service_ = served.error();
    }
    return {};
  }
  const std::optional<Error>& out_of_service() const { return out_of_service_; }

 private:
  // Half of it, so that a command says it within its timeout.
  std::chrono::milliseconds interval() const { return options_.broker.timeout / 2; }

  const ConsumeOptions& options_;
  steady_clock::time_point due_ = steady_clock::now() + interval();
  std::optional<Error> out_of_service_;  // As the last answer said.
};

// An idle time without a connection, or on a partition out of service, says nothing about the
// topic, so it is an error.
Result<> idle_end(bool is_lost, const ServiceCheck& service) {
  if (service.out_of_service()) return std::unexpected(*service.out_of_service());
  if (!is_lost) return {};
  return fail(Errc::io,
              "no record came within --idle, because the connection to the broker is lost");
}

// A broker that cannot be reached brings neither records nor an end.  A reader that ends by itself
// fails after its timeout; one that follows goes on, and the consumer has said why nothing comes.
class ReachLimit {
 public:
  explicit ReachLimit(const ConsumeOptions& options)
      : ends_(options.until_end || options.count || options.idle),
        until_(steady_clock::now() + options.broker.timeout) {}

  template <typename Consumer>
  Result<> check(Consumer& consumer) const {
    if (!ends_ || !consumer.is_unreachable() || steady_clock::now() < until_) return {};
    return consumer.timeout_error();
  }

 private:
  const bool ends_;
  const steady_clock::time_point until_;
};

// Reads partitions without a group.
class Consumption {
 public:
  Consumption(const ConsumeOptions& options, OffsetWord from, RecordFormat format)
      : options_(options),
        from_(from),
        printer_(options, std::move(format)),
        service_(options),
        reach_(options) {}

  int run() {
    auto consumer = KafkaConsumer::open(options_.broker.kafka(), options_.topic);
    if (!consumer) return failure(consumer.error().message);
    if (const auto started = start(*consumer); !started) return failure(started.error().message);
    end_in_order_on_signals();
    const auto read = read_all(*consumer);
    return printer_.end(read ? done : failure(read.error().message));
  }

 private:
  Result<> start(KafkaConsumer& consumer) {
    std::vector<PartitionIndex> partitions = consumer.partitions();
    if (options_.partition) {
      if (!std::ranges::count(partitions, *options_.partition)) {
        return fail(Errc::not_found,
                    fmt::format("{}: there is no partition {}; the topic has {}",
                                cell(options_.topic), *options_.partition,
                                counted(partitions.size(), "partition", "partitions")));
      }
      partitions = {*options_.partition};
    }
    reading_.insert(partitions.begin(), partitions.end());
    started_ = partitions;
    if (from_.time) {
      const auto offsets = consumer.offsets_at(partitions, to_ms(*from_.time));
      if (!offsets) return std::unexpected(offsets.error());
      for (const auto& [partition, offset] : *offsets)
        // -1: no record is that late.
        if (auto started = consumer.start(partition, offset < 0 ? log_end : offset); !started)
          return started;
      return {};
    }
    for (const auto partition : partitions)
      if (auto started = consumer.start(partition, from_.offset); !started) return started;
    return {};
  }

  Result<> read_all(KafkaConsumer& consumer) {
    while (!printer_.is_over()) {
      const auto next = next_of(consumer, [this] { printer_.flush(); });
      if (!next) return std::unexpected(next.error());
      if (const auto* end = std::get_if<EndOfPartition>(&*next)) {
        printer_.begin_quiet();
        reading_.erase(end->partition);
        if (reading_.empty()) printer_.at_end();
        if (options_.until_end && reading_.empty()) return {};
      } else if (const auto* record = std::get_if<ConsumedRecord>(&*next)) {
        if (printer_.print(*record)) return {};
      } else if (auto reached = reach_.check(consumer); !reached) {
        return reached;
      } else if (printer_.is_idle()) {
        return idle_end(consumer.is_lost(), service_);
      } else {
        printer_.say_note();
        if (auto served = service_.run(consumer, watched()); !served) return served;
      }
    }
    return {};
  }

  // The partitions whose service matters: the end of a partition needs no more of it.
  std::vector<PartitionIndex> watched() const {
    if (!options_.until_end) return started_;
    return {reading_.begin(), reading_.end()};
  }

  const ConsumeOptions& options_;
  const OffsetWord from_;
  std::vector<PartitionIndex> started_;
  std::set<PartitionIndex> reading_;  // The partitions whose end was not reached yet.
  RecordPrinter printer_;
  ServiceCheck service_;
  const ReachLimit reach_;
};

// Reads as a member of a group: commits records once they are written, never before, and leaves the
// group in order.
class GroupConsumption {
 public:
  GroupConsumption(const ConsumeOptions& options, bool from_end, RecordFormat format)
      : options_(options),
        from_end_(from_end),
        printer_(options, std::move(format)),
        service_(options),
        reach_(options) {}

  int run() {
    auto consumer = KafkaGroupConsumer::open(
        options_.broker.kafka(), options_.topic, *options_.group, from_end_,
        [this](const auto& lost, bool still_assigned) { before_revoke(lost, still_assigned); });
    if (!consumer) return failure(consumer.error().message);
    consumer_ = std::move(*consumer);
    end_in_order_on_signals();
    const auto read = read_all();
    // Stores the offsets of what was written; close() commits them.
    flush();
    const int status = printer_.end(read ? done : failure(read.error().message));
    // After an error nothing is committed that may not have been written.
    if (!read) return status;
    const auto closed = consumer_->close();
    return closed ? status : failure(closed.error().message);
  }

 private:
  Result<> read_all() {
    while (!printer_.is_over()) {
      const auto next = next_of(*consumer_, [this] { flush(); });
      if (!next) return std::unexpected(next.error());
      if (const auto* end = std::get_if<EndOfPartition>(&*next)) {
        at_end_.insert(end->partition);
      } else if (const auto* record = std::get_if<ConsumedRecord>(&*next)) {
        // The partition has grown since its end was reached.
        at_end_.erase(record->partition);
        // Noted here, and stored for the group once a flush has written the record.
        printed_[record->partition] = record->offset + 1;
        const bool last = printer_.print(*record);
        if (last) return {};
        if (printer_.is_flush_due()) flush();
        continue;
      }
      if (auto reached = reach_.check(*consumer_); !reached) return reached;
      const auto assigned = consumer_->assigned();
      // A member without partitions gets neither records nor the end of one, so for it --idle
      // counts from the assignment.
      if (assigned && (assigned->empty() || !at_end_.empty())) printer_.begin_quiet();
      if (assigned && !assigned->empty() && at_end_.size() == assigned->size()) {
        printer_.at_end();
        printer_.say_note();
      }
      if (options_.until_end && assigned && all_read(*assigned)) return {};
      if (printer_.is_idle()) return idle_end(consumer_->is_lost(), service_);
      if (!assigned) continue;
      if (auto served = service_.run(*consumer_, watched(*assigned)); !served) return served;
    }
    return {};
  }

  std::vector<PartitionIndex> watched(std::vector<PartitionIndex> assigned) const {
    if (options_.until_end)
      std::erase_if(assigned, [this](PartitionIndex each) { return at_end_.contains(each); });
    return assigned;
  }

  bool all_read(const std::vector<PartitionIndex>& assigned) const {
    if (assigned.empty()) {
      complain(
          fmt::format("{}: the group's other members have all partitions of {}; none is left for "
                      "this member",
                      cell(*options_.group), cell(options_.topic)));
    }
    return std::ranges::all_of(
        assigned, [this](PartitionIndex partition) { return at_end_.contains(partition); });
  }

  void before_revoke(const std::vector<PartitionIndex>& partitions, bool still_assigned) {
    // The last moment at which this member can commit what it has printed.
    if (still_assigned) flush();
    for (const auto partition : partitions) {
      at_end_.erase(partition);
      printed_.erase(partition);  // Another member commits them.
    }
  }

  // Records that could not be written (a full disk, a reader that is gone) are not committed.
  void flush() {
    if (!printer_.flush()) return;
    for (const auto& [partition, next] : printed_) consumer_->store_offset(partition, next);
    printed_.clear();
  }

  const ConsumeOptions& options_;
  const bool from_end_;
  std::set<PartitionIndex> at_end_;
  std::map<PartitionIndex, Offset>
      printed_;  // Next offsets of records that may not be written yet.
  RecordPrinter printer_;
  ServiceCheck service_;
  const ReachLimit reach_;
  std::unique_ptr<KafkaGroupConsumer> consumer_;  // Calls before_revoke(), so it goes first.
};

int run(const ConsumeOptions& options) {
  const auto from = parse_offset_word(options.from);
  if (!from) return usage_error(fmt::format("--from: {}", from.error().message));
  auto format = RecordFormat::parse(options.format);
  if (!format) return usage_error(fmt::format("--format: {}", format.error().message));
  if (!options.group) return Consumption(options, *from, std::move(*format)).run();
  if (options.partition)
    return usage_error("-p and -g: the group assigns the partitions; give one of the two");
  if (from->time || from->offset >= 0) {
    return usage_error(fmt::format(
        "--from: {}: with -g give start or end, which apply where the group has committed "
        "nothing; `tarry group reset` changes its committed offsets",
        printable(options.from)));
  }
  return GroupConsumption(options, from->offset == log_end, std::move(*format)).run();
}

}  // namespace

void add_consume(CLI::App& program, Chosen& chosen) {
  auto options = std::make_shared<ConsumeOptions>();
  auto* command = program.add_subcommand("consume", "Reads the records of a topic");
  add_broker_options(*command, options->broker);
  command->add_option("TOPIC", options->topic, "The topic to read")->required()->check(is_topic);
  command->add_option("--from", options->from, "The offset to begin at (default start)")
      ->option_text("start|end|OFFSET|@TIME")
      ->take_last();
  command->add_option("-p,--partition", options->partition, "Only this partition (default: all)")
      ->option_text("PARTITION")
      ->check(is_partition)
      ->take_last();
  command->add_option("-n,--count", options->count, "Ends after this many records")
      ->option_text("COUNT")
      ->check(is_count)
      ->take_last();
  command
      ->add_option(
          "-g,--group", options->group,
          "Joins this group: continues at its committed offset, and commits what it has printed")
      ->option_text("GROUP")
      ->check(is_group)
      ->take_last();
  command->add_flag("--until-end", options->until_end,
                    "Ends at the end of the topic (with -g: of its assigned partitions)");
  command->add_option("--idle", options->idle, "Ends when no record has come for this long")
      ->option_text("D")
      ->check(is_duration)
      ->take_last();
  command
      ->add_option("--format", options->format,
                   "How a record is printed: %t topic, %p partition, %o offset, %k key, %s value, "
                   "%T timestamp, %h headers, %K %S lengths of key and value, %% \\n \\t "
                   "(default '%s\\n')")
      ->option_text("F")
      ->take_last();
  add_examples(*command, {"tarry consume orders --from end",
                          "tarry consume orders --until-end --format '%p %o %T %k %s\\n'"});
  command->callback([options, &chosen] { chosen.run = [options] { return run(*options); }; });
}

}  // namespace tarry::cli
