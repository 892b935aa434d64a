#include "storage/journal_record.h"

#include <doctest/doctest.h>

#include <algorithm>

#include "storage/journal_transaction.h"

namespace tarry::storage {
namespace {

TopicId topic(std::uint8_t seed) {
  TopicId id;
  id.bytes.fill(seed);
  return id;
}

Buffer joined(const RecordBuilder& record) {
  Buffer out;
  for (const Bytes piece : record.pieces()) append_bytes(out, piece);
  return out;
}

Buffer one_of_each() {
  const std::string body = "batch bytes";
  RecordBuilder record;
  record.add(
      PendingAdded{{topic(1), 2}, 3, from_ms(4), from_ms(5), from_ms(6), "id", as_bytes(body)});
  record.add(LogAppended{{topic(1), 2}, from_ms(7), as_bytes(body)});
  record.add(
      PendingRemoved{{topic(1), 2}, 3, from_ms(4), RemovalReason::replaced, from_ms(8), "id"});
  record.add(ProducerAnswered{{topic(1), 2}, 9, 10, 11, 12, -2, from_ms(13)});
  record.add(TopicCreated{topic(3), 4, "orders", {{"a", "b"}, {"c", ""}}});
  record.add(TopicDeleted{topic(3)});
  record.add(PartitionsAdded{topic(3), 8});
  record.add(ConfigsSet{topic(3), {{"k", "v"}}});
  record.add(ProducerIdsGiven{1000});
  record.add(SequencesGiven{1u << 20});
  record.add(LogStartMoved{{topic(1), 2}, 77});
  record.add(BrokerConfigsSet{{{"x", "y"}}});
  record.add(GroupStored{"g", as_bytes(body)});
  record.add(GroupRemoved{"gone"});
  record.add(OffsetsCommitted{"g",
                              {{{topic(1), 2}, 3, 4, from_ms(5), from_ms(6), "meta"},
                               {{topic(2), 0}, 7, -1, from_ms(8), never_expires, ""}}});
  record.add(OffsetsRemoved{"g", {{topic(1), 2}, {topic(3), 4}}});
  CHECK(joined(record).size() == record.size());
  return joined(record);
}

TEST_SUITE("journal record") {
  TEST_CASE("an id's events keep its offset, its new due time and its first due time") {
    RecordBuilder record;
    PendingRemoved removed{{topic(1), 2}, 3,   from_ms(4), RemovalReason::delivered,
                           from_ms(8),    "id"};
    removed.offset = 77;
    record.add(removed);
    PendingRemoved moved{{topic(1), 2}, 3, from_ms(4), RemovalReason::moved, from_ms(8), "id"};
    moved.moved_to = from_ms(99);
    record.add(moved);
    PendingAdded added{{topic(1), 2}, 3, from_ms(99), from_ms(5), from_ms(6), "id", {}};
    added.first_due = from_ms(4);
    record.add(added);
    std::size_t seen = 0;
    const Buffer bytes = joined(record);
    const auto read = for_each_operation(bytes, [&](const Operation& op) -> Result<> {
      ++seen;
      if (const auto* r = std::get_if<PendingRemoved>(&op)) {
        CHECK(r->offset == (seen == 1 ? 77 : -1));
        CHECK(r->moved_to == (seen == 2 ? std::optional(from_ms(99)) : std::nullopt));
        CHECK(r->id == "id");
      } else {
        const auto& a = std::get<PendingAdded>(op);
        CHECK((a.first_due == from_ms(4) && a.due == from_ms(99) && a.id == "id"));
      }
      return {};
    });
    CHECK(read.has_value());
    CHECK(seen == 3);
  }

  TEST_CASE("a record's principal and size are kept, also of one that was moved") {
    const std::string body = "the record";
    std::vector<std::uint8_t> types;
    for (const PrincipalId principal : {unknown_principal, PrincipalId{7}, ~PrincipalId{0}}) {
      for (const bool is_moved : {false, true}) {
        CAPTURE(principal);
        CAPTURE(is_moved);
        PendingAdded added{{topic(1), 2}, 3,    from_ms(9),    from_ms(5),
                           from_ms(6),    "id", as_bytes(body)};
        added.principal = principal;
        PendingRemoved removed{{topic(1), 2},        3,          from_ms(9),
                               RemovalReason::moved, from_ms(8), "id"};
        removed.share = added.share();
        removed.moved_to = from_ms(99);
        if (is_moved) added.first_due = removed.first_due = from_ms(4);
        CHECK(added.share().bytes == (principal == unknown_principal ? 0 : 12));

        RecordBuilder record;
        record.add(added);
        record.add(removed);
        const Buffer bytes = joined(record);
        types.push_back(bytes[0]);
        std::size_t seen = 0;
        const auto read = for_each_operation(bytes, [&](const Operation& op) -> Result<> {
          ++seen;
          if (const auto* a = std::get_if<PendingAdded>(&op)) {
            CHECK((a->principal == principal && a->share() == added.share()));
            CHECK((a->sequence == 3 && a->due == from_ms(9) && a->id == "id"));
            CHECK((a->first_due == added.first_due && as_text(a->record) == body));
          } else {
            const auto& r = std::get<PendingRemoved>(op);
            CHECK(r.share == removed.share);
            CHECK((r.sequence == 3 && r.due == from_ms(9) && r.id == "id"));
            CHECK((r.first_due == removed.first_due && r.moved_to == from_ms(99)));
          }
          return {};
        });
        CHECK(read.has_value());
        CHECK(seen == 2);
        EncodedAdditions additions;
        additions.add(added, [&](Buffer& to) { append_bytes(to, as_bytes(body)); });
        const auto encoded = additions.bytes();
        CHECK(std::ranges::equal(encoded, Bytes(bytes).first(encoded.size())));
      }
    }
    // A record of nobody is written as before there were principals, so that an older broker that
    // never had any can read it.
    CHECK(types == std::vector<std::uint8_t>{2, 17, 21, 23, 21, 23});
  }

  TEST_CASE("additions that were encoded before are the same bytes in a record") {
    const std::string body = "the record";
    PendingAdded first{{topic(1), 2}, 3, from_ms(4), from_ms(5), from_ms(6), "id", as_bytes(body)};
    PendingAdded second{{topic(1), 2}, 4, from_ms(9), from_ms(5), never_expires, "", {}};
    second.first_due = from_ms(4);
    EncodedAdditions additions;
    const auto place = additions.add(first, [&](Buffer& to) { append_bytes(to, as_bytes(body)); });
    additions.add(second, [](Buffer&) {});
    CHECK(as_text(additions.bytes().subspan(place.id, place.id_size)) == "id");
    CHECK(as_text(additions.bytes().subspan(place.record, place.record_size)) == body);

    RecordBuilder one_by_one, at_once;
    one_by_one.add(TopicDeleted{topic(3)});
    one_by_one.add(first);
    one_by_one.add(second);
    one_by_one.add(TopicDeleted{topic(4)});
    at_once.add(TopicDeleted{topic(3)});
    at_once.add(additions);
    at_once.add(EncodedAdditions());
    at_once.add(TopicDeleted{topic(4)});
    CHECK(joined(one_by_one) == joined(at_once));
    CHECK(one_by_one.operations() == at_once.operations());
    CHECK(one_by_one.size() == at_once.size());
  }

  TEST_CASE(
      "removals that were encoded before are the same bytes, and may have their offset later") {
    const TopicPartition of{topic(1), 2};
    PendingRemoved replaced{of, 3, from_ms(4), RemovalReason::replaced, from_ms(5), "id"};
    replaced.share = {7, 100};
    PendingRemoved moved{of, 4, from_ms(4), RemovalReason::moved, from_ms(5), "", -1, from_ms(9)};
    moved.first_due = from_ms(2);
    PendingRemoved delivered{of,         5,      from_ms(4), RemovalReason::delivered_on_arrival,
                             from_ms(5), "more", 0};
    RecordBuilder one_by_one, at_once;
    EncodedRemovals removals;
    removals.add(replaced);
    const std::size_t end = removals.add(delivered);
    removals.add(moved);
    removals.set_offset(end, 1'234'567);
    delivered.offset = 1'234'567;
    for (const auto& each : {replaced, delivered, moved}) one_by_one.add(each);
    at_once.add(removals);
    CHECK(joined(one_by_one) == joined(at_once));
    CHECK(one_by_one.operations() == at_once.operations());
    CHECK(one_by_one.size() == at_once.size());
  }

  TEST_CASE(
      "what was delivered at once is the same bytes as removals with the offsets that follow") {
    const TopicPartition of{topic(1), 2};
    const PendingRemoved plain{of, 3, from_ms(4), RemovalReason::delivered, from_ms(5), ""};
    PendingRemoved known{of, 4, from_ms(4), RemovalReason::delivered, from_ms(5), "an id"};
    known.share = {7, 100};
    PendingRemoved was_moved = known;
    was_moved.first_due = from_ms(2);
    const std::vector<PendingRemoved> removed{plain, known, was_moved, plain};
    RecordBuilder one_by_one, at_once;
    const std::string batch = "batch bytes";
    for (RecordBuilder* const record : {&one_by_one, &at_once})
      record->add(LogAppended{of, from_ms(7), as_bytes(batch)});
    Offset offset = 1'234'567;
    for (PendingRemoved each : removed) {
      each.offset = offset++;
      one_by_one.add(each);
    }
    at_once.add(DeliveredRecords{removed, 1'234'567});
    at_once.add(DeliveredRecords{{}, 0});
    for (RecordBuilder* const record : {&one_by_one, &at_once}) record->add(TopicDeleted{topic(3)});
    CHECK(joined(one_by_one) == joined(at_once));
    CHECK(one_by_one.operations() == at_once.operations());
    CHECK(one_by_one.size() == at_once.size());
  }

  TEST_CASE("the place of several operations that are added at once is that of the first") {
    EncodedAdditions additions;
    for (Sequence i = 0; i < 3; ++i)
      additions.add({{topic(1), 2}, i, from_ms(4), from_ms(5), never_expires, "", {}},
                    [](Buffer&) {});
    JournalTransaction transaction;
    CHECK(transaction.add(additions) == 0);
    CHECK(transaction.add(TopicDeleted{topic(3)}) == 3);
    CHECK(transaction.add(additions) == 4);
    CHECK(transaction.add(EncodedAdditions()) == 7);
    CHECK(transaction.add(TopicDeleted{topic(4)}) == 7);
  }

  TEST_CASE("every kind of operation is read back as it was written, in order") {
    std::vector<std::size_t> kinds;
    const Buffer bytes = one_of_each();
    const auto read = for_each_operation(bytes, [&](const Operation& op) -> Result<> {
      kinds.push_back(op.index());
      if (const auto* p = std::get_if<PendingAdded>(&op)) {
        CHECK(p->partition == TopicPartition{topic(1), 2});
        CHECK(p->sequence == 3);
        CHECK(to_ms(p->due) == 4);
        CHECK(to_ms(p->accepted) == 5);
        CHECK(to_ms(p->expires) == 6);
        CHECK(p->id == "id");
        CHECK(as_text(p->record) == "batch bytes");
      }
      if (const auto* a = std::get_if<LogAppended>(&op))
        CHECK(as_text(a->batches) == "batch bytes");
      if (const auto* g = std::get_if<PendingRemoved>(&op))
        CHECK((g->how == RemovalReason::replaced && g->id == "id"));
      if (const auto* p = std::get_if<ProducerAnswered>(&op)) {
        CHECK((p->producer_id == 9 && p->epoch == 10 && p->first_sequence == 11 &&
               p->last_sequence == 12 && p->base_offset == -2 && to_ms(p->at) == 13));
      }
      if (const auto* t = std::get_if<TopicCreated>(&op)) {
        CHECK((t->partitions == 4 && t->name == "orders" &&
               t->configs == Configs{{"a", "b"}, {"c", ""}}));
      }
      if (const auto* s = std::get_if<GroupStored>(&op))
        CHECK((s->group == "g" && as_text(s->value) == "batch bytes"));
      if (const auto* r = std::get_if<GroupRemoved>(&op)) CHECK(r->group == "gone");
      if (const auto* c = std::get_if<OffsetsCommitted>(&op)) {
        REQUIRE((c->group == "g" && c->offsets.size() == 2));
        const auto& first = c->offsets[0];
        CHECK((first.partition == TopicPartition{topic(1), 2} && first.offset == 3 &&
               first.leader_epoch == 4 && to_ms(first.committed) == 5 &&
               to_ms(first.expires) == 6 && first.metadata == "meta"));
        const auto& second = c->offsets[1];
        CHECK((second.partition == TopicPartition{topic(2), 0} && second.offset == 7 &&
               second.leader_epoch == -1 && second.expires == never_expires &&
               second.metadata.empty()));
      }
      if (const auto* r = std::get_if<OffsetsRemoved>(&op)) {
        CHECK((r->group == "g" &&
               r->partitions == std::vector<TopicPartition>{{topic(1), 2}, {topic(3), 4}}));
      }
      return {};
    });
    CHECK(read.has_value());
    CHECK(kinds == std::vector<std::size_t>{1, 0, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15});
  }

  TEST_CASE(
      "a record that was cut inside an operation is an error and nothing is read past its end") {
    const Buffer whole = one_of_each();
    std::size_t complete = 0;
    for (std::size_t length = 0; length < whole.size(); ++length) {
      const Buffer cut(whole.begin(), whole.begin() + static_cast<std::ptrdiff_t>(length));
      if (for_each_operation(cut, [](const Operation&) -> Result<> { return {}; })) ++complete;
    }
    CHECK(complete == 16);  // Only where an operation ends, and at 0.
  }

  TEST_CASE("an operation of an unknown type is refused, not skipped") {
    const Buffer bytes{200, 0, 0, 0, 0};
    const auto read = for_each_operation(bytes, [](const Operation&) -> Result<> { return {}; });
    REQUIRE_FALSE(read.has_value());
    CHECK(read.error().code == Errc::unsupported);
  }
}

}  // namespace
}  // namespace tarry::storage
