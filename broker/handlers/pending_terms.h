#pragma once

// The producer's part in what is pending: its principal's number, and what its quotas allow.
//
//   a connection's first Produce --> knows_principal()?
//        yes   User:ANONYMOUS, or the shard's SecurityImage has the number
//        no    the principal has never produced: number_principal(), before the request begins
//
// A Produce takes its places in its partitions without waiting, so the number is there before.

#include <string>

#include <boost/asio/awaitable.hpp>

#include "delay/pending_quota.h"

namespace tarry::broker {

struct RequestContext;

// Notes it at the connection.
bool knows_principal(const RequestContext& context);
// Afterwards it is known.
boost::asio::awaitable<void> number_principal(const RequestContext& context);

// `user` gets the name that the terms have; it is left alone if they have none.
delay::PendingTerms pending_terms(const RequestContext& context, std::string& user);

}  // namespace tarry::broker
