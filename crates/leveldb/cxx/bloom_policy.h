// The policy that stores know.
#ifndef TERRACE_LEVELDB_BLOOM_POLICY_H_
#define TERRACE_LEVELDB_BLOOM_POLICY_H_

#include "leveldb/filter_policy.h"

namespace leveldb {

class BloomPolicy final : public FilterPolicy {
 public:
  explicit BloomPolicy(int bits_per_key);
  ~BloomPolicy() override;

  const char* Name() const override;
  void CreateFilter(const Slice* keys, int n, std::string* dst) const override;
  bool KeyMayMatch(const Slice& key, const Slice& filter) const override;

  int bits_per_key() const { return bits_per_key_; }

  // `policy`, if it is one of these; nullptr if it is the program's own, or none.
  static const BloomPolicy* From(const FilterPolicy* policy);

 private:
  const int bits_per_key_;
};

}  // namespace leveldb

#endif
