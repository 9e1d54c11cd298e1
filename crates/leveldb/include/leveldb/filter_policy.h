// How filters are made. A store makes its own of as many bits as a policy of NewBloomFilterPolicy has.
#ifndef STORAGE_LEVELDB_INCLUDE_FILTER_POLICY_H_
#define STORAGE_LEVELDB_INCLUDE_FILTER_POLICY_H_

#include <string>

#include "leveldb/export.h"

namespace leveldb {

class Slice;

class LEVELDB_EXPORT FilterPolicy {
 public:
  virtual ~FilterPolicy();
  virtual const char* Name() const = 0;
  // Appends to `dst` a filter of `n` keys.
  virtual void CreateFilter(const Slice* keys, int n, std::string* dst) const = 0;
  // True for every key of the filter, and for few others.
  virtual bool KeyMayMatch(const Slice& key, const Slice& filter) const = 0;
};

// To be deleted by the caller, after the stores that were opened with it.
LEVELDB_EXPORT const FilterPolicy* NewBloomFilterPolicy(int bits_per_key);

}  // namespace leveldb

#endif
