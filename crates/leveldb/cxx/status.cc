// Statuses.
#include "leveldb/status.h"

#include <cstdint>
#include <cstring>

namespace leveldb {

namespace {

constexpr size_t kHeader = 5;

}  // namespace

const char* Status::CopyState(const char* state) {
  uint32_t size;
  std::memcpy(&size, state, sizeof size);
  char* copy = new char[kHeader + size];
  std::memcpy(copy, state, kHeader + size);
  return copy;
}

Status::Status(Code code, const Slice& msg, const Slice& msg2) {
  std::string text = msg.ToString();
  if (!msg2.empty()) text.append(": ").append(msg2.data(), msg2.size());
  const uint32_t size = static_cast<uint32_t>(text.size());
  char* state = new char[kHeader + size];
  std::memcpy(state, &size, sizeof size);
  state[4] = static_cast<char>(code);
  std::memcpy(state + kHeader, text.data(), size);
  state_ = state;
}

std::string Status::ToString() const {
  if (ok()) return "OK";
  std::string text;
  switch (code()) {
    case kNotFound: text = "NotFound: "; break;
    case kCorruption: text = "Corruption: "; break;
    case kNotSupported: text = "Not implemented: "; break;
    case kInvalidArgument: text = "Invalid argument: "; break;
    case kIOError: text = "IO error: "; break;
    default: text = "Unknown code: "; break;
  }
  uint32_t size;
  std::memcpy(&size, state_, sizeof size);
  return text.append(state_ + kHeader, size);
}

}  // namespace leveldb
