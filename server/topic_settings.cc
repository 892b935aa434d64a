#include "server/topic_settings.h"

#include "broker/settings/topic_config.h"
#include "broker/topics/topics.h"

namespace tarry::server {

Result<storage::Configs> check_new_topic(const std::string& name, std::int32_t partitions,
                                         const storage::Configs& configs) {
  if (auto why = broker::topic_name_error(name); !why.empty()) return fail(Errc::invalid, why);
  if (auto why = broker::directory_limit_error(name, partitions); !why.empty())
    return fail(Errc::invalid, why);
  return broker::settle_topic_configs({}, configs);
}

}  // namespace tarry::server
