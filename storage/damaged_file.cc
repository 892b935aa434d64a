#include "storage/damaged_file.h"

#include <algorithm>
#include <cstddef>
#include <span>

#include <fmt/core.h>

#include "base/bytes.h"

namespace tarry::storage {
namespace {

constexpr std::size_t copy_piece_bytes = 1 << 20;
constexpr int max_set_aside = 1000;  // Files of one name.
constexpr std::size_t max_file_name_bytes = 255;

Result<bool> same_bytes(const File& a, std::uint64_t at, const File& b, std::uint64_t bytes) {
  Buffer left(copy_piece_bytes), right(copy_piece_bytes);
  for (std::uint64_t done = 0; done < bytes; done += copy_piece_bytes) {
    const auto part = static_cast<std::size_t>(std::min<std::uint64_t>(bytes - done, left.size()));
    const auto got = a.pread(at + done, std::span(left).first(part));
    if (!got) return std::unexpected(got.error());
    const auto other = b.pread(done, std::span(right).first(part));
    if (!other) return std::unexpected(other.error());
    if (*got != *other ||
        !std::equal(left.begin(), left.begin() + static_cast<long>(*got), right.begin()))
      return false;
  }
  return true;
}

Result<> copy_bytes(const File& from, std::uint64_t position, std::uint64_t bytes, File& to) {
  Buffer piece(copy_piece_bytes);
  for (std::uint64_t done = 0; done < bytes;) {
    const auto part = static_cast<std::size_t>(std::min<std::uint64_t>(bytes - done, piece.size()));
    const auto got = from.pread(position + done, std::span(piece).first(part));
    if (!got) return std::unexpected(got.error());
    if (*got == 0) {
      return fail(Errc::io,
                  fmt::format("{} ended at {} while it was copied", from.path(), position + done));
    }
    if (auto written = to.pwrite(done, Bytes(piece).first(*got)); !written) return written;
    done += *got;
  }
  return {};
}

// Copies a part of a file to a new one, durably but for its name.
Result<> copy_to_file(Disk& disk, const File& from, std::uint64_t position, std::uint64_t bytes,
                      const std::string& path) {
  auto file = disk.open(path, {.write = true, .create = OpenOptions::Create::if_absent});
  if (!file) return std::unexpected(file.error());
  if (auto cut = (*file)->truncate(0); !cut) return cut;
  if (auto copied = copy_bytes(from, position, bytes, **file); !copied) return copied;
  return (*file)->sync();
}

}  // namespace

Result<std::string> free_name(Disk& disk, const std::string& path, std::string_view ending,
                              const std::function<Result<bool>(const File&)>& is_the_same) {
  for (int number = 1; number < max_set_aside; ++number) {
    auto name = number == 1 ? fmt::format("{}.{}", path, ending)
                            : fmt::format("{}.{}-{}", path, ending, number);
    const auto there = disk.open(name, {});
    if (!there && there.error().code == Errc::not_found) return name;
    // A file that cannot be opened now may hold what nothing else does.
    if (!there) return std::unexpected(there.error());
    const auto same = is_the_same(**there);
    if (!same) return std::unexpected(same.error());
    if (*same) return name;
  }
  return fail(Errc::exists, fmt::format("{}.{}: too many files of that name", path, ending));
}

Result<std::string> keep_damaged(Disk& disk, const File& from, std::uint64_t position,
                                 std::uint64_t bytes, const std::string& path) {
  bool is_kept = false;
  const auto same = [&](const File& there) -> Result<bool> {
    const auto size = there.size();
    if (!size) return std::unexpected(size.error());
    if (*size != bytes) return false;
    auto compared = same_bytes(from, position, there, bytes);
    is_kept = compared && *compared;
    return compared;
  };
  auto name = free_name(disk, path, "damaged", same);
  if (!name || is_kept) return name;
  // Under its name when it is whole, so that a copy that was cut short is not taken for it.
  const auto beside = *name + ".tmp";
  if (auto copied = copy_to_file(disk, from, position, bytes, beside); !copied) {
    // On a full disk half a copy would be in the way.
    static_cast<void>(disk.remove(beside));
    return std::unexpected(copied.error());
  }
  if (auto renamed = disk.rename(beside, *name); !renamed) return std::unexpected(renamed.error());
  if (auto synced = disk.sync_directory(directory_of(*name)); !synced)
    return std::unexpected(synced.error());
  return name;
}

Result<> keep_whole_file(Disk& disk, const std::string& path) {
  const auto file = disk.open(path, {});
  if (!file && file.error().code == Errc::not_found) return {};
  if (!file) return std::unexpected(file.error());
  const auto size = (*file)->size();
  if (!size) return std::unexpected(size.error());
  if (const auto kept = keep_damaged(disk, **file, 0, *size, path); !kept)
    return std::unexpected(kept.error());
  return {};
}

Result<std::string> name_of_damaged_directory(Disk& disk, const std::string& directory,
                                              const TopicId& owner) {
  const auto parent = directory_of(directory);
  auto name = directory.substr(directory.rfind('/') + 1);
  for (int number = 1; number < max_set_aside; ++number) {
    const auto ending = number == 1 ? fmt::format(".{}.damaged", owner.text())
                                    : fmt::format(".{}.damaged-{}", owner.text(), number);
    if (name.size() > max_file_name_bytes - ending.size())
      name.erase(0, name.size() - (max_file_name_bytes - ending.size()));
    auto path = fmt::format("{}/{}{}", parent, name, ending);
    const auto there = disk.list(path);
    if (!there && there.error().code == Errc::not_found) return path;
    if (!there) return std::unexpected(there.error());
  }
  return fail(Errc::exists, fmt::format("{}.{}.damaged: too many directories of that name",
                                        directory, owner.text()));
}

}  // namespace tarry::storage
