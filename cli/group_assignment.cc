#include "cli/group_assignment.h"

#include <string_view>

namespace tarry::cli {
namespace {

constexpr std::size_t longest_topic_name = 249;

// Past the end everything is -1, which is no length and no count.
class Input {
 public:
  explicit Input(Bytes bytes) : left_(bytes) {}

  template <typename T>
  T number() {
    const Bytes bytes = take(sizeof(T));
    return bytes.empty() ? T{-1} : load_be<T>(bytes.data());
  }
  Bytes take(std::size_t count) {
    if (count > left_.size()) {
      good_ = false;
      left_ = {};
      return {};
    }
    const Bytes taken = left_.first(count);
    left_ = left_.subspan(count);
    return taken;
  }
  bool good() const { return good_; }
  bool at_end() const { return left_.empty(); }

 private:
  Bytes left_;
  bool good_ = true;
};

}  // namespace

std::optional<AssignedPartitions> read_assignment(Bytes assignment) {
  AssignedPartitions out;
  if (assignment.empty()) return out;
  Input in(assignment);
  if (in.number<std::int16_t>() < 0) return std::nullopt;
  // What is claimed is read, not made room for.
  const auto topics = in.number<std::int32_t>();
  if (topics < 0) return std::nullopt;
  for (std::int32_t t = 0; t < topics; ++t) {
    const auto length = in.number<std::int16_t>();
    if (length <= 0 || static_cast<std::size_t>(length) > longest_topic_name) return std::nullopt;
    const auto name = as_text(in.take(static_cast<std::size_t>(length)));
    const auto partitions = in.number<std::int32_t>();
    if (partitions < 0) return std::nullopt;
    for (std::int32_t p = 0; p < partitions; ++p) {
      const auto partition = in.number<std::int32_t>();
      if (partition < 0) return std::nullopt;
      out.emplace_back(name, partition);
    }
  }
  if (!in.at_end()) {
    const auto userdata = in.number<std::int32_t>();
    if (userdata < -1 || !in.good()) return std::nullopt;
    if (userdata > 0) in.take(static_cast<std::size_t>(userdata));
  }
  if (!in.good() || !in.at_end()) return std::nullopt;
  return out;
}

}  // namespace tarry::cli
