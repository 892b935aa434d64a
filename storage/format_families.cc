#include "storage/format_families.h"

#include <fmt/core.h>

#include <algorithm>
#include <filesystem>
#include <system_error>

#include "storage/rocks.h"

namespace tarry::storage {
namespace {

bool has(const std::vector<std::string>& names, const std::string& name) {
  return std::ranges::find(names, name) != names.end();
}

}  // namespace

Result<std::vector<std::string>> check_format(const std::string& directory,
                                              const FormatFamilies& ours) {
  std::error_code ignored;
  if (!std::filesystem::is_directory(directory, ignored))
    return std::unexpected(damaged_database(directory, "missing"));

  std::vector<std::string> found;
  const auto listed = rocksdb::DB::ListColumnFamilies(rocksdb::DBOptions(), directory, &found);
  if (!listed.ok()) {
    // A disk that fails says nothing about the state of the database.
    if (listed.IsIOError() && !listed.IsPathNotFound())
      return std::unexpected(rocks_error(listed, directory));
    return std::unexpected(damaged_database(directory, listed.ToString()));
  }
  const bool is_former = !ours.former.empty() && has(found, ours.former);
  // First the format: the unknown families of a later version are no damage.
  for (const auto& name : found) {
    if (name.starts_with(ours.prefix) && name != ours.format() && name != ours.former) {
      return fail(Errc::unsupported,
                  fmt::format("database {} has the format {}; this version reads {}; start the "
                              "version of Tarry that wrote it; nothing was changed",
                              directory, name, ours.format()));
    }
  }
  for (const auto& name : found) {
    if (name != rocksdb::kDefaultColumnFamilyName && name != ours.former && !has(ours.names, name))
      return std::unexpected(
          damaged_database(directory, fmt::format("it has an unknown column family {}", name)));
  }
  for (const auto& name : ours.names) {
    // Database::start() makes what a former format lacks.
    const bool may_lack = is_former && has(ours.new_since_former, name);
    if (!has(found, name) && !may_lack)
      return std::unexpected(
          damaged_database(directory, fmt::format("its column family {} is missing", name)));
  }
  return found;
}

}  // namespace tarry::storage
