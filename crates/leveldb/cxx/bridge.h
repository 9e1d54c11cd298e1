// What the Rust side has for this interface beside leveldb/c.h (crates/leveldb/src/bridge.rs).
#ifndef TERRACE_LEVELDB_BRIDGE_H_
#define TERRACE_LEVELDB_BRIDGE_H_

#include "leveldb/c.h"

extern "C" {
void terrace_leveldb_write(const leveldb_t* db, unsigned char sync, const char* batch, size_t len,
                           char** errptr);
unsigned char terrace_leveldb_get(const leveldb_t* db, const leveldb_snapshot_t* snapshot,
                                  unsigned char fill_cache, const char* key, size_t len,
                                  void (*found)(void* state, const char* value, size_t len),
                                  void* state, char** errptr);
}

#endif
