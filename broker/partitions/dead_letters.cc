#include "broker/partitions/dead_letters.h"

#include "base/assert.h"
#include "records/batch_builder.h"
#include "records/record_batch.h"

namespace tarry::broker {
namespace {

// Kafka's limit.
constexpr std::size_t max_topic_name = 249;

}  // namespace

std::string dead_letter_topic(std::string_view topic) {
  // Letters of dead letters would make topics without end.
  if (topic.ends_with(dead_letter_suffix)) return {};
  if (topic.size() + dead_letter_suffix.size() > max_topic_name) return {};
  return std::string(topic).append(dead_letter_suffix);
}

// Not compressed: there are few, and this runs on the shard's thread.
Buffer DeadLetters::next() {
  records::BatchBuilder builder;
  records::RecordView record;
  while (!invalid_.empty()) {
    const Bytes before = rest_;
    const char* wrong = records::take_record(rest_, record);
    TARRY_ASSERT(wrong == nullptr, "a checked batch has whole records");
    if (index_++ < invalid_.front().index) continue;
    const auto error = as_bytes(invalid_.front().message);
    const std::size_t size = record.body.size() + error.size() + 64;
    if (!builder.empty() && builder.size() + size > max_bytes) {
      rest_ = before;  // The first of the next piece.
      --index_;
      break;
    }
    const Bytes encoded = record.headers.encoded();
    Buffer headers(encoded.begin(), encoded.end());
    records::append_header(headers, dead_letter_error, error);
    builder.append_parts(batch_->batch.timestamp_of(record), record.key_value,
                         record.headers.size() + 1, headers);
    invalid_ = invalid_.subspan(1);
  }
  return builder.finish();
}

}  // namespace tarry::broker
