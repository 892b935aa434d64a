#include "relay/kafka_directory.h"

#include <array>
#include <utility>

#include <fmt/format.h>

#include "base/log.h"
#include "relay/kafka_cluster.h"
#include "relay/kafka_topics.h"

namespace tarry::relay {

Result<std::unique_ptr<KafkaDirectory>> KafkaDirectory::open(const Options& options) {
  std::vector<std::string> properties{"client.id=" + options.client_id,
                                      "bootstrap.servers=" + options.brokers,
                                      "reconnect.backoff.max.ms=1000"};
  properties.insert(properties.end(), options.properties.begin(), options.properties.end());
  // To list topics must not make one, whatever the cluster allows.
  properties.emplace_back("allow.auto.create.topics=false");
  auto client = open_client(RD_KAFKA_CONSUMER, properties);
  if (!client) return std::unexpected(client.error());
  return std::unique_ptr<KafkaDirectory>(new KafkaDirectory(options, std::move(*client)));
}

Result<Listing> KafkaDirectory::list() {
  const auto topics = KafkaTopics(client_.get(), options_.timeout).list();
  if (!topics) return std::unexpected(topics.error());
  Listing listing;
  for (const auto& [topic, partitions] : *topics)
    if (may_be_source(options_.source, topic)) listing.sources.emplace(topic, partitions);
  if (const auto listed = list_members(listing); !listed) return std::unexpected(listed.error());
  return listing;
}

Result<> KafkaDirectory::list_members(Listing& listing) {
  const KafkaQueue queue(rd_kafka_queue_new(client_.get()));
  const KafkaOwned<rd_kafka_AdminOptions_t, rd_kafka_AdminOptions_destroy> asking(
      rd_kafka_AdminOptions_new(client_.get(), RD_KAFKA_ADMIN_OP_DESCRIBECONSUMERGROUPS));
  std::array<char, 256> wrong{};
  rd_kafka_AdminOptions_set_request_timeout(asking.get(), in_ms(options_.timeout), wrong.data(),
                                            wrong.size());
  const char* name = options_.group.c_str();
  rd_kafka_DescribeConsumerGroups(client_.get(), &name, 1, asking.get(), queue.get());
  // A little longer than librdkafka waits, because its error says more than ours.
  const KafkaEvent event(rd_kafka_queue_poll(queue.get(), in_ms(options_.timeout) + 500));
  const std::string what = "the members of group " + options_.group;
  if (!event) return fail(Errc::io, what + ": Kafka does not answer");
  if (const auto error = rd_kafka_event_error(event.get()); error != RD_KAFKA_RESP_ERR_NO_ERROR)
    return fail(Errc::io, error_text(error, what));
  std::size_t count = 0;
  const auto** groups = rd_kafka_DescribeConsumerGroups_result_groups(
      rd_kafka_event_DescribeConsumerGroups_result(event.get()), &count);
  for (std::size_t i = 0; i < count; ++i) {
    if (const auto* error = rd_kafka_ConsumerGroupDescription_error(groups[i]); error != nullptr)
      return fail(Errc::io, error_text(error, what));
    const auto members = rd_kafka_ConsumerGroupDescription_member_count(groups[i]);
    for (std::size_t j = 0; j < members; ++j) {
      const auto* member = rd_kafka_ConsumerGroupDescription_member(groups[i], j);
      // The client id is all that a member can tell about itself through Kafka, so it has the
      // address.
      const char* id = rd_kafka_MemberDescription_client_id(member);
      auto peer = peer_of(id == nullptr ? "" : id);
      if (!peer) {
        // Somebody else in the group takes partitions that no relay serves, so operators are shown
        // the name.
        listing.strangers.push_back(printable(id == nullptr ? "" : id));
        continue;
      }
      const auto* assignment = rd_kafka_MemberDescription_assignment(member);
      const auto* list =
          // While the group rebalances a member has none.
          assignment == nullptr ? nullptr : rd_kafka_MemberAssignment_partitions(assignment);
      for (int k = 0; list != nullptr && k < list->cnt; ++k)
        peer->assigned.push_back({list->elems[k].topic, list->elems[k].partition});
      listing.peers.push_back(std::move(*peer));
    }
  }
  return {};
}

}  // namespace tarry::relay
