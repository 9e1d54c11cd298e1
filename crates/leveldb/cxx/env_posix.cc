// Env::Default(): files, threads and time of the machine. Stores do not use it; programs do.
#include <dirent.h>
#include <fcntl.h>
#include <pthread.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <chrono>
#include <condition_variable>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <deque>
#include <mutex>
#include <set>
#include <string>
#include <thread>
#include <utility>

#include "leveldb/env.h"
#include "leveldb/slice.h"

namespace leveldb {

namespace {

Status Failed(const std::string& what, int error) {
  return error == ENOENT ? Status::NotFound(what, std::strerror(error))
                         : Status::IOError(what, std::strerror(error));
}

// The status of a call that gives -1 and errno.
Status Checked(int outcome, const std::string& what) {
  return outcome < 0 ? Failed(what, errno) : Status::OK();
}

// A file descriptor with the file's name, for errors.
class File {
 public:
  File(std::string name, int fd) : name_(std::move(name)), fd_(fd) {}
  File(const File&) = delete;
  File& operator=(const File&) = delete;
  ~File() {
    if (fd_ >= 0) ::close(fd_);
  }

  const std::string& name() const { return name_; }
  int fd() const { return fd_; }

  Status Close() {
    const int fd = std::exchange(fd_, -1);
    return fd < 0 ? Status::OK() : Checked(::close(fd), name_);
  }

  // Lets go of the descriptor, which stays as it is.
  void Forget() { fd_ = -1; }

 private:
  const std::string name_;
  int fd_;
};

class PosixSequentialFile final : public SequentialFile {
 public:
  PosixSequentialFile(const std::string& name, int fd) : file_(name, fd) {}

  Status Read(size_t n, Slice* result, char* scratch) override {
    ssize_t size;
    do {
      size = ::read(file_.fd(), scratch, n);
    } while (size < 0 && errno == EINTR);
    *result = Slice(scratch, size < 0 ? 0 : static_cast<size_t>(size));
    return size < 0 ? Failed(file_.name(), errno) : Status::OK();
  }

  Status Skip(uint64_t n) override {
    const off_t at = ::lseek(file_.fd(), static_cast<off_t>(n), SEEK_CUR);
    return at < 0 ? Failed(file_.name(), errno) : Status::OK();
  }

 private:
  File file_;
};

class PosixRandomAccessFile final : public RandomAccessFile {
 public:
  PosixRandomAccessFile(const std::string& name, int fd) : file_(name, fd) {}

  Status Read(uint64_t offset, size_t n, Slice* result, char* scratch) const override {
    ssize_t size;
    do {
      size = ::pread(file_.fd(), scratch, n, static_cast<off_t>(offset));
    } while (size < 0 && errno == EINTR);
    *result = Slice(scratch, size < 0 ? 0 : static_cast<size_t>(size));
    return size < 0 ? Failed(file_.name(), errno) : Status::OK();
  }

 private:
  File file_;
};

// Appends gather until there are 64 KiB of them.
class PosixWritableFile final : public WritableFile {
 public:
  PosixWritableFile(const std::string& name, int fd) : file_(name, fd) {}
  ~PosixWritableFile() override { Flush(); }

  Status Append(const Slice& data) override {
    gathered_.append(data.data(), data.size());
    return gathered_.size() < kGathered ? Status::OK() : Flush();
  }

  Status Flush() override {
    size_t written = 0;
    Status status;
    while (status.ok() && written < gathered_.size()) {
      const ssize_t size =
          ::write(file_.fd(), gathered_.data() + written, gathered_.size() - written);
      if (size >= 0) {
        written += static_cast<size_t>(size);
      } else if (errno != EINTR) {
        status = Failed(file_.name(), errno);
      }
    }
    gathered_.erase(0, written);
    return status;
  }

  Status Sync() override {
    const Status status = Flush();
    return status.ok() ? Checked(::fsync(file_.fd()), file_.name()) : status;
  }

  Status Close() override {
    const Status flushed = Flush();
    const Status closed = file_.Close();
    return flushed.ok() ? closed : flushed;
  }

 private:
  static constexpr size_t kGathered = 64 << 10;

  File file_;
  std::string gathered_;
};

class PosixLogger final : public Logger {
 public:
  explicit PosixLogger(std::FILE* file) : file_(file) {}
  ~PosixLogger() override { std::fclose(file_); }

  void Logv(const char* format, std::va_list ap) override {
    std::lock_guard<std::mutex> lock(mutex_);
    const auto now = std::chrono::system_clock::now().time_since_epoch();
    const auto micros = std::chrono::duration_cast<std::chrono::microseconds>(now).count();
    std::fprintf(file_, "%lld.%06lld ", static_cast<long long>(micros / 1000000),
                 static_cast<long long>(micros % 1000000));
    std::vfprintf(file_, format, ap);
    const size_t length = std::strlen(format);
    if (length == 0 || format[length - 1] != '\n') std::fputc('\n', file_);
    std::fflush(file_);
  }

 private:
  std::mutex mutex_;
  std::FILE* const file_;
};

class PosixFileLock final : public FileLock {
 public:
  PosixFileLock(const std::string& name, int fd) : file(name, fd) {}

  File file;
  const pid_t process = ::getpid();
};

// Locks or unlocks a whole file for this process: a child of a fork has no part in it. -1 and errno on failure.
int SetLock(int fd, short type) {
  struct flock lock = {};
  lock.l_type = type;
  lock.l_whence = SEEK_SET;
  return ::fcntl(fd, F_SETLK, &lock);
}

// Locks a file as an open store locks its LOCK, so that they see each other; -1 and errno if it is locked so.
int LockForStores(int fd) { return ::flock(fd, LOCK_EX | LOCK_NB); }

// Unlocks it, also if the child of a fork has the descriptor.
int UnlockForStores(int fd) { return ::flock(fd, LOCK_UN); }

// The descriptors of this process's locks. The child of a fork has them too, and with them what LockForStores has taken:
// it closes them, for it would hold the locks after this process has ended. Those that find no place stay open there.
class LockDescriptors {
 public:
  static void Add(int fd) {
    static const int registered = ::pthread_atfork(nullptr, nullptr, CloseAll);
    static_cast<void>(registered);
    Replace(kNone, fd + 1);
  }

  static void Remove(int fd) { Replace(fd + 1, kNone); }

  static void Close(int fd) {
    Remove(fd);
    ::close(fd);
  }

 private:
  static constexpr int kNone = 0;

  static void Replace(int before, int after) {
    for (std::atomic<int>& place : places_) {
      int found = before;
      if (place.compare_exchange_strong(found, after)) return;
    }
  }

  // In the child of a fork: takes no lock and allocates nothing.
  static void CloseAll() {
    for (std::atomic<int>& place : places_) {
      const int held = place.exchange(kNone);
      if (held != kNone) ::close(held - 1);
    }
  }

  // One more than the descriptor.
  static std::atomic<int> places_[1024];
};

std::atomic<int> LockDescriptors::places_[1024];

// Whether a name is that of an open file: who had it locked may have removed it since it was opened.
bool IsNamed(const std::string& name, int fd) {
  struct stat named, opened;
  return ::stat(name.c_str(), &named) == 0 && ::fstat(fd, &opened) == 0 &&
         named.st_dev == opened.st_dev && named.st_ino == opened.st_ino;
}

// The files that this process has locked: another lock would be granted to it.
class LockedNames {
 public:
  bool Insert(const std::string& name) {
    std::lock_guard<std::mutex> lock(mutex_);
    return names_.insert(name).second;
  }

  void Remove(const std::string& name) {
    std::lock_guard<std::mutex> lock(mutex_);
    names_.erase(name);
  }

 private:
  std::mutex mutex_;
  std::set<std::string> names_;
};

class PosixEnv final : public Env {
 public:
  Status NewSequentialFile(const std::string& name, SequentialFile** result) override {
    return Open<PosixSequentialFile>(name, O_RDONLY, result);
  }

  Status NewRandomAccessFile(const std::string& name, RandomAccessFile** result) override {
    return Open<PosixRandomAccessFile>(name, O_RDONLY, result);
  }

  Status NewWritableFile(const std::string& name, WritableFile** result) override {
    return Open<PosixWritableFile>(name, O_WRONLY | O_CREAT | O_TRUNC, result);
  }

  Status NewAppendableFile(const std::string& name, WritableFile** result) override {
    return Open<PosixWritableFile>(name, O_WRONLY | O_CREAT | O_APPEND, result);
  }

  bool FileExists(const std::string& name) override { return ::access(name.c_str(), F_OK) == 0; }

  Status GetChildren(const std::string& dir, std::vector<std::string>* result) override {
    result->clear();
    DIR* stream = ::opendir(dir.c_str());
    if (stream == nullptr) return Failed(dir, errno);
    while (const dirent* entry = ::readdir(stream)) result->emplace_back(entry->d_name);
    ::closedir(stream);
    return Status::OK();
  }

  Status RemoveFile(const std::string& name) override {
    return Checked(::unlink(name.c_str()), name);
  }

  Status CreateDir(const std::string& dir) override {
    return Checked(::mkdir(dir.c_str(), 0755), dir);
  }

  Status RemoveDir(const std::string& dir) override { return Checked(::rmdir(dir.c_str()), dir); }

  Status GetFileSize(const std::string& name, uint64_t* size) override {
    struct stat found;
    const Status status = Checked(::stat(name.c_str(), &found), name);
    *size = status.ok() ? static_cast<uint64_t>(found.st_size) : 0;
    return status;
  }

  Status RenameFile(const std::string& from, const std::string& to) override {
    return Checked(std::rename(from.c_str(), to.c_str()), from);
  }

  Status LockFile(const std::string& name, FileLock** lock) override {
    *lock = nullptr;
    // Before the file is opened: to close it again would unlock it.
    if (!locked_.Insert(name)) {
      return Status::IOError("lock " + name, "already held by process");
    }
    for (;;) {
      const int fd = ::open(name.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0644);
      if (fd >= 0) LockDescriptors::Add(fd);
      if (fd < 0 || LockForStores(fd) != 0 || SetLock(fd, F_WRLCK) != 0) {
        const Status status = Failed(fd < 0 ? name : "lock " + name, errno);
        if (fd >= 0) LockDescriptors::Close(fd);
        locked_.Remove(name);
        return status;
      }
      if (IsNamed(name, fd)) {
        *lock = new PosixFileLock(name, fd);
        return Status::OK();
      }
      // Nobody else would see this lock.
      LockDescriptors::Close(fd);
    }
  }

  Status UnlockFile(FileLock* lock) override {
    auto* held = static_cast<PosixFileLock*>(lock);
    const std::string name = held->file.name();
    if (held->process != ::getpid()) {
      // It is the lock of the process that this one was forked from, and its descriptor was closed here.
      held->file.Forget();
      delete held;
      locked_.Remove(name);
      return Status::OK();
    }
    const int fd = held->file.fd();
    const bool unlocked = SetLock(fd, F_UNLCK) == 0 && UnlockForStores(fd) == 0;
    const Status status = Checked(unlocked ? 0 : -1, "unlock " + name);
    // As in LevelDB, a lock that cannot be given back is still held.
    if (!status.ok()) return status;
    LockDescriptors::Remove(fd);
    delete held;
    locked_.Remove(name);
    return status;
  }

  void Schedule(void (*function)(void*), void* arg) override {
    std::lock_guard<std::mutex> lock(mutex_);
    if (!has_thread_) {
      has_thread_ = true;
      std::thread([this] { RunScheduled(); }).detach();
    }
    scheduled_.emplace_back(function, arg);
    changed_.notify_one();
  }

  void StartThread(void (*function)(void*), void* arg) override {
    std::thread(function, arg).detach();
  }

  Status GetTestDirectory(std::string* result) override {
    const char* named = std::getenv("TEST_TMPDIR");
    if (named != nullptr && *named != '\0') {
      *result = named;
    } else {
      *result = "/tmp/leveldbtest-" + std::to_string(::geteuid());
    }
    // It may be there.
    CreateDir(*result);
    return Status::OK();
  }

  Status NewLogger(const std::string& name, Logger** result) override {
    std::FILE* file = std::fopen(name.c_str(), "ae");
    *result = file == nullptr ? nullptr : new PosixLogger(file);
    return file == nullptr ? Failed(name, errno) : Status::OK();
  }

  uint64_t NowMicros() override {
    const auto now = std::chrono::system_clock::now().time_since_epoch();
    return static_cast<uint64_t>(
        std::chrono::duration_cast<std::chrono::microseconds>(now).count());
  }

  void SleepForMicroseconds(int micros) override {
    std::this_thread::sleep_for(std::chrono::microseconds(micros));
  }

 private:
  template <typename Opened, typename Base>
  static Status Open(const std::string& name, int flags, Base** result) {
    const int fd = ::open(name.c_str(), flags | O_CLOEXEC, 0644);
    *result = fd < 0 ? nullptr : new Opened(name, fd);
    return fd < 0 ? Failed(name, errno) : Status::OK();
  }

  void RunScheduled() {
    for (;;) {
      std::unique_lock<std::mutex> lock(mutex_);
      changed_.wait(lock, [this] { return !scheduled_.empty(); });
      const auto work = scheduled_.front();
      scheduled_.pop_front();
      lock.unlock();
      work.first(work.second);
    }
  }

  LockedNames locked_;
  std::mutex mutex_;
  std::condition_variable changed_;
  bool has_thread_ = false;
  std::deque<std::pair<void (*)(void*), void*>> scheduled_;
};

}  // namespace

Env* Env::Default() {
  // Never destroyed: its thread may run until the process ends.
  static Env* const env = new PosixEnv;
  return env;
}

}  // namespace leveldb
