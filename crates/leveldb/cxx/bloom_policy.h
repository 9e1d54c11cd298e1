// The policy that stores know.
#ifndef TERRACE_LEVELDB_BLOOM_POLICY_H_
#define TERRACE_LEVELDB_BLOOM_POLICY_H_

#include "leveldb/filter_policy.h"

namespace leveldb {

class BloomPolicy final : public FilterPolicy {
 public:
  explicit BloomPolicy(int bits_per_key) : bits_per_key_(bits_per_key < 1 ? 1 : bits_per_key) {}

  const char* Name() const override;
  void CreateFilter(const Slice* keys, int n, std::string* dst) const override;
  bool KeyMayMatch(const Slice& key, const Slice& filter) const override;

  int bits_per_key() const { return bits_per_key_; }

 private:
  const int bits_per_key_;
};

}  // namespace leveldb

#endif
