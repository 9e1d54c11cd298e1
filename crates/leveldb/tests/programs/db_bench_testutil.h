// What db_bench needs of util/testutil.h of LevelDB, which is for tests and needs GoogleTest; found in its place.
#ifndef TERRACE_LEVELDB_TESTUTIL_H_
#define TERRACE_LEVELDB_TESTUTIL_H_

#include <cstddef>
#include <string>

#include "leveldb/slice.h"
#include "util/random.h"

namespace leveldb {
namespace test {

Slice RandomString(Random* rnd, int len, std::string* dst);
std::string RandomKey(Random* rnd, int len);
Slice CompressibleString(Random* rnd, double compressed_fraction, size_t len, std::string* dst);

}  // namespace test
}  // namespace leveldb

#endif
