// Stores: leveldb::DB over leveldb/c.h.
#include "leveldb/db.h"

#include <unistd.h>

#include <memory>
#include <utility>
#include <vector>

#include "bloom_policy.h"
#include "bridge.h"
#include "leveldb/comparator.h"
#include "leveldb/env.h"
#include "live_objects.h"
#include "lru_cache.h"
#include "write_batch_internal.h"

namespace leveldb {

namespace {

// The status that an error of leveldb/c.h tells, which is freed.
Status Taken(char* error) {
  if (error == nullptr) return Status::OK();
  const Slice text(error);
  using Make = Status (*)(const Slice&, const Slice&);
  static const std::pair<const char*, Make> kinds[] = {
      {"Corruption: ", Status::Corruption},
      {"Invalid argument: ", Status::InvalidArgument},
      {"Not implemented: ", Status::NotSupported},
      {"IO error: ", Status::IOError},
  };
  Status status;
  for (const auto& kind : kinds) {
    if (text.starts_with(kind.first)) {
      Slice rest = text;
      rest.remove_prefix(Slice(kind.first).size());
      status = kind.second(rest, Slice());
    }
  }
  if (status.ok()) status = Status::IOError(text);
  leveldb_free(error);
  return status;
}

int Compare(void* state, const char* a, size_t a_len, const char* b, size_t b_len) {
  return static_cast<const Comparator*>(state)->Compare(Slice(a, a_len), Slice(b, b_len));
}

const char* Name(void* state) { return static_cast<const Comparator*>(state)->Name(); }

void KeepState(void*) {}

// The options of leveldb/c.h, and what they refer to while a store is opened.
class COptions {
 public:
  explicit COptions(const Options& from) : options_(leveldb_options_create()) {
    leveldb_options_set_create_if_missing(options_, from.create_if_missing);
    leveldb_options_set_error_if_exists(options_, from.error_if_exists);
    leveldb_options_set_write_buffer_size(options_, from.write_buffer_size);
    leveldb_options_set_max_open_files(options_, from.max_open_files);
    leveldb_options_set_block_size(options_, from.block_size);
    leveldb_options_set_max_file_size(options_, from.max_file_size);
    leveldb_options_set_compression(options_, from.compression);
    if (const auto* cache = LRUCache::From(from.block_cache)) {
      cache_ = leveldb_cache_create_lru(cache->capacity());
      leveldb_options_set_cache(options_, cache_);
    }
    if (const auto* policy = BloomPolicy::From(from.filter_policy)) {
      policy_ = leveldb_filterpolicy_create_bloom(policy->bits_per_key());
      leveldb_options_set_filter_policy(options_, policy_);
    }
    if (from.comparator != nullptr && from.comparator != BytewiseComparator()) {
      void* state = const_cast<Comparator*>(from.comparator);
      comparator_ = leveldb_comparator_create(state, KeepState, Compare, Name);
      leveldb_options_set_comparator(options_, comparator_);
    }
  }

  COptions(const COptions&) = delete;
  COptions& operator=(const COptions&) = delete;

  ~COptions() {
    leveldb_options_destroy(options_);
    if (cache_ != nullptr) leveldb_cache_destroy(cache_);
    if (policy_ != nullptr) leveldb_filterpolicy_destroy(policy_);
    if (comparator_ != nullptr) leveldb_comparator_destroy(comparator_);
  }

  const leveldb_options_t* get() const { return options_; }

 private:
  leveldb_options_t* const options_;
  leveldb_cache_t* cache_ = nullptr;
  leveldb_filterpolicy_t* policy_ = nullptr;
  leveldb_comparator_t* comparator_ = nullptr;
};

// Refuses files that are not the machine's: the store would be elsewhere than the program thinks.
Status CheckEnv(const Options& options) {
  if (options.env == nullptr || options.env == Env::Default()) return Status::OK();
  return Status::NotSupported("stores are on the files of the machine: Options::env must be Env::Default()");
}

class SnapshotImpl final : public Snapshot {
 public:
  explicit SnapshotImpl(const leveldb_snapshot_t* held) : held_(held) {}
  ~SnapshotImpl() override = default;

  const leveldb_snapshot_t* const held_;
};

const leveldb_snapshot_t* Held(const Snapshot* snapshot) {
  return static_cast<const SnapshotImpl*>(snapshot)->held_;
}

// Snapshots of one store that were not released. Programs that name a released one in a read get by with LevelDB; here
// nothing of it is looked at.
class Snapshots {
 public:
  // What a read names: nullptr for none. False if it was released.
  bool Find(const Snapshot* snapshot, const leveldb_snapshot_t** held) {
    *held = nullptr;
    if (snapshot == nullptr) return true;
    if (IsOwn() && !live_.Has(snapshot)) return false;
    *held = Held(snapshot);
    return true;
  }

  const Snapshot* Add(const leveldb_snapshot_t* held) {
    const Snapshot* snapshot = new SnapshotImpl(held);
    if (IsOwn()) live_.Add(snapshot);
    return snapshot;
  }

  void Remove(const Snapshot* snapshot) {
    if (IsOwn()) live_.Remove(snapshot);
    delete static_cast<const SnapshotImpl*>(snapshot);
  }

 private:
  // In a forked process a thread of the parent's may hold the lock for ever; there the library refuses what is left.
  bool IsOwn() const { return getpid() == process_; }

  const pid_t process_ = getpid();
  LiveObjects live_;
};

Status Released() { return Status::InvalidArgument("the snapshot of the read options was released"); }

class IteratorImpl final : public Iterator {
 public:
  explicit IteratorImpl(leveldb_iterator_t* iter) : iter_(iter) {}
  ~IteratorImpl() override { leveldb_iter_destroy(iter_); }

  bool Valid() const override { return leveldb_iter_valid(iter_) != 0; }
  void SeekToFirst() override { leveldb_iter_seek_to_first(iter_); }
  void SeekToLast() override { leveldb_iter_seek_to_last(iter_); }
  void Seek(const Slice& target) override { leveldb_iter_seek(iter_, target.data(), target.size()); }
  void Next() override { leveldb_iter_next(iter_); }
  void Prev() override { leveldb_iter_prev(iter_); }

  Slice key() const override {
    size_t size = 0;
    const char* data = leveldb_iter_key(iter_, &size);
    return data == nullptr ? Slice() : Slice(data, size);
  }

  Slice value() const override {
    size_t size = 0;
    const char* data = leveldb_iter_value(iter_, &size);
    return data == nullptr ? Slice() : Slice(data, size);
  }

  Status status() const override {
    char* error = nullptr;
    leveldb_iter_get_error(iter_, &error);
    return Taken(error);
  }

 private:
  leveldb_iterator_t* const iter_;
};

void Assign(void* state, const char* value, size_t len) {
  static_cast<std::string*>(state)->assign(value, len);
}

class DBImpl final : public DB {
 public:
  explicit DBImpl(leveldb_t* db) : db_(db) {}
  ~DBImpl() override { leveldb_close(db_); }

  Status Put(const WriteOptions& options, const Slice& key, const Slice& value) override {
    return DB::Put(options, key, value);
  }

  Status Delete(const WriteOptions& options, const Slice& key) override {
    return DB::Delete(options, key);
  }

  Status Write(const WriteOptions& options, WriteBatch* updates) override {
    if (updates == nullptr) return Status::OK();
    const std::string& bytes = WriteBatchInternal::Bytes(*updates);
    char* error = nullptr;
    terrace_leveldb_write(db_, options.sync, bytes.data(), bytes.size(), &error);
    return Taken(error);
  }

  Status Get(const ReadOptions& options, const Slice& key, std::string* value) override {
    const leveldb_snapshot_t* held = nullptr;
    if (!snapshots_.Find(options.snapshot, &held)) return Released();
    char* error = nullptr;
    const bool found = terrace_leveldb_get(db_, held, options.fill_cache, key.data(), key.size(),
                                           Assign, value, &error);
    if (error != nullptr) return Taken(error);
    return found ? Status::OK() : Status::NotFound(Slice());
  }

  Iterator* NewIterator(const ReadOptions& options) override {
    const leveldb_snapshot_t* held = nullptr;
    if (!snapshots_.Find(options.snapshot, &held)) return NewErrorIterator(Released());
    leveldb_readoptions_t* reading = leveldb_readoptions_create();
    leveldb_readoptions_set_fill_cache(reading, options.fill_cache);
    leveldb_readoptions_set_snapshot(reading, held);
    leveldb_iterator_t* iter = leveldb_create_iterator(db_, reading);
    leveldb_readoptions_destroy(reading);
    return new IteratorImpl(iter);
  }

  const Snapshot* GetSnapshot() override {
    return snapshots_.Add(leveldb_create_snapshot(db_));
  }

  void ReleaseSnapshot(const Snapshot* snapshot) override {
    const leveldb_snapshot_t* held = nullptr;
    if (snapshot == nullptr || !snapshots_.Find(snapshot, &held)) return;
    leveldb_release_snapshot(db_, held);
    snapshots_.Remove(snapshot);
  }

  bool GetProperty(const Slice& property, std::string* value) override {
    value->clear();
    char* text = leveldb_property_value(db_, property.ToString().c_str());
    if (text == nullptr) return false;
    value->assign(text);
    leveldb_free(text);
    return true;
  }

  void GetApproximateSizes(const Range* range, int n, uint64_t* sizes) override {
    for (int at = 0; at < n; at++) {
      const char* start = range[at].start.data();
      const size_t start_len = range[at].start.size();
      const char* limit = range[at].limit.data();
      const size_t limit_len = range[at].limit.size();
      leveldb_approximate_sizes(db_, 1, &start, &start_len, &limit, &limit_len, &sizes[at]);
    }
  }

  void CompactRange(const Slice* begin, const Slice* end) override {
    leveldb_compact_range(db_, begin ? begin->data() : nullptr, begin ? begin->size() : 0,
                          end ? end->data() : nullptr, end ? end->size() : 0);
  }

 private:
  leveldb_t* const db_;
  Snapshots snapshots_;
};

}  // namespace

Options::Options() : comparator(BytewiseComparator()), env(Env::Default()) {}

Snapshot::~Snapshot() = default;

DB::~DB() = default;

// For a program's own DB, which may call them.
Status DB::Put(const WriteOptions& options, const Slice& key, const Slice& value) {
  WriteBatch batch;
  batch.Put(key, value);
  return Write(options, &batch);
}

Status DB::Delete(const WriteOptions& options, const Slice& key) {
  WriteBatch batch;
  batch.Delete(key);
  return Write(options, &batch);
}

Status DB::Open(const Options& options, const std::string& name, DB** dbptr) {
  *dbptr = nullptr;
  Status status = CheckEnv(options);
  if (!status.ok()) return status;
  char* error = nullptr;
  leveldb_t* db = leveldb_open(COptions(options).get(), name.c_str(), &error);
  if (db != nullptr) *dbptr = new DBImpl(db);
  return Taken(error);
}

Status DestroyDB(const std::string& name, const Options& options) {
  Status status = CheckEnv(options);
  if (!status.ok()) return status;
  char* error = nullptr;
  leveldb_destroy_db(COptions(options).get(), name.c_str(), &error);
  return Taken(error);
}

Status RepairDB(const std::string& dbname, const Options& options) {
  Status status = CheckEnv(options);
  if (!status.ok()) return status;
  char* error = nullptr;
  leveldb_repair_db(COptions(options).get(), dbname.c_str(), &error);
  return Taken(error);
}

}  // namespace leveldb
