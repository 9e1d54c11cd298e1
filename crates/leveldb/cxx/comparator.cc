// The order of bytes.
#include "leveldb/comparator.h"

#include <algorithm>

#include "leveldb/slice.h"

namespace leveldb {

namespace {

class Bytewise final : public Comparator {
 public:
  const char* Name() const override { return "leveldb.BytewiseComparator"; }

  int Compare(const Slice& a, const Slice& b) const override { return a.compare(b); }

  // A shorter key that is at or after `start` and before `limit`, if raising one byte makes one.
  void FindShortestSeparator(std::string* start, const Slice& limit) const override {
    const size_t common = std::min(start->size(), limit.size());
    size_t at = 0;
    while (at < common && (*start)[at] == limit[at]) at++;
    if (at == common) return;
    const unsigned char byte = static_cast<unsigned char>((*start)[at]);
    if (byte < 0xff && byte + 1 < static_cast<unsigned char>(limit[at])) {
      start->resize(at + 1);
      (*start)[at] = static_cast<char>(byte + 1);
    }
  }

  // A shorter key that is at or after `key`, unless all its bytes are the highest.
  void FindShortSuccessor(std::string* key) const override {
    for (size_t at = 0; at < key->size(); at++) {
      const unsigned char byte = static_cast<unsigned char>((*key)[at]);
      if (byte != 0xff) {
        key->resize(at + 1);
        (*key)[at] = static_cast<char>(byte + 1);
        return;
      }
    }
  }
};

}  // namespace

Comparator::~Comparator() = default;

const Comparator* BytewiseComparator() {
  // Never destroyed: destructors of the program's may still use it.
  static const Comparator* const comparator = new Bytewise;
  return comparator;
}

}  // namespace leveldb
