// The cache that NewLRUCache gives, so that a store can ask for its capacity.
#ifndef TERRACE_LEVELDB_LRU_CACHE_H_
#define TERRACE_LEVELDB_LRU_CACHE_H_

#include <list>
#include <mutex>
#include <string>
#include <unordered_map>

#include "leveldb/cache.h"

namespace leveldb {

class LRUCache final : public Cache {
 public:
  explicit LRUCache(size_t capacity);
  ~LRUCache() override;

  Handle* Insert(const Slice& key, void* value, size_t charge,
                 void (*deleter)(const Slice& key, void* value)) override;
  Handle* Lookup(const Slice& key) override;
  void Release(Handle* handle) override;
  void* Value(Handle* handle) override;
  void Erase(const Slice& key) override;
  uint64_t NewId() override;
  void Prune() override;
  size_t TotalCharge() const override;

  size_t capacity() const { return capacity_; }

  // `cache`, if it is one of these; nullptr if it is the program's own, or none.
  static const LRUCache* From(const Cache* cache);

 private:
  struct Entry;

  // These need the lock.
  void Remove(Entry* entry);
  void Unref(Entry* entry);

  const size_t capacity_;
  mutable std::mutex mutex_;
  std::unordered_map<std::string, Entry*> entries_;
  // Entries without a handle, the one used longest ago first.
  std::list<Entry*> unused_;
  size_t charge_ = 0;
  uint64_t last_id_ = 0;
};

}  // namespace leveldb

#endif
