// A store. All threads may use it at the same time.
#ifndef STORAGE_LEVELDB_INCLUDE_DB_H_
#define STORAGE_LEVELDB_INCLUDE_DB_H_

#include <cstdint>
#include <cstdio>

#include "leveldb/export.h"
#include "leveldb/iterator.h"
#include "leveldb/options.h"

namespace leveldb {

// The version of LevelDB whose interface this is.
static const int kMajorVersion = 1;
static const int kMinorVersion = 23;

struct Options;
struct ReadOptions;
struct WriteOptions;
class WriteBatch;

// What a store was at one moment; given back by ReleaseSnapshot.
class LEVELDB_EXPORT Snapshot {
 protected:
  virtual ~Snapshot();
};

struct LEVELDB_EXPORT Range {
  Range() = default;
  Range(const Slice& s, const Slice& l) : start(s), limit(l) {}

  Slice start;
  // Not in the range.
  Slice limit;
};

class LEVELDB_EXPORT DB {
 public:
  // On success *dbptr is to be deleted by the caller, on failure null.
  static Status Open(const Options& options, const std::string& name, DB** dbptr);

  DB() = default;
  DB(const DB&) = delete;
  DB& operator=(const DB&) = delete;
  virtual ~DB();

  // Put and Delete of this class call Write.
  virtual Status Put(const WriteOptions& options, const Slice& key, const Slice& value) = 0;
  // An absent key is no error.
  virtual Status Delete(const WriteOptions& options, const Slice& key) = 0;
  virtual Status Write(const WriteOptions& options, WriteBatch* updates) = 0;
  // NotFound if there is no such key.
  virtual Status Get(const ReadOptions& options, const Slice& key, std::string* value) = 0;
  virtual Iterator* NewIterator(const ReadOptions& options) = 0;
  virtual const Snapshot* GetSnapshot() = 0;
  virtual void ReleaseSnapshot(const Snapshot* snapshot) = 0;
  // False if there is no property of that name; docs/leveldb.md lists them.
  virtual bool GetProperty(const Slice& property, std::string* value) = 0;
  // About how many bytes on the device each of `n` ranges has.
  virtual void GetApproximateSizes(const Range* range, int n, uint64_t* sizes) = 0;
  // Null is no bound.
  virtual void CompactRange(const Slice* begin, const Slice* end) = 0;
};

// Removes a store and its directory, if there is one. Files of others stay.
LEVELDB_EXPORT Status DestroyDB(const std::string& name, const Options& options);

// Makes a store of what can be read.
LEVELDB_EXPORT Status RepairDB(const std::string& dbname, const Options& options);

}  // namespace leveldb

#endif
