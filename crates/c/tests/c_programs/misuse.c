/* What callers do wrong: NULL, use after close, handles that outlive their store, families of other stores,
 * too much of everything, many threads, a fork. All of it is an error, and nothing crashes or hangs. */
#define _POSIX_C_SOURCE 200809L
#include "check.h"
#include <math.h>
#include <pthread.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#define BAD(call) FAILS(TERRACE_INVALID_ARGUMENT, call)

/* Gives a value that is not there. */
static void merge(void *context, const uint8_t *key, size_t key_len, const uint8_t *existing,
                  size_t existing_len, const uint8_t *const *operands, const size_t *operand_lens,
                  size_t count, terrace_merge_result *result) {
    (void)context, (void)key, (void)key_len, (void)existing, (void)existing_len;
    (void)operands, (void)operand_lens, (void)count;
    terrace_merge_result_set(result, NULL, 7);
}

static void nulls(terrace_db *db) {
    terrace_value value;
    terrace_iter *iter = NULL;
    terrace_batch *batch = terrace_batch_new();
    terrace_options *options = terrace_options_new();
    terrace_read_options *reading = terrace_read_options_new();
    terrace_transaction *txn = NULL;
    size_t len = 7;
    char *text = NULL;
    terrace_db *other = (terrace_db *)&len;

    BAD(terrace_open(NULL, NULL, &other));
    CHECK(other == NULL);
    BAD(terrace_open("x", NULL, NULL));
    BAD(terrace_put(NULL, NULL, B("a"), B("b")));
    BAD(terrace_put(db, NULL, NULL, 1, B("b")));
    BAD(terrace_put(db, NULL, B("a"), NULL, 1));
    BAD(terrace_get(NULL, NULL, NULL, B("a"), &value));
    CHECK(is(&value, NULL));
    BAD(terrace_get(db, NULL, NULL, B("a"), NULL));
    BAD(terrace_get(db, NULL, NULL, NULL, SIZE_MAX, &value));
    BAD(terrace_get(db, NULL, NULL, (const uint8_t *)"a", SIZE_MAX, &value));
    /* What is freed whatever the outcome is set, whatever was there. */
    value.data = (const uint8_t *)"left";
    value.len = 4;
    BAD(terrace_get_with_expiry(db, NULL, NULL, B("a"), &value, NULL));
    CHECK(is(&value, NULL));
    BAD(terrace_multi_get(db, NULL, NULL, 1, NULL, NULL, &value));
    BAD(terrace_multi_get(db, NULL, NULL, 1, NULL, NULL, NULL));
    BAD(terrace_multi_get(db, NULL, NULL, SIZE_MAX / 2, NULL, NULL, &value));
    OK(terrace_multi_get(db, NULL, NULL, 0, NULL, NULL, NULL));
    BAD(terrace_iter_new(db, NULL, NULL, NULL));
    BAD(terrace_iter_new(NULL, NULL, NULL, &iter));
    BAD(terrace_iter_seek_to_first(NULL));
    BAD(terrace_iter_next(NULL));
    CHECK(!terrace_iter_valid(NULL) && terrace_iter_key(NULL, &len) == NULL && len == 0);
    CHECK(terrace_iter_value(NULL, NULL) == NULL && terrace_iter_expires_at_ms(NULL) == 0);
    BAD(terrace_batch_put(NULL, NULL, B("a"), B("b")));
    BAD(terrace_write(db, NULL, 0));
    BAD(terrace_write(NULL, batch, 0));
    BAD(terrace_write(db, batch, 17));
    CHECK(terrace_batch_len(NULL) == 0 && terrace_batch_size_bytes(NULL) == 0);
    BAD(terrace_transaction_begin(db, NULL));
    BAD(terrace_transaction_begin(NULL, &txn));
    BAD(terrace_transaction_commit(NULL, 0));
    terrace_entries *entries = (terrace_entries *)&len;
    BAD(terrace_transaction_scan(NULL, NULL, NULL, 0, NULL, 0, 1, &entries));
    CHECK(entries == NULL);
    CHECK(terrace_entries_key(NULL, 0, &len) == NULL && terrace_entries_value(NULL, 0, NULL) == NULL);
    BAD(terrace_snapshot_new(db, NULL));
    BAD(terrace_family_get(db, NULL, NULL));
    CHECK(terrace_family_name(NULL) == NULL);
    BAD(terrace_options_set(NULL, "sync", "none"));
    BAD(terrace_options_set(options, NULL, "none"));
    BAD(terrace_options_set(options, "sync", NULL));
    BAD(terrace_options_set(options, "sync", "always"));
    BAD(terrace_options_set(options, "colour", "blue"));
    BAD(terrace_options_set(options, "memory_budget", "-1"));
    BAD(terrace_options_set(options, "\xff\xfe", "1"));
    BAD(terrace_options_set_family(options, "f", "sync", "none"));
    BAD(terrace_options_set_merge_operator(options, NULL, "mine", NULL, NULL, NULL, NULL));
    BAD(terrace_options_set_merge_operator(NULL, NULL, "mine", NULL, merge, NULL, NULL));
    BAD(terrace_options_set_merge_operator(options, NULL, NULL, NULL, merge, NULL, NULL));
    BAD(terrace_options_set_merge_operator(options, "\xff", "mine", NULL, merge, NULL, NULL));
    BAD(terrace_options_set_compaction_filter(options, NULL, "mine", NULL, NULL, 0, NULL));
    terrace_filter_entry_change(NULL, NULL, 7);
    CHECK(terrace_filter_entry_key(NULL, &len) == NULL && len == 0);
    len = 7;
    CHECK(terrace_filter_entry_value(NULL, NULL) == NULL && !terrace_filter_entry_is_full(NULL));
    terrace_merge_result_set(NULL, NULL, 7);
    terrace_merge_result_refuse(NULL, NULL);
    BAD(terrace_read_options_set(reading, "x", "y"));
    BAD(terrace_read_options_set_prefix(reading, NULL, 3));
    BAD(terrace_set_option(db, "block_size", "1"));
    BAD(terrace_get_option(db, "colour", &text));
    CHECK(text == NULL);
    BAD(terrace_family_set_option(db, NULL, "compaction", "tiered"));
    BAD(terrace_family_get_option(db, NULL, "sync", &text));
    CHECK(text == NULL);
    BAD(terrace_metrics_text(db, NULL));
    BAD(terrace_checkpoint(db, NULL));
    BAD(terrace_collect_garbage(db, 7.0));
    BAD(terrace_close(NULL));
    terrace_updates *feed = NULL;
    bool is_there = true;
    BAD(terrace_updates_since(NULL, 1, false, &feed));
    BAD(terrace_updates_since(db, 1, false, NULL));
    BAD(terrace_updates_next(NULL, &is_there));
    CHECK(!is_there);
    terrace_bulk_loader *loader = NULL;
    terrace_backups *backups = NULL;
    size_t count = 7;
    BAD(terrace_bulk_loader_new(NULL, NULL, 0, 0, &loader));
    BAD(terrace_bulk_loader_put(NULL, B("a"), B("b")));
    BAD(terrace_bulk_loader_finish(NULL, NULL));
    BAD(terrace_backups_open(NULL, &backups));
    BAD(terrace_backups_open_with(NULL, NULL, &backups));
    BAD(terrace_backups_open_with("x", NULL, NULL));
    BAD(terrace_backups_create(NULL, db, NULL));
    BAD(terrace_backups_list(NULL, NULL, 1, &count));
    BAD(terrace_backups_restore(NULL, 1, "x"));
    terrace_bulk_loader_free(NULL);
    terrace_backups_free(NULL);
    BAD(terrace_latest_seqno(db, NULL));
    BAD(terrace_oldest_update(NULL, NULL));
    CHECK(terrace_updates_len(NULL) == 0 && terrace_updates_kind(NULL, 0) == 0);
    CHECK(terrace_updates_key(NULL, 0, NULL) == NULL && terrace_updates_first_seqno(NULL) == 0);
    terrace_updates_free(NULL);
    BAD(terrace_repair(NULL, NULL, true, &text));
    BAD(terrace_repair_from_lost("x", NULL, true, NULL));

    /* Out of range is known at the open. */
    OK(terrace_options_set(options, "memory_budget", "1"));
    BAD(terrace_open("x", options, &other));
    CHECK(other == NULL && access("x", F_OK) != 0);

    terrace_db_free(NULL);
    terrace_iter_free(NULL);
    terrace_batch_free(NULL);
    terrace_value_free(NULL);
    terrace_error_free(NULL);
    terrace_string_free(NULL);
    terrace_family_free(NULL);
    terrace_snapshot_free(NULL);
    terrace_options_free(NULL);
    terrace_read_options_free(NULL);
    terrace_transaction_free(NULL);
    terrace_entries_free(NULL);
    terrace_batch_free(batch);
    terrace_options_free(options);
    terrace_read_options_free(reading);
}

/* A batch is empty and a transaction has ended whatever the outcome, as of a sync that there is not. */
static void refused_and_ended(terrace_db *db) {
    terrace_batch *batch = terrace_batch_new();
    terrace_transaction *txn = NULL;
    terrace_value value;
    OK(terrace_batch_put(batch, NULL, B("ended"), B("1")));
    OK(terrace_batch_set_save_point(batch));
    BAD(terrace_write(db, batch, 17));
    CHECK(terrace_batch_len(batch) == 0);
    BAD(terrace_batch_roll_back(batch));
    OK(terrace_batch_put(batch, NULL, B("ended"), B("1")));
    BAD(terrace_write(NULL, batch, 0));
    CHECK(terrace_batch_len(batch) == 0);
    terrace_batch_free(batch);
    OK(terrace_transaction_begin(db, &txn));
    OK(terrace_transaction_put(txn, NULL, B("ended"), B("1")));
    BAD(terrace_transaction_commit(txn, 17));
    BAD(terrace_transaction_commit(txn, 0));
    terrace_transaction_free(txn);
    OK(terrace_get(db, NULL, NULL, B("ended"), &value));
    CHECK(is(&value, NULL));
}

/* Numbers and ranges at their ends. */
static void extremes(terrace_db *db) {
    terrace_updates *feed = NULL;
    terrace_bulk_loader *loader = NULL;
    terrace_value value;
    bool is_there = false;
    uint64_t keys = 7, bytes = 7, latest = 0, expires_at_ms = 7;
    size_t len = 7;
    BAD(terrace_updates_since(db, UINT64_MAX, false, &feed));
    CHECK(feed == NULL);
    OK(terrace_latest_seqno(db, &latest));
    OK(terrace_updates_since(db, latest + 1, false, &feed));
    OK(terrace_put_with_ttl(db, NULL, B("for ever"), B("v"), UINT64_MAX));
    OK(terrace_get_with_expiry(db, NULL, NULL, B("for ever"), &value, &expires_at_ms));
    CHECK(is(&value, "v") && expires_at_ms > UINT64_MAX / 2);
    OK(terrace_put_with_ttl(db, NULL, B("over"), B("v"), 0));
    OK(terrace_get(db, NULL, NULL, B("over"), &value));
    CHECK(is(&value, NULL));
    OK(terrace_updates_next(feed, &is_there));
    CHECK(is_there && terrace_updates_kind(feed, SIZE_MAX) == 0);
    CHECK(terrace_updates_key(feed, SIZE_MAX, &len) == NULL && len == 0);
    CHECK(terrace_updates_key(feed, 0, NULL) == NULL && terrace_updates_family(feed, 1) == NULL);
    terrace_updates_free(feed);
    BAD(terrace_collect_garbage(db, NAN));
    BAD(terrace_bulk_loader_new(db, NULL, 1, 0, &loader));
    BAD(terrace_bulk_loader_new(db, NULL, 0, 17, &loader));
    CHECK(loader == NULL);
    BAD(terrace_ingest(db, NULL, 1, NULL, 0, NULL));
    BAD(terrace_ingest(db, NULL, 0, NULL, -1, NULL));
    /* From the end to the start. */
    OK(terrace_delete_range(db, NULL, B("z"), B("a")));
    OK(terrace_compact_range(db, NULL, B("z"), B("a")));
    OK(terrace_estimate(db, NULL, B("z"), B("a"), &keys, &bytes));
    CHECK(keys == 0 && bytes == 0);
    OK(terrace_get(db, NULL, NULL, B("for ever"), &value));
    CHECK(is(&value, "v"));
}

/* An option that is refused does not name its family. */
static void a_family_that_was_refused(const char *dir) {
    char path[4096], *names = NULL;
    terrace_options *options = terrace_options_new();
    terrace_db *db = NULL;
    snprintf(path, sizeof path, "%s-refused", dir);
    BAD(terrace_options_set_family(options, "f", "colour", "1"));
    BAD(terrace_options_set_family(options, "f", "filter", "x"));
    OK(terrace_options_set_family(options, "g", "filter", "none"));
    BAD(terrace_options_set_family(options, "g", "filter", "x"));
    OK(terrace_open(path, options, &db));
    terrace_options_free(options);
    OK(terrace_family_names(db, &names));
    CHECK(strcmp(names, "default\ng") == 0);
    terrace_string_free(names);
    terrace_db_free(db);
}

static void too_much(terrace_db *db) {
    size_t len = 64 * 1024 + 1;
    uint8_t *key = calloc(1, len);
    terrace_value value;
    CHECK(key);
    BAD(terrace_put(db, NULL, key, len, B("v")));
    OK(terrace_put(db, NULL, key, len - 1, B("v")));
    OK(terrace_get(db, NULL, NULL, key, len - 1, &value));
    CHECK(is(&value, "v"));
    OK(terrace_get(db, NULL, NULL, key, len, &value));
    CHECK(is(&value, NULL));
    terrace_batch *batch = terrace_batch_new();
    OK(terrace_batch_put(batch, NULL, B("a"), B("b")));
    OK(terrace_batch_put(batch, NULL, key, len, B("v")));
    BAD(terrace_write(db, batch, 0));
    OK(terrace_get(db, NULL, NULL, B("a"), &value));
    CHECK(is(&value, NULL));
    terrace_batch_free(batch);

    size_t large = 40u << 20;
    uint8_t *bytes = malloc(large);
    CHECK(bytes);
    memset(bytes, 'x', large);
    OK(terrace_put(db, NULL, B("large"), bytes, large));
    OK(terrace_get(db, NULL, NULL, B("large"), &value));
    CHECK(value.len == large && memcmp(value.data, bytes, large) == 0);
    terrace_value_free(&value);
    terrace_value_free(&value);
    free(bytes);
    free(key);
}

/* Lengths that no memory has are refused before anything is read, or room for it is made. */
static void absurd_lengths(terrace_db *db, const char *dir) {
    const uint8_t *data = (const uint8_t *)"k";
    size_t len = SIZE_MAX / 4;
    terrace_value value;
    BAD(terrace_put(db, NULL, data, len, B("v")));
    BAD(terrace_put(db, NULL, B("k"), data, len));
    BAD(terrace_put(db, NULL, data, len, data, len));
    BAD(terrace_put_with_ttl(db, NULL, B("k"), data, len, 1000));
    BAD(terrace_delete(db, NULL, data, len));
    BAD(terrace_merge(db, NULL, B("k"), data, len));
    BAD(terrace_delete_range(db, NULL, B("a"), data, len));
    OK(terrace_get(db, NULL, NULL, B("k"), &value));
    CHECK(is(&value, NULL));
    terrace_batch *batch = terrace_batch_new();
    OK(terrace_batch_put(batch, NULL, B("k"), data, len));
    BAD(terrace_write(db, batch, 0));
    terrace_batch_free(batch);

    char path[4096];
    terrace_sst_writer *writer = NULL;
    terrace_bulk_loader *loader = NULL;
    snprintf(path, sizeof path, "%s-file", dir);
    OK(terrace_sst_writer_create(path, NULL, NULL, &writer));
    BAD(terrace_sst_writer_put(writer, data, len, B("v")));
    BAD(terrace_sst_writer_put_until(writer, B("k"), data, len, 1));
    BAD(terrace_sst_writer_delete_range(writer, B("a"), data, len));
    OK(terrace_sst_writer_put(writer, B("k"), B("v")));
    terrace_sst_writer_free(writer);
    OK(terrace_bulk_loader_new(db, NULL, 0, 0, &loader));
    BAD(terrace_bulk_loader_put_until(loader, B("k"), data, len, 1));
    terrace_bulk_loader_free(loader);
}

/* Of bounds, prefixes and targets that are longer than any key no more is copied than tells them from all keys. */
static void bounds_longer_than_keys(terrace_db *db) {
    size_t longest = 64 * 1024, len = SIZE_MAX / 4, key_len;
    uint8_t *zeros = calloc(1, longest + 1);
    uint64_t keys = 7, bytes = 7;
    terrace_iter *iter = NULL;
    CHECK(zeros);
    /* The first key of all, before one that is longer by a zero. */
    OK(terrace_put(db, NULL, zeros, longest, B("v")));
    terrace_read_options *reading = terrace_read_options_new();
    OK(terrace_read_options_set_bounds(reading, NULL, 0, zeros, len));
    OK(terrace_iter_new(db, NULL, reading, &iter));
    OK(terrace_iter_seek_to_first(iter));
    CHECK(terrace_iter_valid(iter) && terrace_iter_key(iter, &key_len) && key_len == longest);
    OK(terrace_iter_next(iter));
    CHECK(!terrace_iter_valid(iter));
    terrace_iter_free(iter);
    OK(terrace_read_options_set_bounds(reading, zeros, len, NULL, 0));
    OK(terrace_iter_new(db, NULL, reading, &iter));
    OK(terrace_iter_seek_to_first(iter));
    CHECK(terrace_iter_valid(iter) && *terrace_iter_key(iter, &key_len) != 0);
    terrace_iter_free(iter);
    OK(terrace_read_options_set_bounds(reading, NULL, 0, NULL, 0));
    OK(terrace_read_options_set_prefix(reading, zeros, len));
    OK(terrace_iter_new(db, NULL, reading, &iter));
    OK(terrace_iter_seek_to_first(iter));
    CHECK(!terrace_iter_valid(iter));
    terrace_iter_free(iter);
    OK(terrace_iter_new(db, NULL, NULL, &iter));
    OK(terrace_iter_seek(iter, zeros, len));
    CHECK(terrace_iter_valid(iter) && *terrace_iter_key(iter, &key_len) != 0);
    OK(terrace_iter_seek_for_prev(iter, zeros, len));
    CHECK(terrace_iter_valid(iter) && terrace_iter_key(iter, &key_len) && key_len == longest);
    terrace_iter_free(iter);
    OK(terrace_compact_range(db, NULL, zeros, len, zeros, len));
    OK(terrace_estimate(db, NULL, zeros, len, zeros, len, &keys, &bytes));
    CHECK(keys == 0 && bytes == 0);
    terrace_read_options_free(reading);
    free(zeros);
}

static void of_another_store(terrace_db *db, const char *dir) {
    char path[4096];
    snprintf(path, sizeof path, "%s-other", dir);
    terrace_db *other = NULL;
    OK(terrace_open(path, NULL, &other));
    terrace_family *family = NULL;
    terrace_snapshot *snapshot = NULL;
    terrace_value value;
    OK(terrace_family_get(other, "default", &family));
    BAD(terrace_put(db, family, B("a"), B("b")));
    terrace_batch *batch = terrace_batch_new();
    OK(terrace_batch_put(batch, family, B("a"), B("b")));
    BAD(terrace_write(db, batch, 0));
    OK(terrace_snapshot_new(other, &snapshot));
    terrace_read_options *reading = terrace_read_options_new();
    OK(terrace_read_options_set_snapshot(reading, snapshot));
    BAD(terrace_get(db, NULL, reading, B("a"), &value));
    FAILS(TERRACE_LOCKED, terrace_open(path, NULL, &db));
    CHECK(db == NULL);
    terrace_read_options_free(reading);
    terrace_snapshot_free(snapshot);
    terrace_batch_free(batch);
    terrace_family_free(family);
    terrace_db_free(other);
}

/* Handles outlive the store's: none of them is left in the air. */
static void after_close(const char *dir) {
    terrace_db *db = NULL;
    terrace_iter *iter = NULL;
    terrace_snapshot *snapshot = NULL;
    terrace_transaction *txn = NULL;
    terrace_family *family = NULL;
    terrace_updates *feed = NULL;
    terrace_entries *entries = NULL;
    bool is_there = true;
    uint64_t latest = 0;
    terrace_value value, later;
    terrace_batch *batch = terrace_batch_new();
    size_t len;
    OK(terrace_open(dir, NULL, &db));
    OK(terrace_put(db, NULL, B("last"), B("value")));
    OK(terrace_get(db, NULL, NULL, B("last"), &value));
    OK(terrace_iter_new(db, NULL, NULL, &iter));
    OK(terrace_iter_seek(iter, B("last")));
    OK(terrace_snapshot_new(db, &snapshot));
    OK(terrace_transaction_begin(db, &txn));
    OK(terrace_transaction_scan(txn, NULL, B("last"), NULL, 0, 1, &entries));
    OK(terrace_family_get(db, "default", &family));
    OK(terrace_latest_seqno(db, &latest));
    OK(terrace_updates_since(db, latest + 1, false, &feed));
    OK(terrace_close(db));
    FAILS(TERRACE_CLOSED, terrace_updates_next(feed, &is_there));
    CHECK(!is_there);
    terrace_updates_free(feed);

    FAILS(TERRACE_CLOSED, terrace_get(db, NULL, NULL, B("last"), &later));
    CHECK(is(&later, NULL));
    FAILS(TERRACE_CLOSED, terrace_put(db, family, B("a"), B("b")));
    FAILS(TERRACE_CLOSED, terrace_flush(db));
    OK(terrace_batch_put(batch, NULL, B("a"), B("b")));
    FAILS(TERRACE_CLOSED, terrace_write(db, batch, 0));
    terrace_iter *other = NULL;
    FAILS(TERRACE_CLOSED, terrace_iter_new(db, NULL, NULL, &other));
    FAILS(TERRACE_CLOSED, terrace_transaction_get(txn, NULL, B("last"), &later));
    CHECK(terrace_iter_valid(iter));
    const uint8_t *key = terrace_iter_key(iter, &len);
    CHECK(len == 4 && memcmp(key, "last", len) == 0);
    /* Whether it still can is the engine's to say; it must return. */
    terrace_error_free(terrace_iter_seek_to_first(iter));
    terrace_db_free(db);
    terrace_error_free(terrace_iter_seek_to_last(iter));
    CHECK(memcmp(value.data, "value", 5) == 0);
    key = terrace_entries_value(entries, 0, &len);
    CHECK(len == 5 && memcmp(key, "value", len) == 0);
    terrace_entries_free(entries);
    terrace_iter_free(iter);
    terrace_snapshot_free(snapshot);
    OK(terrace_transaction_put(txn, NULL, B("a"), B("b")));
    FAILS(TERRACE_CLOSED, terrace_transaction_commit(txn, 0));
    terrace_transaction_free(txn);
    terrace_family_free(family);
    CHECK(is(&value, "value"));
    terrace_batch_free(batch);

    /* Freed without a close: the family keeps the store open until it goes, too. */
    OK(terrace_open(dir, NULL, &db));
    OK(terrace_family_get(db, "default", &family));
    terrace_db_free(db);
    FAILS(TERRACE_LOCKED, terrace_open(dir, NULL, &db));
    terrace_family_free(family);
    OK(terrace_open(dir, NULL, &db));
    terrace_db_free(db);
}

#define THREADS 8
#define EACH 500

static terrace_db *shared_db;

static void *worker(void *number) {
    char key[64];
    terrace_value value;
    for (int at = 0; at < EACH; at++) {
        snprintf(key, sizeof key, "t%d-%d", *(int *)number, at);
        OK(terrace_put(shared_db, NULL, B(key), B(key)));
        OK(terrace_get(shared_db, NULL, NULL, B(key), &value));
        CHECK(is(&value, key));
        if (at % 100 == 0) {
            terrace_iter *iter = NULL;
            OK(terrace_iter_new(shared_db, NULL, NULL, &iter));
            OK(terrace_iter_seek(iter, B(key)));
            CHECK(terrace_iter_valid(iter));
            terrace_iter_free(iter);
        }
    }
    return NULL;
}

static void threads(terrace_db *db) {
    pthread_t thread[THREADS];
    int number[THREADS];
    shared_db = db;
    for (int at = 0; at < THREADS; at++) {
        number[at] = at;
        CHECK(pthread_create(&thread[at], NULL, worker, &number[at]) == 0);
    }
    for (int at = 0; at < THREADS; at++) {
        CHECK(pthread_join(thread[at], NULL) == 0);
    }
    terrace_read_options *reading = terrace_read_options_new();
    terrace_iter *iter = NULL;
    int count = 0;
    OK(terrace_read_options_set_prefix(reading, B("t")));
    OK(terrace_iter_new(db, NULL, reading, &iter));
    for (OK(terrace_iter_seek_to_first(iter)); terrace_iter_valid(iter); OK(terrace_iter_next(iter))) {
        count++;
    }
    CHECK(count == THREADS * EACH);
    terrace_iter_free(iter);
    terrace_read_options_free(reading);
}

static void *until_closed(void *unused) {
    terrace_value value;
    (void)unused;
    for (int code = 0; code != TERRACE_CLOSED;) {
        terrace_iter *iter = NULL;
        terrace_error *errors[3];
        errors[0] = terrace_put(shared_db, NULL, B("k"), B("v"));
        errors[1] = terrace_get(shared_db, NULL, NULL, B("k"), &value);
        terrace_value_free(&value);
        errors[2] = terrace_iter_new(shared_db, NULL, NULL, &iter);
        if (!errors[2]) {
            terrace_error_free(terrace_iter_seek_to_last(iter));
        }
        terrace_iter_free(iter);
        for (int at = 0; at < 3; at++) {
            code = terrace_error_code(errors[at]);
            CHECK(code == 0 || code == TERRACE_CLOSED);
            terrace_error_free(errors[at]);
        }
    }
    return NULL;
}

/* The store is closed under threads that use it: each of them gets the error. */
static void closed_by_another(const char *dir) {
    pthread_t thread[THREADS];
    terrace_value value;
    OK(terrace_open(dir, NULL, &shared_db));
    OK(terrace_delete(shared_db, NULL, B("k")));
    for (int at = 0; at < THREADS; at++) {
        CHECK(pthread_create(&thread[at], NULL, until_closed, NULL) == 0);
    }
    do {
        OK(terrace_get(shared_db, NULL, NULL, B("k"), &value));
    } while (is(&value, NULL));
    OK(terrace_close(shared_db));
    for (int at = 0; at < THREADS; at++) {
        CHECK(pthread_join(thread[at], NULL) == 0);
    }
    terrace_db_free(shared_db);
}

static int frees;

static void count_free(void *context) {
    (void)context;
    frees++;
}

static int32_t keep(void *context, terrace_filter_entry *entry) {
    (void)context, (void)entry;
    return TERRACE_FILTER_KEEP;
}

/* The contexts of callbacks are the parent's. */
static void options_of_before_a_fork(void) {
    terrace_options *options = terrace_options_new();
    terrace_options *plain = terrace_options_new();
    terrace_db *db = NULL;
    OK(terrace_options_set(plain, "create_if_missing", "false"));
    OK(terrace_options_set_merge_operator(options, NULL, "mine", NULL, merge, NULL, count_free));
    OK(terrace_options_set_compaction_filter(options, "f", "mine", NULL, keep, 0, count_free));
    fflush(NULL);
    pid_t child = fork();
    CHECK(child >= 0);
    if (child == 0) {
        FAILS(TERRACE_FORKED, terrace_options_set(options, "sync", "none"));
        FAILS(TERRACE_FORKED, terrace_options_set_family(options, "f", "filter", "none"));
        FAILS(TERRACE_FORKED, terrace_options_add_family(options, "g"));
        FAILS(TERRACE_FORKED, terrace_options_set_merge_operator(options, NULL, "other", NULL, merge,
                                                                 NULL, count_free));
        FAILS(TERRACE_FORKED, terrace_options_set_compaction_filter(options, "f", "other", NULL,
                                                                    keep, 0, count_free));
        FAILS(TERRACE_FORKED, terrace_open("x", options, &db));
        CHECK(db == NULL);
        terrace_options_free(options);
        CHECK(frees == 0);
        /* As in a program that becomes a daemon. */
        FAILS(TERRACE_NOT_A_STORE, terrace_open("x", plain, &db));
        OK(terrace_options_set(plain, "sync", "none"));
        FAILS(TERRACE_NOT_A_STORE, terrace_open("x", plain, &db));
        OK(terrace_options_set_merge_operator(plain, NULL, "mine", NULL, merge, NULL, count_free));
        terrace_options_free(plain);
        CHECK(frees == 1);
        exit(0);
    }
    int status = 0;
    CHECK(waitpid(child, &status, 0) == child);
    CHECK(WIFEXITED(status) && WEXITSTATUS(status) == 0);
    OK(terrace_options_set(options, "sync", "none"));
    CHECK(frees == 0);
    terrace_options_free(plain);
    terrace_options_free(options);
    CHECK(frees == 2);
}

/* In the child every call is refused, and freeing does nothing; the parent goes on. */
static void a_fork(terrace_db *db) {
    terrace_iter *iter = NULL;
    terrace_snapshot *snapshot = NULL;
    terrace_updates *feed = NULL;
    bool is_there = true;
    uint64_t latest = 0;
    terrace_value value, later;
    OK(terrace_latest_seqno(db, &latest));
    OK(terrace_updates_since(db, latest + 1, false, &feed));
    OK(terrace_put(db, NULL, B("before"), B("fork")));
    OK(terrace_get(db, NULL, NULL, B("before"), &value));
    OK(terrace_iter_new(db, NULL, NULL, &iter));
    OK(terrace_iter_seek_to_first(iter));
    OK(terrace_snapshot_new(db, &snapshot));
    fflush(NULL);
    pid_t child = fork();
    CHECK(child >= 0);
    if (child == 0) {
        FAILS(TERRACE_FORKED, terrace_get(db, NULL, NULL, B("before"), &later));
        FAILS(TERRACE_FORKED, terrace_put(db, NULL, B("x"), B("y")));
        FAILS(TERRACE_FORKED, terrace_iter_next(iter));
        FAILS(TERRACE_FORKED, terrace_close(db));
        FAILS(TERRACE_FORKED, terrace_updates_next(feed, &is_there));
        CHECK(!terrace_iter_valid(iter));
        CHECK(is(&value, "fork"));
        terrace_iter_free(iter);
        terrace_snapshot_free(snapshot);
        terrace_updates_free(feed);
        terrace_db_free(db);
        exit(0);
    }
    int status = 0;
    CHECK(waitpid(child, &status, 0) == child);
    CHECK(WIFEXITED(status) && WEXITSTATUS(status) == 0);
    CHECK(is(&value, "fork"));
    OK(terrace_iter_next(iter));
    OK(terrace_updates_next(feed, &is_there));
    CHECK(is_there && terrace_updates_last_seqno(feed) == latest + 1);
    terrace_updates_free(feed);
    terrace_iter_free(iter);
    terrace_snapshot_free(snapshot);
    OK(terrace_get(db, NULL, NULL, B("before"), &value));
    CHECK(is(&value, "fork"));
}

/* A relative path is that of the call, wherever the program goes then: also to where another store has the same one. */
static void another_working_directory(const char *dir) {
    char path[4096];
    terrace_db *here = NULL, *there = NULL;
    terrace_backups *backups = NULL;
    terrace_sst_writer *writer = NULL;
    terrace_value value;
    const char *places[] = {"../a/store", "store"}, *values[] = {"a", "b"};
    snprintf(path, sizeof path, "%s-moves", dir);
    CHECK(mkdir(path, 0700) == 0 && chdir(path) == 0);
    CHECK(mkdir("a", 0700) == 0 && mkdir("b", 0700) == 0 && chdir("a") == 0);
    OK(terrace_open("store", NULL, &here));
    OK(terrace_put(here, NULL, B("k"), B("a")));
    OK(terrace_backups_open("backups", &backups));
    OK(terrace_sst_writer_create("file", NULL, NULL, &writer));
    CHECK(chdir("../b") == 0);
    OK(terrace_open("store", NULL, &there));
    OK(terrace_put(there, NULL, B("k"), B("b")));
    OK(terrace_flush(here));
    OK(terrace_backups_create(backups, here, NULL));
    OK(terrace_close(here));
    terrace_db_free(here);
    terrace_backups_free(backups);
    CHECK(access("backups", F_OK) != 0);
    FILE *mine = fopen("file", "w");
    CHECK(mine != NULL && fclose(mine) == 0);
    /* It removes the file that it has begun. */
    terrace_sst_writer_free(writer);
    CHECK(access("file", F_OK) == 0 && access("../a/file", F_OK) != 0);
    OK(terrace_flush(there));
    OK(terrace_close(there));
    terrace_db_free(there);
    for (int at = 0; at < 2; at++) {
        OK(terrace_open(places[at], NULL, &here));
        OK(terrace_get(here, NULL, NULL, B("k"), &value));
        CHECK(is(&value, values[at]));
        OK(terrace_close(here));
        terrace_db_free(here);
    }
}

int main(int argc, char **argv) {
    CHECK(argc == 2);
    terrace_options *options = terrace_options_new();
    terrace_db *db = NULL;
    OK(terrace_options_set(options, "create_if_missing", "false"));
    FAILS(TERRACE_NOT_A_STORE, terrace_open(argv[1], options, &db));
    terrace_options_free(options);
    OK(terrace_open(argv[1], NULL, &db));
    nulls(db);
    refused_and_ended(db);
    extremes(db);
    a_family_that_was_refused(argv[1]);
    too_much(db);
    absurd_lengths(db, argv[1]);
    bounds_longer_than_keys(db);
    of_another_store(db, argv[1]);
    threads(db);
    a_fork(db);
    options_of_before_a_fork();
    OK(terrace_close(db));
    terrace_db_free(db);
    after_close(argv[1]);
    closed_by_another(argv[1]);
    another_working_directory(argv[1]);
    puts("all of it was refused");
    return 0;
}
