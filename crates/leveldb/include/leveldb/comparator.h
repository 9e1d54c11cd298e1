// An order of keys. Any threads may use it at the same time.
#ifndef STORAGE_LEVELDB_INCLUDE_COMPARATOR_H_
#define STORAGE_LEVELDB_INCLUDE_COMPARATOR_H_

#include <string>

#include "leveldb/export.h"

namespace leveldb {

class Slice;

class LEVELDB_EXPORT Comparator {
 public:
  virtual ~Comparator();

  // Below, at or above 0 if `a` is before, at or after `b`. Keys at the same place are one key.
  virtual int Compare(const Slice& a, const Slice& b) const = 0;
  // Kept in the store: an open with an order of another name is refused.
  virtual const char* Name() const = 0;
  // Terrace calls neither of these.
  virtual void FindShortestSeparator(std::string* start, const Slice& limit) const = 0;
  virtual void FindShortSuccessor(std::string* key) const = 0;
};

// The order of bytes, which is not to be deleted.
LEVELDB_EXPORT const Comparator* BytewiseComparator();

}  // namespace leveldb

#endif
