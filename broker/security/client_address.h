#pragma once

// The address of a client as text, in the forms in which it is compared.

#include <string>
#include <string_view>

namespace tarry::broker {

// "0:0:0:0:0:0:0:1" of "::1": as Java writes an IPv6 address, and so Kafka's rules have to.  Empty
// for everything else.
std::string address_in_full(std::string_view address);

// The same for all addresses that one machine may have: "/[2001:db8:0:1::/64]" of an IPv6 address,
// as its owner may choose the rest of it.  Any other host as it is.  `host` and the answer are in
// the form of Connection::host().
std::string network_of(std::string_view host);

}  // namespace tarry::broker
