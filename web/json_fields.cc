#include "web/json_fields.h"

#include <algorithm>
#include <cstddef>
#include <optional>
#include <utility>

#include "base/assert.h"
#include "base/clock.h"

namespace tarry::web {
namespace {

Json json_of(const MetricValue& value) {
  if (const auto* time = std::get_if<std::optional<WallTime>>(&value))
    return *time ? Json(to_ms(**time)) : Json(nullptr);
  if (const auto* flag = std::get_if<bool>(&value)) return *flag;
  if (const auto* real = std::get_if<double>(&value)) return *real;
  return std::get<std::uint64_t>(value);
}

Json in_ms(std::uint64_t value, TimeUnit unit) {
  if (unit == TimeUnit::milliseconds) return value;
  return static_cast<double>(value) / 1e3;
}

void put_quantiles(Json& to, const Histogram& values, TimeUnit unit) {
  to["p50"] = in_ms(values.p50(), unit);
  to["p99"] = in_ms(values.p99(), unit);
  to["max"] = in_ms(values.max(), unit);
}

Json recent_json(const Histogram& values, TimeUnit unit) {
  Json json;
  put_quantiles(json, values, unit);
  json["count"] = values.count();
  return json;
}

Json whole_json(const Distribution& values, TimeUnit unit) {
  Json json;
  json["count"] = values.total.count();
  json["sum"] = in_ms(values.total.sum(), unit);
  put_quantiles(json, values.total, unit);
  json["buckets"] = Json::array();  // Empty ones are left out.
  for (std::size_t i = 0; i < Histogram::bucket_count; ++i) {
    if (values.total.in_bucket(i) == 0) continue;
    Json bucket;
    bucket["le"] = in_ms(Histogram::upper_bound(i), unit);
    bucket["count"] = values.total.in_bucket(i);
    json["buckets"].push_back(std::move(bucket));
  }
  json["recent"] = recent_json(values.recent, unit);
  return json;
}

}  // namespace

JsonFields::Field* JsonFields::find(const Metric& metric) {
  const auto found = std::ranges::find(fields_, metric.json_field(), &Field::name);
  if (found == fields_.end()) return nullptr;
  // Two figures that have nothing to do with each other would be added up.
  TARRY_ASSERT(found->metric == metric.name, "in one object a field is of one metric");
  return &*found;
}

void JsonFields::put(MetricType, const Metric& metric, const MetricValue& value) {
  if (Field* field = find(metric)) {
    add_to(std::get<MetricValue>(field->value), value);
  } else {
    fields_.push_back({std::string(metric.json_field()), std::string(metric.name), value});
  }
}

void JsonFields::histogram(const Metric& metric, const Distribution& values, TimeUnit unit) {
  if (Field* field = find(metric)) {
    std::get<TimeDistribution>(field->value).values.add(values);
  } else {
    fields_.push_back({std::string(metric.json_field()), std::string(metric.name),
                       TimeDistribution{values, unit}});
  }
}

void JsonFields::put_into(Json& object) const {
  for (const auto& field : fields_) {
    Json& to = object[field.name];
    if (const auto* figure = std::get_if<MetricValue>(&field.value)) {
      to = json_of(*figure);
      continue;
    }
    const auto& [values, unit] = std::get<TimeDistribution>(field.value);
    to = histograms_ == Histograms::whole ? whole_json(values, unit)
                                          : recent_json(values.recent, unit);
  }
}

Json JsonFields::object() const {
  Json json = Json::object();
  put_into(json);
  return json;
}

}  // namespace tarry::web
