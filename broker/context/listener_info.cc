#include "broker/context/listener_info.h"

#include "base/ascii_case.h"

namespace tarry::broker {

std::string_view ListenerInfo::sasl_setting(std::string_view mechanism,
                                            std::string_view key) const {
  std::string own;
  for (const char c : mechanism) own += ascii_lower(c);
  own += '.';
  own += key;
  // A mechanism's own setting wins over the listener's.
  for (const std::string_view each : {std::string_view(own), key}) {
    const auto found = sasl_settings.find(std::string(each));
    if (found != sasl_settings.end()) return found->second;
  }
  return {};
}

}  // namespace tarry::broker
