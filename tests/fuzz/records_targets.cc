#include <chrono>
#include <string>
#include <vector>

#include "base/assert.h"
#include "base/crc32c.h"
#include "delay/batch_schedules.h"
#include "delay/cron.h"
#include "delay/header_aliases.h"
#include "delay/recurrence.h"
#include "delay/schedule.h"
#include "delay/time_zone.h"
#include "delay/time_zones.h"
#include "records/batch_builder.h"
#include "records/batch_check.h"
#include "records/record_batch.h"
#include "tests/fuzz/targets.h"

namespace tarry::fuzz {

namespace {

using namespace std::chrono_literals;

constexpr WallTime fuzz_now{1'800'000'000s};

// With the length and the checksum that its bytes have.
void make_whole(Buffer& batch) {
  if (batch.size() < records::batch_header_size) return;
  store_be(batch.data() + records::field::batch_length,
           static_cast<std::int32_t>(batch.size() - 12));
  batch[records::field::magic] = 2;
  store_be(batch.data() + records::field::crc,
           crc32c(Bytes(batch).subspan(records::field::attributes)));
}

void read_all(const records::CheckedBatch& checked) {
  if (!checked.opened) return;
  std::int32_t count = 0;
  const auto walked = records::for_each_record(
      checked.records(), checked.count, [&](const records::RecordView& record) {
        TARRY_ASSERT(record.offset_delta == count, "offsets have no holes");
        ++count;
        std::size_t bytes = 0;
        for (const auto& header : record.headers)
          bytes += header.name.size() + (header.value ? header.value->size() : 0);
        TARRY_ASSERT(bytes <= checked.records().size(), "headers lie in the batch");
      });
  TARRY_ASSERT(walked.has_value() && count == checked.count, "a checked batch can be read");
}

}  // namespace

void fuzz_batch(Bytes input) {
  Input from(input);
  const std::uint8_t how = from.u8();
  Buffer batch;
  append_bytes(batch, from.rest());
  if (how % 2 == 0) make_whole(batch);
  records::CheckLimits limits;
  limits.max_uncompressed_bytes = std::size_t{1} << 20;
  limits.zstd_allowed = (how & 2) == 0;
  limits.open_compressed = (how & 4) == 0;
  limits.key_required = (how & 8) != 0;
  if ((how & 16) != 0) limits.earliest = fuzz_now - 24h;
  const auto checked = records::check_produced(batch, limits);
  if (!checked) {
    TARRY_ASSERT(!checked.error().message.empty(), "a refusal says why");
    return;
  }
  read_all(*checked);
  delay::TopicDelay topic;
  topic.max_delay = 24h;
  const auto schedules = delay::read_schedules(
      *checked, topic, fuzz_now, fuzz_now,
      (how & 32) == 0 ? delay::InvalidHeaders::refuse : delay::InvalidHeaders::set_aside);
  if (schedules && schedules->any())
    TARRY_ASSERT(schedules->of_records.size() == static_cast<std::size_t>(checked->count),
                 "each record has its schedule");
}

void fuzz_schedule(Bytes input) {
  constexpr std::array<std::string_view, 12> names{
      "x-deliver-at", "x-delay",   "x-schedule-id", "x-schedule-action", "x-expire-at", "x-every",
      "x-cron",       "x-cron-tz", "x-until",       "x-count",           "X-Delay",     "x-dely"};
  Input from(input);
  delay::TopicDelay topic;
  const std::uint8_t how = from.u8();
  if ((how & 1) != 0) topic.default_delay = 5s;
  if ((how & 2) != 0) topic.max_delay = 1h;
  // A record as it stands in a batch.
  Buffer headers;
  int count = 0;
  for (; !from.empty() && count < 16; ++count) {
    const std::string_view name = names[from.u8() % names.size()];
    const Bytes value = from.piece();
    records::append_varint(headers, static_cast<std::int64_t>(name.size()));
    append_bytes(headers, as_bytes(name));
    records::append_varint(headers, static_cast<std::int64_t>(value.size()));
    append_bytes(headers, value);
  }
  Buffer body;
  records::append_varint(body, -1);  // No key,
  records::append_varint(body, -1);  // no value.
  records::append_varint(body, count);
  append_bytes(body, headers);
  const auto record = records::parse_record_body(body);
  TARRY_ASSERT(record.has_value(), "the record is one");
  const auto schedule = delay::read_schedule(*record, topic, fuzz_now, fuzz_now);
  if (!schedule) {
    TARRY_ASSERT(!schedule.error().message.empty() && !schedule.error().reason.empty(),
                 "a refusal says why");
    return;
  }
  using Kind = delay::Schedule::Kind;
  if (schedule->kind == Kind::delayed) {
    // The first run of a recurring record may be due at once, and the engine delivers it.
    TARRY_ASSERT(schedule->recurrence != nullptr || schedule->due > fuzz_now,
                 "what is delayed once is due later");
    TARRY_ASSERT(schedule->due <= delay::last_due_allowed, "and some day");
    TARRY_ASSERT(schedule->expires > schedule->due, "and not dropped before");
  }
  TARRY_ASSERT(schedule->id.size() <= delay::max_schedule_id_bytes, "an id has a bound");
  if (schedule->recurrence) TARRY_ASSERT(!schedule->recurrence->text().empty(), "it can be told");
}

void fuzz_recurrence(Bytes input) {
  Input from(input);
  const std::uint8_t how = from.u8();
  if (how % 4 == 0) {  // A stored one.
    const auto zones = delay::TimeZones("/nowhere");
    const auto parsed = delay::Recurrence::parse(from.rest(), zones);
    if (!parsed) return;
    TARRY_ASSERT(parsed->upcoming(5).size() <= 5, "as many as were asked for");
    TARRY_ASSERT(!parsed->text().empty(), "it can be told");
    return;
  }
  if (how % 4 == 1) {
    if (const auto aliases = delay::HeaderAliases::parse(as_text(from.rest()))) return;
    return;
  }
  // A cron expression in a zone whose file is made up.
  const Bytes expression = from.piece();
  std::shared_ptr<const delay::TimeZone> zone = delay::TimeZone::utc();
  if (how % 4 == 2) {
    auto parsed = delay::TimeZone::parse("Made/Up", from.rest());
    if (!parsed) return;
    zone = std::make_shared<const delay::TimeZone>(std::move(*parsed));
  }
  const auto cron = delay::Cron::parse(as_text(expression));
  if (!cron) {
    TARRY_ASSERT(!cron.error().empty(), "a refusal says why");
    return;
  }
  WallTime at = fuzz_now;
  for (int i = 0; i < 4; ++i) {
    const auto next = cron->next(at, *zone);
    if (!next) break;
    TARRY_ASSERT(*next > at, "time goes on");
    at = *next;
  }
  const auto before = cron->previous(at, *zone);
  if (before) TARRY_ASSERT(*before < at, "and back");
}

}  // namespace tarry::fuzz
