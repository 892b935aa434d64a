#pragma once

// The producer's part in what is pending: its principal's number, and what its quotas allow.
//
//   a connection's first Produce --> knows_principal()?
//        yes   User:ANONYMOUS, or the shard's SecurityImage has the number
//        no    the principal has never produced: number_principal(), before anything else
//
// A Produce takes its places in its partitions without waiting, so the number is there before, and
// nothing else of its connection is at work.
//
// A number that cannot be written down refuses the request, because what it schedules would count
// for nobody; the connection's next Produce tries again.

#include <string>

#include <boost/asio/awaitable.hpp>

#include "delay/pending_quota.h"

namespace tarry::broker {

struct RequestContext;

// Notes it at the connection.
bool knows_principal(const RequestContext& context);
// False: its number cannot be written down at the moment.
boost::asio::awaitable<bool> number_principal(const RequestContext& context);

// `user` gets the name that the terms have; it is left alone if they have none.
delay::PendingTerms pending_terms(const RequestContext& context, std::string& user);

}  // namespace tarry::broker
