// The objects of one class of the library's that live. A program's subclass of the same interface is told from them by its
// address: it may be compiled without type information, of which dynamic_cast would read what is not there.
#ifndef TERRACE_LEVELDB_LIVE_OBJECTS_H_
#define TERRACE_LEVELDB_LIVE_OBJECTS_H_

#include <mutex>
#include <unordered_set>

namespace leveldb {

class LiveObjects {
 public:
  void Add(const void* object) {
    std::lock_guard<std::mutex> lock(mutex_);
    objects_.insert(object);
  }

  void Remove(const void* object) {
    std::lock_guard<std::mutex> lock(mutex_);
    objects_.erase(object);
  }

  bool Has(const void* object) {
    std::lock_guard<std::mutex> lock(mutex_);
    return objects_.count(object) != 0;
  }

 private:
  std::mutex mutex_;
  std::unordered_set<const void*> objects_;
};

}  // namespace leveldb

#endif
