// How stores are opened, read and written. What Terrace makes of each is in docs/leveldb.md.
#ifndef STORAGE_LEVELDB_INCLUDE_OPTIONS_H_
#define STORAGE_LEVELDB_INCLUDE_OPTIONS_H_

#include <cstddef>

#include "leveldb/export.h"

namespace leveldb {

class Cache;
class Comparator;
class Env;
class FilterPolicy;
class Logger;
class Snapshot;

enum CompressionType { kNoCompression = 0x0, kSnappyCompression = 0x1 };

struct LEVELDB_EXPORT Options {
  Options();

  // The order of the keys, which must be the same at every open (that of bytes).
  const Comparator* comparator;
  bool create_if_missing = false;
  bool error_if_exists = false;
  // Everything is checked, always.
  bool paranoid_checks = false;
  // Env::Default(): an open with another one is refused.
  Env* env;
  // Nothing is written to it.
  Logger* info_log = nullptr;
  size_t write_buffer_size = 4 * 1024 * 1024;
  int max_open_files = 1000;
  // Its capacity is that of the store's cache (8 MiB).
  Cache* block_cache = nullptr;
  size_t block_size = 4 * 1024;
  // Not used.
  int block_restart_interval = 16;
  size_t max_file_size = 2 * 1024 * 1024;
  // Snappy means LZ4.
  CompressionType compression = kSnappyCompression;
  // Not used.
  bool reuse_logs = false;
  // Of NewBloomFilterPolicy; another one is not used.
  const FilterPolicy* filter_policy = nullptr;
};

struct LEVELDB_EXPORT ReadOptions {
  ReadOptions() = default;

  // They are, always.
  bool verify_checksums = false;
  bool fill_cache = true;
  // None reads what there is when the read begins.
  const Snapshot* snapshot = nullptr;
};

struct LEVELDB_EXPORT WriteOptions {
  WriteOptions() = default;

  // Whether the write is on the device when it returns; without it, it survives the process but not the machine.
  bool sync = false;
};

}  // namespace leveldb

#endif
