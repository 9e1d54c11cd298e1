// A cache for programs; stores have one of their own.
#include "leveldb/cache.h"

#include "live_objects.h"
#include "lru_cache.h"

namespace leveldb {

namespace {

// Never freed: caches may outlive what is freed at the end of the program.
LiveObjects& Caches() {
  static LiveObjects* const caches = new LiveObjects;
  return *caches;
}

}  // namespace

struct LRUCache::Entry : Cache::Handle {
  std::string key;
  void* value;
  size_t charge;
  void (*deleter)(const Slice&, void*);
  // Handles, and one for the cache while it has the entry.
  size_t refs;
  bool in_cache;
  // Where the entry is in `unused_`, if the cache holds the only reference.
  std::list<Entry*>::iterator place;
};

Cache::~Cache() = default;

LRUCache::LRUCache(size_t capacity) : capacity_(capacity) {
  Caches().Add(static_cast<const Cache*>(this));
}

LRUCache::~LRUCache() {
  Caches().Remove(static_cast<const Cache*>(this));
  Prune();
}

const LRUCache* LRUCache::From(const Cache* cache) {
  return Caches().Has(cache) ? static_cast<const LRUCache*>(cache) : nullptr;
}

Cache::Handle* LRUCache::Insert(const Slice& key, void* value, size_t charge,
                                void (*deleter)(const Slice& key, void* value)) {
  std::lock_guard<std::mutex> lock(mutex_);
  // One for the handle.
  Entry* entry = new Entry{{}, key.ToString(), value, charge, deleter, 1, false, {}};
  if (capacity_ == 0) return entry;
  auto there = entries_.find(entry->key);
  if (there != entries_.end()) Remove(there->second);
  entry->refs++;
  entry->in_cache = true;
  entries_.emplace(entry->key, entry);
  charge_ += charge;
  while (charge_ > capacity_ && !unused_.empty()) Remove(unused_.front());
  return entry;
}

Cache::Handle* LRUCache::Lookup(const Slice& key) {
  std::lock_guard<std::mutex> lock(mutex_);
  auto there = entries_.find(key.ToString());
  if (there == entries_.end()) return nullptr;
  Entry* entry = there->second;
  if (entry->refs++ == 1) unused_.erase(entry->place);
  return entry;
}

void LRUCache::Release(Handle* handle) {
  std::lock_guard<std::mutex> lock(mutex_);
  Entry* entry = static_cast<Entry*>(handle);
  Unref(entry);
}

void* LRUCache::Value(Handle* handle) { return static_cast<Entry*>(handle)->value; }

void LRUCache::Erase(const Slice& key) {
  std::lock_guard<std::mutex> lock(mutex_);
  auto there = entries_.find(key.ToString());
  if (there != entries_.end()) Remove(there->second);
}

uint64_t LRUCache::NewId() {
  std::lock_guard<std::mutex> lock(mutex_);
  return ++last_id_;
}

void LRUCache::Prune() {
  std::lock_guard<std::mutex> lock(mutex_);
  while (!unused_.empty()) Remove(unused_.front());
}

size_t LRUCache::TotalCharge() const {
  std::lock_guard<std::mutex> lock(mutex_);
  return charge_;
}

// Takes an entry out of the cache.
void LRUCache::Remove(Entry* entry) {
  entries_.erase(entry->key);
  if (entry->refs == 1) unused_.erase(entry->place);
  entry->in_cache = false;
  charge_ -= entry->charge;
  Unref(entry);
}

void LRUCache::Unref(Entry* entry) {
  entry->refs--;
  if (entry->refs == 0) {
    entry->deleter(entry->key, entry->value);
    delete entry;
  } else if (entry->refs == 1 && entry->in_cache) {
    entry->place = unused_.insert(unused_.end(), entry);
    while (charge_ > capacity_ && !unused_.empty()) Remove(unused_.front());
  }
}

Cache* NewLRUCache(size_t capacity) { return new LRUCache(capacity); }

}  // namespace leveldb
