#include "broker/groups/group_record.h"

#include <string_view>

#include <fmt/core.h>

namespace tarry::broker {
namespace {

constexpr std::int16_t record_version = 1;

// An array's element has at least so many bytes: what a count may claim is bounded by it.
constexpr std::size_t min_member_bytes = 4 + 1 + 4 + 4 + 4 + 4 + 4 + 4;
constexpr std::size_t min_protocol_bytes = 4 + 4;

void put(Buffer& to, Bytes bytes) {
  append_be(to, static_cast<std::uint32_t>(bytes.size()));
  append_bytes(to, bytes);
}
void put(Buffer& to, std::string_view text) {
  put(to, as_bytes(text));
}
void put(Buffer& to, std::chrono::milliseconds time) {
  append_be(to, static_cast<std::int32_t>(time.count()));
}

// Reads on until something is missing; then it stays false and gives nothing.
class Input {
 public:
  explicit Input(Bytes bytes) : left_(bytes) {}

  bool ok() const { return ok_; }
  std::size_t left() const { return left_.size(); }

  template <typename T>
  T number() {
    if (left_.size() < sizeof(T)) ok_ = false;
    if (!ok_) return 0;
    const T value = load_be<T>(left_.data());
    left_ = left_.subspan(sizeof(T));
    return value;
  }
  Bytes bytes() {
    const auto size = number<std::uint32_t>();
    if (size > left_.size()) ok_ = false;
    if (!ok_) return {};
    const Bytes taken = left_.first(size);
    left_ = left_.subspan(size);
    return taken;
  }
  std::string text() { return std::string(as_text(bytes())); }
  std::chrono::milliseconds time() { return std::chrono::milliseconds{number<std::int32_t>()}; }
  // The size of an array whose elements have at least `least` bytes.
  std::size_t count(std::size_t least) {
    const auto claimed = number<std::uint32_t>();
    if (claimed > left_.size() / least) ok_ = false;
    return ok_ ? claimed : 0;
  }

 private:
  Bytes left_;
  bool ok_ = true;
};

GroupRecord::Member read_member(Input& in) {
  GroupRecord::Member member;
  member.id = in.text();
  if (in.number<std::uint8_t>() != 0) member.instance_id = in.text();
  member.client_id = in.text();
  member.client_host = in.text();
  member.session_timeout = in.time();
  member.rebalance_timeout = in.time();
  const std::size_t protocols = in.count(min_protocol_bytes);
  member.protocols.resize(protocols);
  for (auto& protocol : member.protocols) {
    protocol.name = in.text();
    protocol.metadata = shared_copy(in.bytes());
  }
  member.assignment = shared_copy(in.bytes());
  return member;
}

}  // namespace

std::size_t encoded_bytes(const GroupRecordView& group) {
  constexpr std::size_t length = 4;
  std::size_t bytes = 2 + 4 + 8 + 3 * length + group.protocol_type.size() +
                      group.protocol_name.size() + group.leader.size() + 4;
  for (const auto& [member, assignment] : group.members) {
    bytes += min_member_bytes + member->id.size() + member->client_id.size() +
             member->client_host.size() + assignment.size();
    if (member->instance_id) bytes += length + member->instance_id->size();
    for (const auto& protocol : member->protocols)
      bytes += min_protocol_bytes + protocol.name.size() + protocol.metadata.size();
  }
  return bytes;
}

GroupRecord snapshot_of(const GroupRecordView& group) {
  GroupRecord copy;
  copy.generation = group.generation;
  copy.changed = group.changed;
  copy.protocol_type = group.protocol_type;
  copy.protocol_name = group.protocol_name;
  copy.leader = group.leader;
  copy.members.reserve(group.members.size());
  for (const auto& [described, assignment] : group.members)
    copy.members.emplace_back(*described).assignment = assignment;
  return copy;
}

Buffer encode_group(const GroupRecord& group) {
  GroupRecordView view{group.generation,    group.changed, group.protocol_type,
                       group.protocol_name, group.leader,  {}};
  for (const auto& member : group.members) view.members.push_back({&member, member.assignment});
  return encode_group(view);
}

Buffer encode_group(const GroupRecordView& group) {
  Buffer out;
  // At once: to grow it would copy its megabytes again and again.
  out.reserve(encoded_bytes(group));
  append_be(out, record_version);
  append_be(out, group.generation);
  append_be(out, static_cast<std::int64_t>(group.changed.time_since_epoch().count()));
  put(out, group.protocol_type);
  put(out, group.protocol_name);
  put(out, group.leader);
  append_be(out, static_cast<std::uint32_t>(group.members.size()));
  for (const auto& [described, assignment] : group.members) {
    const GroupRecord::Member& member = *described;
    put(out, member.id);
    append_be(out, std::uint8_t{member.instance_id.has_value()});
    if (member.instance_id) put(out, *member.instance_id);
    put(out, member.client_id);
    put(out, member.client_host);
    put(out, member.session_timeout);
    put(out, member.rebalance_timeout);
    append_be(out, static_cast<std::uint32_t>(member.protocols.size()));
    for (const auto& protocol : member.protocols) {
      put(out, protocol.name);
      put(out, Bytes(protocol.metadata));
    }
    put(out, assignment);
  }
  return out;
}

Result<GroupRecord> decode_group(Bytes bytes) {
  Input in(bytes);
  const auto version = in.number<std::int16_t>();
  // The record of a later version is refused, and not read in part.
  if (in.ok() && version != record_version) {
    return fail(Errc::unsupported,
                fmt::format("the group's record has version {}; this broker reads version {}",
                            version, record_version));
  }
  GroupRecord group;
  group.generation = in.number<std::int32_t>();
  group.changed = WallTime{std::chrono::milliseconds{in.number<std::int64_t>()}};
  group.protocol_type = in.text();
  group.protocol_name = in.text();
  group.leader = in.text();
  const std::size_t members = in.count(min_member_bytes);
  for (std::size_t i = 0; i < members && in.ok(); ++i) group.members.push_back(read_member(in));
  if (!in.ok() || in.left() > 0) {
    return fail(Errc::corrupt,
                fmt::format("the group's record of {} bytes {}", bytes.size(),
                            in.ok() ? fmt::format("has {} bytes after its end", in.left())
                                    : std::string("is truncated")));
  }
  return group;
}

}  // namespace tarry::broker
