// The bytes of a batch, for the store.
#ifndef TERRACE_LEVELDB_WRITE_BATCH_INTERNAL_H_
#define TERRACE_LEVELDB_WRITE_BATCH_INTERNAL_H_

#include <string>

#include "leveldb/write_batch.h"

namespace leveldb {

class WriteBatchInternal {
 public:
  static const std::string& Bytes(const WriteBatch& batch) { return batch.rep_; }
};

}  // namespace leveldb

#endif
