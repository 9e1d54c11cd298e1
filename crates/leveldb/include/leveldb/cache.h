// A cache of anything, least recently used first out. Stores take only its capacity and have a cache of their own.
#ifndef STORAGE_LEVELDB_INCLUDE_CACHE_H_
#define STORAGE_LEVELDB_INCLUDE_CACHE_H_

#include <cstdint>

#include "leveldb/export.h"
#include "leveldb/slice.h"

namespace leveldb {

class LEVELDB_EXPORT Cache;

// To be deleted by the caller, after the stores that were opened with it.
LEVELDB_EXPORT Cache* NewLRUCache(size_t capacity);

class LEVELDB_EXPORT Cache {
 public:
  Cache() = default;
  Cache(const Cache&) = delete;
  Cache& operator=(const Cache&) = delete;
  virtual ~Cache();

  struct Handle {};

  // The handle is given back by Release. `deleter` gets the value when neither cache nor handles need it.
  virtual Handle* Insert(const Slice& key, void* value, size_t charge,
                         void (*deleter)(const Slice& key, void* value)) = 0;
  // Null if it is not there.
  virtual Handle* Lookup(const Slice& key) = 0;
  virtual void Release(Handle* handle) = 0;
  virtual void* Value(Handle* handle) = 0;
  virtual void Erase(const Slice& key) = 0;
  virtual uint64_t NewId() = 0;
  // Removes what has no handle.
  virtual void Prune() {}
  virtual size_t TotalCharge() const = 0;

 private:
  // As in LevelDB, where nothing uses it: classes derived from this one have its size.
  struct Rep;
  Rep* rep_;
};

}  // namespace leveldb

#endif
