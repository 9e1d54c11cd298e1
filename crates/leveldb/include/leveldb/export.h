// Which names the shared library exports.
#ifndef STORAGE_LEVELDB_INCLUDE_EXPORT_H_
#define STORAGE_LEVELDB_INCLUDE_EXPORT_H_

#define LEVELDB_EXPORT __attribute__((visibility("default")))

#endif
