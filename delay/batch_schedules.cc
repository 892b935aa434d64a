#include "delay/batch_schedules.h"

#include <utility>

#include <fmt/format.h>

#include "base/assert.h"
#include "records/record_batch.h"

namespace tarry::delay {
namespace {

using Kind = Schedule::Kind;

void count_slips(const records::RecordView& record, HeaderSlips& slips) {
  for (const auto& header : record.headers) {
    if (const auto meant = nearly_named(header.name); !meant.empty()) slips.add(header.name, meant);
  }
}

// Producers give all their records the same headers, so the first one stands for the batch: looking
// at each would cost every batch that has headers of its own.
bool first_record_slips(const records::CheckedBatch& batch) {
  HeaderSlips slips;
  (void)records::for_each_record(batch.records(), batch.count,
                                 [&slips](const records::RecordView& record) {
                                   count_slips(record, slips);
                                   return false;
                                 });
  return !slips.empty();
}

// Whether the records have to be read: searching for the headers' names is much cheaper.
bool may_ask(const records::CheckedBatch& batch, const TopicDelay& topic) {
  if (!topic.enable) return false;
  if (topic.default_delay.count() > 0) return true;
  if (!batch.has_headers) return false;
  return search_names(batch.records()) != NamesFound::none || first_record_slips(batch);
}

}  // namespace

std::vector<std::string_view> BatchSchedules::ids_taken() const {
  std::vector<std::string_view> out;
  out.reserve(ids);
  for (const auto& schedule : of_records)
    if (schedule.takes_id()) out.push_back(schedule.id);
  return out;
}

std::expected<BatchSchedules, ScheduleErrors> read_schedules(const records::CheckedBatch& batch,
                                                             const TopicDelay& topic,
                                                             WallTime arrived, WallTime believed,
                                                             InvalidHeaders invalid) {
  BatchSchedules schedules;
  if (!may_ask(batch, topic)) return schedules;
  TARRY_ASSERT(batch.opened, "a topic with delays has its batches opened");

  // A larger batch is no mistake as long as none of its records asks for anything.
  const bool too_many = batch.count > max_scheduled_records;
  if (!too_many) schedules.of_records.reserve(static_cast<std::size_t>(batch.count));
  ScheduleErrors errors;
  std::size_t bad = 0, scheduled = 0;
  const auto read = records::for_each_record(
      batch.records(), batch.count, [&](const records::RecordView& record) {
        count_slips(record, schedules.slips);
        auto schedule = read_schedule(record, topic, arrived, believed);
        if (schedule && schedule->kind != Kind::none && batch.batch.is_transactional()) {
          schedule = std::unexpected(ScheduleError{
              reason::in_transaction,
              "a delay, x-schedule-action or x-expire-at in a transaction is not supported"});
        }
        if (!schedule && invalid == InvalidHeaders::set_aside && !too_many) {
          schedules.invalid.push_back({record.offset_delta, std::move(schedule.error().message)});
          schedule = Schedule{};
          schedule->kind = Kind::invalid;
        }
        if (!schedule) {
          if (bad == 0) errors.reason = schedule.error().reason;
          // The answer to a client is bounded; all are counted.
          if (bad++ < records::max_bad_records_told)
            errors.records.push_back({record.offset_delta, std::move(schedule.error().message)});
          return true;
        }
        scheduled += schedule->kind != Kind::none;
        schedules.sequences += schedule->kind == Kind::delayed || schedule->kind == Kind::immediate;
        schedules.delayed += schedule->kind == Kind::delayed;
        schedules.ids += schedule->takes_id();
        schedules.cancels += schedule->kind == Kind::cancel;
        if (too_many) return scheduled == 0;  // The first one is enough to refuse the batch.
        schedules.of_records.push_back(*schedule);
        return true;
      });
  TARRY_ASSERT(read.has_value(), "a checked batch has whole records");
  if (bad != 0) {
    errors.message = errors.records.front().message;
    if (bad > 1) errors.message += fmt::format(" (and {} more records of this batch)", bad - 1);
    return std::unexpected(std::move(errors));
  }
  if (scheduled != 0 && too_many) {
    return std::unexpected(ScheduleErrors{
        ScheduleErrors::Kind::too_many,
        fmt::format("the batch has {} records and delays some of them; the limit for such a "
                    "batch is {}: lower batch.num.messages or batch.size",
                    batch.count, max_scheduled_records),
        {}});
  }
  if (scheduled == 0) schedules.of_records = {};
  return schedules;
}

}  // namespace tarry::delay
