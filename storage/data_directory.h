#pragma once

// DataDirectory: the directory of a broker, locked against other processes.
//
//   tarry-data/
//     meta.properties     version, cluster.id, node.id: written last, so a directory that has it
//                         is whole
//     .lock               held (flock) while a broker runs; its pid is in it
//     .creating           there while a new directory is being filled; see below
//     journal/  logs/  db/pending/  db/meta/
//
//   auto data = DataDirectory::open(disk, path, random);
//   auto meta = data->is_new() ? Database::make(data->meta_database())
//                              : Database::open(data->meta_database());
//   ...
//   if (data->is_new()) data->created();    // From now on what is missing is damage.
//
// A broker that dies in between leaves .creating and no meta.properties: nothing was ever accepted
// there, and the next one makes all of it anew.  Any other directory that holds a journal, logs or
// databases but no meta.properties is refused.
//
// Invariant: a directory that is refused (in use, of another version, damaged, not writable) is
// left as it was.  The error's message is one line that names the directory, what is wrong with it,
// and what to do.
//
// docs/formats/data_directory.md has the format and what a crash may leave.
//
// Blocks; one thread, at start and end.  Destroying it releases the lock.

#include <cstdint>
#include <string>

#include "base/random.h"
#include "base/result.h"
#include "storage/file.h"

namespace tarry::storage {

class DataDirectory {
 public:
  // Makes the directory (0700) if it does not exist, locks it and reads its identity.
  static Result<DataDirectory> open(Disk& disk, const std::string& path, Random& random);

  // An error unless a broker has made it, this version reads it, and we may write there if `writes`
  // is set.  Changes nothing and takes no lock.
  static Result<> must_be_whole(Disk& disk, const std::string& path, bool writes);

  DataDirectory(DataDirectory&& other) noexcept;
  DataDirectory& operator=(DataDirectory&&) = delete;
  ~DataDirectory();

  // An error, not_found, when the directory was removed or another one has taken its place since it
  // was opened: what is written from then on, nobody finds again.  Any thread, once created().
  Result<> check_in_place() const;

  // To be filled: nothing in it counts until created() was called.
  bool is_new() const { return is_new_; }
  Result<> created();

  const std::string& path() const { return path_; }  // Absolute.
  std::string journal_root() const { return path_ + "/journal"; }
  std::string logs() const { return path_ + "/logs"; }
  std::string meta_database() const { return path_ + "/db/meta"; }
  std::string pending_store() const { return path_ + "/db/pending"; }

  const std::string& cluster_id() const { return cluster_id_; }
  std::int32_t node_id() const { return node_id_; }

 private:
  DataDirectory(Disk& disk, std::string path, int lock);
  struct Seen;
  static Result<Seen> look(Disk& disk, const std::string& path, bool writes);
  Result<> enter(const Seen& seen, Random& random);
  Result<> hold_identity();

  Disk& disk_;
  const std::string path_;
  int lock_;  // The open .lock; -1 when moved away.
  bool is_new_ = false;
  std::string cluster_id_;
  std::int32_t node_id_ = 0;
  int identity_ = -1;  // The open meta.properties: while it is open no other file has its number.
};

}  // namespace tarry::storage
