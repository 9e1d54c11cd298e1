// LevelDB's C interface over Terrace: the functions, types and constants of LevelDB 1.23's leveldb/c.h.
//
// An error is text in *errptr, to be freed by leveldb_free; *errptr is NULL before. Every pointer that a
// function returns belongs to the caller, and is given back by the function for its type, or by
// leveldb_free. A comparator is kept while a store is open that was opened with it.
//
// Made by cbindgen from crates/leveldb/src; do not edit.


#ifndef STORAGE_LEVELDB_INCLUDE_C_H_
#define STORAGE_LEVELDB_INCLUDE_C_H_

#include <stddef.h>
#include <stdint.h>

// Types that no function has, as in LevelDB.
typedef struct leveldb_filelock_t leveldb_filelock_t;
typedef struct leveldb_randomfile_t leveldb_randomfile_t;
typedef struct leveldb_seqfile_t leveldb_seqfile_t;
typedef struct leveldb_writablefile_t leveldb_writablefile_t;

#define leveldb_no_compression 0

#define leveldb_snappy_compression 1

// Writes that become visible together.
typedef struct leveldb_writebatch_t leveldb_writebatch_t;

// How large a cache is.
typedef struct leveldb_cache_t leveldb_cache_t;

// A comparator of the caller's.
typedef struct leveldb_comparator_t leveldb_comparator_t;

// An open store.
typedef struct leveldb_t leveldb_t;

// The one environment that there is.
typedef struct leveldb_env_t leveldb_env_t;

// A filter policy.
typedef struct leveldb_filterpolicy_t leveldb_filterpolicy_t;

// A cursor, and the error that it met.
typedef struct leveldb_iterator_t leveldb_iterator_t;

// A log, which nothing is written to.
typedef struct leveldb_logger_t leveldb_logger_t;

// How a store is opened.
typedef struct leveldb_options_t leveldb_options_t;

// How a read is done.
typedef struct leveldb_readoptions_t leveldb_readoptions_t;

// A consistent view of a store.
typedef struct leveldb_snapshot_t leveldb_snapshot_t;

// How a write is done.
typedef struct leveldb_writeoptions_t leveldb_writeoptions_t;

#ifdef __cplusplus
extern "C" {
#endif // __cplusplus

char *leveldb_property_value(struct leveldb_t *db, const char *propname);

void leveldb_approximate_sizes(struct leveldb_t *db,
                               int num_ranges,
                               const char *const *range_start_key,
                               const size_t *range_start_key_len,
                               const char *const *range_limit_key,
                               const size_t *range_limit_key_len,
                               uint64_t *sizes);

void leveldb_compact_range(struct leveldb_t *db,
                           const char *start_key,
                           size_t start_key_len,
                           const char *limit_key,
                           size_t limit_key_len);

void leveldb_destroy_db(const struct leveldb_options_t *_options, const char *name, char **errptr);

void leveldb_repair_db(const struct leveldb_options_t *options, const char *name, char **errptr);

void leveldb_free(void *pointer);

int leveldb_major_version(void);

int leveldb_minor_version(void);

struct leveldb_writebatch_t *leveldb_writebatch_create(void);

void leveldb_writebatch_destroy(struct leveldb_writebatch_t *batch);

void leveldb_writebatch_clear(struct leveldb_writebatch_t *batch);

void leveldb_writebatch_put(struct leveldb_writebatch_t *batch,
                            const char *key,
                            size_t klen,
                            const char *val,
                            size_t vlen);

void leveldb_writebatch_delete(struct leveldb_writebatch_t *batch, const char *key, size_t klen);

void leveldb_writebatch_iterate(const struct leveldb_writebatch_t *batch,
                                void *state,
                                void (*put)(void*, const char*, size_t, const char*, size_t),
                                void (*deleted)(void*, const char*, size_t));

void leveldb_writebatch_append(struct leveldb_writebatch_t *destination,
                               const struct leveldb_writebatch_t *source);

struct leveldb_t *leveldb_open(const struct leveldb_options_t *options,
                               const char *name,
                               char **errptr);

void leveldb_close(struct leveldb_t *db);

void leveldb_put(struct leveldb_t *db,
                 const struct leveldb_writeoptions_t *options,
                 const char *key,
                 size_t keylen,
                 const char *val,
                 size_t vallen,
                 char **errptr);

void leveldb_delete(struct leveldb_t *db,
                    const struct leveldb_writeoptions_t *options,
                    const char *key,
                    size_t keylen,
                    char **errptr);

void leveldb_write(struct leveldb_t *db,
                   const struct leveldb_writeoptions_t *options,
                   struct leveldb_writebatch_t *batch,
                   char **errptr);

char *leveldb_get(struct leveldb_t *db,
                  const struct leveldb_readoptions_t *options,
                  const char *key,
                  size_t keylen,
                  size_t *vallen,
                  char **errptr);

const struct leveldb_snapshot_t *leveldb_create_snapshot(struct leveldb_t *db);

void leveldb_release_snapshot(struct leveldb_t *_db, const struct leveldb_snapshot_t *snapshot);

struct leveldb_iterator_t *leveldb_create_iterator(struct leveldb_t *db,
                                                   const struct leveldb_readoptions_t *options);

void leveldb_iter_destroy(struct leveldb_iterator_t *iter);

unsigned char leveldb_iter_valid(const struct leveldb_iterator_t *iter);

void leveldb_iter_seek_to_first(struct leveldb_iterator_t *iter);

void leveldb_iter_seek_to_last(struct leveldb_iterator_t *iter);

void leveldb_iter_seek(struct leveldb_iterator_t *iter, const char *key, size_t klen);

void leveldb_iter_next(struct leveldb_iterator_t *iter);

void leveldb_iter_prev(struct leveldb_iterator_t *iter);

const char *leveldb_iter_key(const struct leveldb_iterator_t *iter, size_t *klen);

const char *leveldb_iter_value(const struct leveldb_iterator_t *iter, size_t *vlen);

void leveldb_iter_get_error(const struct leveldb_iterator_t *iter, char **errptr);

struct leveldb_options_t *leveldb_options_create(void);

void leveldb_options_destroy(struct leveldb_options_t *options);

void leveldb_options_set_comparator(struct leveldb_options_t *options,
                                    struct leveldb_comparator_t *comparator);

void leveldb_options_set_filter_policy(struct leveldb_options_t *options,
                                       struct leveldb_filterpolicy_t *policy);

void leveldb_options_set_create_if_missing(struct leveldb_options_t *options, unsigned char on);

void leveldb_options_set_error_if_exists(struct leveldb_options_t *options, unsigned char on);

// Everything is checked, always.
void leveldb_options_set_paranoid_checks(struct leveldb_options_t *_options, unsigned char _on);

void leveldb_options_set_env(struct leveldb_options_t *_options, struct leveldb_env_t *_env);

// Taken, and nothing is written to it.
void leveldb_options_set_info_log(struct leveldb_options_t *_options,
                                  struct leveldb_logger_t *_log);

void leveldb_options_set_write_buffer_size(struct leveldb_options_t *options, size_t bytes);

void leveldb_options_set_max_open_files(struct leveldb_options_t *options, int files);

// Each store that is opened with the cache gets one of its capacity.
void leveldb_options_set_cache(struct leveldb_options_t *options, struct leveldb_cache_t *cache);

void leveldb_options_set_block_size(struct leveldb_options_t *options, size_t bytes);

// There are no restart points in Terrace's blocks.
void leveldb_options_set_block_restart_interval(struct leveldb_options_t *_options, int _keys);

void leveldb_options_set_max_file_size(struct leveldb_options_t *options, size_t bytes);

// Snappy means LZ4, which is as fast.
void leveldb_options_set_compression(struct leveldb_options_t *options, int kind);

struct leveldb_readoptions_t *leveldb_readoptions_create(void);

void leveldb_readoptions_destroy(struct leveldb_readoptions_t *options);

// Checksums are verified, always.
void leveldb_readoptions_set_verify_checksums(struct leveldb_readoptions_t *_options,
                                              unsigned char _on);

void leveldb_readoptions_set_fill_cache(struct leveldb_readoptions_t *options, unsigned char on);

void leveldb_readoptions_set_snapshot(struct leveldb_readoptions_t *options,
                                      const struct leveldb_snapshot_t *snapshot);

struct leveldb_writeoptions_t *leveldb_writeoptions_create(void);

void leveldb_writeoptions_destroy(struct leveldb_writeoptions_t *options);

void leveldb_writeoptions_set_sync(struct leveldb_writeoptions_t *options, unsigned char on);

struct leveldb_comparator_t *leveldb_comparator_create(void *state,
                                                       void (*destructor)(void*),
                                                       int (*compare)(void*,
                                                                      const char*,
                                                                      size_t,
                                                                      const char*,
                                                                      size_t),
                                                       const char *(*name)(void*));

void leveldb_comparator_destroy(struct leveldb_comparator_t *comparator);

struct leveldb_filterpolicy_t *leveldb_filterpolicy_create(void *state,
                                                           void (*destructor)(void*),
                                                           char *(*_create_filter)(void*,
                                                                                   const char*const *,
                                                                                   const size_t*,
                                                                                   int,
                                                                                   size_t*),
                                                           unsigned char (*_key_may_match)(void*,
                                                                                           const char*,
                                                                                           size_t,
                                                                                           const char*,
                                                                                           size_t),
                                                           const char *(*_name)(void*));

struct leveldb_filterpolicy_t *leveldb_filterpolicy_create_bloom(int bits_per_key);

void leveldb_filterpolicy_destroy(struct leveldb_filterpolicy_t *policy);

struct leveldb_cache_t *leveldb_cache_create_lru(size_t capacity);

void leveldb_cache_destroy(struct leveldb_cache_t *cache);

struct leveldb_env_t *leveldb_create_default_env(void);

void leveldb_env_destroy(struct leveldb_env_t *env);

char *leveldb_env_get_test_directory(struct leveldb_env_t *_env);

#ifdef __cplusplus
}  // extern "C"
#endif  // __cplusplus

#endif  /* STORAGE_LEVELDB_INCLUDE_C_H_ */
