// Terrace, an embeddable key-value store: the interface for C.
//
// Errors. A function that can fail returns a terrace_error: NULL is success. Its code says what kind of
// error it is, its message what to do about it. Free it with terrace_error_free. Absence of a key is no
// error.
//
// Handles. Every handle is made by one function and freed by the one that its comment names, once. Handles
// count on each other, so the order in which they are freed does not matter: an iterator, a snapshot, a value
// or a transaction may outlive the handle of its store. NULL where a handle is needed is
// TERRACE_INVALID_ARGUMENT; a handle that was freed must not be passed. After terrace_close reads and writes fail with
// TERRACE_CLOSED until the handle is freed; an iterator that was there before shows what it has in memory or
// fails.
//
// Bytes. Keys and values are any bytes, with a length; the library copies what it keeps before it returns. A
// NULL pointer with length 0 is no bytes. Names, option texts and messages are UTF-8 and end with a zero
// byte; paths end with a zero byte and are otherwise any bytes. Those that are relative are so to the working directory of the
// call: what is open stays where it is when the program changes that.
//
// Threads. terrace_db, terrace_family, terrace_snapshot, terrace_entries and terrace_backups may be used by any number of threads at
// the same time, terrace_options and terrace_read_options while nobody changes them. terrace_iter, terrace_batch,
// terrace_transaction, terrace_sst_writer, terrace_bulk_loader, terrace_updates and terrace_value are for one thread at a
// time, any thread.
// Nothing is tied to the thread that made it. A free must be the last use by any thread.
//
// Callbacks are called by any thread that reads, and by threads of the library, several at the same time. They must not
// call functions of a store, nor leave by longjmp or an exception of C++. What they are passed lives until they return.
//
// Forks. A store has threads, which a fork does not copy. In the child every call with a handle of before
// fails with TERRACE_FORKED, and freeing one does nothing; the parent goes on. Options without callbacks are
// plain data and serve the child as well. A child that calls exec is not concerned.
//
// Signals and longjmp. Call nothing here in a signal handler, and do not leave a function of the library by
// longjmp.
//
// Made by cbindgen from crates/c/src; do not edit.


#ifndef TERRACE_H
#define TERRACE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

// Bytes on disk are not what was written. Restore from a checkpoint, or repair.
#define TERRACE_CORRUPTION 1

// The operating system refused an operation on a file.
#define TERRACE_IO 2

// The file system is full. Reads go on; writes resume by themselves when there is room.
#define TERRACE_DISK_FULL 3

// An earlier failure made it unsafe to write on. Open the store again.
#define TERRACE_POISONED 4

// Writes wait for background work that fails again and again.
#define TERRACE_WRITE_STOPPED 5

// The store was opened read-only.
#define TERRACE_READ_ONLY 6

// A key that the transaction read has been written since. Run it again.
#define TERRACE_CONFLICT 7

// A key, value, batch, option or argument is outside the limits, or NULL where it must not be.
#define TERRACE_INVALID_ARGUMENT 8

// The store is open elsewhere.
#define TERRACE_LOCKED 9

// The directory holds no store.
#define TERRACE_NOT_A_STORE 10

// There is no column family of this name, or it was dropped.
#define TERRACE_NO_SUCH_FAMILY 11

// A file of a format version that this build does not read, or one that is encrypted with a key that was not given, or
// that is not encrypted while keys were given.
#define TERRACE_UNSUPPORTED 12

// The read needs the device, or passes thousands of keys that it does not show, and its options forbid that.
#define TERRACE_NOT_IN_MEMORY 13

// A read-only store lacks a file that its writer has removed. Refresh it.
#define TERRACE_OUTDATED 14

// The store was closed.
#define TERRACE_CLOSED 15

// A defect of the library; the message says what panicked.
#define TERRACE_PANIC 16

// The handle was made before a fork, by the other process.
#define TERRACE_FORKED 17

// An error of another kind.
#define TERRACE_OTHER 18

// The log does not hold these updates any more. Copy the store anew and go on from there.
#define TERRACE_UPDATES_GONE 19

// The merge operator refused the operands of a key. Nothing is lost: they stay.
#define TERRACE_MERGE_FAILED 20

// The entry stays as it is.
#define TERRACE_FILTER_KEEP 0

// The key is absent from now on; older versions of it do not come back.
#define TERRACE_FILTER_REMOVE 1

// The entry has the value that terrace_filter_entry_change was given from now on.
#define TERRACE_FILTER_CHANGE 2

// Flushes ask the filter, too.
#define TERRACE_FILTER_FLUSHES 1

// Entries that a snapshot sees are given to the filter as well, so that reads at a snapshot can find less than before.
#define TERRACE_FILTER_IGNORES_SNAPSHOTS 2

// A write is durable as the store's option "sync" says.
#define TERRACE_SYNC_DEFAULT 0

// The write survives a killed process, not a power cut.
#define TERRACE_SYNC_NONE 1

// The write may stay in the process for a while. Only in a store that was opened with "buffered".
#define TERRACE_SYNC_BUFFERED 2

// The write is on the device when the function returns.
#define TERRACE_SYNC_BATCH 3

// The files stay, and what they have counts as written just then.
#define TERRACE_INGEST_DEFAULT 0

// The files are removed once the store has them durably.
#define TERRACE_INGEST_MOVE 1

// Existing entries count where both have a key: for filling up a store with old data.
#define TERRACE_INGEST_BELOW 2

// The key was set to the value.
#define TERRACE_UPDATE_PUT 1

// The key was deleted.
#define TERRACE_UPDATE_DELETE 2

// The keys from "key" on and below "end" were deleted.
#define TERRACE_UPDATE_DELETE_RANGE 3

// The operand, which is the "value", was merged into the value of the key.
#define TERRACE_UPDATE_MERGE 4

// A file was ingested whose keys lie from "key" up to "end", that included. The log does not have its entries: read
// these keys from the store.
#define TERRACE_UPDATE_INGESTED 5

// A directory of backups, which share the files that did not change between them. Any number of threads may use it: what
// changes the directory takes turns. No other process can open it meanwhile.
typedef struct terrace_backups terrace_backups;

// Writes that become visible together or not at all. One thread at a time may use it. A batch that names a
// family belongs to the open store of that family.
typedef struct terrace_batch terrace_batch;

// A load of entries in any order, as one write: what is not finished is not there. One thread at a time may use it. It keeps
// the store open.
typedef struct terrace_bulk_loader terrace_bulk_loader;

// An open store. Any number of threads may use it at the same time.
typedef struct terrace_db terrace_db;

// Entries that terrace_transaction_scan has read, in the order of their keys. Any number of threads may look at them
// at the same time. They stay as they are, whatever becomes of the transaction, and keep memory of the store until they are freed.
typedef struct terrace_entries terrace_entries;

// Why a function failed: a code and a message. The caller frees it.
typedef struct terrace_error terrace_error;

// A column family: a key space of its own within a store. NULL stands for the default one wherever a
// function takes a family. Any number of threads may use a handle at the same time.
typedef struct terrace_family terrace_family;

// The entry that a filter decides on. It lives until the callback returns.
typedef struct terrace_filter_entry terrace_filter_entry;

// A cursor over the keys and values of a column family at one moment, in both directions. One thread at a
// time may use it. It may outlive the handle of its store.
typedef struct terrace_iter terrace_iter;

// Where a merge puts its outcome. It lives until the callback returns.
typedef struct terrace_merge_result terrace_merge_result;

// How a store is opened, or a column family created. One thread at a time may change it; any number may
// open stores with it.
typedef struct terrace_options terrace_options;

// What a read sees and how it reads. One thread at a time may change it; any number may read with it.
typedef struct terrace_read_options terrace_read_options;

// A consistent view of the whole store at one moment. Any number of threads may read at it.
typedef struct terrace_snapshot terrace_snapshot;

// A sorted file that is being written, for terrace_ingest. It needs no store. One thread at a time may use it.
typedef struct terrace_sst_writer terrace_sst_writer;

// A transaction: reads the store as of its begin, sees its own writes, and commits whole or not at all.
// Nothing is locked: if a key that it read has been written since, terrace_transaction_commit fails with
// TERRACE_CONFLICT, and the caller runs it again. One thread at a time may use it. While it lives, what is
// overwritten meanwhile keeps its disk space.
typedef struct terrace_transaction terrace_transaction;

// A change feed: it stands on one committed batch after the other. One thread at a time may use it. It keeps the log
// that it has not read, so free it when it is not needed.
typedef struct terrace_updates terrace_updates;

// Makes the value of a key of `existing`, which is NULL if the key is absent, deleted or expired, and of `count`
// operands, 1 or more, the oldest first. It says the value by terrace_merge_result_set; by
// terrace_merge_result_refuse, or by nothing, that there is none: then reads of the key fail with
// TERRACE_MERGE_FAILED and the operands stay. All bytes are there until it returns.
//
// It must be pure: the same arguments have the same result in every process that opens the store. Readers and
// background threads call it, several at the same time. It must not call the store, nor leave by longjmp or an
// exception.
typedef void (*terrace_full_merge)(void *context,
                                   const uint8_t *key,
                                   size_t key_len,
                                   const uint8_t *existing,
                                   size_t existing_len,
                                   const uint8_t *const *operands,
                                   const size_t *operand_lens,
                                   size_t count,
                                   struct terrace_merge_result *result);

// Makes one operand of `count`, 2 or more, the oldest first, that does what they do, whatever lies below them. If it says
// none, or refuses, they all stay. Otherwise as terrace_full_merge.
typedef void (*terrace_partial_merge)(void *context,
                                      const uint8_t *key,
                                      size_t key_len,
                                      const uint8_t *const *operands,
                                      const size_t *operand_lens,
                                      size_t count,
                                      struct terrace_merge_result *result);

// Frees the context of callbacks. It is called once, by any thread.
typedef void (*terrace_free_context)(void *context);

// Says what becomes of an entry: one of TERRACE_FILTER_KEEP, _REMOVE and _CHANGE. Any other number is a failure of the filter,
// which keeps the entry and is counted in the metrics.
//
// Background threads call it, several at the same time. It must not call the store, nor leave by longjmp or an exception.
typedef int32_t (*terrace_filter)(void *context, struct terrace_filter_entry *entry);

// A value that was read: `len` bytes at `data`, which is NULL if the key is absent (and is not for a value
// of no bytes). The bytes stay as they are until terrace_value_free. Not to be copied; a copy must not be
// freed or used after the first was.
typedef struct terrace_value {
  // The bytes, or NULL.
  const uint8_t *data;
  // How many.
  size_t len;
  // What keeps the bytes alive. Only for the library.
  size_t private_[4];
} terrace_value;

#ifdef __cplusplus
extern "C" {
#endif // __cplusplus

// What kind of error it is, one of the TERRACE_ codes above; 0 for NULL, which is success.
int32_t terrace_error_code(const struct terrace_error *error);

// What went wrong and what to do about it, in English. It lives as long as the error.
const char *terrace_error_message(const struct terrace_error *error);

// Frees an error. NULL is allowed.
void terrace_error_free(struct terrace_error *error);

// Options with their defaults. Free them with terrace_options_free.
struct terrace_options *terrace_options_new(void);

// Sets an option of the store, or of its default column family, by its name: "memory_budget" to "64MiB",
// "sync" to "none", "buffered", "batch" or "interval:100", "compression" to "none,none,lz4". docs/c.md
// lists all. An unknown name and text that an option cannot be are TERRACE_INVALID_ARGUMENT; numbers out
// of range are refused by terrace_open.
struct terrace_error *terrace_options_set(struct terrace_options *options,
                                          const char *name,
                                          const char *value);

// Sets an option of the column family `family`, which the open creates if it does not exist. What is not set for a
// family is as for the default one, whichever was set first, but for a merge operator and a compaction filter: it has
// those that are set for it. "default" is the default one.
struct terrace_error *terrace_options_set_family(struct terrace_options *options,
                                                 const char *family,
                                                 const char *name,
                                                 const char *value);

// Names a column family for the open to create if it does not exist, with the options of the default one, but for
// a merge operator and a compaction filter.
struct terrace_error *terrace_options_add_family(struct terrace_options *options,
                                                 const char *family);

// Frees options. NULL is allowed.
void terrace_options_free(struct terrace_options *options);

// The outcome of a merge is `value`, which is copied. Only in a callback, with the result that it was given.
void terrace_merge_result_set(struct terrace_merge_result *result,
                              const uint8_t *value,
                              size_t value_len);

// The operands cannot be merged. `message`, which may be NULL, says why, in the error that readers get.
void terrace_merge_result_refuse(struct terrace_merge_result *result,
                                 const char *message);

// Sets the merge operator of the column family `family`, of the default one for NULL: what terrace_merge does there. Its
// name, of 1 to 256 bytes, is stored, and the store is refused without an operator of that name: change
// it when the meaning of operands changes. `context` is passed to the callbacks. `partial_merge` may be NULL.
// `free_context`, which may be NULL, is called once, by any thread, when nothing can call them any more: at the latest when
// the options, every store that was opened with them and all handles of these stores are freed, iterators among them. On
// failure of this function the context stays the caller's.
struct terrace_error *terrace_options_set_merge_operator(struct terrace_options *options,
                                                         const char *family,
                                                         const char *name,
                                                         void *context,
                                                         terrace_full_merge full_merge,
                                                         terrace_partial_merge partial_merge,
                                                         terrace_free_context free_context);

// The key of the entry, of *len bytes.
const uint8_t *terrace_filter_entry_key(const struct terrace_filter_entry *entry, size_t *len);

// The value of the entry, of *len bytes. One that terrace_filter_entry_is_separated costs a read of the device: ask only if the
// key does not decide. NULL if it cannot be read; then the entry stays, whatever the filter says.
const uint8_t *terrace_filter_entry_value(const struct terrace_filter_entry *entry,
                                          size_t *len);

// Whether the value lies in the log.
bool terrace_filter_entry_is_separated(const struct terrace_filter_entry *entry);

// When the entry expires, in milliseconds since 1970; 0 if it does not.
uint64_t terrace_filter_entry_expires_at_ms(const struct terrace_filter_entry *entry);

// The level that is written.
uint32_t terrace_filter_entry_output_level(const struct terrace_filter_entry *entry);

// Whether every sorted file of the column family is read: no other version of the key is in any file.
bool terrace_filter_entry_is_full(const struct terrace_filter_entry *entry);

// Gives the entry another value, which is copied, if the filter then says TERRACE_FILTER_CHANGE. When it expires does not
// change.
void terrace_filter_entry_change(struct terrace_filter_entry *entry,
                                 const uint8_t *value,
                                 size_t value_len);

// Sets the compaction filter of the column family `family`, of the default one for NULL: compactions ask it about the
// newest version of each key that they read, and it keeps, removes or changes the entry. See docs/compaction-filter.md. It
// is not stored: it applies as long as the store is open with it. `name` is for the log, `context` is passed to the
// callback, `flags` is 0 or the sum of TERRACE_FILTER_FLUSHES and TERRACE_FILTER_IGNORES_SNAPSHOTS. `free_context` as
// in terrace_options_set_merge_operator.
struct terrace_error *terrace_options_set_compaction_filter(struct terrace_options *options,
                                                            const char *family,
                                                            const char *name,
                                                            void *context,
                                                            terrace_filter filter,
                                                            int32_t flags,
                                                            terrace_free_context free_context);

// Opens the store in directory `path`, which is created unless the option create_if_missing is "false".
// NULL options are the defaults. On success *db is a handle: close it with terrace_close, then free it with
// terrace_db_free. On failure *db is NULL.
struct terrace_error *terrace_open(const char *path,
                                   const struct terrace_options *options,
                                   struct terrace_db **db);

// Opens a store as it is now without writing anything; another process may have it open for writing. See
// terrace_refresh.
struct terrace_error *terrace_open_read_only(const char *path,
                                             const struct terrace_options *options,
                                             struct terrace_db **db);

// Shows, in a store that is open read-only, what was written since it was opened or refreshed. *is_changed
// is whether there may be anything new; NULL if that is of no interest.
struct terrace_error *terrace_refresh(const struct terrace_db *db,
                                      bool *is_changed);

// Flushes, stops the threads and releases the directory. Every later call with this handle, or with one
// made from it, that reads, writes or works on files fails with TERRACE_CLOSED; what needs only memory, as
// terrace_metrics_text or terrace_get_option, still answers. Closing again gives the same. The handle is still to be
// freed.
struct terrace_error *terrace_close(const struct terrace_db *db);

// Frees the handle; no thread may use it any more. A store that was not closed is closed when the last
// of its families and transactions is freed too, and an error of that is lost: call terrace_close first.
// NULL is allowed.
void terrace_db_free(struct terrace_db *db);

// Changes an option of the open store: "sync", "memory_budget", "memory_split", "rate_limit_bytes_per_s",
// "gc_garbage_ratio", "hot_table", "log_retention_bytes", "max_open_files", "background_jobs",
// "l0_compaction_trigger", "l0_slowdown", "l0_stop", "level_base_bytes", "level_multiplier", "target_file_bytes",
// "max_subcompactions", "compact_when_idle", "pending_compaction_slowdown_bytes", "level_model_files",
// "reserve_bytes", "max_reader_pinned_bytes"; of all its column families together: "compression", "filter",
// "prefix_len", "value_separation_threshold", "value_compression", "learning". Sizes may have a unit: 64MiB.
// Those of column families are stored with them, the others are not.
struct terrace_error *terrace_set_option(const struct terrace_db *db,
                                         const char *name,
                                         const char *value);

// What an option that terrace_set_option takes is now. Free *value with terrace_string_free.
struct terrace_error *terrace_get_option(const struct terrace_db *db,
                                         const char *name,
                                         char **value);

// The column family called `name`; TERRACE_NO_SUCH_FAMILY if there is none. Free it with
// terrace_family_free.
struct terrace_error *terrace_family_get(const struct terrace_db *db,
                                         const char *name,
                                         struct terrace_family **family);

// Creates a column family with the options that `options` has for the default family; NULL are the
// defaults. They are stored with it. Free it with terrace_family_free.
struct terrace_error *terrace_family_create(const struct terrace_db *db,
                                            const char *name,
                                            const struct terrace_options *options,
                                            struct terrace_family **family);

// Drops a column family with all its keys; calls with its handles fail from then on. The handles are
// still to be freed.
struct terrace_error *terrace_family_drop(const struct terrace_db *db,
                                          const char *name);

// Changes an option of one column family, the default one for NULL, and stores it with the family: "compression",
// "filter", "prefix_len", "value_separation_threshold", "value_compression" or "learning". Sizes may have a unit:
// 64MiB.
struct terrace_error *terrace_family_set_option(const struct terrace_db *db,
                                                const struct terrace_family *family,
                                                const char *name,
                                                const char *value);

// What an option of a column family, the default one for NULL, is now: those of terrace_family_set_option, and
// "compaction". Free *value with terrace_string_free.
struct terrace_error *terrace_family_get_option(const struct terrace_db *db,
                                                const struct terrace_family *family,
                                                const char *name,
                                                char **value);

// The name of a family, which lives as long as its handle. NULL for NULL, and after a fork.
const char *terrace_family_name(const struct terrace_family *family);

// The names of all column families, "default" among them, one a line. Free *names with
// terrace_string_free.
struct terrace_error *terrace_family_names(const struct terrace_db *db, char **names);

// Frees a family's handle; the family stays. NULL is allowed.
void terrace_family_free(struct terrace_family *family);

// Sets a key (at most 64 KiB) to a value (at most 1 GiB). It is durable as the store's option "sync" says.
struct terrace_error *terrace_put(const struct terrace_db *db,
                                  const struct terrace_family *family,
                                  const uint8_t *key,
                                  size_t key_len,
                                  const uint8_t *value,
                                  size_t value_len);

// Sets a key to a value until `ttl_ms` milliseconds from now; then it is absent, and its disk space is
// freed by itself.
struct terrace_error *terrace_put_with_ttl(const struct terrace_db *db,
                                           const struct terrace_family *family,
                                           const uint8_t *key,
                                           size_t key_len,
                                           const uint8_t *value,
                                           size_t value_len,
                                           uint64_t ttl_ms);

// Removes a key. One that is absent is success.
struct terrace_error *terrace_delete(const struct terrace_db *db,
                                     const struct terrace_family *family,
                                     const uint8_t *key,
                                     size_t key_len);

// Merges an operand into the value of a key, as the merge operator of the family says (its option
// "merge_operator", such as counter, max or append). Nothing is read: it costs what terrace_put costs.
// TERRACE_INVALID_ARGUMENT if the family has none.
struct terrace_error *terrace_merge(const struct terrace_db *db,
                                    const struct terrace_family *family,
                                    const uint8_t *key,
                                    size_t key_len,
                                    const uint8_t *operand,
                                    size_t operand_len);

// Removes every key from `start` on and below `end`, at the cost of one write; none if start >= end.
struct terrace_error *terrace_delete_range(const struct terrace_db *db,
                                           const struct terrace_family *family,
                                           const uint8_t *start,
                                           size_t start_len,
                                           const uint8_t *end,
                                           size_t end_len);

// Takes a snapshot of the store as of now, all column families. Read at it by
// terrace_read_options_set_snapshot. While it lives, what it sees keeps its disk space: free it with
// terrace_snapshot_free.
struct terrace_error *terrace_snapshot_new(const struct terrace_db *db,
                                           struct terrace_snapshot **snapshot);

// Frees a snapshot. NULL is allowed.
void terrace_snapshot_free(struct terrace_snapshot *snapshot);

// Read options with their defaults: the present, no bounds. Free them with terrace_read_options_free.
struct terrace_read_options *terrace_read_options_new(void);

// Sets an option of reads by its name: "fill_cache" (true), "in_memory" (false: true makes a read that
// needs the device, or passes thousands of keys that it does not show, fail with TERRACE_NOT_IN_MEMORY), "keys_only" (false),
// "readahead_bytes" (0).
struct terrace_error *terrace_read_options_set(struct terrace_read_options *options,
                                               const char *name,
                                               const char *value);

// An iterator shows only keys from `start` on and below `end`. A NULL bound with length 0 is none.
struct terrace_error *terrace_read_options_set_bounds(struct terrace_read_options *options,
                                                      const uint8_t *start,
                                                      size_t start_len,
                                                      const uint8_t *end,
                                                      size_t end_len);

// An iterator shows only keys that start with `prefix`; any key for NULL with length 0.
struct terrace_error *terrace_read_options_set_prefix(struct terrace_read_options *options,
                                                      const uint8_t *prefix,
                                                      size_t prefix_len);

// Reads at `snapshot`, the present for NULL. The options keep the snapshot: it may be freed.
struct terrace_error *terrace_read_options_set_snapshot(struct terrace_read_options *options,
                                                        const struct terrace_snapshot *snapshot);

// Frees read options. NULL is allowed.
void terrace_read_options_free(struct terrace_read_options *options);

// Reads the value of a key. *value is always set: data is NULL if the key is absent, or on failure. Free it
// with terrace_value_free in any case, or at least if data is not NULL. A read from memory copies nothing.
// NULL options are the defaults; bounds and prefix mean nothing here.
struct terrace_error *terrace_get(const struct terrace_db *db,
                                  const struct terrace_family *family,
                                  const struct terrace_read_options *options,
                                  const uint8_t *key,
                                  size_t key_len,
                                  struct terrace_value *value);

// As terrace_get; *expires_at_ms is when the value expires, in milliseconds since 1970, 0 if it does not.
struct terrace_error *terrace_get_with_expiry(const struct terrace_db *db,
                                              const struct terrace_family *family,
                                              const struct terrace_read_options *options,
                                              const uint8_t *key,
                                              size_t key_len,
                                              struct terrace_value *value,
                                              uint64_t *expires_at_ms);

// Reads `count` keys as of one moment; device reads are batched. The value of each key goes to the same place
// in `values`, and is to be freed; on failure all are absent.
struct terrace_error *terrace_multi_get(const struct terrace_db *db,
                                        const struct terrace_family *family,
                                        const struct terrace_read_options *options,
                                        size_t count,
                                        const uint8_t *const *keys,
                                        const size_t *key_lens,
                                        struct terrace_value *values);

// Lets go of a value and makes it absent, so that a second call does nothing. NULL is allowed.
void terrace_value_free(struct terrace_value *value);

// An iterator that stands nowhere: seek first. It sees what was there when it was made, or the snapshot of
// `options`, of which NULL are the defaults. Free it with terrace_iter_free.
struct terrace_error *terrace_iter_new(const struct terrace_db *db,
                                       const struct terrace_family *family,
                                       const struct terrace_read_options *options,
                                       struct terrace_iter **iter);

// Moves to the first entry.
struct terrace_error *terrace_iter_seek_to_first(struct terrace_iter *iter);

// Moves to the last entry.
struct terrace_error *terrace_iter_seek_to_last(struct terrace_iter *iter);

// Moves to the first entry whose key is at or after `key`, which may be bytes of the entry that the iterator stands on.
struct terrace_error *terrace_iter_seek(struct terrace_iter *iter,
                                        const uint8_t *key,
                                        size_t key_len);

// Moves to the last entry whose key is at or before `key`; as terrace_iter_seek.
struct terrace_error *terrace_iter_seek_for_prev(struct terrace_iter *iter,
                                                 const uint8_t *key,
                                                 size_t key_len);

// Moves to the next entry; nothing if the iterator is not valid.
struct terrace_error *terrace_iter_next(struct terrace_iter *iter);

// Moves to the previous entry; nothing if the iterator is not valid.
struct terrace_error *terrace_iter_prev(struct terrace_iter *iter);

// Whether the iterator stands on an entry. It does not past either end, and after an error.
bool terrace_iter_valid(const struct terrace_iter *iter);

// The key of the entry, of *len bytes, which stays until the iterator moves or is freed. NULL with length 0
// if it is not valid.
const uint8_t *terrace_iter_key(const struct terrace_iter *iter,
                                size_t *len);

// The value of the entry, as terrace_iter_key.
const uint8_t *terrace_iter_value(const struct terrace_iter *iter, size_t *len);

// When the entry expires, in milliseconds since 1970; 0 if it does not, or if the iterator is not valid.
uint64_t terrace_iter_expires_at_ms(const struct terrace_iter *iter);

// Frees an iterator. NULL is allowed.
void terrace_iter_free(struct terrace_iter *iter);

// An empty batch. Free it with terrace_batch_free.
struct terrace_batch *terrace_batch_new(void);

// Sets a key to a value. What is over a limit is refused by terrace_write.
struct terrace_error *terrace_batch_put(struct terrace_batch *batch,
                                        const struct terrace_family *family,
                                        const uint8_t *key,
                                        size_t key_len,
                                        const uint8_t *value,
                                        size_t value_len);

// Sets a key to a value until `ttl_ms` milliseconds from the write on.
struct terrace_error *terrace_batch_put_with_ttl(struct terrace_batch *batch,
                                                 const struct terrace_family *family,
                                                 const uint8_t *key,
                                                 size_t key_len,
                                                 const uint8_t *value,
                                                 size_t value_len,
                                                 uint64_t ttl_ms);

// Sets a key to a value until the clock shows `expires_at_ms`, in milliseconds since 1970.
struct terrace_error *terrace_batch_put_until(struct terrace_batch *batch,
                                              const struct terrace_family *family,
                                              const uint8_t *key,
                                              size_t key_len,
                                              const uint8_t *value,
                                              size_t value_len,
                                              uint64_t expires_at_ms);

// Removes a key.
struct terrace_error *terrace_batch_delete(struct terrace_batch *batch,
                                           const struct terrace_family *family,
                                           const uint8_t *key,
                                           size_t key_len);

// Merges an operand into the value of a key; see terrace_merge.
struct terrace_error *terrace_batch_merge(struct terrace_batch *batch,
                                          const struct terrace_family *family,
                                          const uint8_t *key,
                                          size_t key_len,
                                          const uint8_t *operand,
                                          size_t operand_len);

// Removes every key from `start` on and below `end`.
struct terrace_error *terrace_batch_delete_range(struct terrace_batch *batch,
                                                 const struct terrace_family *family,
                                                 const uint8_t *start,
                                                 size_t start_len,
                                                 const uint8_t *end,
                                                 size_t end_len);

// The number of operations; 0 for NULL.
size_t terrace_batch_len(const struct terrace_batch *batch);

// The encoded size in bytes; 0 for NULL.
size_t terrace_batch_size_bytes(const struct terrace_batch *batch);

// Removes all operations and save points and keeps the memory.
struct terrace_error *terrace_batch_clear(struct terrace_batch *batch);

// Notes what the batch is now, on top of earlier save points.
struct terrace_error *terrace_batch_set_save_point(struct terrace_batch *batch);

// Takes back every operation since the newest save point, and that save point.
struct terrace_error *terrace_batch_roll_back(struct terrace_batch *batch);

// Writes a batch: all of it becomes visible together, or nothing. The batch is empty afterwards, whatever
// the outcome. `sync` is one of TERRACE_SYNC_.
struct terrace_error *terrace_write(const struct terrace_db *db,
                                    struct terrace_batch *batch,
                                    int32_t sync);

// Frees a batch. NULL is allowed.
void terrace_batch_free(struct terrace_batch *batch);

// Begins a transaction that reads the store as of now. Free it with terrace_transaction_free.
struct terrace_error *terrace_transaction_begin(const struct terrace_db *db,
                                                struct terrace_transaction **transaction);

// The value of a key as the transaction sees it; see terrace_get for *value. Unless the transaction has
// written the key itself, it must not change until the commit.
struct terrace_error *terrace_transaction_get(struct terrace_transaction *transaction,
                                              const struct terrace_family *family,
                                              const uint8_t *key,
                                              size_t key_len,
                                              struct terrace_value *value);

// As terrace_transaction_get, but the key may change: for values that the outcome does not depend on.
struct terrace_error *terrace_transaction_get_untracked(struct terrace_transaction *transaction,
                                                        const struct terrace_family *family,
                                                        const uint8_t *key,
                                                        size_t key_len,
                                                        struct terrace_value *value);

// Reads the first `limit` entries from `start` on and below `end` in the order of keys, as the transaction sees
// them. A NULL bound with length 0 is none. Free *entries with terrace_entries_free. The range that was read must not
// change until the commit: a key that others put into it or delete is a conflict, also one that was absent. With
// `limit` entries it ends after the last of them; to go on, scan from behind that key.
struct terrace_error *terrace_transaction_scan(struct terrace_transaction *transaction,
                                               const struct terrace_family *family,
                                               const uint8_t *start,
                                               size_t start_len,
                                               const uint8_t *end,
                                               size_t end_len,
                                               size_t limit,
                                               struct terrace_entries **entries);

// Sets a key to a value. What is over a limit is refused by the commit.
struct terrace_error *terrace_transaction_put(struct terrace_transaction *transaction,
                                              const struct terrace_family *family,
                                              const uint8_t *key,
                                              size_t key_len,
                                              const uint8_t *value,
                                              size_t value_len);

// Sets a key to a value until `ttl_ms` milliseconds from the commit on; the transaction itself sees it
// without an end.
struct terrace_error *terrace_transaction_put_with_ttl(struct terrace_transaction *transaction,
                                                       const struct terrace_family *family,
                                                       const uint8_t *key,
                                                       size_t key_len,
                                                       const uint8_t *value,
                                                       size_t value_len,
                                                       uint64_t ttl_ms);

// Removes a key.
struct terrace_error *terrace_transaction_delete(struct terrace_transaction *transaction,
                                                 const struct terrace_family *family,
                                                 const uint8_t *key,
                                                 size_t key_len);

// Removes every key from `start` on and below `end`, also those that others write before the commit; none if
// start >= end. Later reads of the transaction find nothing there.
struct terrace_error *terrace_transaction_delete_range(struct terrace_transaction *transaction,
                                                       const struct terrace_family *family,
                                                       const uint8_t *start,
                                                       size_t start_len,
                                                       const uint8_t *end,
                                                       size_t end_len);

// Merges an operand into the value of a key; see terrace_merge. Reads of the transaction see it, and then the
// key must not change until the commit; without a read it may.
struct terrace_error *terrace_transaction_merge(struct terrace_transaction *transaction,
                                                const struct terrace_family *family,
                                                const uint8_t *key,
                                                size_t key_len,
                                                const uint8_t *operand,
                                                size_t operand_len);

// Notes what was written so far, on top of earlier save points.
struct terrace_error *terrace_transaction_set_save_point(struct terrace_transaction *transaction);

// Takes back what was written since the newest save point, and that save point. What was read since must
// still not change.
struct terrace_error *terrace_transaction_roll_back(struct terrace_transaction *transaction);

// Commits: all writes become visible together, if no key that was read has changed; TERRACE_CONFLICT if one
// has. Whatever the outcome, the transaction has ended and is to be freed. `sync` is one of TERRACE_SYNC_.
struct terrace_error *terrace_transaction_commit(struct terrace_transaction *transaction,
                                                 int32_t sync);

// Frees a transaction; one that was not committed is as if it had never been. NULL is allowed.
void terrace_transaction_free(struct terrace_transaction *transaction);

// How many there are; 0 for NULL.
size_t terrace_entries_len(const struct terrace_entries *entries);

// The key of entry `index`, from 0 on, of *len bytes, which stays until the entries are freed. NULL with length 0 if there
// is no such entry.
const uint8_t *terrace_entries_key(const struct terrace_entries *entries,
                                   size_t index,
                                   size_t *len);

// The value of entry `index`, as terrace_entries_key.
const uint8_t *terrace_entries_value(const struct terrace_entries *entries,
                                     size_t index,
                                     size_t *len);

// Frees the entries. NULL is allowed.
void terrace_entries_free(struct terrace_entries *entries);

// Makes everything written so far durable, whatever the option "sync" says.
struct terrace_error *terrace_sync(const struct terrace_db *db);

// Writes all memtables to sorted files and returns when they are durable.
struct terrace_error *terrace_flush(const struct terrace_db *db);

// Merges everything from `start` on and below `end` down to the last level, dropping what nobody can see any
// more. A NULL bound with length 0 is none.
struct terrace_error *terrace_compact_range(const struct terrace_db *db,
                                            const struct terrace_family *family,
                                            const uint8_t *start,
                                            size_t start_len,
                                            const uint8_t *end,
                                            size_t end_len);

// About how many keys there are from `start` on and below `end`, and bytes on the device and in memory. A
// NULL bound with length 0 is none.
struct terrace_error *terrace_estimate(const struct terrace_db *db,
                                       const struct terrace_family *family,
                                       const uint8_t *start,
                                       size_t start_len,
                                       const uint8_t *end,
                                       size_t end_len,
                                       uint64_t *keys,
                                       uint64_t *bytes);

// Collects every segment of the value log of which at least the part `min_share`, 0 to 1, is garbage, and
// waits until they are gone.
struct terrace_error *terrace_collect_garbage(const struct terrace_db *db,
                                              double min_share);

// Waits until no flush or compaction is running or wanted.
struct terrace_error *terrace_wait_idle(const struct terrace_db *db);

// Makes directory `path` (new or empty) a store with the present contents of this one, of hard links where
// the file system allows.
struct terrace_error *terrace_checkpoint(const struct terrace_db *db,
                                         const char *path);

// Reads every sorted file and checks every checksum and the order of all entries. *files is how many there
// are; NULL if that is of no interest. The first damage is the error.
struct terrace_error *terrace_verify(const struct terrace_db *db,
                                     uint64_t *files);

// The state of the store and what it did since the open, for people. Free *text with terrace_string_free.
struct terrace_error *terrace_metrics_text(const struct terrace_db *db,
                                           char **text);

// As terrace_metrics_text, in the format of Prometheus.
struct terrace_error *terrace_metrics_prometheus(const struct terrace_db *db, char **text);

// Makes the store in `path` one that opens, out of what is sound of it. *report says what was saved and
// lost, one sentence a line; free it with terrace_string_free. With `dry_run` nothing is written. An encrypted store is
// repaired with the option encryption_key_file. What is replaced, and what cannot be read, is in `path`/lost afterwards.
struct terrace_error *terrace_repair(const char *path,
                                     const struct terrace_options *options,
                                     bool dry_run,
                                     char **report);

// As terrace_repair, and first takes back what earlier opens and repairs moved to `path`/lost. The last resort: keys that were
// deleted may come back.
struct terrace_error *terrace_repair_from_lost(const char *path,
                                               const struct terrace_options *options,
                                               bool dry_run,
                                               char **report);

// Creates the file `path`, which must not exist. It is written as the options of the column family `family` say, of the
// default one for NULL: compression, filters, and the merge operator, if it has operands. NULL options are the
// defaults. With the option encryption_key_file the file is encrypted, which an encrypted store wants of what it
// ingests. Free the writer with terrace_sst_writer_free, which removes a file that is not finished.
struct terrace_error *terrace_sst_writer_create(const char *path,
                                                const struct terrace_options *options,
                                                const char *family,
                                                struct terrace_sst_writer **writer);

// Adds a key with its value. Keys are added in ascending order, each once: another one is TERRACE_INVALID_ARGUMENT, and
// the writer is as before.
struct terrace_error *terrace_sst_writer_put(struct terrace_sst_writer *writer,
                                             const uint8_t *key,
                                             size_t key_len,
                                             const uint8_t *value,
                                             size_t value_len);

// As terrace_sst_writer_put, until `expires_at_ms`, in milliseconds since 1970.
struct terrace_error *terrace_sst_writer_put_until(struct terrace_sst_writer *writer,
                                                   const uint8_t *key,
                                                   size_t key_len,
                                                   const uint8_t *value,
                                                   size_t value_len,
                                                   uint64_t expires_at_ms);

// Adds a key that the ingestion deletes. It takes its place among the keys.
struct terrace_error *terrace_sst_writer_delete(struct terrace_sst_writer *writer,
                                                const uint8_t *key,
                                                size_t key_len);

// Adds an operand that the ingestion merges into the value of a key; TERRACE_INVALID_ARGUMENT if the options name no merge
// operator.
struct terrace_error *terrace_sst_writer_merge(struct terrace_sst_writer *writer,
                                               const uint8_t *key,
                                               size_t key_len,
                                               const uint8_t *operand,
                                               size_t operand_len);

// The ingestion deletes every key from `start` on and below `end` that the store has, none of this file. In any order,
// beside the keys.
struct terrace_error *terrace_sst_writer_delete_range(struct terrace_sst_writer *writer,
                                                      const uint8_t *start,
                                                      size_t start_len,
                                                      const uint8_t *end,
                                                      size_t end_len);

// About how long the file would be if it were finished now: for beginning another one.
struct terrace_error *terrace_sst_writer_estimated_bytes(struct terrace_sst_writer *writer,
                                                         uint64_t *bytes);

// Finishes the file and makes it durable. *entries is how many keys it has, those that it deletes among them; NULL if
// that is of no interest. A file without any is TERRACE_INVALID_ARGUMENT; after an error there is none. Only
// terrace_sst_writer_free may follow.
struct terrace_error *terrace_sst_writer_finish(struct terrace_sst_writer *writer,
                                                uint64_t *entries);

// Frees a writer; a file that is not finished is removed. NULL is allowed.
void terrace_sst_writer_free(struct terrace_sst_writer *writer);

// Makes `count` files that terrace_sst_writer_finish has finished part of a column family, all of them as one write, or
// none. Durable when it returns. A file that is encrypted otherwise than the store is TERRACE_UNSUPPORTED. `how` is TERRACE_INGEST_DEFAULT, or TERRACE_INGEST_MOVE, TERRACE_INGEST_BELOW or
// the sum of both. *entries is how many entries and deletions there were; NULL if that is of no interest.
struct terrace_error *terrace_ingest(const struct terrace_db *db,
                                     const struct terrace_family *family,
                                     size_t count,
                                     const char *const *paths,
                                     int32_t how,
                                     uint64_t *entries);

// Begins a load of a column family. The entries go past the log and the memtables: they are sorted with `memory_bytes` of
// memory, 1 MiB or more, 0 for the default, in temporary files if need be, and ingested. Of entries with the same
// key the last one counts. `how` is TERRACE_INGEST_DEFAULT, or TERRACE_INGEST_BELOW if existing entries count. Free it with
// terrace_bulk_loader_free.
struct terrace_error *terrace_bulk_loader_new(const struct terrace_db *db,
                                              const struct terrace_family *family,
                                              size_t memory_bytes,
                                              int32_t how,
                                              struct terrace_bulk_loader **loader);

// Sets a key to a value.
struct terrace_error *terrace_bulk_loader_put(struct terrace_bulk_loader *loader,
                                              const uint8_t *key,
                                              size_t key_len,
                                              const uint8_t *value,
                                              size_t value_len);

// As terrace_bulk_loader_put, until `expires_at_ms`, in milliseconds since 1970.
struct terrace_error *terrace_bulk_loader_put_until(struct terrace_bulk_loader *loader,
                                                    const uint8_t *key,
                                                    size_t key_len,
                                                    const uint8_t *value,
                                                    size_t value_len,
                                                    uint64_t expires_at_ms);

// Deletes a key, also if the store has it.
struct terrace_error *terrace_bulk_loader_delete(struct terrace_bulk_loader *loader,
                                                 const uint8_t *key,
                                                 size_t key_len);

// Sorts what was given and makes it part of the store, all of it or nothing, durably. *entries is how many entries and
// deletions there were; NULL if that is of no interest. Whatever the outcome, only terrace_bulk_loader_free may follow.
struct terrace_error *terrace_bulk_loader_finish(struct terrace_bulk_loader *loader,
                                                 uint64_t *entries);

// Frees a load; one that is not finished is as if it had never been. NULL is allowed.
void terrace_bulk_loader_free(struct terrace_bulk_loader *loader);

// Opens the backups in directory `path`, which is created if it is missing. TERRACE_LOCKED if another process has them open;
// TERRACE_INVALID_ARGUMENT if the directory holds something else. Free it with terrace_backups_free.
struct terrace_error *terrace_backups_open(const char *path,
                                           struct terrace_backups **backups);

// As terrace_backups_open, for backups that are encrypted with the keys that the option encryption_key_file names; other options
// make no difference, and without this one, or with NULL, it is terrace_backups_open. A store that is restored is encrypted, too.
// What opens or makes a backup is TERRACE_UNSUPPORTED if the directory has backups under keys that are not
// given, or backups that are not encrypted while keys are given, and the reverse.
struct terrace_error *terrace_backups_open_with(const char *path,
                                                const struct terrace_options *options,
                                                struct terrace_backups **backups);

// Backs an open store up: what was acknowledged before the call is in it, and writes go on meanwhile. *id is the number of
// the backup, above all before it; NULL if that is of no interest. An encrypted store is backed up only into backups that are
// encrypted (TERRACE_INVALID_ARGUMENT), and one with a damaged SST that no backup has is not (TERRACE_CORRUPTION).
struct terrace_error *terrace_backups_create(const struct terrace_backups *backups,
                                             const struct terrace_db *db,
                                             uint64_t *id);

// As terrace_backups_create, also of a store with damaged SSTs: they are in the backup as they are.
struct terrace_error *terrace_backups_create_as_is(const struct terrace_backups *backups,
                                                   const struct terrace_db *db,
                                                   uint64_t *id);

// Puts the numbers of the backups, the oldest first, into `ids`, at most `capacity` of them. *count is how many there are.
struct terrace_error *terrace_backups_list(const struct terrace_backups *backups,
                                           uint64_t *ids,
                                           size_t capacity,
                                           size_t *count);

// When a backup was made, in milliseconds since 1970, and the bytes that a restore writes. Each may be NULL.
// TERRACE_CORRUPTION if its record is damaged.
struct terrace_error *terrace_backups_describe(const struct terrace_backups *backups,
                                               uint64_t id,
                                               uint64_t *created_ms,
                                               uint64_t *size_bytes);

// Reads every byte of a backup and compares it with what was written. The first damage is TERRACE_CORRUPTION.
struct terrace_error *terrace_backups_verify(const struct terrace_backups *backups,
                                             uint64_t id);

// Makes directory `target`, new or empty, the store that was backed up; every byte is compared. After an error nothing is left
// there.
struct terrace_error *terrace_backups_restore(const struct terrace_backups *backups,
                                              uint64_t id,
                                              const char *target);

// Removes a backup, and the files that no other one has.
struct terrace_error *terrace_backups_remove(const struct terrace_backups *backups, uint64_t id);

// Removes all backups but the `keep` latest; none if the record of one that would stay is damaged.
struct terrace_error *terrace_backups_keep_latest(const struct terrace_backups *backups,
                                                  size_t keep);

// Closes a directory of backups. NULL is allowed.
void terrace_backups_free(struct terrace_backups *backups);

// Opens the feed of what was committed from sequence number `seqno` on, in all column families; the first batch may
// begin before it. With `synced_only` it gives only what no crash takes back. TERRACE_UPDATES_GONE if the log
// does not go back that far: see terrace_oldest_update, and the option "log_retention_bytes". It stands on no batch
// before terrace_updates_next. Free it with terrace_updates_free.
struct terrace_error *terrace_updates_since(const struct terrace_db *db,
                                            uint64_t seqno,
                                            bool synced_only,
                                            struct terrace_updates **updates);

// Moves to the next batch. *is_there is false if there is nothing new; a later call looks again. After an error the feed
// stands on no batch, and the next call tries again; none is passed over.
struct terrace_error *terrace_updates_next(struct terrace_updates *updates,
                                           bool *is_there);

// The sequence number of the first operation of the batch; 0 if the feed stands on none.
uint64_t terrace_updates_first_seqno(const struct terrace_updates *updates);

// The sequence number of the last operation of the batch: when all of it is done, go on with the one after it. 0 if the
// feed stands on none.
uint64_t terrace_updates_last_seqno(const struct terrace_updates *updates);

// The number of operations of the batch, which have consecutive sequence numbers; 0 if the feed stands on none.
size_t terrace_updates_len(const struct terrace_updates *updates);

// What operation `index` of the batch, from 0 on, did: one of TERRACE_UPDATE_; 0 if there is none.
int32_t terrace_updates_kind(const struct terrace_updates *updates, size_t index);

// The name of the column family of an operation, until the feed moves or is freed; NULL if that was dropped since.
const char *terrace_updates_family(const struct terrace_updates *updates,
                                   size_t index);

// The key of an operation, of *len bytes, which stays until the feed moves or is freed.
const uint8_t *terrace_updates_key(const struct terrace_updates *updates,
                                   size_t index,
                                   size_t *len);

// The value or operand of an operation, as terrace_updates_key; NULL if it has none.
const uint8_t *terrace_updates_value(const struct terrace_updates *updates,
                                     size_t index,
                                     size_t *len);

// The end of the range of an operation, as terrace_updates_key; NULL if it has none.
const uint8_t *terrace_updates_end(const struct terrace_updates *updates,
                                   size_t index,
                                   size_t *len);

// When the value that an operation put expires, in milliseconds since 1970; 0 if it does not.
uint64_t terrace_updates_expires_at_ms(const struct terrace_updates *updates, size_t index);

// Makes a batch for `target`, another store, of the operations that the feed stands on, in the column families of the
// same names; those of families that were dropped since are left out. TERRACE_NO_SUCH_FAMILY if the target lacks one,
// TERRACE_INVALID_ARGUMENT for ingested files. Write it with terrace_write, free it with terrace_batch_free.
struct terrace_error *terrace_updates_to_batch(const struct terrace_updates *updates,
                                               const struct terrace_db *target,
                                               struct terrace_batch **batch);

// Frees a feed. NULL is allowed.
void terrace_updates_free(struct terrace_updates *updates);

// The sequence number of the newest write that reads see; 0 in an empty store.
struct terrace_error *terrace_latest_seqno(const struct terrace_db *db, uint64_t *seqno);

// The oldest sequence number that terrace_updates_since takes now; one above the newest if there is none.
struct terrace_error *terrace_oldest_update(const struct terrace_db *db,
                                            uint64_t *seqno);

// The version of the library, such as "0.1.0". It is never freed.
const char *terrace_version(void);

// Frees a string that a function of this library handed out by a `char **`. NULL is allowed.
void terrace_string_free(char *string);

#ifdef __cplusplus
}  // extern "C"
#endif  // __cplusplus

#endif  /* TERRACE_H */
