#include "base/metrics.h"

#include <algorithm>

#include "base/assert.h"

namespace tarry {

std::string_view Metric::json_field() const {
  if (!field.empty()) return field;
  constexpr std::string_view ours = "tarry_";
  TARRY_ASSERT(name.starts_with(ours), "a name that is not tarry_FOLDER_... names its field");
  const auto end_of_folder = name.find('_', ours.size());
  TARRY_ASSERT(end_of_folder != name.npos, "a name is tarry_FOLDER_...");
  return name.substr(end_of_folder + 1);
}

namespace {

void add_values(bool& value, bool other) {
  value = value && other;
}
void add_values(std::uint64_t& value, std::uint64_t other) {
  value += other;
}
void add_values(double& value, double other) {
  value += other;
}
void add_values(std::optional<WallTime>& value, const std::optional<WallTime>& other) {
  if (other) value = value ? std::min(*value, *other) : *other;
}

}  // namespace

void add_to(MetricValue& value, const MetricValue& other) {
  TARRY_ASSERT(value.index() == other.index(), "a metric has one type of value");
  std::visit([&]<typename T>(T& held) { add_values(held, std::get<T>(other)); }, value);
}

}  // namespace tarry
