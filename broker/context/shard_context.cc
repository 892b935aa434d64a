#include "broker/context/shard_context.h"

#include <algorithm>
#include <exception>
#include <new>

#include <fmt/core.h>
#include <boost/asio/post.hpp>

#include "base/log.h"
#include "broker/context/one_shot_event.h"

namespace tarry::broker {
namespace {

using std::chrono::milliseconds;

// An idle journal notes that its last round was synced; soon, but not after every round of a
// client that sends one record at a time.
constexpr milliseconds idle_note_after{100};

// Then it is the others' turn.  A Produce takes two microseconds, the answer to a group's member
// several, and the end of a member's session a hundred, if it has offered a hundred protocols.
constexpr std::size_t completions_a_turn = 64;

}  // namespace

ShardContext::ShardContext(const BrokerContext& broker, ShardSetup setup)
    : broker_(broker),
      config_(broker.config),
      setup_(std::move(setup)),
      epoch_(broker.clock->mono()),
      purgatory_(wheel_),
      ledger_(*this, thread_, *broker.memory),
      steps_(setup_.executor),
      completions_timer_([this] { purgatory_.run_completions(tick(), completions_a_turn); }),
      idle_note_timer_([this] { journal_->note_idle(); }) {
  purgatory_.set_ready_hook([this] {
    // In a turn of its own, when the change that caused the completions is complete.
    try {
      boost::asio::post(executor(),
                        [this] { purgatory_.run_completions(tick(), completions_a_turn); });
    } catch (const std::bad_alloc&) {
      // They wait for nothing else: without a run they would never be answered.
      wheel_.schedule(completions_timer_, tick() + 1);
    }
  });
}

timing::Tick ShardContext::tick() const {
  // The present is rounded down and deadlines are rounded up, so that none passes early.
  return static_cast<timing::Tick>(
      std::chrono::floor<milliseconds>(clock().mono() - epoch_).count());
}

timing::Tick ShardContext::tick_after(milliseconds wait) const {
  return static_cast<timing::Tick>(
      std::chrono::ceil<milliseconds>(clock().mono() - epoch_ + std::max(wait, milliseconds{0}))
          .count());
}

MonoTime ShardContext::time_of(timing::Tick tick) const {
  // A tick beyond what the clock can say is never reached.
  constexpr auto farthest =
      static_cast<timing::Tick>(milliseconds{std::chrono::years{100}}.count());
  return epoch_ + milliseconds{static_cast<std::int64_t>(std::min(tick, farthest))};
}

// --- Work that blocks

boost::asio::awaitable<void> ShardContext::run_on_pool(std::move_only_function<void()>& work) {
  OneShotEvent done;
  std::exception_ptr thrown;
  // The pool's threads catch nothing; and a stop waits for the pool before frames are destroyed.
  background().run_and_then(
      [&work, &thrown] {
        try {
          work();
        } catch (...) {
          thrown = std::current_exception();
        }
      },
      [&done] { done.fire(); });
  co_await done.wait();
  if (thrown) std::rethrow_exception(thrown);
}

// --- The journal

Result<> ShardContext::open_journal(const storage::RecoveredJournal& recovered) {
  storage::JournalOptions options;
  options.directory = fmt::format("{}/journal/{}", config().data_directory, index());
  options.shard = index();
  options.file_bytes = static_cast<std::uint64_t>(config().journal_file_bytes);
  options.max_bytes = static_cast<std::uint64_t>(config().journal_max_bytes);
  options.round_lane = setup_.round_lane;
  storage::JournalHooks hooks;
  // At the end of the turn all that belongs together is appended.
  hooks.on_ready = [this] { boost::asio::post(executor(), [this] { journal_->start_round(); }); };
  hooks.on_failure = [this](const Error& error) { journal_failed(error); };
  hooks.on_pressure = [this] { on_journal_pressure(); };
  hooks.on_postponed = [this](const Error& error) { on_journal_postponed(error); };
  auto journal = storage::Journal::open(*broker_.disk, background(), *broker_.random, clock(),
                                        options, std::move(hooks), recovered);
  if (!journal) return std::unexpected(journal.error());
  journal_ = std::move(*journal);
  return {};
}

Result<Lsn> ShardContext::commit(storage::JournalTransaction transaction) {
  assert_on_shard();
  // A stop still writes what others wait for: its files are open, and may be put back.
  if (lost_directory_ && !stopping_) {
    const auto lost = fail(Errc::no_space, std::string(lost_directory_text));
    transaction.tell_settled(lost);
    return lost;
  }
  const auto reserve = transaction.reserve();
  const auto durability = transaction.durability();
  // The journal drops what it refuses, and its parts have not been notified yet.
  const auto kept = std::make_shared<storage::JournalTransaction>(std::move(transaction));
  const auto pieces = kept->pieces();
  auto lsn = journal_->append(
      pieces,
      [this, kept](const Result<>& safe) {
        // Its changes are applied first, so that the requests that wait for it find it.
        kept->tell_settled(safe);
        if (safe) advance_watermarks(kept->lsn(), kept->durability());
        record_completed();
        arm_idle_note();
      },
      durability, reserve, kept->kept());
  if (!lsn) {
    // A checkpoint makes room, so the client's next try may be well.
    if (lsn.error().code == Errc::no_space) on_journal_pressure();
    kept->tell_settled(std::unexpected(lsn.error()));
    return lsn;
  }
  kept->tell_appended(*lsn);
  record_appended(*lsn);
  return lsn;
}

void ShardContext::apply_on_pool(std::move_only_function<Result<>()> apply,
                                 std::move_only_function<void()> then) {
  assert_on_shard();
  auto applied = [this, then = std::move(then)](const Result<>& result) mutable {
    if (!result) {
      journal_failed(result.error());
      return all_applied();
    }
    if (--applying_ == 0) all_applied();
    then();
  };
  background().run(std::move(apply), std::move(applied));
  ++applying_;
}

void ShardContext::advance_watermarks(Lsn lsn, storage::Durability durability) {
  // A wait for a record has its LSN as threshold; waits for later records have larger ones.
  // A durable record is written too; in one round, waits for the write are answered first.
  const auto reached = static_cast<purgatory::Threshold>(lsn);
  if (lsn >= written_through_) {
    written_through_ = lsn + 1;
    written_waiters.advance_to(reached);
  }
  if (durability == storage::Durability::fsync) {
    durable_through_ = lsn + 1;
    durable_waiters.advance_to(reached);
  }
}

void ShardContext::journal_failed(const Error& error) {
  assert_on_shard();
  failed_ = true;
  broker_.on_failure(error);
}

void ShardContext::arm_idle_note() {
  if (!idle_note_timer_.armed() && !stopping_)
    wheel_.schedule(idle_note_timer_, tick_after(idle_note_after));
}

// --- Topics

std::shared_ptr<const TopicConfig> ShardContext::config_of(const storage::Topic& topic) {
  assert_on_shard();
  auto& config = configs_[topic.id];
  if (!config) {
    const auto& defaults = config_.topic_defaults;
    auto made = make_topic_config(defaults, topic.configs);
    if (!made) {
      // It was accepted by another version, or the defaults have changed: what is not understood is
      // left out.
      log_error("broker", "topic {}: {}; the broker uses the defaults for all its configs",
                topic.name, made.error().message);
      made = make_topic_config(defaults, {});
    }
    config = std::make_shared<const TopicConfig>(*made);
  }
  return config;
}

bool ShardContext::exchange_config(const BrokerConfig& config) {
  assert_on_shard();
  const bool other_defaults = config_.topic_defaults != config.topic_defaults;
  config_ = config;
  // They hold the former defaults, and each is made again when it is asked for.
  if (other_defaults) configs_.clear();
  return other_defaults;
}

void ShardContext::set_topic_refused(const TopicId& topic, bool refuse) {
  assert_on_shard();
  if (refuse) {
    refused_.insert(topic);
  } else {
    refused_.erase(topic);
  }
}

std::shared_ptr<const storage::TopicsImage> ShardContext::exchange_topics(
    std::shared_ptr<const storage::TopicsImage> topics) {
  assert_on_shard();
  return std::exchange(topics_, std::move(topics));
}

void ShardContext::begin_to_stop() {
  assert_on_shard();
  stopping_ = true;
  idle_note_timer_.cancel();
}

}  // namespace tarry::broker
