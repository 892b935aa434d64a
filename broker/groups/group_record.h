#pragma once

// GroupRecord: the part of a consumer group that survives a restart, and its encoding.
//
// It is the value of the journal's GroupStored and of db/meta's row for the group.  Written when a
// generation's assignments are known, when the last member has gone, and when a static member has
// come back under a new id; so a group that is read again is Stable, or Empty without members.
//
//   version i16 = 1
//   generation i32
//   changed_ms i64          when it got its assignments or became Empty
//   protocol_type text      "consumer"
//   protocol_name text      of the generation; empty: none
//   leader text             a member's id; empty: none
//   members u32, each:
//     id text, instance_id u8 (0: none, 1) + text, client_id text, client_host text
//     session_ms i32, rebalance_ms i32
//     protocols u32, each: name text, metadata bytes
//     assignment bytes
//
// Numbers are big-endian; text and bytes are a u32 length and as many bytes.
//
// Metadata and assignments may have megabytes.  They never change, so that a group, its record on
// the way to the journal and the answers to its members share them.

#include <chrono>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/bytes.h"
#include "base/clock.h"
#include "base/result.h"

namespace tarry::broker {

// One of the ways to assign partitions that a member offers, with what it tells the leader for it.
struct GroupProtocol {
  std::string name;
  SharedBytes metadata;

  bool operator==(const GroupProtocol&) const = default;
};

struct GroupRecord {
  struct Member {
    std::string id;
    std::optional<std::string> instance_id;
    std::string client_id;
    std::string client_host;
    std::chrono::milliseconds session_timeout{0};
    std::chrono::milliseconds rebalance_timeout{0};
    std::vector<GroupProtocol> protocols;  // In the order of its preference.
    SharedBytes assignment;

    bool operator==(const Member&) const = default;
  };

  std::int32_t generation = 0;
  WallTime changed;
  std::string protocol_type;
  std::string protocol_name;
  std::string leader;
  std::vector<Member> members;

  bool operator==(const GroupRecord&) const = default;
};

// The same without a copy, of a group that is there: its members may have many megabytes.
struct GroupRecordView {
  struct Member {
    const GroupRecord::Member* described;
    SharedBytes assignment;  // In place of that in the description.
  };

  std::int32_t generation = 0;
  WallTime changed;
  std::string_view protocol_type;
  std::string_view protocol_name;
  std::string_view leader;
  std::vector<Member> members;
};

Buffer encode_group(const GroupRecordView& group);
Buffer encode_group(const GroupRecord& group);
// The bytes of its encoding.
std::size_t encoded_bytes(const GroupRecordView& group);

// A copy of the view's contents for another thread: metadata and assignments are shared with the
// group, which never changes them, and texts are copied.
GroupRecord snapshot_of(const GroupRecordView& group);

// Errc::corrupt, Errc::unsupported (a later version).  Never allocates more than the bytes can
// hold.
Result<GroupRecord> decode_group(Bytes bytes);

}  // namespace tarry::broker
