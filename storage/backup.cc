#include "storage/backup.h"

#include <dirent.h>
#include <fcntl.h>
#include <fmt/core.h>
#include <rocksdb/utilities/checkpoint.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <filesystem>
#include <limits>
#include <optional>
#include <system_error>
#include <utility>

#include "base/log.h"
#include "storage/bucket_store.h"
#include "storage/bucket_tables.h"
#include "storage/database.h"
#include "storage/journal_format.h"
#include "storage/journal_recovery.h"
#include "storage/rocks.h"
#include "storage/segment.h"

namespace tarry::storage {
namespace {

namespace fs = std::filesystem;

// What one call does: short enough that other work of the pool gets between.
constexpr std::size_t directories_a_step = 200;
constexpr std::size_t bytes_a_step = 8 << 20;
constexpr std::size_t files_a_step = 500;
constexpr std::size_t copy_buffer_bytes = 1 << 20;
// Dirty pages beyond this would make the journals' syncs slow.
constexpr std::uint64_t sync_every_bytes = 8 << 20;
constexpr std::uint64_t look_at_space_every = 128 << 20;
// Directories and the ends of blocks.
constexpr std::uint64_t space_beside_files = 16 << 20;

// Retention may take all that was listed.
constexpr int times_to_list = 5;

std::unexpected<Error> backup_error(const std::string& path, std::string_view call, int error) {
  const auto code = error == ENOSPC || error == EDQUOT                      ? Errc::no_space
                    : error == ENOENT                                       ? Errc::not_found
                    : error == EMFILE || error == ENFILE || error == ENOMEM ? Errc::exhausted
                                                                            : Errc::io;
  return fail(code, fmt::format("{}: {}: {}", path, call, std::strerror(error)));
}

// An open descriptor, closed with the object.
class CopyDescriptor {
 public:
  explicit CopyDescriptor(int fd) : fd_(fd) {}
  CopyDescriptor(CopyDescriptor&& other) noexcept : fd_(std::exchange(other.fd_, -1)) {}
  CopyDescriptor& operator=(CopyDescriptor&&) = delete;
  ~CopyDescriptor() {
    if (fd_ >= 0) ::close(fd_);
  }
  int operator*() const { return fd_; }
  bool is_open() const { return fd_ >= 0; }

 private:
  int fd_;
};

Result<CopyDescriptor> open_for_copy(const std::string& path, int flags) {
  CopyDescriptor file(::open(path.c_str(), flags | O_CLOEXEC, 0600));
  if (!file.is_open()) return backup_error(path, "open", errno);
  return file;
}

Result<> make_directory(const std::string& path) {
  if (::mkdir(path.c_str(), 0700) != 0) return backup_error(path, "mkdir", errno);
  return {};
}

// The part of `bytes` that is left after `copied` of a file; 0 where the file ends before.
Result<std::uint64_t> copy_piece(int from, int to, const std::string& name, std::uint64_t at,
                                 std::uint64_t bytes) {
  auto from_at = static_cast<::off_t>(at), to_at = static_cast<::off_t>(at);
  // Shares the blocks where the file system can.
  const auto shared = ::copy_file_range(from, &from_at, to, &to_at, bytes, 0);
  if (shared >= 0) return static_cast<std::uint64_t>(shared);
  if (errno == ENOSPC || errno == EIO || errno == EDQUOT)
    return backup_error(name, "copy_file_range", errno);

  Buffer buffer(std::min<std::uint64_t>(bytes, copy_buffer_bytes));
  const auto got = ::pread(from, buffer.data(), buffer.size(), static_cast<::off_t>(at));
  if (got < 0) return backup_error(name, "read", errno);
  std::size_t written = 0;
  while (written < static_cast<std::size_t>(got)) {
    const auto put = ::pwrite(to, buffer.data() + written, static_cast<std::size_t>(got) - written,
                              static_cast<::off_t>(at + written));
    if (put < 0) return backup_error(name, "write", errno);
    written += static_cast<std::size_t>(put);
  }
  return static_cast<std::uint64_t>(got);
}

// Names of regular files in an open directory.
Result<std::vector<std::string>> names_in(int directory, const std::string& path) {
  const int copy = ::openat(directory, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  if (copy < 0) return backup_error(path, "open", errno);
  DIR* const stream = ::fdopendir(copy);
  if (stream == nullptr) {
    ::close(copy);
    return backup_error(path, "fdopendir", errno);
  }
  std::vector<std::string> names;
  while (const auto* entry = ::readdir(stream)) {
    const std::string_view name = entry->d_name;
    if (!name.starts_with('.') && entry->d_type != DT_DIR) names.emplace_back(name);
  }
  ::closedir(stream);
  return names;
}

bool belongs_to_log(std::string_view name) {
  return name.ends_with(".log") || name.ends_with(".index") || name.ends_with(".timeindex");
}

// Either is the other or lies in it.
bool are_nested(const std::string& a, const std::string& b) {
  return a == b || a.starts_with(b + "/") || b.starts_with(a + "/") || a == "/" || b == "/";
}

Result<> checkpoint_of(const Rocks& rocks, const std::string& to) {
  rocksdb::Checkpoint* made = nullptr;
  auto status = rocksdb::Checkpoint::Create(rocks.db.get(), &made);
  const std::unique_ptr<rocksdb::Checkpoint> checkpoint(made);
  // Without a flush: what is only in memory is in the journals, and a flush of its own could find
  // the disk full, after which RocksDB takes no more writes.
  if (status.ok())
    status = checkpoint->CreateCheckpoint(to, std::numeric_limits<std::uint64_t>::max());
  if (!status.ok()) return std::unexpected(rocks_error(status, rocks.directory));
  return {};
}

void drop_tree(const std::string& path) {
  std::error_code failed;
  fs::remove_all(path, failed);
  if (failed) log_warn("storage", "{} cannot be removed: {}", path, failed.message());
}

Result<std::uint64_t> device_of(const std::string& path) {
  struct stat found {};
  if (::stat(path.c_str(), &found) != 0) return backup_error(path, "stat", errno);
  return static_cast<std::uint64_t>(found.st_dev);
}

}  // namespace

// A large file that takes more than one step.
class Backup::Copying {
 public:
  static Result<std::unique_ptr<Copying>> begin(const std::string& from, const std::string& to,
                                                std::uint64_t bytes) {
    auto source = open_for_copy(from, O_RDONLY);
    if (!source) return std::unexpected(source.error());
    auto target = open_for_copy(to, O_WRONLY | O_CREAT | O_EXCL);
    if (!target) return std::unexpected(target.error());
    std::unique_ptr<Copying> copying(
        new Copying(std::move(*source), std::move(*target), to, bytes));
    return copying;
  }

  // At most about `bytes`; how many it was.
  Result<std::uint64_t> step(std::uint64_t bytes) {
    const auto begin = at_;
    while (at_ < bytes_ && at_ - begin < bytes) {
      const auto piece = std::min<std::uint64_t>(bytes_ - at_, copy_buffer_bytes);
      const auto got = copy_piece(*from_, *to_, to_name_, at_, piece);
      if (!got) return got;
      if (*got == 0) {  // A flush that found the disk full was undone.
        at_ = bytes_;
        break;
      }
      at_ += *got;
    }
    if (at_ - synced_ >= sync_every_bytes) {
      if (::fdatasync(*to_) != 0) return backup_error(to_name_, "fdatasync", errno);
      ::posix_fadvise(*from_, 0, static_cast<::off_t>(at_), POSIX_FADV_DONTNEED);
      ::posix_fadvise(*to_, 0, static_cast<::off_t>(at_), POSIX_FADV_DONTNEED);
      synced_ = at_;
    }
    return at_ - begin;
  }
  bool is_done() const { return at_ >= bytes_; }

 private:
  Copying(CopyDescriptor from, CopyDescriptor to, std::string name, std::uint64_t bytes)
      : from_(std::move(from)), to_(std::move(to)), to_name_(std::move(name)), bytes_(bytes) {}

  CopyDescriptor from_, to_;
  const std::string to_name_;
  const std::uint64_t bytes_;
  std::uint64_t at_ = 0, synced_ = 0;
};

Backup::Backup(Disk& disk, BackupSource source, std::string target)
    : disk_(disk), source_(std::move(source)), target_(std::move(target)) {}

Backup::~Backup() {
  copying_ = nullptr;
  drop_stage();
  if (!owns_target_ || finished_) return;
  std::error_code failed;
  if (made_target_) {
    drop_tree(target_);
    return;
  }
  // The marker goes last.
  for (const auto& each : fs::directory_iterator(target_, failed))
    if (each.path().filename() != unfinished_backup_name) drop_tree(each.path().string());
  drop_tree(target_ + "/" + unfinished_backup_name);
}

// DATA/.backup last: it says that a backup is running.
void Backup::drop_stage() {
  if (!std::exchange(owns_stage_, false)) return;
  drop_tree(log_stage());
  drop_tree(stage());
}

Result<std::unique_ptr<Backup>> Backup::begin(Disk& disk, BackupSource source, std::string target) {
  if (!target.starts_with('/') || target.contains('\0'))
    return fail(Errc::invalid,
                fmt::format("the directory '{}' is not an absolute path on the broker's machine",
                            printable(target)));
  std::error_code failed;
  target = fs::path(target).lexically_normal().string();
  if (target.size() > 1 && target.ends_with('/')) target.pop_back();
  const auto real = fs::weakly_canonical(target, failed).string();
  for (const auto& own : {source.data, source.logs}) {
    if (!failed && are_nested(real, fs::weakly_canonical(own, failed).string()))
      return fail(Errc::invalid, fmt::format("the directory {} is, holds or is in {}, which is the "
                                             "broker's own; choose one beside it",
                                             target, own));
  }
  std::unique_ptr<Backup> backup(new Backup(disk, std::move(source), std::move(target)));
  if (auto taken = backup->take_stage(); !taken) return std::unexpected(taken.error());
  if (auto made = backup->make_target(); !made) return std::unexpected(made.error());
  return backup;
}

Result<> Backup::take_stage() {
  if (::mkdir(stage().c_str(), 0700) != 0) {
    if (errno == EEXIST)
      return fail(Errc::in_use, fmt::format("another backup of {} is running", source_.data));
    return backup_error(stage(), "mkdir", errno);
  }
  owns_stage_ = true;
  drop_tree(log_stage());
  if (::mkdir(log_stage().c_str(), 0700) == 0) return {};
  // It is made with the first partition.
  return errno == ENOENT ? Result<>() : backup_error(log_stage(), "mkdir", errno);
}

Result<> Backup::make_target() {
  const auto refused = [&](Errc code, std::string_view why) {
    return fail(code, fmt::format("the directory {} {}", target_, why));
  };
  std::error_code failed;
  if (::mkdir(target_.c_str(), 0700) == 0) {
    made_target_ = true;
  } else if (errno != EEXIST) {
    const int error = errno;
    const bool no_parent = error == ENOENT;
    return refused(error == ENOSPC ? Errc::no_space : Errc::invalid,
                   fmt::format("cannot be made by the broker: {}{}", std::strerror(error),
                               no_parent ? "; make the directory that it is in"
                               : error == EROFS || error == EACCES
                                   ? "; choose one that the broker's user may write (a service: "
                                     "ReadWritePaths= in its unit)"
                                   : ""));
  } else if (!fs::is_directory(target_, failed)) {
    return refused(Errc::invalid, "is no directory");
  } else if (!fs::is_empty(target_, failed) || failed) {
    return refused(Errc::invalid,
                   failed ? "cannot be read by the broker: " + failed.message()
                          : std::string("is not empty; give one that does not exist yet"));
  }
  owns_target_ = true;
  constexpr std::string_view text =
      "This backup was not finished, and is no broker's data directory.  Remove it.\n";
  if (auto marked = replace_file(disk_, target_ + "/" + unfinished_backup_name, as_bytes(text));
      !marked)
    return marked;
  for (const char* directory : {"/journal", "/logs", "/db", "/db/meta", "/db/pending"})
    if (auto made = make_directory(target_ + directory); !made) return made;
  return disk_.sync_directory(directory_of(target_));
}

// --- Links

Result<> Backup::hold_state(Database& meta, BucketStore& pending) {
  // The positions first: what the rest shows is not older than they say.
  if (auto made = make_directory(stage() + "/journal"); !made) return made;
  for (std::size_t shard = 0; shard < source_.shards; ++shard) {
    const auto name = fmt::format("/journal/{}", shard);
    if (auto made = make_directory(stage() + name); !made) return made;
    if (auto made = make_directory(target_ + name); !made) return made;
    const auto from = source_.data + name + "/checkpoint";
    const auto bytes = read_file(disk_, from, block_bytes);
    if (!bytes && bytes.error().code == Errc::not_found) continue;
    if (!bytes) return std::unexpected(bytes.error());
    if (auto noted = replace_file(disk_, target_ + name + "/checkpoint", *bytes); !noted)
      return noted;
    ++files_done_;
  }
  // db/pending is never older than db/meta says (store_generation.h), so it is second.
  if (auto made = make_directory(stage() + "/db"); !made) return made;
  if (auto held = checkpoint_of(meta.rocks(), stage() + "/db/meta"); !held) return held;
  if (auto held = checkpoint_of(*pending.tables().rocks, stage() + "/db/pending"); !held)
    return held;
  for (const char* name : {"/db/meta", "/db/pending"})
    if (auto held = hold_flat(stage() + name, name, true); !held) return held;
  if (fs::exists(source_.data + "/kept")) {
    if (auto held = hold_flat(source_.data + "/kept", "/kept", false); !held) return held;
  }
  return {};
}

// Files that stay where they are.
Result<> Backup::hold_flat(const std::string& directory, const std::string& name, bool may_link) {
  HeldDirectory held{directory, target_ + name, may_link, {}};
  std::error_code failed;
  for (const auto& each : fs::directory_iterator(directory, failed)) {
    const auto bytes = each.file_size(failed);
    if (failed) break;
    held.files.push_back({each.path().filename().string(), bytes});
  }
  if (failed) return backup_error(directory, "read", failed.value());
  held_.push_back(std::move(held));
  return {};
}

Result<bool> Backup::hold_logs() {
  if (!std::exchange(logs_listed_, true)) {
    const auto entries = disk_.list(source_.logs);
    if (!entries && entries.error().code != Errc::not_found)
      return std::unexpected(entries.error());
    if (entries) {
      for (const auto& [name, is_directory] : *entries)
        if (is_directory && !name.starts_with('.') && !name.ends_with("-delete"))
          log_names_.push_back(name);
    }
    // They may have been made since begin().
    if (!log_names_.empty() && ::mkdir(log_stage().c_str(), 0700) != 0 && errno != EEXIST)
      return backup_error(log_stage(), "mkdir", errno);
  }
  for (std::size_t i = 0; i < directories_a_step && !log_names_.empty(); ++i) {
    const auto name = std::move(log_names_.back());
    log_names_.pop_back();
    if (auto held = hold_directory(name); !held) return std::unexpected(held.error());
  }
  if (!log_names_.empty()) return true;
  const auto here = device_of(target_), there = device_of(source_.data);
  if (!here) return std::unexpected(here.error());
  if (!there) return std::unexpected(there.error());
  for (auto& directory : held_) {
    directory.may_link = directory.may_link && *here == *there;
    if (directory.may_link) continue;
    for (const auto& file : directory.files) total_ += file.bytes;
  }
  return false;
}

// By a descriptor, because the directory gets another name when its topic is deleted.
Result<> Backup::hold_directory(const std::string& name) {
  const auto from = source_.logs + "/" + name;
  const CopyDescriptor directory(::open(from.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  if (!directory.is_open()) {
    // The topic is gone, and the journal of shard 0 says so before its end.
    return errno == ENOENT ? Result<>() : backup_error(from, "open", errno);
  }
  const auto to = log_stage() + "/" + name;
  if (auto made = make_directory(to); !made) return made;
  HeldDirectory held{to, target_ + "/logs/" + name, false, {}};
  // Whether the file is held; not_found: it is gone.
  const auto hold = [&](const std::string& file) -> Result<> {
    if (::linkat(*directory, file.c_str(), AT_FDCWD, (to + "/" + file).c_str(), 0) != 0 &&
        errno != EEXIST)
      return backup_error(from + "/" + file, "link", errno);
    struct stat found {};
    if (::stat((to + "/" + file).c_str(), &found) != 0)
      return backup_error(to + "/" + file, "stat", errno);
    held.files.push_back({file, static_cast<std::uint64_t>(found.st_size)});
    return {};
  };
  for (int times = 0; times < times_to_list; ++times) {
    auto names = names_in(*directory, from);
    if (!names) return std::unexpected(names.error());
    // The newest first: retention takes the oldest ones, so that up to the first one that is gone
    // they are without a gap.  When all are gone there is a new one, which another look finds.
    std::ranges::sort(*names, std::ranges::greater());
    held.files.clear();
    bool any_listed = false;
    std::optional<std::string> gone;  // From this base offset down.
    const auto base_of = [](const std::string& file) { return file.substr(0, file.find('.')); };
    for (const auto& file : *names) {
      const bool in_log = belongs_to_log(file);
      if (!in_log && file != partition_metadata_name && file != start_offset_name) continue;
      any_listed |= in_log;
      if (in_log && gone && base_of(file) <= *gone) continue;
      const auto held_it = hold(file);
      if (!held_it && held_it.error().code != Errc::not_found) return held_it;
      if (!held_it && in_log) gone = base_of(file);
    }
    std::erase_if(held.files, [&](const Held& file) {
      return gone && belongs_to_log(file.name) && base_of(file.name) <= *gone;
    });
    if (!any_listed || std::ranges::any_of(held.files, belongs_to_log, &Held::name)) break;
  }
  // Without it the topic is being deleted, or nothing was written yet.
  if (std::ranges::find(held.files, partition_metadata_name, &Held::name) != held.files.end())
    held_.push_back(std::move(held));
  return {};
}

// --- Copies

Result<> Backup::copy_journal(std::size_t shard, Lsn end) {
  const auto name = fmt::format("/journal/{}", shard);
  const auto directory = source_.data + name;
  const auto noted = read_checkpoint(disk_, target_ + name);
  if (!noted) return std::unexpected(noted.error());
  const auto entries = disk_.list(directory);
  if (!entries) return std::unexpected(entries.error());
  std::vector<Lsn> files;
  for (const auto& entry : *entries)
    if (const auto first = parse_journal_file_name(entry.name); first && *first < end)
      files.push_back(*first);
  // In the order of their names, which is that of their LSNs.
  const auto behind = std::ranges::upper_bound(files, noted->lsn);
  const auto bytes = end - std::min(end, behind == files.begin() ? noted->lsn : behind[-1]);
  if (auto room = check_space(total_ - copied_ + bytes + space_beside_files); !room) return room;
  for (auto file = behind == files.begin() ? behind : behind - 1; file != files.end(); ++file) {
    const auto until = file + 1 == files.end() ? end : file[1];
    const auto file_name = "/" + journal_file_name(*file);
    auto copying = Copying::begin(directory + file_name, target_ + name + file_name, until - *file);
    if (!copying) return std::unexpected(copying.error());
    while (!(*copying)->is_done()) {
      const auto got = (*copying)->step(bytes_a_step);
      if (!got) return std::unexpected(got.error());
      total_ += *got;
      copied_ += *got;
    }
    ++files_done_;
  }
  return {};
}

Result<> Backup::check_space(std::uint64_t bytes) const {
  const auto free = disk_.free_space(target_);
  if (!free) return std::unexpected(free.error());
  const auto here = device_of(target_), there = device_of(source_.data);
  const bool same = here && there && *here == *there;
  const auto needed = bytes + (same ? source_.reserve : 0);
  if (*free >= needed) return {};
  return fail(Errc::no_space,
              fmt::format("{} has {} bytes free, but the backup needs {}{}", target_, *free, needed,
                          same ? fmt::format(", of which {} stay free for the broker "
                                             "(tarry.disk.reserve.bytes)",
                                             source_.reserve)
                               : ""));
}

Result<bool> Backup::copy_files() {
  if (copied_ - checked_at_ >= look_at_space_every) {
    checked_at_ = copied_;
    if (auto room = check_space(space_beside_files); !room) return std::unexpected(room.error());
  }
  const auto begin = copied_;
  for (std::size_t i = 0; i < files_a_step && copied_ - begin < bytes_a_step; ++i) {
    const auto more = copy_next();
    if (!more || !*more) return more;
  }
  return true;
}

// One file, or a part of a large one.
Result<bool> Backup::copy_next() {
  while (directory_ < held_.size() && file_ == held_[directory_].files.size()) {
    // Also an empty one.
    std::error_code failed;
    fs::create_directories(held_[directory_].to, failed);
    if (failed) return backup_error(held_[directory_].to, "mkdir", failed.value());
    ++directory_;
    file_ = 0;
  }
  if (directory_ == held_.size()) return false;
  const auto& directory = held_[directory_];
  const auto& file = directory.files[file_];
  const auto from = directory.from + "/" + file.name, to = directory.to + "/" + file.name;
  if (!copying_) {
    if (file_ == 0) {
      std::error_code failed;
      fs::create_directories(directory.to, failed);
      if (failed) return backup_error(directory.to, "mkdir", failed.value());
    }
    if (directory.may_link && ::link(from.c_str(), to.c_str()) == 0) {
      ++file_;
      ++files_done_;
      return true;
    }
    auto begun = Copying::begin(from, to, file.bytes);
    if (!begun) return std::unexpected(begun.error());
    copying_ = std::move(*begun);
  }
  const auto got = copying_->step(bytes_a_step);
  if (!got) return std::unexpected(got.error());
  copied_ += *got;
  if (copying_->is_done()) {
    copying_ = nullptr;
    ++file_;
    ++files_done_;
  }
  return true;
}

Result<> Backup::finish() {
  for (const char* name : {"/admin.token", "/admin.read.token"}) {
    const auto text = read_file(disk_, source_.data + name, block_bytes);
    if (!text && text.error().code == Errc::not_found) continue;
    if (!text) return std::unexpected(text.error());
    auto copy = open_for_copy(target_ + name, O_WRONLY | O_CREAT | O_EXCL);
    if (!copy) return std::unexpected(copy.error());
    if (::write(**copy, text->data(), text->size()) != static_cast<::ssize_t>(text->size()))
      return backup_error(target_ + name, "write", errno);
    ++files_done_;
  }
  {
    auto directory = open_for_copy(target_, O_RDONLY | O_DIRECTORY);
    if (!directory) return std::unexpected(directory.error());
    // One call for any number of files; the large ones were synced while they were copied.
    if (::syncfs(**directory) != 0) return backup_error(target_, "syncfs", errno);
  }
  const auto identity = read_file(disk_, source_.data + "/meta.properties", 64 << 10);
  if (!identity) return std::unexpected(identity.error());
  if (auto written = replace_file(disk_, target_ + "/meta.properties", *identity); !written)
    return written;
  ++files_done_;
  if (auto removed = disk_.remove(target_ + "/" + unfinished_backup_name); !removed) return removed;
  finished_ = true;
  drop_stage();
  return disk_.sync_directory(target_);
}

Result<> remove_backup_leftovers(const std::string& data, const std::string& logs) {
  for (const auto& each : {logs + "/.backup", data + "/.backup"}) {
    std::error_code failed;
    fs::remove_all(each, failed);
    if (failed) return backup_error(each, "remove", failed.value());
  }
  return {};
}

}  // namespace tarry::storage
