#include "admin/purgatory_json.h"

#include <string>

namespace tarry::admin {

Json purgatory_json(const std::vector<broker::ShardStatus>& shards,
                    web::JsonFields::Histograms histograms) {
  Json json = Json::object();
  for (const auto kind : purgatory::kinds()) {
    web::JsonFields figures(histograms);
    for (const auto& shard : shards) shard.purgatory[kind.index()].report(figures);
    json[std::string(kind.name())] = figures.object();
  }
  return json;
}

}  // namespace tarry::admin
