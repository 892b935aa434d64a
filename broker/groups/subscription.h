#pragma once

// The topics that the members of a consumer group read, as their protocol metadata says.

#include <functional>
#include <optional>
#include <set>
#include <string>

namespace tarry::broker {

class Group;

// The topics that its members read, as they say; none when it has no members.  Empty when it is no
// group of consumers, or one of them says what is not understood, or they name more than 10 000:
// then they may read anything.
std::optional<std::set<std::string, std::less<>>> subscription_of(const Group& group);

}  // namespace tarry::broker
