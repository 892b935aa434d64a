#include "relay/partition.h"

#include <algorithm>
#include <iterator>
#include <utility>

#include <fmt/format.h>

#include "base/ascii_case.h"
#include "base/assert.h"
#include "base/glob.h"
#include "base/log.h"
#include "base/time_text.h"
#include "delay/header_names.h"
#include "delay/moved_due.h"
#include "delay/pending_record.h"
#include "delay/time_zones.h"
#include "records/batch_builder.h"
#include "records/record_batch.h"
#include "storage/journal_record.h"

namespace tarry::relay {
namespace {

constexpr std::size_t tombstone_bytes = 64;
// The heap's own bytes for a body.
constexpr std::size_t heap_bytes = 16;

std::optional<Buffer> copy_of(const std::optional<Bytes>& bytes) {
  if (!bytes) return std::nullopt;
  std::optional<Buffer> copy(std::in_place);
  append_bytes(*copy, *bytes);
  return copy;
}

Buffer text_buffer(std::string_view text) {
  Buffer buffer;
  append_bytes(buffer, as_bytes(text));
  return buffer;
}

}  // namespace

std::string Rules::state_topic(const std::string& source) const {
  return group + std::string(state_mark) + source;
}

std::string default_target(std::string_view source_topic) {
  if (source_topic.size() <= source_suffix.size() || !source_topic.ends_with(source_suffix))
    return {};
  return std::string(source_topic.substr(0, source_topic.size() - source_suffix.size()));
}

bool is_topic_name(std::string_view name) {
  constexpr std::size_t max_name = 249;
  if (name.empty() || name.size() > max_name || name == "." || name == "..") return false;
  return std::ranges::all_of(name, [](char c) {
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '.' ||
           c == '_' || c == '-';
  });
}

void Counts::add(const Counts& more) {
  taken += more.taken;
  delivered += more.delivered;
  cancelled += more.cancelled;
  replaced += more.replaced;
  expired += more.expired;
  invalid += more.invalid;
  dropped += more.dropped;
}

// A plan while it is made: what is pending is what was, with the changes.
struct Partition::PlanState {
  WallTime now;
  Work& work;
  std::map<std::string, std::optional<Offset>>& ids;  // The work's.
  const Limits& limits;
  std::size_t most_bytes;  // With so many in the work, nothing more is delivered.

  bool delivers(const std::string& id) const {
    return std::ranges::find(work.delivered_ids, id) != work.delivered_ids.end();
  }
};

Offset Partition::rows_from(WallTime now, Offset rows_end, std::optional<Offset> committed) {
  RowsPlace place = pending_.place();
  // A time ahead of the clock says as little: the clock was set back since.
  const bool is_old =
      place.complete_at + longest_unread < now || place.complete_at > now + longest_unread;
  // The state topic was made again, or the group's offsets were set back: the rows belong to
  // another past.
  const bool is_other = place.next > rows_end || (committed && *committed < place.source);
  if (place.next > 0 && !is_old && !is_other) return place.next;
  forget();
  // A row that can be read now was not compacted away before.
  place = {.next = 0, .source = committed.value_or(place.source), .complete_at = now};
  pending_.commit(place);
  return 0;
}

void Partition::forget() {
  RowsPlace place = pending_.place();
  pending_.clear();
  loaded_ = 0;
  place.next = 0;
  if (place.source >= 0) pending_.commit(place);
}

void Partition::note_committed(Offset next) {
  RowsPlace place = pending_.place();
  if (next == place.source) return;
  if (next < place.source) {
    pending_.clear();
    loaded_ = 0;
    place.next = 0;
  }
  place.source = next;
  pending_.commit(place);
}

void Partition::loaded(Offset end, WallTime now) {
  RowsPlace place = pending_.place();
  place.next = std::max({place.next, loaded_, end});
  if (end >= place.next) place.complete_at = now;
  pending_.commit(place);
}

void Partition::note_complete(WallTime now) {
  RowsPlace place = pending_.place();
  place.complete_at = now;
  pending_.commit(place);
}

Result<> Partition::load_row(std::string_view key, const std::optional<Buffer>& value,
                             Offset row_offset) {
  // A row that is refused counts too, or the store would wait for it for ever.
  loaded_ = row_offset + 1;
  const auto offset = offset_in_handle(source_, key);
  if (!offset)
    return fail(Errc::corrupt,
                fmt::format("{} is not a handle of {}", printable(key), source_.text()));
  if (!value) {
    pending_.erase(*offset);
    return {};
  }
  auto record = decode_row(*value);
  if (!record)
    return fail(record.error().code, fmt::format("{}: {}", printable(key), record.error().message));
  // Anybody who may write to the state topic could have written it, and deliver() has no way to
  // refuse.
  if (!is_topic_name(record->target))
    return fail(Errc::corrupt, fmt::format("{}: \"{}\" is not a topic name", printable(key),
                                           printable(record->target)));
  if (const auto body = delay::PendingRecordBody::parse(record->body); !body)
    return fail(body.error().code, fmt::format("{}: {}", printable(key), body.error().message));
  pending_.put(*offset, *record);
  return {};
}

void Partition::begin(Offset next, WallTime now) {
  RowsPlace place = pending_.place();
  place.source = next_ = next;
  pending_.commit(place);
  running_since_ = now;
  // The last owner's transactions have dealt with these.
  while (!arrived_.empty() && arrived_.front().record.offset < next) {
    arrived_bytes_ -= arrived_.front().bytes();
    arrived_.pop_front();
  }
  // Kafka refuses such a record after a take-over too.
  std::erase_if(refused_, [&](const auto& each) {
    return each.first < next && !pending_.contains(each.first);
  });
  std::erase_if(sent_, [&](Offset each) { return each < next && !pending_.contains(each); });
}

// A small record takes most of its memory for other things than its body.
std::size_t Partition::ArrivedRecord::bytes() const {
  return sizeof(ArrivedRecord) + heap_bytes + record.body.capacity();
}

void Partition::arrive(SourceRecord record, WallTime fetched_at) {
  if (record.offset < arrived_end()) return;  // Read again after a pause.
  arrived_.push_back({std::move(record), fetched_at});
  arrived_bytes_ += arrived_.back().bytes();
}

std::optional<WallTime> Partition::next_due() const {
  if (!pending_.first()) return std::nullopt;
  return pending_.first()->first;
}

std::optional<WallTime> Partition::next_due(const Work& open) const {
  const auto& first = open.is_walked ? open.unwalked : pending_.first();
  std::optional<WallTime> next;
  if (first) next = first->first;
  for (const auto& [offset, change] : open.changes)
    if (change.record && (!next || change.record->due < *next)) next = change.record->due;
  return next;
}

void Partition::refuse(Offset offset, std::string reason) {
  refused_[offset] = {std::move(reason)};
}

void Partition::refuse_invalid(Offset offset, std::string reason) {
  Refusal& refusal = refused_[offset];
  using Sends = Refusal::Sends;
  refusal.sends = refusal.sends == Sends::record ? Sends::error : Sends::nothing;
  refusal.reason = std::move(reason);
  if (refusal.sends == Sends::nothing)
    log_error("relay", "the record of {} at offset {} is dropped: {}", source_.text(), offset,
              refusal.reason);
}

Work Partition::plan(WallTime now, bool may_deliver, const Limits& limits,
                     std::span<const Order* const> orders) const {
  Work work;
  extend(work, now, may_deliver, limits, orders);
  std::vector<ProducerRecord> rows;
  add_rows(work, rows);
  std::ranges::move(rows, std::back_inserter(work.records));
  return work;
}

void Partition::extend(Work& work, WallTime now, bool may_deliver, Limits limits,
                       std::span<const Order* const> orders) const {
  // Twice this part, and not the whole: or a work would double with each part of it.  Arrivals may
  // use the bound up, and deliveries must not starve behind them.
  const std::size_t most_bytes = work.bytes + 2 * limits.bytes;
  // From here on they are those of the whole work.
  limits.arrivals += work.taken;
  limits.bytes += work.bytes;
  PlanState planning{now, work, work.ids, limits, most_bytes};
  work.now = now;
  work.earliest = std::min(work.earliest, now);
  work.is_cut_short = false;
  work.held_by.clear();
  if (work.next < 0) work.next = next_;
  while (work.taken < arrived_.size()) {
    // The source keeps what the store has no room for.
    if (pending_.bytes() + work.bytes >= limits.pending_bytes) break;
    work.is_cut_short = work.taken >= limits.arrivals || work.bytes >= limits.bytes;
    if (work.is_cut_short) break;
    const SourceRecord& record = arrived_[work.taken].record;
    take(record, planning);
    ++work.taken;
    work.next = record.offset + 1;
    work.bytes += record.body.size();
  }
  work.counts.taken = work.taken;
  const WallTime last = last_due(planning, limits);
  // Their bytes have a bound of their own, so that they find room behind many arrivals.
  for (const std::size_t before = work.bytes; const Order* order : orders) {
    if (work.bytes - before >= limits.bytes) {
      work.is_cut_short = true;
      break;
    }
    obey(*order, planning);
  }
  if (may_deliver) deliver_due(last, planning, limits);
}

std::expected<std::string, std::string> Partition::target_of(
    const records::RecordView& record) const {
  std::optional<std::string> asked;
  for (const auto& header : record.headers) {
    if (!equals_ignoring_case(header.name, deliver_to_header)) continue;
    if (asked) return std::unexpected("x-deliver-to: given twice");
    asked = header.value ? std::string(as_text(*header.value)) : std::string{};
  }
  std::string usual = default_target(source_.topic);
  if (!asked) {
    if (!usual.empty()) return usual;
    return std::unexpected(fmt::format(
        "x-deliver-to: missing; {} does not end in {}, so its name gives no target topic",
        source_.topic, source_suffix));
  }
  if (!is_topic_name(*asked))
    return std::unexpected(
        fmt::format("x-deliver-to: \"{}\" is not a topic name", printable(*asked)));
  // A producer that may choose a target must not write the state of a relay.
  if (asked->contains(state_mark) || asked->starts_with("__"))
    return std::unexpected(
        fmt::format("x-deliver-to: {} is never allowed: it belongs to Kafka or a relay", *asked));
  if (*asked == usual || (!rules_.deliver_to.empty() && matches_glob(rules_.deliver_to, *asked)))
    return *asked;
  return std::unexpected(fmt::format("x-deliver-to: {} is not allowed: --deliver-to is {}", *asked,
                                     rules_.deliver_to.empty() ? "not given" : rules_.deliver_to));
}

void Partition::take(const SourceRecord& source, PlanState& planning) const {
  const auto record = records::parse_record_body(source.body);
  if (!record) {  // Kafka has checked it; never seen.
    log_error("relay", "the record of {} at offset {} is ignored: {}", source_.text(),
              source.offset, record.error().message);
    return;
  }
  // Kafka gives -1 for a record without a timestamp.
  const WallTime arrived = to_ms(source.timestamp) < 0 ? planning.now : source.timestamp;
  const auto refused = refused_.find(source.offset);
  const auto invalid = [&](std::string reason) {
    make_invalid(*record, source.timestamp, source.offset, std::move(reason), planning);
  };
  if (refused != refused_.end()) return invalid(refused->second.reason);
  const auto schedule = delay::read_schedule(*record, {}, arrived, planning.now);
  if (!schedule) return invalid(schedule.error().message);
  const std::string id(schedule->id);
  using Kind = delay::Schedule::Kind;
  if (schedule->kind == Kind::cancel) return take_id(id, planning, planning.work.counts.cancelled);
  auto target = target_of(*record);
  if (!target) return invalid(std::move(target.error()));
  if (schedule->kind == Kind::expired) {
    ++planning.work.counts.expired;
    return;
  }
  // Behind everything that may refuse the record: one that is invalid or expired replaces nothing.
  if (schedule->takes_id()) take_id(id, planning, planning.work.counts.replaced);
  const bool is_plain = schedule->kind == Kind::none;
  PendingRecord pending;
  // A producer's clock may be ahead, and without a schedule the record is due at once.
  pending.due = is_plain ? std::min(arrived, planning.now) : schedule->due;
  pending.expires = is_plain ? storage::never_expires : schedule->expires;
  pending.is_plain = is_plain;
  if (!is_plain) pending.id = id;
  pending.target = std::move(*target);
  delay::PlainHeaders headers;
  for (const auto& header : record->headers) {
    // A record without a schedule keeps what is not about the relay.
    if (equals_ignoring_case(header.name, deliver_to_header)) continue;
    if (!is_plain && delay::is_taken_out(header.name)) continue;
    records::append_header(headers.encoded, header.name, header.value);
    ++headers.count;
  }
  delay::append_pending_body(pending.body, source.timestamp, schedule->recurrence.get(), *record,
                             headers);
  if (!pending.id.empty()) planning.ids[pending.id] = source.offset;
  planning.work.changes[source.offset].record = std::move(pending);
}

// The pending record with this id is pending no more.
void Partition::take_id(const std::string& id, PlanState& planning, std::uint64_t& count) const {
  if (id.empty()) return;
  const auto changed = planning.ids.find(id);
  const auto known = changed != planning.ids.end() ? changed->second : pending_.find_id(id);
  if (!known) return;
  planning.work.changes[*known].record.reset();
  planning.ids[id] = std::nullopt;
  ++count;
}

std::optional<Offset> Partition::offset_named(const std::string& name,
                                              const PlanState& planning) const {
  if (!name.starts_with('@')) {
    const auto changed = planning.ids.find(name);
    return changed != planning.ids.end() ? changed->second : pending_.find_id(name);
  }
  const auto offset = offset_in_handle(source_, name);
  if (!offset) return std::nullopt;
  const auto changed = planning.work.changes.find(*offset);
  const bool is_pending = changed != planning.work.changes.end()
                              ? changed->second.record.has_value()
                              : pending_.contains(*offset);
  return is_pending ? offset : std::nullopt;
}

void Partition::obey(const Order& order, PlanState& planning) const {
  using delay::ControlOutcome;
  auto& answer = planning.work.answers.emplace_back();
  answer.told = delay::Controlled{};
  if (order.kind == Order::Kind::look) return;
  const auto offset = offset_named(order.name, planning);
  if (!offset) {
    // A record that this very plan cancelled was not delivered.
    const bool is_changed = planning.ids.contains(order.name);
    const bool is_delivered =
        is_changed ? planning.delivers(order.name) : delivered_.knows(order.name, planning.now);
    if (is_delivered) answer.told->outcome = ControlOutcome::already_delivered;
    return;
  }
  const auto changed = planning.work.changes.find(*offset);
  const PendingRecord record =
      changed != planning.work.changes.end() ? *changed->second.record : *pending_.find(*offset);
  if (order.kind != Order::Kind::cancel) {
    answer.told = move(*offset, record, order, planning, answer.from);
    if (order.kind == Order::Kind::move && answer.told) doubt_if_sent(*offset, answer.told);
    return;
  }
  planning.work.changes[*offset].record.reset();
  if (!record.id.empty()) planning.ids[record.id] = std::nullopt;
  planning.work.bytes += tombstone_bytes;
  ++planning.work.counts.cancelled;
  answer.told->outcome = ControlOutcome::done;
  doubt_if_sent(*offset, answer.told);
}

void Partition::doubt_if_sent(Offset offset, OrderResult& told) const {
  if (sent_.contains(offset))
    told = fail(Errc::io,
                "the record was sent to its target before, and may have arrived there; "
                "it is not known whether it was done");
}

OrderResult Partition::move(Offset offset, const PendingRecord& record, const Order& order,
                            PlanState& planning, Offset& delivered) const {
  const bool delivers = order.kind == Order::Kind::deliver;
  if (record.expires <= planning.now)
    return fail(Errc::invalid,
                fmt::format("the record expired at {} (x-expire-at)", format_time(record.expires)));
  // As in the broker: who makes a record due in the past does not make it late since then.
  const WallTime at_once = std::min(record.due, planning.now);
  const auto due =
      delay::moved_due(record.due, delivers ? delay::NewDue(at_once) : order.due, record.expires);
  if (!due) return std::unexpected(due.error());
  PendingRecord moved = record;
  moved.due = std::max(*due, at_once);
  if (delivers) {
    // deliver() would send it to the .invalid topic, and the order would be told that it was
    // delivered.
    if (const auto refused = refused_.find(offset); refused != refused_.end())
      return fail(Errc::invalid, refused->second.reason);
    if (is_held(offset, record, planning))
      return fail(Errc::io, fmt::format("its target {} takes no records now", record.target));
    const std::size_t sent = planning.work.records.size();
    deliver(offset, moved, planning);
    // A recurring record may have no run now.
    if (planning.work.records.size() > sent) {
      ProducerRecord& out = planning.work.records.back();
      if (out.kind == ProducerRecord::Kind::invalid)
        return fail(Errc::invalid, std::string(as_text(*out.headers.back().value)));
      out.wants_place = true;
      delivered = offset;
    }
    return delay::Controlled{.outcome = delay::ControlOutcome::done};
  }
  planning.work.bytes += moved.bytes();
  const delay::Controlled told{.outcome = delay::ControlOutcome::done, .due = moved.due};
  planning.work.changes[offset].record = std::move(moved);
  return told;
}

void Partition::make_invalid(const records::RecordView& record, WallTime timestamp, Offset offset,
                             std::string reason, PlanState& planning) const {
  const auto refused = refused_.find(offset);
  const auto sends = refused == refused_.end() ? Refusal::Sends::record : refused->second.sends;
  if (sends == Refusal::Sends::nothing) {
    ++planning.work.counts.dropped;
    return;
  }
  ProducerRecord out{.kind = ProducerRecord::Kind::invalid,
                     .topic = source_.topic + std::string(invalid_suffix),
                     .partition = source_.partition,
                     .key = copy_of(record.key),
                     .value = copy_of(record.value),
                     .headers = {},
                     .timestamp = timestamp,
                     .source = source_,
                     .offset = offset};
  for (const auto& header : record.headers)
    out.headers.push_back({std::string(header.name), copy_of(header.value)});
  // Kafka has refused the dead letter too, for its size or its timestamp: a description has to do.
  if (sends == Refusal::Sends::error) {
    reason += fmt::format("; the record of {} at {} has a key of {} bytes and a value of {} bytes",
                          source_.text(), offset, out.key ? out.key->size() : 0,
                          out.value ? out.value->size() : 0);
    out.key.reset();
    out.value.reset();
    out.headers.clear();
    out.timestamp.reset();
  }
  out.headers.push_back({std::string(error_header), text_buffer(reason)});
  planning.work.bytes += out.bytes();
  planning.work.records.push_back(std::move(out));
  ++planning.work.counts.invalid;
}

// The last due time that may be delivered.  When records stay behind that have arrived, a
// cancellation may be among them, and one that is due earlier.
WallTime Partition::last_due(const PlanState& planning, const Limits& limits) const {
  // In a full store nothing is taken, so waiting for what stays behind would end all deliveries.
  const bool is_full = pending_.bytes() + planning.work.bytes >= limits.pending_bytes;
  const WallTime last = std::min(planning.now, limits.last_due);
  if (planning.work.taken == arrived_.size() || is_full) return last;
  // The timestamp alone would not do: it is the producer's, whose clock may be ahead.
  const auto& [record, came_after] = arrived_[planning.work.taken];
  const WallTime stamped = to_ms(record.timestamp) < 0 ? last : record.timestamp;
  return std::min({last, stamped, came_after});
}

void Partition::deliver_due(WallTime last, PlanState& planning, const Limits& limits) const {
  Work& work = planning.work;
  std::vector<std::pair<WallTime, Offset>> due;
  // The records that are pending already, as they are walked through.
  std::vector<PendingRecord> records;
  std::size_t bytes = work.bytes;
  // The place where the walk ended before it had all due records: no later one may overtake it.
  std::optional<std::pair<WallTime, Offset>> stopped;
  // From where the last walk of this work has ended.
  auto unwalked = work.is_walked ? work.unwalked : pending_.first();
  if (unwalked && unwalked->first <= last) {
    auto at = pending_.walk(*unwalked);
    for (; at.valid(); at.next()) {
      const auto place = at.place();
      if (place.first > last) break;
      if (due.size() >= limits.deliveries || bytes >= planning.most_bytes) {
        work.is_cut_short = true;
        stopped = place;
        break;
      }
      if (work.changes.contains(place.second)) continue;
      PendingRecord record = at.record();
      if (stops_at(place.second, record, planning)) {
        stopped = place;
        break;
      }
      due.push_back(place);
      bytes += record.bytes();
      records.push_back(std::move(record));
    }
    unwalked = at.valid() ? std::optional(at.place()) : std::nullopt;
  }
  // As it is now it has the places of `records`, by which they are found below.
  const std::vector<std::pair<WallTime, Offset>> pending = due;
  for (const auto& [offset, change] : work.changes) {
    if (!change.record || change.record->due > last) continue;
    const std::pair place(change.record->due, offset);
    if (!stopped || place < *stopped) due.push_back(place);
  }
  std::ranges::sort(due);
  bool is_whole = true;  // All that was walked through is among the changes.
  if (due.size() > limits.deliveries) {
    work.is_cut_short = true;
    is_whole = false;
    due.resize(limits.deliveries);
  }
  for (const auto& [time, offset] : due) {
    if (work.bytes >= planning.most_bytes) {
      work.is_cut_short = true;
      is_whole = false;
      break;
    }
    const auto changed = work.changes.find(offset);
    const auto at = std::ranges::lower_bound(pending, std::pair(time, offset));
    // A copy: the change is overwritten with what becomes of the record.
    const PendingRecord record =
        changed != work.changes.end()
            ? *changed->second.record
            : std::move(records[static_cast<std::size_t>(at - pending.begin())]);
    if (stops_at(offset, record, planning)) {
      is_whole = false;
      break;
    }
    deliver(offset, record, planning);
  }
  if (!is_whole) return;
  work.is_walked = true;
  work.unwalked = unwalked;
}

// Its target takes nothing now.  One that goes to NAME.invalid does not need its target.
bool Partition::is_held(Offset offset, const PendingRecord& record,
                        const PlanState& planning) const {
  const auto* held = planning.limits.held_targets;
  return held != nullptr && held->contains(record.target) && !refused_.contains(offset);
}

// The record, and all that is due behind it, does not leave with this work, which says why.
bool Partition::stops_at(Offset offset, const PendingRecord& record, PlanState& planning) const {
  if (is_held(offset, record, planning)) {
    planning.work.held_by = record.target;
    return true;
  }
  const auto* prepared = planning.limits.prepared_targets;
  if (prepared == nullptr || refused_.contains(offset) ||
      prepared->contains(record.target, source_))
    return false;
  planning.work.is_cut_short = true;
  return true;
}

void Partition::deliver(Offset offset, const PendingRecord& record, PlanState& planning) const {
  Change& change = planning.work.changes[offset];
  change.record.reset();
  // Orders behind this one find it gone, whatever becomes of it below.
  if (!record.id.empty()) planning.ids[record.id] = std::nullopt;
  const auto body = delay::PendingRecordBody::parse(record.body);
  TARRY_ASSERT(body.has_value(), "a pending record was read whole before it was kept");
  if (const auto refused = refused_.find(offset); refused != refused_.end())
    return make_invalid(body->record, body->original, offset, refused->second.reason, planning);
  if (record.expires <= planning.now) {
    ++planning.work.counts.expired;
    return;
  }
  WallTime due = record.due;
  if (!body->recurrence.empty()) {
    auto recurrence = delay::Recurrence::parse(body->recurrence, delay::TimeZones::of_system());
    if (!recurrence)
      return make_invalid(body->record, body->original, offset, recurrence.error().message,
                          planning);
    // A clock that was set back since has not come to that time, and no run that is to come was
    // missed.
    const auto planned =
        recurrence->plan_run(record.due, std::min(running_since_, planning.now), {});
    if (planned.next) {
      recurrence->take(planned);
      change.record = record;
      change.record->due = *planned.next;
      change.record->body = delay::with_recurrence(record.body, *recurrence);
      if (!record.id.empty()) planning.ids[record.id] = offset;  // It goes on, and keeps its id.
    }
    if (!planned.deliver) return;
    due = *planned.deliver;
  }
  ProducerRecord out{
      .kind = ProducerRecord::Kind::target,
      .topic = record.target,
      .partition = rules_.same_partition ? std::optional(source_.partition) : std::nullopt,
      .key = copy_of(body->record.key),
      .value = copy_of(body->record.value),
      .headers = {},
      .timestamp = record.is_plain ? body->original : due,
      .source = source_,
      .offset = offset};
  for (const auto& header : body->record.headers)
    out.headers.push_back({std::string(header.name), copy_of(header.value)});
  if (!record.is_plain) {
    out.headers.push_back(
        {std::string(delay::header::scheduled_for), text_buffer(std::to_string(to_ms(due)))});
    out.headers.push_back(
        {std::string(delay::header::schedule_handle), text_buffer(handle_of(source_, offset))});
    planning.work.delivered_due.push_back(due);
  }
  if (!record.id.empty() && !change.record) planning.work.delivered_ids.push_back(record.id);
  planning.work.bytes += out.bytes();
  planning.work.records.push_back(std::move(out));
  ++planning.work.counts.delivered;
}

// A record that came and went in one work needs no row.
void Partition::add_rows(Work& work, std::vector<ProducerRecord>& rows) const {
  for (auto change = work.changes.begin(); change != work.changes.end();) {
    const auto& [offset, now] = *change;
    if (!now.record && !pending_.contains(offset)) {
      change = work.changes.erase(change);
      continue;
    }
    ProducerRecord row{.kind = ProducerRecord::Kind::row,
                       .topic = rules_.state_topic(source_.topic),
                       .partition = source_.partition,
                       .key = text_buffer(handle_of(source_, offset)),
                       .value = std::nullopt,
                       .headers = {},
                       .timestamp = std::nullopt,
                       .source = source_,
                       .offset = offset};
    if (now.record) row.value = encode_row(*now.record);
    rows.push_back(std::move(row));
    ++change;
  }
}

void Partition::apply(Work&& work, Offset rows_end) {
  for (std::size_t i = 0; i < work.taken; ++i) {
    refused_.erase(arrived_.front().record.offset);
    sent_.erase(arrived_.front().record.offset);
    arrived_bytes_ -= arrived_.front().bytes();
    arrived_.pop_front();
  }
  // Offsets that were set back may come again while their old rows are there.
  const Offset first_new = pending_.unused_from(next_);
  next_ = work.next;
  running_since_ = std::min(running_since_, work.earliest);
  for (auto& [offset, change] : work.changes) {
    refused_.erase(offset);
    sent_.erase(offset);
    // Removed first, because a new record may have its id.
    if (!change.record) pending_.erase(offset);
  }
  for (const auto& id : work.delivered_ids) delivered_.add(id, work.now);
  for (auto& [offset, change] : work.changes) {
    if (!change.record) continue;
    delivered_.forget(change.record->id);
    if (offset >= first_new) {
      pending_.add(offset, *change.record);  // plan() has taken its id from the one that had it.
    } else {
      pending_.put(offset, *change.record);
    }
  }
  // One commit for all of it: after a crash the rows behind it are read again.
  pending_.commit({.next = std::max(pending_.place().next, rows_end),
                   .source = next_,
                   .complete_at = work.now});
}

}  // namespace tarry::relay
