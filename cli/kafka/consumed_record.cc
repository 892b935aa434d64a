#include "cli/kafka/consumed_record.h"

#include <cstddef>

#include <librdkafka/rdkafka.h>

namespace tarry::cli {

ConsumedRecord record_of(const rd_kafka_message_t& message) {
  ConsumedRecord record;
  record.partition = message.partition;
  record.offset = message.offset;
  rd_kafka_timestamp_type_t type;
  record.timestamp = rd_kafka_message_timestamp(&message, &type);
  // librdkafka tells a null from empty bytes by the pointer.
  const auto view = [](const void* bytes, std::size_t size) -> std::optional<std::string_view> {
    if (bytes == nullptr) return std::nullopt;
    return std::string_view(static_cast<const char*>(bytes), size);
  };
  record.key = view(message.key, message.key_len);
  record.value = view(message.payload, message.len);
  rd_kafka_headers_t* headers = nullptr;
  // Headers are decoded by this call and not before; its error says that there are none.
  if (rd_kafka_message_headers(&message, &headers) == RD_KAFKA_RESP_ERR_NO_ERROR) {
    const char* name = nullptr;
    const void* value = nullptr;
    std::size_t size = 0;
    for (std::size_t i = 0;
         rd_kafka_header_get_all(headers, i, &name, &value, &size) == RD_KAFKA_RESP_ERR_NO_ERROR;
         ++i) {
      record.headers.emplace_back(name, view(value, size));
    }
  }
  return record;
}

}  // namespace tarry::cli
