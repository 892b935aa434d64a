#include "base/assert.h"
#include "broker/handlers/table.h"
#include "protocol/consumer_protocol.h"
#include "protocol/dump.h"
#include "protocol/header.h"
#include "server/frame.h"
#include "tests/fuzz/targets.h"

namespace tarry::fuzz {

namespace {

// A message that decodes means the same when it is encoded and decoded again.
void check_message(int key, bool request, int version, Bytes body) {
  const auto first = protocol::dump_message(key, request, version, body);
  if (!first) return;
  const auto second = protocol::dump_message(key, request, version, first->bytes);
  TARRY_ASSERT(second.has_value(), "what was encoded can be decoded");
  TARRY_ASSERT(second->json == first->json, "and is what it was");
  TARRY_ASSERT(second->bytes == first->bytes, "byte for byte");
}

}  // namespace

void fuzz_frame(Bytes input) {
  Input from(input);
  const std::size_t at_once = 1 + std::size_t{from.u8()} * 16;
  const Bytes bytes = from.rest();
  // It comes in pieces, by both ways in.
  server::Frame frame(bytes.size());
  for (std::size_t at = 0; at < bytes.size();) {
    if (at % 2 == 0) {
      at += frame.take(bytes.subspan(at).first(std::min(at_once, bytes.size() - at)));
      continue;
    }
    const auto room = frame.room();
    const auto some = bytes.subspan(at).first(std::min({at_once, room.size(), bytes.size() - at}));
    std::ranges::copy(some, room.begin());
    frame.came(some.size());
    at += some.size();
  }
  TARRY_ASSERT(frame.whole() && std::ranges::equal(frame.view(), bytes), "a frame is what came");

  const auto header = protocol::parse_request_header(frame.view());
  if (!header) return;
  const auto why = broker::refusal_reason(*header);
  if (!why.empty()) return;
  const auto* const handler = broker::find_handler(header->key);
  TARRY_ASSERT(handler != nullptr, "what is not refused has a handler");
  check_message(header->key, true, header->version, header->body);
}

void fuzz_message(Bytes input) {
  Input from(input);
  const int key = from.u8() % 96;
  const std::uint8_t what = from.u8();
  check_message(key, what % 2 == 0, what / 2 % 24, from.rest());
}

void fuzz_consumer(Bytes input) {
  if (const auto topics = protocol::subscribed_topics(input)) {
    for (const auto topic : *topics)
      TARRY_ASSERT(
          topic.empty() || (topic.data() >= as_text(input).data() &&
                            topic.data() + topic.size() <= as_text(input).data() + input.size()),
          "a subscription is viewed");
  }
  if (const auto assigned = protocol::assigned_partitions(input)) {
    std::size_t partitions = 0;
    for (const auto& topic : *assigned) partitions += topic.partitions.size();
    TARRY_ASSERT(partitions * 4 <= input.size(), "each partition was in the bytes");
  }
}

}  // namespace tarry::fuzz
