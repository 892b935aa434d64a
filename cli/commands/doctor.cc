#include "cli/commands/doctor.h"

#include <fcntl.h>
#include <pwd.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/statfs.h>
#include <sys/timex.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstdint>
#include <cstdlib>
#include <filesystem>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <system_error>
#include <utility>
#include <vector>

#include <fmt/core.h>

#include "base/list_text.h"
#include "base/log.h"
#include "base/random.h"
#include "cli/admin_choice.h"
#include "cli/admin_client.h"
#include "cli/checkup.h"
#include "cli/command_tree.h"
#include "cli/io/exit_status.h"
#include "cli/io/host_port.h"
#include "cli/io/json.h"
#include "cli/io/json_path.h"
#include "cli/io/number_text.h"
#include "cli/io/output.h"
#include "cli/io/table.h"
#include "cli/io/text.h"
#include "cli/io/user_rights.h"
#include "cli/kafka/advertised_check.h"
#include "cli/memory_limit.h"
#include "cli/options.h"
#include "cli/time_word.h"
#include "server/config_layers.h"
#include "server/listener.h"
#include "server/listener_config.h"
#include "server/memory_bounds.h"
#include "server/open_files.h"
#include "server/properties_file.h"
#include "server/setting.h"
#include "server/system_clock.h"
#include "server/system_random.h"
#include "server/tls_context.h"
#include "storage/data_directory.h"
#include "storage/log_directory.h"
#include "storage/pending_dump.h"

namespace tarry::cli {
namespace {

using Level = Finding::Level;
using namespace std::chrono_literals;

struct DoctorOptions {
  BrokerOptions broker;
  std::optional<std::string> config;
  std::vector<std::string> set;

  bool names_broker() const { return broker.brokers_given || broker.admin_given; }
  bool names_settings() const { return broker.data || config || !set.empty(); }
};

// How long a broker that nobody has named is waited for: often none is running.
constexpr auto patience = 1s;

// The settings and the user of the package's service.
constexpr const char* package_settings = "/etc/tarry/tarry.properties";
constexpr const char* package_user = "tarry";
constexpr const char* package_group = "/system.slice/tarry.service";  // As systemd names it.

// The first ones are enough to see a copy that was made as another user.
constexpr int max_files_looked_at = 10'000;

// Each that does not answer is waited for.
constexpr int max_advertised_tried = 8;

// A file in the directory, or the directory itself, that another user owns.
std::optional<std::string> file_of_another(const std::string& directory, uid_t owner) {
  namespace fs = std::filesystem;
  const auto is_ours = [&](const fs::path& path) {
    struct stat about {};
    return ::lstat(path.c_str(), &about) != 0 || about.st_uid == owner;
  };
  if (!is_ours(directory)) return directory;
  std::error_code failed;
  auto each = fs::recursive_directory_iterator(
      directory, fs::directory_options::skip_permission_denied, failed);
  for (int files = 0; !failed && each != fs::recursive_directory_iterator(); ++files) {
    const std::string name = each->path().filename().string();
    // It is the root's on every ext4.
    const bool is_file_system_s = name == "lost+found" && each.depth() == 0;
    if (is_file_system_s) each.disable_recursion_pending();
    if (!is_file_system_s && !is_ours(each->path())) return each->path().string();
    if (files == max_files_looked_at) break;
    each.increment(failed);
  }
  return std::nullopt;
}

// The directory, or the nearest one above it that exists: a start makes what is missing.
std::filesystem::path nearest_existing(const std::string& directory) {
  std::error_code ignored;
  // Absolute, because the first part of a relative path has nothing above it.
  auto path = std::filesystem::absolute(directory, ignored);
  while (!std::filesystem::exists(path, ignored) && path != path.parent_path())
    path = path.parent_path();
  return path;
}

// The reason why a start could not make the directory; empty: it could.
std::optional<std::string> problem_of_writing(const std::string& directory) {
  const auto nearest = nearest_existing(directory);
  std::error_code ignored;
  if (std::filesystem::is_directory(nearest, ignored) &&
      ::access(nearest.c_str(), W_OK | X_OK) == 0)
    return std::nullopt;
  return fmt::format("{}: {} is not writable; let the user that runs the broker write to it",
                     cell(directory), cell(nearest.string()));
}

bool is_on_one_file_system(const std::string& a, const std::string& b) {
  struct stat of_a {};
  struct stat of_b {};
  return ::stat(nearest_existing(a).c_str(), &of_a) == 0 &&
         ::stat(nearest_existing(b).c_str(), &of_b) == 0 && of_a.st_dev == of_b.st_dev;
}

bool can_read(const std::string& file) {
  const int descriptor = ::open(file.c_str(), O_RDONLY | O_CLOEXEC);
  if (descriptor < 0) return false;
  ::close(descriptor);
  return true;
}

class Doctor {
 public:
  explicit Doctor(const DoctorOptions& options) : options_(options) {}

  int run() {
    choose_settings_file();
    read_settings();
    if (!has_settings() || options_.names_broker()) {
      if (const auto status = ask_broker()) return *status;
    } else {
      ask_broker_of_settings();
    }
    report_settings();
    // A broker that runs has its ports and its directory in use.
    if (!is_running_) {
      check_ports();
      check_data_directory();
      check_log_directory();
    }
    if (config_ && knows_settings()) {
      check_certificates();
      check_token_keys();
      for (const auto& listener : config_->listeners)
        for (const auto& warning : server::idle_mechanisms(listener))
          add("logins", Level::warning, warning);
      check_memory_limits();
    }
    check_machine();
    return print();
  }

 private:
  void add(std::string check, Level level, std::string text) {
    findings_.push_back({std::move(check), level, std::move(text)});
  }

  // Somebody who names neither a broker nor settings means the service of this machine, if there is
  // one.
  void choose_settings_file() {
    file_ = options_.config;
    std::error_code ignored;
    if (options_.names_settings() || !std::filesystem::exists(package_settings, ignored)) return;
    if (options_.names_broker()) return note_environment();
    if (::access(package_settings, R_OK) == 0) {
      file_ = package_settings;
    } else {
      add("settings", Level::warning,
          fmt::format("{} cannot be read, so the defaults are checked instead: run this as root",
                      package_settings));
    }
  }
  // Somebody who has set a variable once may not know why the service is not checked.
  void note_environment() {
    for (const char* variable : {"TARRY_ADMIN", "TARRY_BROKERS"}) {
      const char* const value = std::getenv(variable);
      if (value == nullptr || *value == '\0') continue;
      return add("settings", Level::ok,
                 fmt::format("{} is not checked, because ${} names the broker {}: unset the "
                             "variable, or give --config {}",
                             package_settings, variable, cell(value), package_settings));
    }
  }
  bool has_settings() const { return options_.names_settings() || file_; }
  // Without settings it is not known which those of a running broker are, and a data directory
  // alone says where its token is.
  bool knows_settings() const { return !is_running_ || file_ || !options_.set.empty(); }

  // The settings say where the token is, unless it was given.
  void find_token(BrokerOptions& broker) const {
    const char* const token = std::getenv("TARRY_ADMIN_TOKEN");
    if (!broker.data && config_ && has_settings() && (token == nullptr || *token == '\0'))
      broker.data = config_->broker.data_directory;
  }

  // A broker that keeps its state from us runs, so what a start needs is in use, and rightly.
  void note_guarded(const BrokerOptions& broker, const std::string& why) {
    is_running_ = true;
    add("broker", Level::problem,
        fmt::format("a broker runs at {}, but its status could not be read: {}", cell(broker.admin),
                    why));
  }

  // Behind the error of a broker that is not there: `tarry serve` has a flag --admin too, with
  // which it says where it will listen.
  std::string note_of_start(AdminClient::Obstacle obstacle) const {
    if (!has_settings() || obstacle != AdminClient::Obstacle::nothing_listens) return "";
    return "; to check a start, name no broker by -b, --admin or a variable: a start has "
           "tarry.admin.listener";
  }

  // The exit status of a command that cannot go on; empty: it can, with or without a broker.
  std::optional<int> ask_broker() {
    BrokerOptions broker = options_.broker;
    if (!options_.names_broker())
      broker.timeout = std::min<std::chrono::milliseconds>(broker.timeout, patience);
    find_token(broker);
    auto admin = choose_admin(broker, AdminUse::reads);
    if (!admin) {
      if (admin.error().status == wrong_usage) return admin.error().report();
      if (admin.error().obstacle == AdminClient::Obstacle::wants_token) {
        note_guarded(broker, admin.error().reason);
      } else {
        add("broker", Level::problem, admin.error().reason + note_of_start(admin.error().obstacle));
      }
      return std::nullopt;
    }
    const auto status = admin->get("/status");
    if (!status && admin->obstacle() == AdminClient::Obstacle::wants_token) {
      note_guarded(broker, status.error().message);
      return std::nullopt;
    }
    if (!status) {
      // A broker that is started would find its port taken.
      const bool is_problem =
          options_.names_broker() || admin->obstacle() == AdminClient::Obstacle::stranger;
      add("broker", is_problem ? Level::problem : Level::ok,
          is_problem ? status.error().message + note_of_start(admin->obstacle())
                     : fmt::format("no broker answers at {}: checking what a start needs",
                                   cell(broker.admin)));
      return std::nullopt;
    }
    is_running_ = true;
    for (auto& finding : check_status(*status)) findings_.push_back(std::move(finding));
    const Json json = parse_json(*status);
    take_reserve(json);
    try_advertised(json);
    const auto address = parse_host_port(broker.admin);
    // The directory is on this machine if the admin is.
    if (json.is_object() && json.contains("data") && json["data"].is_string() && address &&
        address->is_loopback())
      directory_ = json["data"].get<std::string>();
    return std::nullopt;
  }

  // A broker with these settings may be running; then it has the ports and the directory in use.
  void ask_broker_of_settings() {
    if (!config_ || !config_->admin || config_->admin->port == 0) return;
    BrokerOptions broker = options_.broker;
    broker.admin = (config_->admin_tls.settings.empty() ? "" : "https://") + config_->admin->text();
    const std::string& ours = config_->broker.data_directory;
    find_token(broker);
    broker.timeout = std::min<std::chrono::milliseconds>(broker.timeout, patience);
    broker.timeout_given = false;
    AdminClient admin(admin_settings(broker));
    const auto status = admin.get("/status");
    if (!status && admin.obstacle() == AdminClient::Obstacle::wants_token) {
      directory_ = ours;
      return note_guarded(broker, status.error().message);
    }
    if (!status) {
      // Before a start nothing listens there, and nobody has to be asked why.
      const std::string why = admin.obstacle() == AdminClient::Obstacle::nothing_listens
                                  ? "nothing listens at " + cell(broker.admin)
                                  : status.error().message;
      return add(
          "broker", Level::ok,
          "checking what a start needs, because no broker with these settings answers: " + why);
    }
    const Json json = parse_json(*status);
    if (!json.is_object() || !json.contains("data") || !json["data"].is_string()) return;
    namespace fs = std::filesystem;
    std::error_code ignored;
    const fs::path there = json["data"].get<std::string>();
    // By name as well, because its directory may have been removed.
    const bool is_same = there == fs::absolute(ours, ignored).lexically_normal() ||
                         fs::equivalent(there, ours, ignored);
    // Another broker that has the port is a problem of the ports.
    if (!is_same) return;
    is_running_ = true;
    take_reserve(json);
    try_advertised(json);
    directory_ = ours;
    for (auto& finding : check_status(*status)) findings_.push_back(std::move(finding));
  }

  // Connects as a client does that has asked the broker where it is.
  void try_advertised(const Json& status) {
    const Json* const told = find_at(status, "/listeners/advertised");
    if (told == nullptr || !told->is_string()) return;
    const auto text = told->get<std::string>();
    std::string_view rest = text;
    for (int i = 0; i < max_advertised_tried && !rest.empty(); ++i) {
      const std::string_view each = take_element(rest, ',');
      const auto end_of_name = each.find("://");
      if (end_of_name == each.npos) continue;
      const std::string_view address = each.substr(end_of_name + 3);
      const auto where = parse_host_port(address);
      if (!where) continue;
      findings_.push_back(check_advertised(each.substr(0, end_of_name), address,
                                           connect_problem(where->host, where->port)));
    }
  }

  // A client may have changed it while the broker runs.
  void take_reserve(const Json& status) {
    const Json* const reserve = find_at(status, "/storage/reserve_bytes");
    if (reserve != nullptr && reserve->is_number_unsigned())
      running_reserve_ = reserve->get<std::uint64_t>();
  }

  // Reads them in the way of `tarry serve`.
  void read_settings() {
    std::vector<std::vector<server::Setting>> layers;
    if (file_) {
      auto file = server::read_properties(*file_);
      if (!file) {
        wrong_settings_ = file.error().message;
        return;
      }
      layers.push_back(std::move(*file));
    }
    auto& set = layers.emplace_back();
    for (const auto& word : options_.set) {
      const auto equals = word.find('=');
      set.push_back({"--set", word.substr(0, equals), word.substr(equals + 1)});
    }
    if (options_.broker.data) set.push_back({"--data", "tarry.data.dir", *options_.broker.data});
    auto config = server::make_config(layers);
    if (config) {
      config_ = std::move(*config);
    } else {
      wrong_settings_ = config.error().message;
    }
  }

  void report_settings() {
    if (wrong_settings_) return add("settings", Level::problem, *wrong_settings_);
    if (!is_running_) directory_ = config_->broker.data_directory;
    if (!knows_settings()) return;
    add("settings", Level::ok,
        file_ ? fmt::format("{} can be used", cell(*file_)) : "the settings are valid");
  }

  void check_ports() {
    if (!config_) return;
    // Takes the address as a start would, and gives it back at once.
    std::vector<Finding> access;
    const auto check = [&](const server::HostPort& where, const char* key,
                           const server::ListenerConfig* listener) {
      const auto bound = server::BoundAddress::bind(where, key);
      if (!bound) return add("ports", Level::problem, bound.error().message);
      add("ports", Level::ok, fmt::format("{} is free", where.text()));
      // The admin asks for its token: for changes always, and beyond loopback for reading too.
      if (listener == nullptr) return;
      access.push_back(check_access(where.text(), bound->is_loopback(),
                                    server::authenticates_clients(*listener)));
    };
    for (const auto& listener : config_->listeners) check(listener.listen, "listeners", &listener);
    if (config_->admin) check(*config_->admin, "tarry.admin.listener", nullptr);
    for (auto& finding : access) findings_.push_back(std::move(finding));
  }

  // The user that runs the broker, as root sees it: the owner of the data directory.
  struct BrokerUser {
    uid_t id = ::geteuid();
    gid_t group = ::getegid();
    std::string name;  // Empty: the user of this process, or not known.

    // Behind an error that this user has, and root has not.
    std::string note() const {
      return name.empty() ? "" : fmt::format("; tried as {}, the user that runs the broker", name);
    }
  };
  BrokerUser broker_user() const {
    BrokerUser user;
    struct stat about {};
    if (user.id != 0) return user;
    const passwd* known = nullptr;
    if (directory_ && ::stat(directory_->c_str(), &about) == 0) {
      if (about.st_uid == 0) return user;
      user.id = about.st_uid;
      user.group = about.st_gid;
      known = ::getpwuid(about.st_uid);
      user.name = fmt::format("the user {}", about.st_uid);
    } else if (file_ == package_settings) {
      known = ::getpwnam(package_user);
    }
    if (known != nullptr) {
      user.id = known->pw_uid;
      user.group = known->pw_gid;
      user.name = known->pw_name;
    }
    return user;
  }

  // Loads them as a start would.
  void check_certificates() {
    const auto now = wall_now();
    const BrokerUser user = broker_user();
    const UserRights rights(user.id, user.group);
    const auto check = [&](const server::ListenerConfig& listener, const std::string& whose) {
      const auto loaded = server::TlsContext::make(listener, now);
      if (!loaded) return add("certificates", Level::problem, loaded.error().message + user.note());
      findings_.push_back(
          check_certificate(whose + (*loaded)->description(), (*loaded)->valid_until(), now));
    };
    for (const auto& listener : config_->listeners)
      if (broker::has_tls(listener.protocol)) check(listener, listener.tls_place());
    if (config_->admin && !config_->admin_tls.settings.empty())
      check(config_->admin_tls, "the admin: ");
  }

  // The files with the keys of tokens' signers.
  void check_token_keys() {
    constexpr std::string_view file_url = "file://";
    const BrokerUser user = broker_user();
    const UserRights rights(user.id, user.group);
    for (const auto& listener : config_->listeners) {
      for (const auto& [key, value] : listener.settings) {
        if (!key.ends_with("jwks.endpoint.url") || !value.starts_with(file_url)) continue;
        if (const std::string file = value.substr(file_url.size()); !can_read(file)) {
          add("token keys", Level::problem,
              fmt::format("listener {}: {}={}: {}{}", listener.name, key, cell(value),
                          std::generic_category().message(errno), user.note()));
        }
      }
    }
  }

  void check_memory_limits() {
    const auto bounds = server::memory_bounds(config_->broker, config_->shards);
    if (const auto machine = memory_of_machine()) {
      findings_.push_back(check_memory(bounds.limits, bounds.beside, *machine));
    }
  }

  // That of the container or the service, if it has less.
  std::optional<std::uint64_t> memory_of_machine() const {
    const auto pages = ::sysconf(_SC_PHYS_PAGES), page = ::sysconf(_SC_PAGESIZE);
    if (pages <= 0 || page <= 0) return std::nullopt;
    const auto machine = static_cast<std::uint64_t>(pages) * static_cast<std::uint64_t>(page);
    const auto limit = memory_limit("/", file_ == package_settings ? package_group : "");
    return std::min(machine, limit.value_or(machine));
  }

  void check_existing_directory() {
    const std::string& directory = *directory_;
    storage::PosixDisk disk;
    server::SystemRandom random;
    std::string cluster;
    std::error_code ignored;
    if (std::filesystem::exists(directory + "/.lock", ignored)) {
      // It takes the lock as a start does, so a broker that uses it is noticed.
      const auto opened = storage::DataDirectory::open(disk, directory, random);
      if (!opened) return add("data directory", Level::problem, opened.error().message);
      cluster = ": of cluster " + opened->cluster_id();
    } else if (const auto whole = storage::DataDirectory::must_be_whole(disk, directory, true);
               !whole) {
      // A copy that no broker has used yet: a lock file that we made as root would keep the
      // broker's user out.
      return add("data directory", Level::problem, whole.error().message);
    }
    // The broker opens it to write, which would change it.
    if (const auto pending = storage::PendingDump::open(directory + "/db/pending"); !pending)
      return add("data directory", Level::problem, pending.error().message);
    if (const auto wrong = problem_of_owner()) return add("data directory", Level::problem, *wrong);
    if (const auto wrong = problem_of_first_users())
      return add("data directory", Level::problem, *wrong);
    add("data directory", Level::ok, cell(directory) + cluster);
  }

  // To root every file is open, but the package's service is another user.
  std::optional<std::string> problem_of_owner() const {
    const passwd* const user = ::getpwnam(package_user);
    if (::geteuid() != 0 || user == nullptr || file_ != package_settings) return std::nullopt;
    const auto file = file_of_another(*directory_, user->pw_uid);
    if (!file) return std::nullopt;
    return fmt::format("{} does not belong to {}, the user that runs the service: chown -R {}: {}",
                       cell(*file), package_user, package_user, cell(*directory_));
  }

  // A start cannot go on without the users that were added for it.
  std::optional<std::string> problem_of_first_users() const {
    const std::string file = *directory_ + "/users.add";
    std::error_code ignored;
    if (!std::filesystem::exists(file, ignored)) return std::nullopt;
    const BrokerUser user = broker_user();
    const UserRights rights(user.id, user.group);
    if (can_read(file)) return std::nullopt;
    return fmt::format("{}: {}{}; give it to the user that runs the broker, or remove it",
                       cell(file), std::generic_category().message(errno), user.note());
  }

  // Checks the data directory as a start would.  Creates nothing.
  void check_data_directory() {
    if (!directory_) return;
    namespace fs = std::filesystem;
    std::error_code ignored;
    const fs::path path = *directory_;
    if (fs::exists(path / "meta.properties", ignored)) return check_existing_directory();
    // A crash while a new directory was being filled leaves .creating behind, and the next start
    // makes it anew.
    for (const char* name : {"journal", "logs", "db"}) {
      if (!fs::exists(path / name, ignored) || fs::exists(path / ".creating", ignored)) continue;
      return add("data directory", Level::problem,
                 fmt::format("{}: it has {}/ but no meta.properties; restore that file, or give an "
                             "empty directory",
                             cell(*directory_), name));
    }
    if (const auto wrong = problem_of_writing(*directory_))
      return add("data directory", Level::problem, *wrong + ", or give --data another directory");
    if (!fs::exists(path, ignored)) {
      return add(
          "data directory", Level::ok,
          fmt::format("{}: does not exist yet; the broker will create it", cell(*directory_)));
    }
    if (const auto wrong = problem_of_owner()) return add("data directory", Level::problem, *wrong);
    if (const auto wrong = problem_of_first_users())
      return add("data directory", Level::problem, *wrong);
    add("data directory", Level::ok,
        fmt::format("{}: no broker has used it yet; the first start fills it", cell(*directory_)));
  }

  // log.dirs; empty: the logs are in the data directory.
  std::string log_directory() const {
    return config_ && knows_settings() ? config_->broker.log_directory : "";
  }

  void check_log_directory() {
    const std::string logs = log_directory();
    if (logs.empty()) return;
    if (const auto wrong = problem_of_writing(logs))
      return add("log directory", Level::problem, *wrong + ", or give log.dirs another one");
    storage::PosixDisk disk;
    if (const auto ours = storage::check_log_directory(disk, *directory_, logs); !ours)
      return add("log directory", Level::problem, ours.error().message);
    add("log directory", Level::ok, cell(logs));
  }

  void check_machine() {
    if (directory_) {
      check_disk_of(*directory_, true);
      if (const auto reserve = disk_reserve()) findings_.push_back(check_reserve(*reserve));
    }
    // The findings of one file system would be the same again.
    if (const auto logs = log_directory();
        !logs.empty() && !(directory_ && is_on_one_file_system(*directory_, logs)))
      check_disk_of(logs, false);
    check_token();
    rlimit files{};
    // The hard limit counts, to which `tarry serve` raises its own.  A broker that runs has told
    // how many connections its limit allows.
    if (config_ && !is_running_ && ::getrlimit(RLIMIT_NOFILE, &files) == 0) {
      findings_.push_back(check_open_files(
          files.rlim_max, config_->max_connections,
          server::connections_within(files.rlim_max, config_->max_connections, config_->shards)));
    }
    // Its modes are 0, so that the clock is read and not set.
    timex clock{};
    const int state = ::adjtimex(&clock);
    findings_.push_back(check_clock(state >= 0 && state != TIME_ERROR, clock.maxerror));
    std::error_code ignored;
    if (std::filesystem::exists("/usr/share/zoneinfo/Europe/Berlin", ignored)) {
      add("time zones", Level::ok, "/usr/share/zoneinfo");
    } else {
      add("time zones", Level::warning,
          "/usr/share/zoneinfo has no time zones, so a record with x-cron-tz is refused; install "
          "tzdata");
    }
  }

  // Empty: not known.
  std::optional<std::uint64_t> disk_reserve() const {
    if (running_reserve_ || !config_) return running_reserve_;
    return static_cast<std::uint64_t>(config_->broker.disk_reserve_bytes);
  }

  void check_disk_of(const std::string& directory, bool has_journals) {
    const std::filesystem::path path = nearest_existing(directory);
    struct statfs disk {};
    if (::statfs(path.c_str(), &disk) != 0) {
      return add(
          "disk space", Level::problem,
          fmt::format("{}: {}", cell(path.string()), std::generic_category().message(errno)));
    }
    const auto block = static_cast<std::uint64_t>(disk.f_bsize);
    DiskFacts facts;
    facts.directory = directory;
    facts.free_bytes = disk.f_bavail * block;
    // As df counts: blocks that are kept for root are neither used nor free.
    facts.total_bytes = (disk.f_blocks - disk.f_bfree + disk.f_bavail) * block;
    facts.free_inodes = disk.f_ffree;
    facts.total_inodes = disk.f_files;
    facts.reserve_bytes = disk_reserve().value_or(0);
    if (has_journals && config_ && knows_settings()) {
      facts.journal_bytes =
          config_->shards * static_cast<std::uint64_t>(config_->broker.journal_max_bytes);
    }
    // The type is signed, and would be extended to 64 bits.
    facts.file_system = static_cast<std::uint64_t>(disk.f_type) & 0xffffffffU;
    facts.takes_direct = takes_direct(path.string());
    for (auto& finding : check_disk(facts)) findings_.push_back(std::move(finding));
  }

  // Tried with a file that has no name and is gone at once.
  static std::optional<bool> takes_direct(const std::string& directory) {
    constexpr int flags = O_TMPFILE | O_WRONLY | O_CLOEXEC;
    const int plain = ::open(directory.c_str(), flags, 0600);
    if (plain < 0) return std::nullopt;
    ::close(plain);
    const int direct = ::open(directory.c_str(), flags | O_DIRECT, 0600);
    if (direct < 0) return false;
    ::close(direct);
    return true;
  }

  // A user who can read the token can cancel every record.
  void check_token() {
    if (!directory_) return;
    const std::string path = *directory_ + "/admin.token";
    struct stat token {};
    // A start makes the token, so there need not be one.
    if (::stat(path.c_str(), &token) != 0) return;
    if ((token.st_mode & 077) != 0) {
      return add("permissions", Level::warning,
                 fmt::format("{} has mode {:o}, so others may read it; chmod 600 it", cell(path),
                             token.st_mode & 0777));
    }
    add("permissions", Level::ok, fmt::format("only the owner of {} may read it", cell(path)));
  }

  int print() {
    Output out;
    Table table({{"CHECK"}, {"RESULT"}, {.head = "DETAIL", .wraps = true}});
    std::string failed_checks;
    std::size_t problems = 0;
    for (const auto& [check, level, text] : findings_) {
      if (options_.broker.json) {
        out.line(text_of(Json{{"check", check}, {"result", word_of(level)}, {"detail", text}}));
      } else {
        table.row({check, std::string(word_of(level)), text}, level == Level::ok ? Style::plain
                                                              : level == Level::warning
                                                                  ? Style::yellow
                                                                  : Style::red);
      }
      // Findings of one check follow one another, and it is named once.
      if (level != Level::problem || (problems++ > 0 && failed_checks.ends_with(check))) continue;
      failed_checks += (failed_checks.empty() ? "" : ", ") + check;
    }
    table.print(out);
    // First the table, then the line on stderr that sums it up.
    const int status = out.end(done);
    if (problems == 0) return status;
    return failure(fmt::format("{}: {}", counted(problems, "problem", "problems"), failed_checks));
  }

  const DoctorOptions& options_;
  std::optional<std::string> file_;            // The settings' file: --config, or the package's.
  std::optional<std::string> wrong_settings_;  // Why there is no config_.
  bool is_running_ = false;
  std::optional<std::uint64_t> running_reserve_;  // tarry.disk.reserve.bytes of a running broker.
  std::optional<server::Config> config_;          // Empty: the settings are wrong.
  std::optional<std::string> directory_;          // Empty: not known, or on another machine.
  std::vector<Finding> findings_;
};

}  // namespace

void add_doctor(CLI::App& program, Chosen& chosen) {
  auto options = std::make_shared<DoctorOptions>();
  auto* command = program.add_subcommand(
      "doctor",
      "Checks limits, disk, clock and settings, before a start or while a broker is running");
  add_broker_options(*command, options->broker);
  command
      ->add_option("--data", options->broker.data,
                   "Checks what `tarry serve` would find with this data directory")
      ->option_text("DIR")
      ->take_last();
  command->add_option("--config", options->config, "Checks this properties file as well")
      ->option_text("FILE")
      ->take_last();
  add_repeated(*command, "--set", options->set, "A key of the configuration, as for `tarry serve`")
      ->option_text("KEY=VALUE")
      ->check(is_key_value);
  add_examples(
      *command,
      {"tarry doctor", "tarry doctor --data /var/lib/tarry --config /etc/tarry/tarry.properties"});
  command->callback(
      [options, &chosen] { chosen.run = [options] { return Doctor(*options).run(); }; });
}

}  // namespace tarry::cli
