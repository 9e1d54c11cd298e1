// Bloom filters (Bloom 1970; two hashes for all probes: Kirsch and Mitzenmacher 2006). Stores have filters of their own;
// these are for programs that call a policy themselves.
#include "leveldb/filter_policy.h"

#include <algorithm>
#include <cstdint>

#include "bloom_policy.h"
#include "leveldb/slice.h"
#include "live_objects.h"

namespace leveldb {

namespace {

// FNV-1a with a last mix, so that both halves are of use.
uint64_t Hash(const Slice& key) {
  uint64_t hash = 0xcbf29ce484222325u;
  for (size_t at = 0; at < key.size(); at++) {
    hash = (hash ^ static_cast<unsigned char>(key[at])) * 0x100000001b3u;
  }
  hash ^= hash >> 32;
  hash *= 0xd6e8feb86659fd93u;
  return hash ^ (hash >> 32);
}

constexpr int kMostProbes = 30;

// Never freed: policies may outlive what is freed at the end of the program.
LiveObjects& Policies() {
  static LiveObjects* const policies = new LiveObjects;
  return *policies;
}

}  // namespace

FilterPolicy::~FilterPolicy() = default;

BloomPolicy::BloomPolicy(int bits_per_key) : bits_per_key_(bits_per_key < 1 ? 1 : bits_per_key) {
  Policies().Add(static_cast<const FilterPolicy*>(this));
}

BloomPolicy::~BloomPolicy() { Policies().Remove(static_cast<const FilterPolicy*>(this)); }

const BloomPolicy* BloomPolicy::From(const FilterPolicy* policy) {
  return Policies().Has(policy) ? static_cast<const BloomPolicy*>(policy) : nullptr;
}

const char* BloomPolicy::Name() const { return "terrace.BloomFilter"; }

void BloomPolicy::CreateFilter(const Slice* keys, int n, std::string* dst) const {
  const int probes = std::min(std::max(bits_per_key_ * 69 / 100, 1), kMostProbes);
  const size_t wanted = static_cast<size_t>(n) * static_cast<size_t>(bits_per_key_);
  const size_t bytes = (std::max<size_t>(wanted, 64) + 7) / 8;
  const size_t start = dst->size();
  dst->resize(start + bytes, '\0');
  dst->push_back(static_cast<char>(probes));
  for (int key = 0; key < n; key++) {
    const uint64_t hash = Hash(keys[key]);
    uint32_t at = static_cast<uint32_t>(hash);
    const uint32_t step = static_cast<uint32_t>(hash >> 32) | 1;
    for (int probe = 0; probe < probes; probe++, at += step) {
      const size_t bit = at % (bytes * 8);
      (*dst)[start + bit / 8] = static_cast<char>((*dst)[start + bit / 8] | 1 << bit % 8);
    }
  }
}

bool BloomPolicy::KeyMayMatch(const Slice& key, const Slice& filter) const {
  if (filter.size() < 2) return false;
  const size_t bits = (filter.size() - 1) * 8;
  const int probes = filter[filter.size() - 1];
  // A filter of another kind rules nothing out.
  if (probes < 1 || probes > kMostProbes) return true;
  const uint64_t hash = Hash(key);
  uint32_t at = static_cast<uint32_t>(hash);
  const uint32_t step = static_cast<uint32_t>(hash >> 32) | 1;
  for (int probe = 0; probe < probes; probe++, at += step) {
    const size_t bit = at % bits;
    if ((filter[bit / 8] & 1 << bit % 8) == 0) return false;
  }
  return true;
}

const FilterPolicy* NewBloomFilterPolicy(int bits_per_key) { return new BloomPolicy(bits_per_key); }

}  // namespace leveldb
