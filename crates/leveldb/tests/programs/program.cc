// What a program does with LevelDB's interface for C++, and what it relies on.
#include <fcntl.h>
#include <signal.h>
#include <sys/file.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <cstdio>
#include <cstdlib>
#include <memory>
#include <string>
#include <vector>

#include "leveldb/cache.h"
#include "leveldb/comparator.h"
#include "leveldb/db.h"
#include "leveldb/env.h"
#include "leveldb/filter_policy.h"
#include "leveldb/write_batch.h"

#define CHECK(what)                                                            \
  do {                                                                         \
    if (!(what)) {                                                             \
      std::fprintf(stderr, "%s:%d: not so: %s\n", __FILE__, __LINE__, #what);  \
      std::exit(1);                                                            \
    }                                                                          \
  } while (0)

#define CHECK_OK(call)                                                         \
  do {                                                                         \
    const leveldb::Status status_ = (call);                                    \
    if (!status_.ok()) {                                                       \
      std::fprintf(stderr, "%s:%d: %s: %s\n", __FILE__, __LINE__, #call,       \
                   status_.ToString().c_str());                                \
      std::exit(1);                                                            \
    }                                                                          \
  } while (0)

namespace {

using leveldb::Slice;
using leveldb::Status;

std::unique_ptr<leveldb::DB> Opened(const leveldb::Options& options, const std::string& dir) {
  leveldb::DB* db = nullptr;
  CHECK_OK(leveldb::DB::Open(options, dir, &db));
  CHECK(db != nullptr);
  return std::unique_ptr<leveldb::DB>(db);
}

// All entries, as text, in the order of the iterator.
std::string All(leveldb::DB* db, const leveldb::ReadOptions& options, bool backwards) {
  std::unique_ptr<leveldb::Iterator> iter(db->NewIterator(options));
  CHECK(!iter->Valid());
  std::string text;
  if (backwards) {
    for (iter->SeekToLast(); iter->Valid(); iter->Prev()) {
      text += iter->key().ToString() + "=" + iter->value().ToString() + " ";
    }
  } else {
    for (iter->SeekToFirst(); iter->Valid(); iter->Next()) {
      text += iter->key().ToString() + "=" + iter->value().ToString() + " ";
    }
  }
  CHECK_OK(iter->status());
  return text;
}

void Statuses() {
  CHECK(Status::OK().ok() && Status::OK().ToString() == "OK");
  const Status error = Status::Corruption("what", "where");
  const Status copy(error);
  Status moved(Status::NotFound("gone"));
  CHECK(copy.IsCorruption() && copy.ToString() == "Corruption: what: where");
  CHECK(moved.IsNotFound() && moved.ToString() == "NotFound: gone");
  moved = copy;
  CHECK(moved.ToString() == copy.ToString());
  moved = Status::NotSupported(Slice("no\0pe", 5));
  CHECK(moved.IsNotSupportedError() && moved.ToString().size() == 22);
  CHECK(Status::InvalidArgument("x").IsInvalidArgument() && Status::IOError("x").IsIOError());
}

class Told : public leveldb::WriteBatch::Handler {
 public:
  void Put(const Slice& key, const Slice& value) override {
    text += "put " + key.ToString() + " " + value.ToString() + ";";
  }
  void Delete(const Slice& key) override { text += "delete " + key.ToString() + ";"; }

  std::string text;
};

std::string Text(const leveldb::WriteBatch& batch) {
  Told told;
  CHECK_OK(batch.Iterate(&told));
  return told.text;
}

void Batches() {
  leveldb::WriteBatch batch, more;
  const size_t empty = batch.ApproximateSize();
  batch.Put("a", "1");
  more.Delete("b");
  more.Put("c", std::string(300, 'x'));
  batch.Append(more);
  const leveldb::WriteBatch copy(batch);
  CHECK(Text(batch) == "put a 1;delete b;put c " + std::string(300, 'x') + ";");
  CHECK(batch.ApproximateSize() > empty + 300);
  batch.Append(batch);
  CHECK(Text(batch) == Text(copy) + Text(copy));
  batch.Clear();
  CHECK(Text(batch).empty() && batch.ApproximateSize() == empty && !Text(copy).empty());
}

void Store(const std::string& dir) {
  leveldb::Options options;
  CHECK(options.comparator == leveldb::BytewiseComparator());
  leveldb::DB* none = nullptr;
  const Status missing = leveldb::DB::Open(options, dir, &none);
  CHECK(missing.IsInvalidArgument() && none == nullptr);
  std::unique_ptr<leveldb::Cache> cache(leveldb::NewLRUCache(1 << 20));
  std::unique_ptr<const leveldb::FilterPolicy> policy(leveldb::NewBloomFilterPolicy(10));
  options.block_cache = cache.get();
  options.filter_policy = policy.get();
  options.create_if_missing = true;
  auto db = Opened(options, dir);
  CHECK(leveldb::DB::Open(options, dir, &none).IsIOError() && none == nullptr);

  leveldb::WriteOptions synced;
  synced.sync = true;
  CHECK_OK(db->Put(synced, "b", "2"));
  CHECK_OK(db->Put(leveldb::WriteOptions(), "a", "1"));
  CHECK_OK(db->Put(leveldb::WriteOptions(), "", ""));
  leveldb::WriteBatch batch;
  batch.Put("c", "3");
  batch.Delete("b");
  CHECK_OK(db->Write(leveldb::WriteOptions(), &batch));
  CHECK_OK(db->Write(leveldb::WriteOptions(), nullptr));
  std::string value = "before";
  CHECK_OK(db->Get(leveldb::ReadOptions(), "c", &value));
  CHECK(value == "3");
  CHECK_OK(db->Get(leveldb::ReadOptions(), "", &value));
  CHECK(value.empty());
  const Status absent = db->Get(leveldb::ReadOptions(), "b", &value);
  CHECK(absent.IsNotFound() && absent.ToString() == "NotFound: ");

  leveldb::ReadOptions then;
  then.snapshot = db->GetSnapshot();
  CHECK_OK(db->Delete(leveldb::WriteOptions(), "a"));
  CHECK_OK(db->Delete(leveldb::WriteOptions(), "a"));
  CHECK(All(db.get(), then, false) == "= a=1 c=3 ");
  CHECK(All(db.get(), then, true) == "c=3 a=1 = ");
  CHECK_OK(db->Get(then, "a", &value));
  db->ReleaseSnapshot(then.snapshot);
  CHECK(All(db.get(), leveldb::ReadOptions(), false) == "= c=3 ");
  CHECK(db->Get(then, "a", &value).IsInvalidArgument());
  db->ReleaseSnapshot(then.snapshot);

  std::unique_ptr<leveldb::Iterator> iter(db->NewIterator(then));
  iter->SeekToFirst();
  CHECK(!iter->Valid() && iter->status().IsInvalidArgument());
  iter.reset(db->NewIterator(leveldb::ReadOptions()));
  static std::string cleaned;
  for (const char* name : {"1", "2", "3"}) {
    iter->RegisterCleanup([](void* arg, void*) { cleaned += static_cast<const char*>(arg); },
                          const_cast<char*>(name), nullptr);
  }
  iter->Seek("b");
  CHECK(iter->Valid() && iter->key() == "c");
  iter.reset();
  CHECK(cleaned == "132");

  CHECK(db->GetProperty("leveldb.stats", &value) && !value.empty());
  CHECK(db->GetProperty("leveldb.num-files-at-level0", &value));
  CHECK(!db->GetProperty("leveldb.nothing", &value) && value.empty());
  value = "before";
  CHECK(!db->GetProperty("x", &value) && value.empty());
  for (int at = 0; at < 2000; at++) {
    CHECK_OK(db->Put(leveldb::WriteOptions(), "k" + std::to_string(at), std::string(1000, 'v')));
  }
  db->CompactRange(nullptr, nullptr);
  const Slice begin("k"), end("l");
  db->CompactRange(&begin, &end);
  const leveldb::Range ranges[] = {{"a", "b"}, {"k", "l"}};
  uint64_t sizes[2] = {7, 7};
  db->GetApproximateSizes(ranges, 2, sizes);
  CHECK(sizes[0] < 1000 && sizes[1] > 2000);
  db.reset();

  CHECK_OK(leveldb::RepairDB(dir, options));
  options.error_if_exists = true;
  CHECK(leveldb::DB::Open(options, dir, &none).IsInvalidArgument());
  options.error_if_exists = false;
  db = Opened(options, dir);
  CHECK_OK(db->Get(leveldb::ReadOptions(), "k1999", &value));
  CHECK(value == std::string(1000, 'v'));
}

// A store of a program's own, which hands on what it is asked to do.
class OwnDB : public leveldb::DB {
 public:
  explicit OwnDB(leveldb::DB* db) : db_(db) {}

  Status Put(const leveldb::WriteOptions& options, const Slice& key, const Slice& value) override {
    return leveldb::DB::Put(options, key, value);
  }
  Status Delete(const leveldb::WriteOptions& options, const Slice& key) override {
    return leveldb::DB::Delete(options, key);
  }
  Status Write(const leveldb::WriteOptions& options, leveldb::WriteBatch* updates) override {
    writes++;
    return db_->Write(options, updates);
  }
  Status Get(const leveldb::ReadOptions& options, const Slice& key, std::string* value) override {
    return db_->Get(options, key, value);
  }
  leveldb::Iterator* NewIterator(const leveldb::ReadOptions& options) override {
    return db_->NewIterator(options);
  }
  const leveldb::Snapshot* GetSnapshot() override { return db_->GetSnapshot(); }
  void ReleaseSnapshot(const leveldb::Snapshot* snapshot) override {
    db_->ReleaseSnapshot(snapshot);
  }
  bool GetProperty(const Slice& property, std::string* value) override {
    return db_->GetProperty(property, value);
  }
  void GetApproximateSizes(const leveldb::Range* range, int n, uint64_t* sizes) override {
    db_->GetApproximateSizes(range, n, sizes);
  }
  void CompactRange(const Slice* begin, const Slice* end) override {
    db_->CompactRange(begin, end);
  }

  int writes = 0;

 private:
  leveldb::DB* const db_;
};

void OwnStore(const std::string& dir) {
  leveldb::Options options;
  options.create_if_missing = true;
  auto db = Opened(options, dir);
  OwnDB own(db.get());
  CHECK_OK(own.Put(leveldb::WriteOptions(), "a", "1"));
  CHECK_OK(own.Put(leveldb::WriteOptions(), "b", "2"));
  CHECK_OK(own.Delete(leveldb::WriteOptions(), "a"));
  CHECK(own.writes == 3 && All(&own, leveldb::ReadOptions(), false) == "b=2 ");
  // Its own lock is in the way of others.
  leveldb::FileLock* lock;
  CHECK(leveldb::Env::Default()->LockFile(dir + "/LOCK", &lock).IsIOError());
  leveldb::DB* none = nullptr;
  CHECK(leveldb::DB::Open(options, dir + "/absent/dir", &none).IsIOError() && none == nullptr);
  db.reset();
  CHECK_OK(leveldb::DestroyDB(dir, options));
}

// Numbers by their size, written in any way.
class Numbers : public leveldb::Comparator {
 public:
  const char* Name() const override { return "test.Numbers"; }
  int Compare(const Slice& a, const Slice& b) const override {
    const long x = std::atol(a.ToString().c_str()), y = std::atol(b.ToString().c_str());
    return x < y ? -1 : x > y;
  }
  void FindShortestSeparator(std::string*, const Slice&) const override {}
  void FindShortSuccessor(std::string*) const override {}
};

void Comparators(const std::string& dir) {
  const Numbers numbers;
  leveldb::Options options;
  options.create_if_missing = true;
  options.comparator = &numbers;
  auto db = Opened(options, dir);
  for (int at = 0; at < 5000; at++) {
    const int number = at * 3571 % 5000;
    const std::string text = std::to_string(number);
    CHECK_OK(db->Put(leveldb::WriteOptions(), text, text));
  }
  // 0100 and 100 are one key.
  CHECK_OK(db->Put(leveldb::WriteOptions(), "0100", "other"));
  db.reset();
  db = Opened(options, dir);
  std::string value;
  CHECK_OK(db->Get(leveldb::ReadOptions(), "100", &value));
  CHECK(value == "other");
  std::unique_ptr<leveldb::Iterator> iter(db->NewIterator(leveldb::ReadOptions()));
  iter->SeekToFirst();
  for (int number = 0; number < 5000; number++, iter->Next()) {
    CHECK(iter->Valid() && std::atoi(iter->key().ToString().c_str()) == number);
    if (number == 100) CHECK(iter->key() == "0100");
  }
  CHECK(!iter->Valid());
  iter->Seek("4000");
  iter->Prev();
  CHECK(iter->key() == "3999");
  iter.reset();
  const leveldb::Range ranges[] = {{"1000", "2000"}, {"0", "5000"}};
  uint64_t sizes[2] = {0, 0};
  db->GetApproximateSizes(ranges, 2, sizes);
  CHECK(sizes[0] > 0 && sizes[0] < sizes[1]);
  db->CompactRange(nullptr, nullptr);
  db.reset();
  options.comparator = leveldb::BytewiseComparator();
  leveldb::DB* none = nullptr;
  CHECK(leveldb::DB::Open(options, dir, &none).IsInvalidArgument());
  CHECK_OK(leveldb::DestroyDB(dir, options));
  CHECK(!leveldb::Env::Default()->FileExists(dir));

  std::string key = "abcdef";
  leveldb::BytewiseComparator()->FindShortestSeparator(&key, "abzz");
  CHECK(key == "abd");
  leveldb::BytewiseComparator()->FindShortSuccessor(&key);
  CHECK(key == "b");
}

// A cache and a policy of the program's own, which stores do without.
class OwnCache : public leveldb::Cache {
 public:
  Handle* Insert(const Slice&, void*, size_t, void (*)(const Slice&, void*)) override {
    return nullptr;
  }
  Handle* Lookup(const Slice&) override { return nullptr; }
  void Release(Handle*) override {}
  void* Value(Handle*) override { return nullptr; }
  void Erase(const Slice&) override {}
  uint64_t NewId() override { return 0; }
  void Prune() override {}
  size_t TotalCharge() const override { return 0; }
};

class OwnPolicy : public leveldb::FilterPolicy {
 public:
  const char* Name() const override { return "test.Own"; }
  void CreateFilter(const Slice*, int, std::string*) const override {}
  bool KeyMayMatch(const Slice&, const Slice&) const override { return true; }
};

void OwnSubclasses(const std::string& dir) {
  OwnCache cache;
  const OwnPolicy policy;
  leveldb::Options options;
  options.create_if_missing = true;
  options.block_cache = &cache;
  options.filter_policy = &policy;
  auto db = Opened(options, dir);
  CHECK_OK(db->Put(leveldb::WriteOptions(), "k", "v"));
  CHECK(All(db.get(), leveldb::ReadOptions(), false) == "k=v ");
  db.reset();
  CHECK_OK(leveldb::DestroyDB(dir, options));
}

std::string dropped;

void Drop(const Slice& key, void*) { dropped += key.ToString(); }

void Caches() {
  std::unique_ptr<leveldb::Cache> cache(leveldb::NewLRUCache(2));
  int value = 7;
  auto add = [&](const char* key) { return cache->Insert(key, &value, 1, Drop); };
  cache->Release(add("a"));
  leveldb::Cache::Handle* held = add("b");
  auto* found = cache->Lookup("a");
  CHECK(found != nullptr && cache->Value(found) == &value);
  cache->Release(found);
  cache->Release(add("c"));
  CHECK(dropped == "a" && cache->Lookup("a") == nullptr && cache->TotalCharge() == 2);
  cache->Erase("b");
  CHECK(dropped == "a");
  cache->Release(held);
  CHECK(dropped == "ab");
  cache->Release(add("c"));
  CHECK(dropped == "abc");
  cache->Prune();
  CHECK(dropped == "abcc" && cache->TotalCharge() == 0 && cache->NewId() != cache->NewId());
  cache->Release(add("d"));
  cache.reset();
  CHECK(dropped == "abccd");
}

void Filters() {
  std::unique_ptr<const leveldb::FilterPolicy> policy(leveldb::NewBloomFilterPolicy(10));
  std::vector<std::string> text;
  for (int at = 0; at < 1000; at++) text.push_back(std::to_string(at));
  const std::vector<Slice> keys(text.begin(), text.end());
  std::string filter = "before";
  policy->CreateFilter(keys.data(), static_cast<int>(keys.size()), &filter);
  const Slice made(filter.data() + 6, filter.size() - 6);
  for (const Slice& key : keys) CHECK(policy->KeyMayMatch(key, made));
  int wrong = 0;
  for (int at = 1000; at < 11000; at++) wrong += policy->KeyMayMatch(std::to_string(at), made);
  // 0.8 % is what 10 bits can do.
  CHECK(wrong < 200);
}

void Count(void* count) { ++*static_cast<std::atomic<int>*>(count); }

// A lock is one of the process: others are refused, and a child of a fork does not keep it.
void Locks(const std::string& name) {
  leveldb::Env* env = leveldb::Env::Default();
  leveldb::FileLock *lock, *second;
  CHECK_OK(env->LockFile(name, &lock));
  CHECK(env->LockFile(name, &second).IsIOError());
  CHECK(env->LockFile(name, &second).IsIOError());
  int ends[2];
  CHECK(pipe(ends) == 0);
  const pid_t child = fork();
  CHECK(child >= 0);
  if (child == 0) {
    struct flock wanted = {};
    wanted.l_type = F_WRLCK;
    wanted.l_whence = SEEK_SET;
    const int fd = open(name.c_str(), O_RDWR);
    const char refused = fd >= 0 && fcntl(fd, F_SETLK, &wanted) != 0 ? 'y' : 'n';
    if (write(ends[1], &refused, 1) != 1) _exit(1);
    // Until the parent ends it, or is gone.
    alarm(100);
    for (;;) pause();
  }
  char refused = 0;
  CHECK(read(ends[0], &refused, 1) == 1 && refused == 'y');
  CHECK_OK(env->UnlockFile(lock));
  CHECK_OK(env->LockFile(name, &lock));
  CHECK_OK(env->UnlockFile(lock));
  CHECK(kill(child, SIGKILL) == 0 && waitpid(child, nullptr, 0) == child);
  close(ends[0]);
  close(ends[1]);
}

// A child of a fork neither gives back the lock of its parent nor keeps it when the parent is gone.
void LocksOfParents(const std::string& name) {
  leveldb::Env* env = leveldb::Env::Default();
  int ends[2];
  CHECK(pipe(ends) == 0);
  const pid_t parent = fork();
  CHECK(parent >= 0);
  if (parent == 0) {
    leveldb::FileLock* lock;
    if (!env->LockFile(name, &lock).ok()) _exit(1);
    if (fork() == 0) {
      const pid_t child = env->UnlockFile(lock).ok() ? getpid() : 0;
      if (write(ends[1], &child, sizeof child) != sizeof child) _exit(1);
    }
    // Until the test ends it, or is gone.
    alarm(100);
    for (;;) pause();
  }
  close(ends[1]);
  pid_t child = 0;
  CHECK(read(ends[0], &child, sizeof child) == sizeof child && child > 0);
  const int fd = open(name.c_str(), O_RDWR);
  CHECK(fd >= 0 && flock(fd, LOCK_EX | LOCK_NB) != 0 && close(fd) == 0);
  CHECK(kill(parent, SIGKILL) == 0 && waitpid(parent, nullptr, 0) == parent);
  leveldb::FileLock* lock;
  CHECK_OK(env->LockFile(name, &lock));
  CHECK_OK(env->UnlockFile(lock));
  CHECK(kill(child, SIGKILL) == 0);
  close(ends[0]);
}

// Who has a lock may remove its file: others do not take the removed one for the lock.
void RemovedLocks(const std::string& name) {
  std::vector<pid_t> children;
  for (int at = 0; at < 4; at++) {
    const pid_t child = fork();
    CHECK(child >= 0);
    if (child > 0) {
      children.push_back(child);
      continue;
    }
    leveldb::Env* env = leveldb::Env::Default();
    const std::string inside = name + ".inside";
    for (int entered = 0; entered < 2000;) {
      leveldb::FileLock* lock;
      if (!env->LockFile(name, &lock).ok()) continue;
      const int fd = open(inside.c_str(), O_RDWR | O_CREAT | O_EXCL, 0600);
      if (fd < 0 || close(fd) != 0) _exit(1);
      if (!env->RemoveFile(inside).ok() || !env->RemoveFile(name).ok()) _exit(2);
      if (!env->UnlockFile(lock).ok()) _exit(3);
      entered++;
    }
    _exit(0);
  }
  for (const pid_t child : children) {
    int status = 0;
    CHECK(waitpid(child, &status, 0) == child && WIFEXITED(status) && WEXITSTATUS(status) == 0);
  }
}

void Envs(const std::string& dir) {
  leveldb::Env* env = leveldb::Env::Default();
  std::string file = dir + "/file", text;
  CHECK_OK(env->CreateDir(dir));
  CHECK(env->CreateDir(dir).IsIOError());
  CHECK_OK(leveldb::WriteStringToFile(env, std::string(100000, 'x'), file));
  leveldb::WritableFile* appended;
  CHECK_OK(env->NewAppendableFile(file, &appended));
  CHECK_OK(appended->Append("end"));
  CHECK_OK(appended->Sync());
  CHECK_OK(appended->Close());
  delete appended;
  CHECK_OK(leveldb::ReadFileToString(env, file, &text));
  CHECK(text == std::string(100000, 'x') + "end");
  CHECK(leveldb::ReadFileToString(env, dir + "/none", &text).IsNotFound());
  leveldb::RandomAccessFile* random;
  CHECK_OK(env->NewRandomAccessFile(file, &random));
  char scratch[8];
  Slice piece;
  CHECK_OK(random->Read(99999, sizeof scratch, &piece, scratch));
  CHECK(piece == "xend");
  delete random;
  CHECK_OK(env->RenameFile(file, dir + "/moved"));
  CHECK(!env->FileExists(file) && env->FileExists(dir + "/moved"));
  uint64_t size = 0;
  CHECK_OK(env->GetFileSize(dir + "/moved", &size));
  CHECK(size == 100003);
  Locks(dir + "/lock");
  LocksOfParents(dir + "/inherited");
  RemovedLocks(dir + "/removed");
  leveldb::Logger* log;
  for (const char* what : {"more", "again"}) {
    CHECK_OK(env->NewLogger(dir + "/log", &log));
    leveldb::Log(log, "%d and %s", 7, what);
    delete log;
  }
  CHECK_OK(leveldb::ReadFileToString(env, dir + "/log", &text));
  CHECK(text.find("7 and more\n") != std::string::npos);
  CHECK(text.find("7 and again\n") != std::string::npos);
  std::vector<std::string> names;
  CHECK_OK(env->GetChildren(dir, &names));
  CHECK(names.size() == 6);
  for (const char* name : {"moved", "lock", "inherited", "log"}) CHECK_OK(env->RemoveFile(dir + "/" + name));
  CHECK_OK(env->RemoveDir(dir));

  std::atomic<int> count(0);
  env->Schedule(Count, &count);
  env->StartThread(Count, &count);
  env->Schedule(Count, &count);
  // Ends with the test that runs this program, if not by itself.
  while (count != 3) env->SleepForMicroseconds(100);
  CHECK(env->NowMicros() > 1000000);

  leveldb::EnvWrapper wrapper(env);
  CHECK(wrapper.FileExists("/") && wrapper.target() == env);
  leveldb::Options options;
  options.create_if_missing = true;
  options.env = &wrapper;
  leveldb::DB* none = nullptr;
  CHECK(leveldb::DB::Open(options, dir, &none).IsNotSupportedError() && none == nullptr);
  CHECK(!env->FileExists(dir));
}

}  // namespace

int main(int argc, char** argv) {
  CHECK(argc == 2);
  const std::string dir = argv[1];
  Statuses();
  Batches();
  Caches();
  Filters();
  Envs(dir + "-env");
  Store(dir + "-store");
  OwnStore(dir + "-own");
  Comparators(dir + "-numbers");
  OwnSubclasses(dir + "-subclasses");
  std::unique_ptr<leveldb::Iterator> none(leveldb::NewErrorIterator(Status::IOError("x")));
  CHECK(!none->Valid() && none->status().IsIOError());
  std::puts("as LevelDB does");
  return 0;
}
