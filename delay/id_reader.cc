#include "delay/id_reader.h"

#include <algorithm>
#include <exception>
#include <iterator>
#include <new>

namespace tarry::delay {

using storage::ScheduleEvent;

namespace {

// Short enough to need no allocation.
constexpr const char* no_memory_for_ids = "no memory";
// So many ids are looked up in memory, as long as it knows each, before the store is asked for all
// of them: half a millisecond.
constexpr std::size_t max_ids_known = 2'048;
// Batches of so few ids share a question to the store.
constexpr std::size_t few_ids = 256;
// The store is asked for so many at once for batches of few, which takes some milliseconds.
constexpr std::size_t max_ids_asked = 2'048;
// A turn answers requests for so many: some milliseconds if each is a batch of its own.
constexpr std::size_t ids_answered_a_turn = 256;

}  // namespace

void IdReader::read(const TopicPartition& partition, std::vector<std::string_view> ids, Done done) {
  IdRows rows(unwritten_.since());
  const auto is_told = [&](std::string_view id) {
    return unwritten_.last(partition, id, rows.since()) != nullptr;
  };
  const bool knows_all = dropped_.contains(partition.topic) ||
                         (ids.size() <= max_ids_known && std::ranges::all_of(ids, is_told));
  if (knows_all) return done(std::move(rows));
  rows = IdRows(unwritten_.since_stored());
  const std::size_t bytes = ids.size() * sizeof(IdRows::Lasts::value_type);
  auto held = std::make_shared<const bool>(true);
  // They count for as long as the request holds them.
  held_.emplace_back(held, bytes);
  rows.count_by(std::move(held));
  memory_ += bytes;
  const bool is_for_few = ids.size() <= few_ids;
  Question question{partition, std::move(ids), std::move(rows), std::move(done)};
  if (is_for_few) {
    for_few_->waiting.push_back(std::move(question));
    if (!for_few_->asking) ask_next();
  } else {
    auto alone = std::make_shared<Questions>();
    alone->push_back(std::move(question));
    ask(std::move(alone), false);
  }
}

// Everything that waits for rows of a few ids, up to a bound, becomes one piece of work.
void IdReader::ask_next() {
  auto& waiting = for_few_->waiting;
  auto end = waiting.begin();
  for (std::size_t ids = 0; end != waiting.end() && ids < max_ids_asked; ++end)
    ids += end->ids.size();
  std::shared_ptr<Questions> next;
  try {
    next = std::make_shared<Questions>();
    next->reserve(static_cast<std::size_t>(end - waiting.begin()));
  } catch (const std::bad_alloc&) {
    // Each is answered here: whoever waits for one that stays may be gone before the next one asks.
    return refuse(std::exchange(waiting, {}), no_memory_for_ids);
  }
  std::move(waiting.begin(), end, std::back_inserter(*next));
  waiting.erase(waiting.begin(), end);
  for_few_->asking = true;
  ask(std::move(next), true);
}

void IdReader::ask(std::shared_ptr<Questions> asked, bool is_for_few) {
  const auto work = [&store = store_, asked]() -> Result<std::vector<IdRows::Lasts>> {
    std::vector<IdRows::Lasts> lasts;
    for (const auto& question : *asked) {
      auto last = store.last_events(question.partition, question.ids);
      if (!last) return std::unexpected(last.error());
      lasts.push_back(std::move(*last));
    }
    return lasts;
  };
  try {
    // Now: later nobody could be told that there is no memory for the answers.
    auto then = [this, alive = lane_.alive(), &background = background_, few = for_few_,
                 answered = std::make_shared<Answered>(asked), is_for_few](Lasts lasts) {
      if (!lasts && *alive) lane_.fail(lasts.error());
      if (is_for_few) few->asking = false;
      // The store is asked for those that wait while these are answered.
      if (is_for_few && *alive && !few->waiting.empty()) ask_next();
      answered->lasts = std::move(lasts);
      answer(background, answered);
      if (is_for_few && !*alive && !few->asking)
        refuse(std::exchange(few->waiting, {}), "the pending store has stopped");
    };
    background_.run(work, std::move(then));
  } catch (const std::exception&) {
    // With those that wait for the end of this question, if there are any.
    Questions left;
    if (is_for_few) {
      for_few_->asking = false;
      left = std::exchange(for_few_->waiting, {});
    }
    refuse(std::exchange(*asked, {}), no_memory_for_ids);
    refuse(std::move(left), no_memory_for_ids);
  }
}

bool IdReader::Answered::answer(std::size_t ids) {
  for (std::size_t left = ids; next < asked->size() && left > 0;) {
    Question& question = (*asked)[next];
    left -= std::min(left, question.ids.size());
    if (lasts) {
      question.rows.set_last(std::move((*lasts)[next]));
      ++next;
      question.answer(std::move(question.rows));
    } else {
      ++next;
      question.answer(std::unexpected(lasts.error()));
    }
  }
  return next < asked->size();
}

// Each of the later turns has the ids that are named, for who waits keeps them until it is
// answered.
void IdReader::answer(Background& background, const std::shared_ptr<Answered>& answered) {
  if (!answered->answer(ids_answered_a_turn)) return;
  try {
    background.run_and_then([] {}, [&background, answered] { answer(background, answered); });
  } catch (const std::bad_alloc&) {
    while (answered->answer(ids_answered_a_turn)) {
    }
  }
}

void IdReader::refuse(Questions asked, const char* why) {
  for (auto& question : asked) question.answer(fail(Errc::exhausted, why));
}

std::optional<ScheduleEvent> IdReader::last_event(const TopicPartition& partition,
                                                  std::string_view id, const IdRows& rows,
                                                  std::size_t at) const {
  if (dropped_.contains(partition.topic)) return std::nullopt;
  if (const auto* const last = unwritten_.last(partition, id, rows.since())) return *last;
  return rows.last(at);
}

void IdReader::forget_ended() {
  for (; !held_.empty() && held_.front().first.expired(); held_.pop_front())
    memory_ -= held_.front().second;
}

}  // namespace tarry::delay
