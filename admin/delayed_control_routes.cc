#include "admin/delayed_control_routes.h"

#include <algorithm>
#include <chrono>
#include <deque>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include <fmt/core.h>

#include "admin/delayed_call.h"
#include "base/glob.h"
#include "base/json.h"
#include "base/log.h"
#include "broker/broker.h"
#include "broker/context/yield_budget.h"
#include "broker/views/delayed_counts.h"
#include "broker/views/delayed_records.h"
#include "broker/views/topics_count.h"
#include "web/arguments.h"
#include "web/reply_stream.h"
#include "web/selection_request.h"

namespace tarry::admin {
namespace {

namespace asio = boost::asio;
using broker::Controlled;
using broker::ControlOutcome;
using broker::DelayedControl;
using Kind = DelayedControl::Kind;

// A line is sent each time that so many records are done.
constexpr std::size_t records_per_line = 1000;

// The number that is found at once: where much is due in one hour, each page reads it.
constexpr std::size_t records_per_page = 10'000;

// Topics whose records are counted for one line.
constexpr std::size_t topics_per_line = 64;

// The times that a record of a page takes, which is freed with it, and one that is shown too.
constexpr std::size_t us_per_found = 2;
constexpr std::size_t us_per_shown = 20;

// A move may put a record where the selection finds it again, so all are found before one is moved.
// About 60 bytes each.
constexpr std::size_t max_moved_at_once = 1'000'000;

// The records in the last line of a preview, unless it asks for more or fewer.
constexpr std::size_t default_previewed = 10;
constexpr std::size_t max_previewed = 1000;
constexpr std::size_t max_topic_pattern = 249;  // No topic has a longer name.

std::string_view name_of(ControlOutcome outcome, Kind kind) {
  switch (outcome) {
    case ControlOutcome::done:
      return kind == Kind::cancel ? "cancelled" : kind == Kind::move ? "moved" : "delivered";
    case ControlOutcome::already_delivered:
      return "already_delivered";
    case ControlOutcome::unknown:
      break;
  }
  return "unknown";
}

WallTime now_of(const Call& call) {
  return call.context.broker.clock().wall();
}

// --- One record.

// Where the last record of an id that was delivered is, by partition, as far as that is remembered.
asio::awaitable<std::map<PartitionIndex, Offset>> delivered_offsets(Call& call,
                                                                    const NamedCall& named) {
  auto& context = call.context;
  std::map<PartitionIndex, Offset> offsets;
  const auto events = co_await broker::trace_delayed(context.broker, context.here, named.topic,
                                                     named.name, named.partition);
  // What was done is told all the same.
  if (!events) co_return offsets;
  for (const auto& event : *events) {
    if (event.kind == broker::PartitionEvent::Kind::delivered && event.offset >= 0)
      offsets[event.partition] = event.offset;
  }
  co_return offsets;
}

asio::awaitable<Reply> control_one(Call& call, DelayedControl control) {
  const NamedCall named(call);
  auto& context = call.context;
  const auto told = co_await broker::control_delayed(context.broker, context.here, named.topic,
                                                     named.name, named.partition, control);
  if (!told) throw_failed(told.error());
  context.pending_changed();

  const bool was_too_late = std::ranges::any_of(*told, [](const auto& each) {
    return each.told.outcome == ControlOutcome::already_delivered;
  });
  std::map<PartitionIndex, Offset> earlier;
  if (control.kind == Kind::deliver && was_too_late)
    earlier = co_await delivered_offsets(call, named);

  ControlOutcome best = ControlOutcome::unknown;
  Json partitions = Json::array();
  for (const auto& each : *told) {
    best = std::min(best, each.told.outcome);  // Their order is from best to worst.
    Json one{{"partition", each.partition}, {"result", name_of(each.told.outcome, control.kind)}};
    if (each.told.outcome == ControlOutcome::done && control.kind == Kind::deliver)
      one["offset"] = each.told.offset;
    if (each.told.outcome == ControlOutcome::already_delivered && earlier.contains(each.partition))
      one["offset"] = earlier.at(each.partition);
    if (each.told.outcome == ControlOutcome::done && control.kind == Kind::move)
      one["due_ms"] = to_ms(each.told.due);
    partitions.push_back(std::move(one));
  }
  Json body;
  body["result"] = name_of(best, control.kind);
  body["partitions"] = std::move(partitions);
  co_return json_reply(body);
}

// --- A selection.

// Finds what a query matches, page by page, does it, and tells how far it is.
//
// A dry run whose conditions are topics and times alone is counted by the numbers that the store
// keeps, and looks only at the records that it tells: ten million cost no more than ten.
class Selection final : public ReplyStream {
 public:
  // `dry_run`: changes nothing, and tells the first so many.  `topics`: a dry run of all topics
  // with such a name, in one sweep of the store, which for each topic alone would take as long.
  Selection(Context& context, broker::DelayedQuery query, DelayedControl control,
            std::optional<std::size_t> dry_run, std::optional<std::string> topics = std::nullopt)
      : context_(context),
        query_(std::move(query)),
        control_(control),
        dry_run_(dry_run),
        topics_(std::move(topics)),
        counts_(dry_run_ && query_.id.empty() && query_.key.empty() && !query_.partition) {
    // A page of all topics but some may have none that is told.
    const bool tells_all = counts_ && (!topics_ || *topics_ == "*");
    query_.limit = tells_all ? std::max<std::size_t>(dry_run_.value_or(0), 1) : records_per_page;
  }

  asio::awaitable<std::optional<std::string>> next() override {
    if (ended_) co_return std::nullopt;
    if (counts_ && !counted_) {
      co_await count();
    } else {
      co_await advance();
    }
    if (ended_ && !dry_run_) context_.pending_changed();
    co_return line();
  }

 private:
  // The number of records of some more topics.
  asio::awaitable<void> count() {
    if (!std::exchange(written_, true)) {
      co_await broker::write_pending(context_.broker, context_.here);
      co_await find_topics();
    }
    const bool always = query_.from == WallTime::min() && query_.until == WallTime::max();
    if (topics_ && !always) {
      co_await count_together();
      co_return;
    }
    for (std::size_t n = 0; n < topics_per_line && !uncounted_.empty(); ++n) {
      auto of_topic = query_;
      of_topic.topic = std::move(uncounted_.front());
      uncounted_.pop_front();
      const auto topic = of_topic.topic;
      std::uint64_t total = 0;
      if (always) {
        total = context_.broker.pending_counts().pending_of(topic->id);
      } else {
        const auto counted = co_await broker::count_delayed(
            context_.broker, context_.here, std::move(of_topic), std::chrono::hours(24), true);
        if (!counted) {
          fail(counted.error().message);
          co_return;
        }
        total = counted->total;
      }
      matched_ += total;
      if (topics_ && total != 0) matched_by_topic_[topic->name] = total;
    }
    counted_ = uncounted_.empty();
    ended_ = counted_ && max_shown() == 0;
  }

  // The same of several topics in a time, whose parts that have to be read are read once for all.
  asio::awaitable<void> count_together() {
    if (!together_) together_.emplace(context_.broker, context_.here, query_.from, query_.until);
    for (std::size_t n = 0; n < topics_per_line && !uncounted_.empty(); ++n) {
      const auto added = co_await together_->add(uncounted_.front()->id);
      if (!added) {
        fail(added.error().message);
        co_return;
      }
      meant_.push_back(std::move(uncounted_.front()));
      uncounted_.pop_front();
    }
    if (uncounted_.empty()) {
      const auto goes_on = co_await together_->read();
      if (!goes_on) {
        fail(goes_on.error().message);
        co_return;
      }
      counted_ = !*goes_on;
    }
    matched_ = together_->total();
    if (!counted_) co_return;
    broker::YieldBudget budget(context_.here, nullptr);
    for (const auto& topic : meant_) {
      if (budget.spend()) co_await budget.yield();
      const std::uint64_t total = together_->of(topic->id);
      if (total != 0) matched_by_topic_[topic->name] = total;
    }
    ended_ = max_shown() == 0;
  }

  asio::awaitable<void> find_topics() {
    if (!topics_) {
      uncounted_.push_back(query_.topic);
      co_return;
    }
    // One list, because there may be others after each wait.
    const auto topics = context_.here.topics().by_name();
    broker::YieldBudget budget(context_.here, nullptr);
    for (const auto& topic : topics) {
      if (budget.spend()) co_await budget.yield();
      if (context_.broker.pending_counts().pending_of(topic->id) != 0 &&
          !query_.hidden.contains(topic->id) && matches_glob(*topics_, topic->name))
        uncounted_.push_back(topic);
    }
  }

  // At most as many as were counted: others may have come since.
  std::uint64_t max_shown() const {
    const std::uint64_t wanted = dry_run_.value_or(0);
    return counts_ ? std::min(wanted, matched_) : wanted;
  }

  // To the next line.
  asio::awaitable<void> advance() {
    if (counts_) {
      const bool found = co_await find_some();
      ended_ |= found && (found_all_ || shown_ >= max_shown());
      co_return;
    }
    const bool all_first = control_.kind == Kind::move && !dry_run_;
    if (!found_all_ && (all_first || found_.empty())) {
      const bool found = co_await find_some();
      if (all_first) matched_ = found_.size();
      if (!found || (all_first && !found_all_)) co_return;
    }
    const std::size_t count = std::min(records_per_line, found_.size());
    std::vector<broker::NamedRecord> some;
    for (; some.size() < count; found_.pop_front()) some.push_back(std::move(found_.front()));
    if (!all_first) matched_ += count;
    if (!dry_run_) co_await control(some);
    ended_ |= found_all_ && found_.empty();
  }

  // One page; false: it failed.
  asio::awaitable<bool> find_some() {
    // The shards' memory is written to the store once, because records that are accepted after the
    // first page are not selected.  The next page begins behind this one, so records that go
    // meanwhile change nothing.
    auto page = co_await broker::list_delayed(context_.broker, context_.here, query_,
                                              std::exchange(written_, true));
    if (!page) co_return fail(page.error().message);
    // A page has so many that no turn of the shard is for all of them.
    broker::YieldBudget budget(context_.here, nullptr);
    for (auto& each : page->records) {
      const bool is_shown = shown_ < max_shown();
      if (budget.spend(is_shown ? us_per_shown : us_per_found)) co_await budget.yield();
      auto record = std::move(each);  // Freed in this step.
      if (topics_) {
        // Neighbours are often of one topic.
        if (record.topic != last_topic_) {
          last_topic_ = record.topic;
          is_last_meant_ = matches_glob(*topics_, last_topic_);
          last_count_ = is_last_meant_ && !counts_ ? &matched_by_topic_[last_topic_] : nullptr;
        }
        if (!is_last_meant_) continue;
        if (last_count_ != nullptr) ++*last_count_;
      }
      if (is_shown) {
        if (shown_++ != 0) shown_text_ += ',';
        shown_text_ += text_of(json_of(record));
      }
      if (counts_) continue;
      // By its handle, because another record may have taken its id by then.
      found_.push_back({record.partition, std::move(record.handle)});
    }
    if (page->next.empty()) found_all_ = true;
    query_.after = std::move(page->next);
    if (control_.kind == Kind::move && !dry_run_ && found_.size() > max_moved_at_once) {
      co_return fail(
          fmt::format("the selection has more than {} records, which is the limit of one move; "
                      "nothing was moved: select fewer, for instance by due time",
                      max_moved_at_once));
    }
    co_return true;
  }

  asio::awaitable<void> control(std::vector<broker::NamedRecord>& some) {
    co_await broker::control_several(context_.broker, context_.here, query_.topic, some, control_);
    for (const auto& record : some) {
      if (!record.told) {
        if (failed_++ == 0) error_ = record.told.error().message;
      } else {
        ++told_[static_cast<std::size_t>(record.told->outcome)];
      }
    }
  }

  bool fail(std::string why) {
    ended_ = true;
    error_ = std::move(why);
    return false;
  }

  std::string line() const {
    Json body;
    body["matched"] = matched_;
    body["done"] = told_[static_cast<std::size_t>(ControlOutcome::done)];
    body["already_delivered"] = told_[static_cast<std::size_t>(ControlOutcome::already_delivered)];
    body["unknown"] = told_[static_cast<std::size_t>(ControlOutcome::unknown)];
    if (failed_ != 0) body["failed"] = failed_;
    if (!error_.empty()) body["error"] = error_;
    if (ended_ && topics_) body["topics"] = matched_by_topic_;
    std::string text = text_of(body);
    if (ended_ && dry_run_) {
      text.pop_back();  // The brace behind the last field.
      text += fmt::format(",\"records\":[{}]}}", shown_text_);
    }
    return text + "\n";
  }

  Context& context_;
  broker::DelayedQuery query_;
  const DelayedControl control_;
  const std::optional<std::size_t> dry_run_;
  const std::optional<std::string> topics_;  // A pattern; empty: the topic of the query alone.
  const bool counts_;                        // The store's numbers say how many match.
  std::deque<broker::TopicPtr> uncounted_;   // Then: topics whose turn is to come,
  bool counted_ = false;                     //   and whether they have all had it.
  // Several topics in a time, and which these are.
  std::optional<broker::TopicsCount> together_;
  std::deque<broker::TopicPtr> meant_;
  // Not done yet.  No vector, which would move a million of them in one turn when it grows.
  std::deque<broker::NamedRecord> found_;
  bool written_ = false;  // The shards' memory is in the store.
  bool found_all_ = false;
  bool ended_ = false;
  std::uint64_t matched_ = 0;
  std::map<std::string, std::uint64_t> matched_by_topic_;
  std::string last_topic_;
  bool is_last_meant_ = false;
  std::uint64_t* last_count_ = nullptr;  // In the map; null: it does not match, or is counted.
  std::uint64_t told_[3] = {};           // By outcome.
  std::uint64_t failed_ = 0;
  std::string error_;       // The first one.
  std::size_t shown_ = 0;   // Records in shown_text_.
  std::string shown_text_;  // Each was made JSON in its step, so that none makes all of them.
};

Kind kind_of(SelectionRequest::Action action) {
  using Action = SelectionRequest::Action;
  return action == Action::cancel ? Kind::cancel
         : action == Action::move ? Kind::move
                                  : Kind::deliver;
}

}  // namespace

asio::awaitable<Reply> cancel_delayed(Call& call) {
  co_return co_await control_one(call, {Kind::cancel});
}

asio::awaitable<Reply> move_delayed(Call& call) {
  const Json body = object_in(call.body, {"due", "by"}, R"({"due": "2026-12-24T18:00:00Z"})");
  co_return co_await control_one(call, {Kind::move, new_due_in(body, now_of(call))});
}

asio::awaitable<Reply> deliver_delayed(Call& call) {
  co_return co_await control_one(call, {Kind::deliver});
}

asio::awaitable<Reply> select_delayed(Call& call) {
  broker::DelayedQuery query;
  query.topic = topic_of(call, call.part(1));
  const auto request = selection_request(call.body, query.topic->partitions - 1, now_of(call));
  put_filter(query, request.filter);
  Reply reply;
  reply.content_type = "application/x-ndjson";
  reply.stream = std::make_shared<Selection>(call.context, std::move(query),
                                             DelayedControl{kind_of(request.action), request.due},
                                             request.shown);
  co_return reply;
}

asio::awaitable<Reply> preview_selection(Call& call) {
  const auto* topic = call.parameter("topic");
  if (topic == nullptr)
    throw Refused{400, "give the topic of the selection, as in topic=orders&id=order-*"};
  broker::DelayedQuery query;
  // No topic's name has one of these.
  const bool is_pattern = topic->find_first_of("*?[") != std::string::npos;
  if (!is_pattern) {
    query.topic = topic_of(call, *topic);
  } else if (topic->size() > max_topic_pattern) {
    throw Refused{400, fmt::format("a pattern of topics of {} bytes; the limit is {}",
                                   topic->size(), max_topic_pattern)};
  } else if (call.parameter("partition") != nullptr) {
    throw Refused{400, "partition needs the whole name of a topic, as in topic=orders&partition=0"};
  }
  auto& context = call.context;
  if (is_pattern) query.hidden = co_await call.reader.hidden_topics(context.broker, context.here);
  const auto words = [&](const char* name) {
    const auto* text = call.parameter(name);
    return text == nullptr ? std::nullopt : std::optional(*text);
  };
  put_filter(query,
             read_filter(words, query.topic ? query.topic->partitions - 1 : 0, now_of(call)));
  const auto* show = call.parameter("show");
  const std::size_t shown =
      show == nullptr ? default_previewed : number_given("show", *show, 0, max_previewed);
  Reply reply;
  reply.content_type = "application/x-ndjson";
  // The action of a selection that changes nothing plays no part.
  reply.stream =
      std::make_shared<Selection>(context, std::move(query), DelayedControl{Kind::cancel}, shown,
                                  is_pattern ? std::optional(*topic) : std::nullopt);
  co_return reply;
}

}  // namespace tarry::admin
