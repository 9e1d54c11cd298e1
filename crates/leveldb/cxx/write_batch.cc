// Batches. Their bytes are drawn in crates/leveldb/src/batch.rs.
#include "leveldb/write_batch.h"

#include <cstdint>
#include <cstring>

#include "leveldb/slice.h"
#include "write_batch_internal.h"

namespace leveldb {

namespace {

constexpr size_t kHeader = 12;
constexpr size_t kCountAt = 8;
constexpr char kDelete = 0;
constexpr char kPut = 1;

uint32_t Count(const std::string& rep) {
  uint32_t count = 0;
  for (size_t at = 0; at < 4; at++) {
    count |= static_cast<uint32_t>(static_cast<unsigned char>(rep[kCountAt + at])) << (8 * at);
  }
  return count;
}

void SetCount(std::string* rep, uint32_t count) {
  for (size_t at = 0; at < 4; at++) (*rep)[kCountAt + at] = static_cast<char>(count >> (8 * at));
}

void AddBytes(std::string* rep, const Slice& bytes) {
  uint64_t rest = bytes.size();
  for (; rest >= 0x80; rest >>= 7) rep->push_back(static_cast<char>(rest | 0x80));
  rep->push_back(static_cast<char>(rest));
  rep->append(bytes.data(), bytes.size());
}

// Takes a length and so many bytes from `input`.
bool TakeBytes(Slice* input, Slice* bytes) {
  uint64_t size = 0;
  for (int shift = 0; shift < 64; shift += 7) {
    if (input->empty()) return false;
    const unsigned char byte = static_cast<unsigned char>((*input)[0]);
    input->remove_prefix(1);
    size |= static_cast<uint64_t>(byte & 0x7f) << shift;
    if (byte < 0x80) {
      if (size > input->size()) return false;
      *bytes = Slice(input->data(), size);
      input->remove_prefix(size);
      return true;
    }
  }
  return false;
}

}  // namespace

WriteBatch::Handler::~Handler() = default;

WriteBatch::WriteBatch() { Clear(); }

WriteBatch::~WriteBatch() = default;

void WriteBatch::Clear() { rep_.assign(kHeader, '\0'); }

size_t WriteBatch::ApproximateSize() const { return rep_.size(); }

void WriteBatch::Put(const Slice& key, const Slice& value) {
  SetCount(&rep_, Count(rep_) + 1);
  rep_.push_back(kPut);
  AddBytes(&rep_, key);
  AddBytes(&rep_, value);
}

void WriteBatch::Delete(const Slice& key) {
  SetCount(&rep_, Count(rep_) + 1);
  rep_.push_back(kDelete);
  AddBytes(&rep_, key);
}

void WriteBatch::Append(const WriteBatch& source) {
  // Both may be the same batch.
  const std::string more(source.rep_, kHeader);
  SetCount(&rep_, Count(rep_) + Count(source.rep_));
  rep_.append(more);
}

Status WriteBatch::Iterate(Handler* handler) const {
  Slice input(rep_);
  if (input.size() < kHeader) return Status::Corruption("malformed WriteBatch (too small)");
  input.remove_prefix(kHeader);
  uint32_t found = 0;
  for (; !input.empty(); found++) {
    const char kind = input[0];
    input.remove_prefix(1);
    Slice key, value;
    if ((kind != kPut && kind != kDelete) || !TakeBytes(&input, &key) ||
        (kind == kPut && !TakeBytes(&input, &value))) {
      return Status::Corruption("an operation of the WriteBatch is none");
    }
    if (kind == kPut) {
      handler->Put(key, value);
    } else {
      handler->Delete(key);
    }
  }
  return found == Count(rep_) ? Status::OK() : Status::Corruption("WriteBatch has wrong count");
}

}  // namespace leveldb
