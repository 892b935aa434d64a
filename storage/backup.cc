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
#include <iterator>
#include <limits>
#include <optional>
#include <system_error>
#include <utility>

#include "base/assert.h"
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

// The work of one call: short enough that other work of the pool gets between.
constexpr std::size_t directories_a_step = 200;
constexpr std::size_t bytes_a_step = 8 << 20;
constexpr std::size_t files_a_step = 100;
constexpr std::size_t copy_buffer_bytes = 1 << 20;
// Dirty pages beyond this would make the journals' syncs slow.
constexpr std::uint64_t sync_every_bytes = 8 << 20;
constexpr std::uint64_t look_at_space_every = 128 << 20;
// The file that take_stage() writes first and removes last.  No partition has such a name.
constexpr const char* stage_marker = "/.tarry";

// Directories and the ends of blocks.
constexpr std::uint64_t space_beside_files = 16 << 20;

// The admin reads at most so much of a file of tokens (web/access_tokens.cc).
constexpr std::size_t max_tokens_bytes = 64 << 10;

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

// How many of `bytes` it copied; 0 where the file ends.
Result<std::uint64_t> copy_piece(int from, int to, const std::string& name, std::uint64_t at,
                                 std::uint64_t bytes) {
  auto from_at = static_cast<::off_t>(at), to_at = static_cast<::off_t>(at);
  // Shares the blocks where the file system can.
  const auto shared = ::copy_file_range(from, &from_at, to, &to_at, bytes, 0);
  if (shared > 0) return static_cast<std::uint64_t>(shared);
  // Some file systems say 0 where they cannot.
  if (shared < 0 && (errno == ENOSPC || errno == EIO || errno == EDQUOT))
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
  // A descriptor of its own: fdopendir() takes it over, and each listing begins at the front.
  const int copy = ::openat(directory, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  if (copy < 0) return backup_error(path, "open", errno);
  DIR* const stream = ::fdopendir(copy);
  if (stream == nullptr) {
    ::close(copy);
    return backup_error(path, "fdopendir", errno);
  }
  std::vector<std::string> names;
  // An error in the middle looks like the end but for errno: a backup would lack what came after
  // it.
  for (errno = 0; const auto* entry = ::readdir(stream); errno = 0) {
    const std::string_view name = entry->d_name;
    if (!name.starts_with('.') && entry->d_type != DT_DIR) names.emplace_back(name);
  }
  const int failed = errno;
  ::closedir(stream);
  if (failed != 0) return backup_error(path, "read", failed);
  return names;
}

// A topic's name may begin with a dot; the stage, and what is being deleted, are no partitions.
bool is_partition_directory(std::string_view name) {
  const auto dash = name.rfind('-');
  return dash != 0 && dash < name.size() - 1 &&
         std::ranges::all_of(name.substr(dash + 1), [](char c) { return c >= '0' && c <= '9'; });
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

bool is_there(const std::string& path) {
  struct stat found {};
  return ::lstat(path.c_str(), &found) == 0;
}

// Whether all of its entries but `last` are gone.
bool empty_but_for(const std::string& directory, std::string_view last) {
  std::error_code failed;
  auto each = fs::directory_iterator(directory, failed);
  while (!failed && each != fs::directory_iterator()) {
    if (each->path().filename() != last) fs::remove_all(each->path(), failed);
    if (!failed) each.increment(failed);
  }
  if (failed) log_warn("storage", "{} cannot be emptied: {}", directory, failed.message());
  return !failed;
}

// The stage of a backup that is over.  The marker goes last: without it nobody removes the rest.
Result<> remove_stage(const std::string& stage) {
  const auto marker = stage + stage_marker;
  if (!is_there(marker)) return {};
  if (!empty_but_for(stage, stage_marker + 1))
    return fail(
        Errc::io,
        fmt::format("{}: the files that an earlier backup left behind cannot be removed", stage));
  if (::unlink(marker.c_str()) != 0) return backup_error(marker, "unlink", errno);
  if (::rmdir(stage.c_str()) != 0) return backup_error(stage, "rmdir", errno);
  return {};
}

// not_found: the directory that it is in is not there.
Result<> make_stage(const std::string& stage, const std::string& data) {
  const bool made = ::mkdir(stage.c_str(), 0700) == 0;
  if (!made && errno != EEXIST) return backup_error(stage, "mkdir", errno);
  const auto marker = stage + stage_marker;
  std::error_code failed;
  // An empty directory without the marker is taken over: a crash may have come between the two.
  const auto is_foreign = [&] {
    return !fs::is_directory(fs::symlink_status(stage, failed)) || !fs::is_empty(stage, failed);
  };
  if (!made && !is_there(marker) && is_foreign()) {
    return fail(
        Errc::invalid,
        fmt::format("{} was not made by Tarry, and a backup needs this name: move it away", stage));
  }
  // O_EXCL decides between two backups that begin at the same time.
  const CopyDescriptor file(::open(marker.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0600));
  if (file.is_open()) return {};
  if (errno == EEXIST)
    return fail(Errc::in_use, fmt::format("another backup of {} is running", data));
  return backup_error(marker, "open", errno);
}

Result<std::uint64_t> device_of(const std::string& path) {
  struct stat found {};
  if (::stat(path.c_str(), &found) != 0) return backup_error(path, "stat", errno);
  return static_cast<std::uint64_t>(found.st_dev);
}

}  // namespace

// A file, in one step or more.
class Backup::Copying {
 public:
  static Result<std::unique_ptr<Copying>> begin(const std::string& from, const std::string& to,
                                                const Held& file) {
    auto source = open_for_copy(from, O_RDONLY);
    if (!source) return std::unexpected(source.error());
    auto target = open_for_copy(to, O_WRONLY | O_CREAT | O_EXCL);
    if (!target) return std::unexpected(target.error());
    std::unique_ptr<Copying> copying(
        new Copying(std::move(*source), std::move(*target), from, to, file));
    return copying;
  }

  // At most about `bytes`; how many it was.
  Result<std::uint64_t> step(std::uint64_t bytes) {
    const auto begin = at_;
    while (!is_done_ && at_ < bytes_ && at_ - begin < bytes) {
      const auto piece = std::min<std::uint64_t>(bytes_ - at_, copy_buffer_bytes);
      const auto got = copy_piece(*from_, *to_, to_name_, at_, piece);
      if (!got) return got;
      if (*got == 0 && !may_end_early_)
        return fail(Errc::io,
                    fmt::format("{} ends after {} of its {} bytes", from_name_, at_, bytes_));
      is_done_ = *got == 0;
      at_ += *got;
    }
    is_done_ |= at_ >= bytes_;
    if (is_done_) {
      // Retention by time goes on from it.
      struct stat found {};
      if (::fstat(*from_, &found) != 0) return backup_error(from_name_, "stat", errno);
      const ::timespec times[] = {found.st_atim, found.st_mtim};
      if (::futimens(*to_, times) != 0) return backup_error(to_name_, "futimens", errno);
    }
    if (at_ - synced_ >= sync_every_bytes || (is_done_ && at_ > synced_)) {
      if (::fdatasync(*to_) != 0) return backup_error(to_name_, "fdatasync", errno);
      ::posix_fadvise(*from_, 0, static_cast<::off_t>(at_), POSIX_FADV_DONTNEED);
      ::posix_fadvise(*to_, 0, static_cast<::off_t>(at_), POSIX_FADV_DONTNEED);
      synced_ = at_;
    }
    return at_ - begin;
  }
  bool is_done() const { return is_done_; }

 private:
  Copying(CopyDescriptor from, CopyDescriptor to, std::string from_name, std::string to_name,
          const Held& file)
      : from_(std::move(from)),
        to_(std::move(to)),
        from_name_(std::move(from_name)),
        to_name_(std::move(to_name)),
        bytes_(file.bytes),
        may_end_early_(file.may_end_early) {}

  CopyDescriptor from_, to_;
  const std::string from_name_, to_name_;
  const std::uint64_t bytes_;
  const bool may_end_early_;
  std::uint64_t at_ = 0, synced_ = 0;
  bool is_done_ = false;
};

Backup::Backup(Disk& disk, BackupSource source, std::string target)
    : disk_(disk), source_(std::move(source)), target_(std::move(target)) {}

Backup::~Backup() {
  copying_ = nullptr;
  drop_stage();
  if (target_descriptor_ >= 0) ::close(target_descriptor_);
  if (!owns_target_ || finished_) return;
  if (made_target_) {
    drop_tree(target_);
    return;
  }
  // The marker goes last.
  if (empty_but_for(target_, unfinished_backup_name))
    drop_tree(target_ + "/" + unfinished_backup_name);
}

// The one in DATA goes last: it says that a backup is running.
void Backup::drop_stage() {
  for (const auto& [owned, path] :
       {std::pair(&owns_log_stage_, log_stage()), {&owns_stage_, stage()}}) {
    if (!std::exchange(*owned, false)) continue;
    if (auto removed = remove_stage(path); !removed)
      log_warn("storage", "{}", removed.error().message);
  }
}

Result<std::unique_ptr<Backup>> Backup::begin(Disk& disk, BackupSource source, std::string target) {
  if (!target.starts_with('/') || target.contains('\0'))
    return fail(Errc::invalid,
                fmt::format("the directory '{}' is not an absolute path on the broker's machine",
                            printable(target)));
  std::error_code failed;
  target = fs::path(target).lexically_normal().string();
  if (target.size() > 1 && target.ends_with('/')) target.pop_back();
  // Symbolic links are resolved on both sides, so that none hides that one lies in the other.
  const auto real = fs::weakly_canonical(target, failed).string();
  for (const auto& own : {source.data, source.logs}) {
    if (!failed && are_nested(real, fs::weakly_canonical(own, failed).string()))
      return fail(Errc::invalid,
                  fmt::format("the directory {} overlaps the broker's directory {}; choose one "
                              "outside it",
                              target, own));
  }
  std::unique_ptr<Backup> backup(new Backup(disk, std::move(source), std::move(target)));
  if (auto taken = backup->take_stage(); !taken) return std::unexpected(taken.error());
  if (auto made = backup->make_target(); !made) return std::unexpected(made.error());
  return backup;
}

Result<> Backup::take_stage() {
  if (auto made = make_stage(stage(), source_.data); !made) return made;
  owns_stage_ = true;
  // With the stage in DATA no other backup is running, so a stage in LOGS is a leftover.
  if (auto removed = remove_stage(log_stage()); !removed) return removed;
  auto made = make_log_stage();
  // It is made with the first partition.
  return !made && made.error().code == Errc::not_found ? Result<>() : made;
}

Result<> Backup::make_log_stage() {
  if (owns_log_stage_) return {};
  auto made = make_stage(log_stage(), source_.data);
  owns_log_stage_ = made.has_value();
  return made;
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
    return refused(
        error == ENOSPC ? Errc::no_space : Errc::invalid,
        fmt::format("does not exist, and the broker cannot create it: {}{}", std::strerror(error),
                    no_parent ? "; create its parent directory first"
                    : error == EROFS || error == EACCES
                        ? "; choose one that the broker's user may write (a service: "
                          "ReadWritePaths= in its unit)"
                        : ""));
  } else if (!fs::is_directory(target_, failed)) {
    return refused(Errc::invalid, "is not a directory");
  } else if (!fs::is_empty(target_, failed) || failed) {
    return refused(Errc::invalid,
                   failed ? "cannot be read by the broker: " + failed.message()
                          : std::string("is not empty; give one that does not exist yet"));
  }
  owns_target_ = true;
  // From here on, so that finish() learns of each write that fails.
  target_descriptor_ = ::open(target_.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  if (target_descriptor_ < 0) return backup_error(target_, "open", errno);
  constexpr std::string_view text =
      "This backup was not finished and is not a data directory.  Remove it.\n";
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
    if (auto held = hold_files(stage() + name, name, true); !held) return held;
  if (fs::exists(source_.data + "/kept")) {
    if (auto held = hold_files(source_.data + "/kept", "/kept", false); !held) return held;
  }
  return {};
}

// Files that stay where they are.
Result<> Backup::hold_files(const std::string& directory, const std::string& name, bool may_link) {
  HeldDirectory held{directory, target_ + name, may_link, {}};
  std::error_code failed;
  auto each = fs::directory_iterator(directory, failed);
  while (!failed && each != fs::directory_iterator()) {
    const auto bytes = each->file_size(failed);
    if (failed) break;
    held.files.push_back({each->path().filename().string(), bytes});
    each.increment(failed);
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
        if (is_directory && is_partition_directory(name)) log_names_.push_back(name);
    }
    // They may have been made since begin().
    if (!log_names_.empty())
      if (auto made = make_log_stage(); !made) return std::unexpected(made.error());
  }
  for (std::size_t i = 0; i < directories_a_step && !log_names_.empty(); ++i) {
    const auto name = std::move(log_names_.back());
    log_names_.pop_back();
    if (auto held = hold_directory(name); !held) return std::unexpected(held.error());
  }
  if (!log_names_.empty()) return true;
  const bool links = links_reach_target();
  for (auto& directory : held_) {
    directory.may_link = directory.may_link && links;
    if (directory.may_link) continue;
    for (const auto& file : directory.files) total_ += file.bytes;
  }
  return false;
}

// Tried, because one file system that is mounted twice has one number, but no links between.
bool Backup::links_reach_target() const {
  const auto tried = target_ + "/.link";
  if (::link((stage() + stage_marker).c_str(), tried.c_str()) != 0) return false;
  ::unlink(tried.c_str());
  return true;
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
  const auto base_of = [](const std::string& file) { return file.substr(0, file.find('.')); };
  for (int times = 0; times < times_to_list; ++times) {
    auto names = names_in(*directory, from);
    if (!names) return std::unexpected(names.error());
    // The newest first: retention takes the oldest ones, so that up to the first one that is gone
    // they are without a gap.  When all are gone there is a new one, which another look finds.
    std::ranges::sort(*names, std::ranges::greater());
    held.files.clear();
    bool any_listed = false;
    std::optional<std::string> gone;  // From this base offset down.
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
  // A flush to the last segment that found the disk full is undone.
  std::string last;
  for (const auto& file : held.files)
    if (belongs_to_log(file.name)) last = std::max(last, base_of(file.name));
  for (auto& file : held.files)
    file.may_end_early = belongs_to_log(file.name) && base_of(file.name) == last;
  // Without it the topic is being deleted, or nothing was written yet.
  if (std::ranges::find(held.files, partition_metadata_name, &Held::name) != held.files.end())
    held_.push_back(std::move(held));
  return {};
}

// --- Copies

Result<> Backup::hold_journals(const std::vector<Lsn>& ends) {
  TARRY_ASSERT(ends.size() == source_.shards, "each journal has an end");
  std::vector<HeldDirectory> journals;
  for (std::size_t shard = 0; shard < ends.size(); ++shard) {
    auto journal = hold_journal(shard, ends[shard]);
    if (!journal) return std::unexpected(journal.error());
    for (const auto& file : journal->files) total_ += file.bytes;
    journals.push_back(std::move(*journal));
  }
  // They are the first to be copied, because the broker has to keep them meanwhile.
  journals_ = journals.size();
  held_.insert(held_.begin(), std::make_move_iterator(journals.begin()),
               std::make_move_iterator(journals.end()));
  return check_space(total_ + space_beside_files);
}

// From the checkpoint up to `end`.
Result<Backup::HeldDirectory> Backup::hold_journal(std::size_t shard, Lsn end) const {
  const auto name = fmt::format("/journal/{}", shard);
  HeldDirectory held{source_.data + name, target_ + name, false, {}};
  const auto noted = read_checkpoint(disk_, held.to);
  if (!noted) return std::unexpected(noted.error());
  const auto entries = disk_.list(held.from);
  if (!entries) return std::unexpected(entries.error());
  std::vector<Lsn> files;
  for (const auto& entry : *entries)
    if (const auto first = parse_journal_file_name(entry.name); first && *first < end)
      files.push_back(*first);
  // In the order of their names, which is that of their LSNs.
  // The first one is the file that the checkpoint lies in: the last that begins at or before it.
  const auto behind = std::ranges::upper_bound(files, noted->lsn);
  for (auto file = behind == files.begin() ? behind : behind - 1; file != files.end(); ++file) {
    // Rounds after `end` are no part of the moment that the backup shows.
    const auto until = file + 1 == files.end() ? end : file[1];
    held.files.push_back({journal_file_name(*file), until - *file});
  }
  return held;
}

Result<> Backup::check_space(std::uint64_t bytes) const {
  const auto free = disk_.free_space(target_);
  if (!free) return std::unexpected(free.error());
  const auto here = device_of(target_), there = device_of(source_.data);
  // The broker's reserve counts only where the target is on its disk.
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

Result<bool> Backup::copy_journals() {
  return copy_until(journals_);
}

Result<bool> Backup::copy_files() {
  return copy_until(held_.size());
}

// A step towards the end of the directories before `end`.
Result<bool> Backup::copy_until(std::size_t end) {
  if (copied_ - checked_at_ >= look_at_space_every) {
    checked_at_ = copied_;
    if (auto room = check_space(space_beside_files); !room) return std::unexpected(room.error());
  }
  const auto begin = copied_;
  for (std::size_t i = 0; i < files_a_step && copied_ - begin < bytes_a_step; ++i) {
    const auto more = copy_next(end);
    if (!more || !*more) return more;
  }
  return true;
}

// One file, or a part of a large one.
Result<bool> Backup::copy_next(std::size_t end) {
  while (directory_ < end && file_ == held_[directory_].files.size()) {
    // An empty directory is made too.
    std::error_code failed;
    fs::create_directories(held_[directory_].to, failed);
    if (failed) return backup_error(held_[directory_].to, "mkdir", failed.value());
    ++directory_;
    file_ = 0;
  }
  if (directory_ == end) return false;
  const auto& directory = held_[directory_];
  const auto& file = directory.files[file_];
  const auto from = directory.from + "/" + file.name, to = directory.to + "/" + file.name;
  if (!copying_) {
    if (file_ == 0) {
      std::error_code failed;
      fs::create_directories(directory.to, failed);
      if (failed) return backup_error(directory.to, "mkdir", failed.value());
    }
    // A link that cannot be made is no error: the file is copied instead.
    if (directory.may_link && ::link(from.c_str(), to.c_str()) == 0) {
      ++file_;
      ++files_done_;
      return true;
    }
    auto begun = Copying::begin(from, to, file);
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
  for (const char* name : {"/admin.token", "/admin.read.token", "/admin.tokens"}) {
    const auto text = read_file(disk_, source_.data + name, max_tokens_bytes);
    if (!text && text.error().code == Errc::not_found) continue;
    if (!text) return std::unexpected(text.error());
    auto copy = open_for_copy(target_ + name, O_WRONLY | O_CREAT | O_EXCL);
    if (!copy) return std::unexpected(copy.error());
    if (::write(**copy, text->data(), text->size()) != static_cast<::ssize_t>(text->size()))
      return backup_error(target_ + name, "write", errno);
    ++files_done_;
  }
  // One call for the names and all that is small.
  if (::syncfs(target_descriptor_) != 0) return backup_error(target_, "syncfs", errno);
  // Only now, because a directory that has meta.properties counts as whole.
  const auto identity = read_file(disk_, source_.data + "/meta.properties", 64 << 10);
  if (!identity) return std::unexpected(identity.error());
  if (auto written = replace_file(disk_, target_ + "/meta.properties", *identity); !written)
    return written;
  ++files_done_;
  // A start refuses a directory that has this file, so it goes last.
  if (auto removed = disk_.remove(target_ + "/" + unfinished_backup_name); !removed) return removed;
  finished_ = true;
  drop_stage();
  return disk_.sync_directory(target_);
}

Result<> remove_backup_leftovers(const std::string& data, const std::string& logs) {
  for (const auto& directory : {logs, data})
    if (auto removed = remove_stage(directory + "/" + backup_stage_name); !removed) return removed;
  return {};
}

}  // namespace tarry::storage
