// What all Envs have, and what is done with any of them.
#include "leveldb/env.h"

#include <cstdarg>
#include <memory>

#include "leveldb/slice.h"

namespace leveldb {

Env::Env() = default;
Env::~Env() = default;

Status Env::NewAppendableFile(const std::string& fname, WritableFile**) {
  return Status::NotSupported("NewAppendableFile", fname);
}

Status Env::RemoveFile(const std::string& fname) { return DeleteFile(fname); }
Status Env::DeleteFile(const std::string& fname) { return RemoveFile(fname); }
Status Env::RemoveDir(const std::string& dirname) { return DeleteDir(dirname); }
Status Env::DeleteDir(const std::string& dirname) { return RemoveDir(dirname); }

SequentialFile::~SequentialFile() = default;
RandomAccessFile::~RandomAccessFile() = default;
WritableFile::~WritableFile() = default;
Logger::~Logger() = default;
FileLock::~FileLock() = default;
EnvWrapper::~EnvWrapper() = default;

void Log(Logger* info_log, const char* format, ...) {
  if (info_log == nullptr) return;
  std::va_list ap;
  va_start(ap, format);
  info_log->Logv(format, ap);
  va_end(ap);
}

Status WriteStringToFile(Env* env, const Slice& data, const std::string& fname) {
  WritableFile* opened;
  Status status = env->NewWritableFile(fname, &opened);
  if (!status.ok()) return status;
  const std::unique_ptr<WritableFile> file(opened);
  status = file->Append(data);
  if (status.ok()) status = file->Close();
  // A part of the text is worse than nothing.
  if (!status.ok()) env->RemoveFile(fname);
  return status;
}

Status ReadFileToString(Env* env, const std::string& fname, std::string* data) {
  data->clear();
  SequentialFile* opened;
  Status status = env->NewSequentialFile(fname, &opened);
  if (!status.ok()) return status;
  const std::unique_ptr<SequentialFile> file(opened);
  const std::unique_ptr<char[]> scratch(new char[8192]);
  for (;;) {
    Slice piece;
    status = file->Read(8192, &piece, scratch.get());
    data->append(piece.data(), piece.size());
    if (!status.ok() || piece.empty()) return status;
  }
}

}  // namespace leveldb
