#include "storage/catalog.h"

#include <fmt/core.h>

#include <algorithm>
#include <utility>

#include "storage/database.h"
#include "storage/fields.h"
#include "storage/producer_states.h"
#include "storage/rocks.h"

namespace tarry::storage {
namespace {

constexpr std::string_view broker_configs_key = "broker.configs";
constexpr std::string_view producer_ids_key = "producer.ids";
constexpr std::string_view sequences_key = "sequences";
// Users and rules have a row each.
constexpr std::string_view security_prefix = "security/";
// '0' is the byte after '/', so all rows of security_prefix come before it.
constexpr std::string_view behind_security = "security0";

// More than so many changes are sorted anew with the rest.
constexpr std::size_t changes_of_image = 64;

void put_configs(Buffer& out, const Configs& configs) {
  append_be(out, static_cast<std::uint32_t>(configs.size()));
  for (const auto& [key, value] : configs) {
    for (const std::string_view text : {std::string_view(key), std::string_view(value)}) {
      append_be(out, static_cast<std::uint32_t>(text.size()));
      append_bytes(out, as_bytes(text));
    }
  }
}

Configs configs_of(Fields& fields) {
  Configs out;
  for (auto count = fields.number<std::uint32_t>(); count > 0; --count) {
    std::string key{as_text(fields.take(fields.number<std::uint32_t>()))};
    std::string value{as_text(fields.take(fields.number<std::uint32_t>()))};
    if (key.empty()) break;  // Past the end, which good() reports.
    out.insert_or_assign(std::move(key), std::move(value));
  }
  return out;
}

Buffer to_buffer(std::string_view text) {
  Buffer out;
  append_bytes(out, as_bytes(text));
  return out;
}

Buffer encode(const Topic& topic) {
  Buffer out;
  append_be(out, topic.partitions);
  append_be(out, static_cast<std::uint32_t>(topic.name.size()));
  append_bytes(out, as_bytes(topic.name));
  put_configs(out, topic.configs);
  return out;
}

std::unexpected<Error> bad_row(const Rocks& rocks, std::string_view what) {
  return fail(
      Errc::corrupt,
      fmt::format("database {}: the row of {} is malformed; restore the whole data directory "
                  "from a copy",
                  rocks.directory, what));
}

}  // namespace

TopicsImage::TopicsImage(std::vector<TopicPtr> topics)
    : by_name_(topics), by_id_(std::move(topics)) {}

TopicsImage::TopicPtr TopicsImage::find(std::string_view name) const {
  const auto at = by_name_.lower_bound(name);
  return at != by_name_.end() && (*at)->name == name ? *at : nullptr;
}

TopicsImage::TopicPtr TopicsImage::find(const TopicId& id) const {
  const auto at = by_id_.lower_bound(id);
  return at != by_id_.end() && (*at)->id == id ? *at : nullptr;
}

TopicsImage TopicsImage::with(const Changes& changes) const {
  TopicsImage out(*this);
  for (const auto& [id, now] : changes) {
    if (const TopicPtr was = out.find(id)) {
      // Two topics of one name are there for a moment when it is given out again.
      out.by_name_.erase(was);
      out.by_id_.erase(was);
    }
    if (!now) continue;
    out.by_id_.insert(now);
    out.by_name_.insert(now);
  }
  return out;
}

void TopicsImage::changes_between(const TopicsImage& before, const TopicsImage& after,
                                  const TakeChange& take) {
  SharedList<TopicPtr, IdOf>::changes_between(before.by_id_, after.by_id_, take);
}

Catalog::Catalog(Database& meta) : meta_(meta) {}

Result<> Catalog::load() {
  Rocks& rocks = meta_.rocks();
  // An id has 16 bytes, so this is after every key.
  const Buffer first, behind_all(32, 0xff);

  BoundedIterator topics(rocks, meta_family::topics, first, behind_all);
  for (topics.seek_to_first(); topics.valid(); topics.next()) {
    auto topic = std::make_shared<Topic>();
    Fields key(topics.key()), value(topics.value());
    topic->id = key.topic();
    topic->partitions = value.number<std::int32_t>();
    topic->name = as_text(value.take(value.number<std::uint32_t>()));
    topic->configs = configs_of(value);
    if (!key.good() || !value.good() || topic->partitions < 1) return bad_row(rocks, "a topic");
    topics_.insert_or_assign(topic->id, std::move(topic));
  }
  if (const auto status = topics.status(); !status) return status;

  BoundedIterator security(rocks, meta_family::singles, to_buffer(security_prefix),
                           to_buffer(behind_security));
  for (security.seek_to_first(); security.valid(); security.next()) {
    const auto key = as_text(security.key()).substr(security_prefix.size());
    security_rows_.insert_or_assign(std::string(key), std::string(as_text(security.value())));
  }
  if (const auto status = security.status(); !status) return status;

  rocksdb::PinnableSlice value;
  const auto single = [&](std::string_view key, auto take) -> Result<> {
    const auto found = rocks.get(meta_family::singles, slice(as_bytes(key)), value);
    if (!found) return std::unexpected(found.error());
    if (!*found) return {};
    Fields fields(bytes_of(value));
    take(fields);
    return fields.good() ? Result<>() : bad_row(rocks, key);
  };
  if (auto r = single(broker_configs_key, [&](Fields& f) { broker_configs_ = configs_of(f); }); !r)
    return r;
  if (auto r =
          single(producer_ids_key, [&](Fields& f) { next_producer_id_ = f.number<ProducerId>(); });
      !r)
    return r;
  return single(sequences_key, [&](Fields& f) { next_sequence_ = f.number<Sequence>(); });
}

Result<> Catalog::put_topic(const Topic& topic) {
  // image() makes the next image from the last one and these.
  changed_.push_back(topic.id);
  topics_.insert_or_assign(topic.id, std::make_shared<const Topic>(topic));
  rocksdb::WriteBatch batch;
  batch.Put(meta_.rocks().family(meta_family::topics), slice(topic.id.bytes), slice(encode(topic)));
  return meta_.rocks().write(batch);
}

Result<> Catalog::apply(const Operation& operation) {
  // Replay may bring any operation a second time, so each leaves alone what is there already, or is
  // gone.
  Rocks& rocks = meta_.rocks();
  const auto put_single = [&](std::string_view key, const Buffer& value) {
    rocksdb::WriteBatch batch;
    batch.Put(rocks.family(meta_family::singles), slice(as_bytes(key)), slice(value));
    return rocks.write(batch);
  };
  // The topic as it is, to be changed; empty when it was deleted later in the journal.
  const auto topic_of = [&](const TopicId& id) -> std::optional<Topic> {
    const auto found = topics_.find(id);
    return found == topics_.end() ? std::nullopt : std::optional(*found->second);
  };

  if (const auto* created = std::get_if<TopicCreated>(&operation)) {
    // One that is there already is as it was made, or later.
    if (topics_.contains(created->topic)) return {};
    if (created->partitions < 1) {
      return fail(Errc::corrupt, fmt::format("topic {} was made with {} partitions",
                                             created->topic.text(), created->partitions));
    }
    return put_topic(
        {created->topic, std::string(created->name), created->partitions, created->configs});
  }
  if (const auto* added = std::get_if<PartitionsAdded>(&operation)) {
    auto topic = topic_of(added->topic);
    if (!topic || topic->partitions >= added->partitions) return {};
    topic->partitions = added->partitions;
    return put_topic(*topic);
  }
  if (const auto* set = std::get_if<ConfigsSet>(&operation)) {
    auto topic = topic_of(set->topic);
    if (!topic) return {};
    topic->configs = set->configs;
    return put_topic(*topic);
  }
  if (const auto* deleted = std::get_if<TopicDeleted>(&operation)) {
    const TopicId id = deleted->topic;
    if (topics_.erase(id) > 0) changed_.push_back(id);
    rocksdb::WriteBatch batch;
    batch.Delete(rocks.family(meta_family::topics), slice(id.bytes));
    if (const auto written = rocks.write(batch); !written) return written;
    return drop_producer_states(meta_, id);
  }
  if (const auto* given = std::get_if<ProducerIdsGiven>(&operation)) {
    // Replay may bring an older block than the database has; numbers must not be given out twice.
    if (given->next <= next_producer_id_) return {};
    next_producer_id_ = given->next;
    Buffer value;
    append_be(value, next_producer_id_);
    return put_single(producer_ids_key, value);
  }
  if (const auto* given = std::get_if<SequencesGiven>(&operation)) {
    if (given->next <= next_sequence_) return {};
    next_sequence_ = given->next;
    Buffer value;
    append_be(value, next_sequence_);
    return put_single(sequences_key, value);
  }
  if (const auto* set = std::get_if<BrokerConfigsSet>(&operation)) {
    broker_configs_ = set->configs;
    Buffer value;
    put_configs(value, broker_configs_);
    return put_single(broker_configs_key, value);
  }
  return apply_security(operation);
}

Result<> Catalog::apply_security(const Operation& operation) {
  Rocks& rocks = meta_.rocks();
  const auto row_key = [](std::string_view key) {
    auto out = to_buffer(security_prefix);
    append_bytes(out, as_bytes(key));
    return out;
  };
  rocksdb::WriteBatch batch;
  if (const auto* set = std::get_if<SecurityRowSet>(&operation)) {
    security_rows_.insert_or_assign(std::string(set->key), std::string(set->value));
    batch.Put(rocks.family(meta_family::singles), slice(row_key(set->key)),
              slice(as_bytes(set->value)));
    return rocks.write(batch);
  }
  if (const auto* removed = std::get_if<SecurityRowRemoved>(&operation)) {
    security_rows_.erase(std::string(removed->key));
    batch.Delete(rocks.family(meta_family::singles), slice(row_key(removed->key)));
    return rocks.write(batch);
  }
  return {};
}

std::shared_ptr<const TopicsImage> Catalog::image() {
  if (image_ && changed_.empty()) return image_;
  if (image_ && changed_.size() <= changes_of_image) {
    TopicsImage::Changes changes;
    for (const TopicId& id : changed_) {
      const auto now = topics_.find(id);
      changes.emplace_back(id, now == topics_.end() ? nullptr : now->second);
    }
    image_ = std::make_shared<const TopicsImage>(image_->with(changes));
  } else {
    std::vector<TopicsImage::TopicPtr> topics;
    topics.reserve(topics_.size());
    for (const auto& [id, topic] : topics_) topics.push_back(topic);
    image_ = std::make_shared<const TopicsImage>(std::move(topics));
  }
  changed_.clear();
  return image_;
}

}  // namespace tarry::storage
