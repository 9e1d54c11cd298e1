// Writes that become visible together.
#ifndef STORAGE_LEVELDB_INCLUDE_WRITE_BATCH_H_
#define STORAGE_LEVELDB_INCLUDE_WRITE_BATCH_H_

#include <string>

#include "leveldb/export.h"
#include "leveldb/status.h"

namespace leveldb {

class Slice;

class LEVELDB_EXPORT WriteBatch {
 public:
  class LEVELDB_EXPORT Handler {
   public:
    virtual ~Handler();
    virtual void Put(const Slice& key, const Slice& value) = 0;
    virtual void Delete(const Slice& key) = 0;
  };

  WriteBatch();
  WriteBatch(const WriteBatch&) = default;
  WriteBatch& operator=(const WriteBatch&) = default;
  ~WriteBatch();

  void Put(const Slice& key, const Slice& value);
  void Delete(const Slice& key);
  void Clear();
  // In bytes, as encoded.
  size_t ApproximateSize() const;
  // Adds the writes of `source` behind those that are there.
  void Append(const WriteBatch& source);
  // Calls the handler with every write, in order.
  Status Iterate(Handler* handler) const;

 private:
  friend class WriteBatchInternal;

  // As in crates/leveldb/src/batch.rs.
  std::string rep_;
};

}  // namespace leveldb

#endif
