#include "broker/partitions/batch_checks.h"

#include <algorithm>
#include <exception>
#include <memory>

#include <fmt/core.h>

#include "records/batch_builder.h"

namespace tarry::broker {
namespace {

// A compressed batch below this is checked where it is, within so much unpacked: some 0.1 ms, as
// long as two hops between threads take.
constexpr std::size_t short_compressed = 16 << 10;
constexpr std::size_t short_unpacked = 256 << 10;

// One that is not compressed: half a millisecond for its checksum,
constexpr std::size_t short_plain = 4 << 20;
// and some 0.2 ms for its records, if they are delayed, or 3 ms and more if each has a long cron
// expression.
constexpr std::int32_t short_records = 512;

// Text packs 10:1 or 20:1; what packs better is unpacked a second time.
constexpr std::size_t usual_ratio = 24;
constexpr std::size_t min_usual_cap = 1 << 20;

// The limit of each lane of a shard: the pool has other work too, and more threads than cores do
// not help.
constexpr std::size_t max_running = 2;

bool is_compressed(Bytes records) {
  if (records.size() < records::batch_header_size) return false;
  const auto attributes = load_be<std::uint16_t>(records.data() + records::field::attributes);
  return (attributes & records::codec_mask) != 0;
}

// Believes the batch's own count, which is checked later.
bool has_many(Bytes records) {
  if (records.size() < records::batch_header_size) return false;
  return load_be<std::int32_t>(records.data() + records::field::record_count) > short_records;
}

// Its topic wants it in another codec.
bool is_repacked(const BatchChecks::Job& job) {
  if (!job.delay.codec || job.records.size() < records::batch_header_size) return false;
  const auto attributes = load_be<std::uint16_t>(job.records.data() + records::field::attributes);
  return (attributes & records::codec_mask) != static_cast<int>(*job.delay.codec);
}

// Checks everything about a batch that has to be known before it is taken.
BatchChecks::Verdict look(const BatchChecks::Job& job) {
  auto limits = job.limits;
  limits.open_compressed |= is_repacked(job);
  auto checked = records::check_produced(job.records, limits);
  if (!checked) return std::unexpected(std::move(checked.error()));
  auto schedules =
      delay::read_schedules(*checked, job.delay, job.arrived, job.believed, job.invalid);
  CheckedArrival out{std::move(*checked), std::move(schedules)};
  if (is_repacked(job) && out.schedules && !out.schedules->any()) {
    out.repacked = std::make_shared<Buffer>(
        records::repack(out.batch.batch, out.batch.records(), *job.delay.codec));
    if (out.repacked->size() > job.limits.max_message_bytes) {
      return std::unexpected(records::BatchError{
          records::Refusal::message_too_large,
          fmt::format(
              "with the codec {}, the batch has {} bytes; the limit is {} (max.message.bytes)",
              records::name_of(*job.delay.codec), out.repacked->size(),
              job.limits.max_message_bytes),
          {}});
    }
  }
  // Only records that are taken out of the batch are read again.
  if (!out.schedules || !out.schedules->any()) out.batch.unpacked = {};
  return out;
}

}  // namespace

BatchChecks::BatchChecks(Background& background, std::size_t bytes)
    : background_(background), bytes_(bytes) {}

bool BatchChecks::is_short(const Job& job) {
  if (job.on_pool || is_compressed(job.records) || has_many(job.records)) return false;
  return job.records.size() < (is_repacked(job) ? short_compressed : short_plain);
}

std::size_t BatchChecks::usual_lane_cap(const Job& job) {
  return std::min(job.limits.max_uncompressed_bytes,
                  std::max(min_usual_cap, usual_ratio * job.records.size()));
}

std::optional<BatchChecks::Verdict> BatchChecks::check_inline(const Job& job) {
  if (is_short(job)) return look(job);
  if (job.on_pool || job.records.size() >= short_compressed || has_many(job.records))
    return std::nullopt;
  Job within = job;
  within.limits.max_uncompressed_bytes =
      std::min(job.limits.max_uncompressed_bytes, short_unpacked);
  auto verdict = look(within);
  const bool too_much = !verdict && verdict.error().reason == records::Refusal::message_too_large;
  // Too large for this thread, but perhaps not for the topic: the pool looks again.
  if (too_much && within.limits.max_uncompressed_bytes < job.limits.max_uncompressed_bytes)
    return std::nullopt;
  return verdict;
}

void BatchChecks::run(Lane lane, Job job, Done done) {
  if (lane == Lane::usual) job.limits.max_uncompressed_bytes = usual_lane_cap(job);
  state(lane).waiting.push_back(std::make_shared<Waiting>(std::move(job), std::move(done)));
  begin_some(lane);
}

bool BatchChecks::has_room(Lane lane, std::size_t bytes) {
  const State& here = state(lane);
  // One at a time, because each may take all that the topic allows.
  if (lane == Lane::large) return here.running == 0 && here.held == 0;
  // One batch alone may be larger than what the lane may hold.
  return here.running < max_running && (here.held == 0 || here.held + bytes <= bytes_);
}

void BatchChecks::begin_some(Lane lane) {
  State& here = state(lane);
  while (!here.waiting.empty()) {
    const std::size_t bytes = here.waiting.front()->job.limits.max_uncompressed_bytes;
    if (!has_room(lane, bytes)) return;
    const auto next = std::move(here.waiting.front());
    here.waiting.pop_front();
    here.held += bytes;
    ++here.running;
    try {
      background_.run(
          [next] {
            Checked checked;
            try {
              checked.verdict = look(next->job);
            } catch (const std::exception&) {
              // Without a verdict the batch is refused for want of memory.
            }
            return checked;
          },
          [this, lane, bytes, next](Checked checked) {
            --state(lane).running;
            checked.room = Room(*this, lane, bytes);
            // The room was for the worst case; what is held is what it unpacked to.
            const bool unpacked = checked.verdict && *checked.verdict;
            checked.room.shrink_to(unpacked ? (*checked.verdict)->batch.unpacked.capacity() : 0);
            next->done(std::move(checked));
            begin_some(lane);
          });
    } catch (const std::exception&) {
      // Its place is the next one's: nobody else would begin that.
      here.held -= bytes;
      --here.running;
      next->done({});
    }
  }
}

void BatchChecks::Room::shrink_to(std::size_t bytes) {
  const std::size_t now = std::min(bytes, bytes_);
  owner_->state(lane_).held -= bytes_ - now;
  bytes_ = now;
}

void BatchChecks::give_back(Lane lane, std::size_t bytes) {
  state(lane).held -= bytes;
  if (bytes > 0) begin_some(lane);
}

}  // namespace tarry::broker
