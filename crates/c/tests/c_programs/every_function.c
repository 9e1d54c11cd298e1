/* Calls every function of terrace.h and looks at what it does. Run under valgrind. */
#include "check.h"
#include <dirent.h>

static char path[4096];

static const char *below(const char *name, const char *root) {
    snprintf(path, sizeof path, "%s-%s", root, name);
    return path;
}

static int key_is(terrace_iter *iter, const char *key, const char *value) {
    size_t key_len, value_len;
    const uint8_t *k = terrace_iter_key(iter, &key_len), *v = terrace_iter_value(iter, &value_len);
    return terrace_iter_valid(iter) && key_len == strlen(key) && memcmp(k, key, key_len) == 0 &&
           value_len == strlen(value) && memcmp(v, value, value_len) == 0;
}

static terrace_db *open_store(const char *dir) {
    terrace_options *options = terrace_options_new();
    OK(terrace_options_set(options, "memory_budget", "16MiB"));
    OK(terrace_options_set(options, "sync", "none"));
    /* A merge into the last level would be in the way of what is loaded below. */
    OK(terrace_options_set(options, "compact_when_idle", "false"));
    OK(terrace_options_set_family(options, "colours", "compression", "none, zstd"));
    OK(terrace_options_set_family(options, "colours", "merge_operator", "append:,"));
    OK(terrace_options_add_family(options, "shapes"));
    terrace_db *db = NULL;
    OK(terrace_open(dir, options, &db));
    CHECK(db != NULL);
    terrace_options_free(options);
    return db;
}

static void points(terrace_db *db) {
    terrace_value value;
    OK(terrace_put(db, NULL, B("a"), B("1")));
    OK(terrace_put(db, NULL, B("empty"), NULL, 0));
    OK(terrace_get(db, NULL, NULL, B("a"), &value));
    CHECK(is(&value, "1"));
    OK(terrace_get(db, NULL, NULL, B("empty"), &value));
    CHECK(is(&value, ""));
    OK(terrace_get(db, NULL, NULL, B("absent"), &value));
    CHECK(is(&value, NULL));

    OK(terrace_put_with_ttl(db, NULL, B("soon"), B("gone"), 3600 * 1000));
    uint64_t expires_at_ms = 0;
    OK(terrace_get_with_expiry(db, NULL, NULL, B("soon"), &value, &expires_at_ms));
    CHECK(is(&value, "gone") && expires_at_ms > 0);
    OK(terrace_get_with_expiry(db, NULL, NULL, B("a"), &value, &expires_at_ms));
    CHECK(is(&value, "1") && expires_at_ms == 0);

    OK(terrace_delete(db, NULL, B("a")));
    OK(terrace_get(db, NULL, NULL, B("a"), &value));
    CHECK(is(&value, NULL));
    OK(terrace_put(db, NULL, B("r1"), B("x")));
    OK(terrace_put(db, NULL, B("r2"), B("y")));
    OK(terrace_delete_range(db, NULL, B("r1"), B("r2")));

    const uint8_t *keys[] = {(const uint8_t *)"r1", (const uint8_t *)"r2", (const uint8_t *)"soon"};
    size_t lens[] = {2, 2, 4};
    terrace_value values[3];
    OK(terrace_multi_get(db, NULL, NULL, 3, keys, lens, values));
    CHECK(is(&values[0], NULL) && is(&values[1], "y") && is(&values[2], "gone"));
    OK(terrace_delete_range(db, NULL, B("a"), B("z")));

    /* A value keeps its bytes, whatever is written meanwhile. */
    OK(terrace_put(db, NULL, B("k"), B("first")));
    OK(terrace_get(db, NULL, NULL, B("k"), &value));
    OK(terrace_put(db, NULL, B("k"), B("second")));
    CHECK(is(&value, "first"));
    OK(terrace_delete(db, NULL, B("k")));
}

static void families(terrace_db *db) {
    terrace_family *colours = NULL, *made = NULL;
    terrace_value value;
    char *names = NULL;
    OK(terrace_family_get(db, "colours", &colours));
    CHECK(strcmp(terrace_family_name(colours), "colours") == 0);
    OK(terrace_put(db, colours, B("sky"), B("blue")));
    OK(terrace_get(db, colours, NULL, B("sky"), &value));
    CHECK(is(&value, "blue"));
    OK(terrace_get(db, NULL, NULL, B("sky"), &value));
    CHECK(is(&value, NULL));
    OK(terrace_family_set_option(db, colours, "learning", "off"));
    OK(terrace_family_get_option(db, colours, "learning", &names));
    CHECK(strcmp(names, "off") == 0);
    terrace_string_free(names);
    OK(terrace_family_get_option(db, NULL, "learning", &names));
    CHECK(strcmp(names, "build") == 0);
    terrace_string_free(names);
    OK(terrace_family_create(db, "made", NULL, &made));
    OK(terrace_family_names(db, &names));
    CHECK(strcmp(names, "default\ncolours\nshapes\nmade") == 0);
    terrace_string_free(names);
    OK(terrace_family_drop(db, "made"));
    FAILS(TERRACE_NO_SUCH_FAMILY, terrace_put(db, made, B("a"), B("b")));
    terrace_family_free(made);
    FAILS(TERRACE_NO_SUCH_FAMILY, terrace_family_get(db, "made", &made));
    CHECK(made == NULL);

    terrace_batch *batch = terrace_batch_new();
    OK(terrace_batch_put(batch, colours, B("grass"), B("green")));
    OK(terrace_batch_put(batch, NULL, B("one"), B("1")));
    OK(terrace_batch_put_with_ttl(batch, NULL, B("two"), B("2"), 1000000));
    OK(terrace_batch_put_until(batch, NULL, B("three"), B("3"), 4102444800000ull));
    OK(terrace_batch_delete(batch, NULL, B("one")));
    OK(terrace_batch_delete_range(batch, NULL, B("x"), B("y")));
    OK(terrace_batch_set_save_point(batch));
    OK(terrace_batch_put(batch, NULL, B("four"), B("4")));
    CHECK(terrace_batch_len(batch) == 7 && terrace_batch_size_bytes(batch) > 20);
    OK(terrace_batch_roll_back(batch));
    FAILS(TERRACE_INVALID_ARGUMENT, terrace_batch_roll_back(batch));
    OK(terrace_write(db, batch, TERRACE_SYNC_BATCH));
    CHECK(terrace_batch_len(batch) == 0);
    OK(terrace_batch_put(batch, NULL, B("four"), B("4")));
    OK(terrace_batch_clear(batch));
    OK(terrace_write(db, batch, TERRACE_SYNC_DEFAULT));
    OK(terrace_merge(db, colours, B("grass"), B("brown")));
    OK(terrace_batch_merge(batch, colours, B("grass"), B("grey")));
    OK(terrace_write(db, batch, TERRACE_SYNC_DEFAULT));
    FAILS(TERRACE_INVALID_ARGUMENT, terrace_merge(db, NULL, B("one"), B("1")));
    terrace_batch_free(batch);
    OK(terrace_get(db, colours, NULL, B("grass"), &value));
    CHECK(is(&value, "green,brown,grey"));
    terrace_transaction *merging = NULL;
    OK(terrace_transaction_begin(db, &merging));
    OK(terrace_transaction_delete_range(merging, colours, B("g"), B("h")));
    OK(terrace_transaction_merge(merging, colours, B("grass"), B("blue")));
    OK(terrace_transaction_get(merging, colours, B("grass"), &value));
    CHECK(is(&value, "blue"));
    OK(terrace_transaction_commit(merging, TERRACE_SYNC_DEFAULT));
    terrace_transaction_free(merging);
    OK(terrace_get(db, colours, NULL, B("grass"), &value));
    CHECK(is(&value, "blue"));
    OK(terrace_get(db, NULL, NULL, B("one"), &value));
    CHECK(is(&value, NULL));
    OK(terrace_get(db, NULL, NULL, B("four"), &value));
    CHECK(is(&value, NULL));
    OK(terrace_get(db, NULL, NULL, B("two"), &value));
    CHECK(is(&value, "2"));
    terrace_family_free(colours);
}

static void iterators(terrace_db *db) {
    OK(terrace_delete_range(db, NULL, NULL, 0, B("z")));
    for (char c = 'a'; c <= 'e'; c++) {
        OK(terrace_put(db, NULL, (uint8_t *)&c, 1, (uint8_t *)&c, 1));
    }
    terrace_snapshot *snapshot = NULL;
    OK(terrace_snapshot_new(db, &snapshot));
    OK(terrace_put(db, NULL, B("c"), B("new")));

    terrace_read_options *reading = terrace_read_options_new();
    OK(terrace_read_options_set_snapshot(reading, snapshot));
    terrace_snapshot_free(snapshot);
    OK(terrace_read_options_set(reading, "fill_cache", "false"));
    OK(terrace_read_options_set_bounds(reading, B("b"), B("e")));
    terrace_iter *iter = NULL;
    OK(terrace_iter_new(db, NULL, reading, &iter));
    CHECK(!terrace_iter_valid(iter));
    OK(terrace_iter_seek_to_first(iter));
    CHECK(key_is(iter, "b", "b"));
    OK(terrace_iter_next(iter));
    CHECK(key_is(iter, "c", "c"));
    CHECK(terrace_iter_expires_at_ms(iter) == 0);
    OK(terrace_iter_seek_to_last(iter));
    CHECK(key_is(iter, "d", "d"));
    OK(terrace_iter_prev(iter));
    CHECK(key_is(iter, "c", "c"));
    OK(terrace_iter_seek(iter, B("bb")));
    CHECK(key_is(iter, "c", "c"));
    OK(terrace_iter_seek_for_prev(iter, B("bb")));
    CHECK(key_is(iter, "b", "b"));
    OK(terrace_iter_prev(iter));
    CHECK(!terrace_iter_valid(iter));
    terrace_iter_free(iter);

    terrace_value value;
    OK(terrace_get(db, NULL, reading, B("c"), &value));
    CHECK(is(&value, "c"));
    OK(terrace_read_options_set_snapshot(reading, NULL));
    OK(terrace_read_options_set_bounds(reading, NULL, 0, NULL, 0));
    OK(terrace_read_options_set_prefix(reading, B("c")));
    OK(terrace_iter_new(db, NULL, reading, &iter));
    OK(terrace_iter_seek_to_first(iter));
    CHECK(key_is(iter, "c", "new"));
    OK(terrace_iter_next(iter));
    CHECK(!terrace_iter_valid(iter));
    terrace_iter_free(iter);
    terrace_read_options_free(reading);
}

static void transactions(terrace_db *db) {
    terrace_transaction *one = NULL, *two = NULL;
    terrace_value value;
    OK(terrace_transaction_begin(db, &one));
    OK(terrace_transaction_begin(db, &two));
    OK(terrace_transaction_get(one, NULL, B("a"), &value));
    CHECK(is(&value, "a"));
    OK(terrace_transaction_put(one, NULL, B("b"), B("of one")));
    OK(terrace_transaction_get(one, NULL, B("b"), &value));
    CHECK(is(&value, "of one"));
    OK(terrace_transaction_set_save_point(one));
    OK(terrace_transaction_delete(one, NULL, B("b")));
    OK(terrace_transaction_roll_back(one));
    OK(terrace_transaction_get_untracked(two, NULL, B("b"), &value));
    CHECK(is(&value, "b"));
    OK(terrace_transaction_put_with_ttl(two, NULL, B("a"), B("of two"), 1000000));
    OK(terrace_transaction_commit(two, TERRACE_SYNC_DEFAULT));
    FAILS(TERRACE_CONFLICT, terrace_transaction_commit(one, TERRACE_SYNC_NONE));
    FAILS(TERRACE_INVALID_ARGUMENT, terrace_transaction_commit(one, TERRACE_SYNC_NONE));
    terrace_transaction_free(one);
    terrace_transaction_free(two);
    OK(terrace_get(db, NULL, NULL, B("b"), &value));
    CHECK(is(&value, "b"));
}

/* Whether entry `index` is this one. */
static bool entry_is(const terrace_entries *entries, size_t index, const char *key, const char *value) {
    size_t key_len, value_len;
    const uint8_t *k = terrace_entries_key(entries, index, &key_len);
    const uint8_t *v = terrace_entries_value(entries, index, &value_len);
    return k && v && key_len == strlen(key) && memcmp(k, key, key_len) == 0 &&
           value_len == strlen(value) && memcmp(v, value, value_len) == 0;
}

/* Range reads of transactions: own writes in their places, and what others write into the range is a conflict. */
static void transaction_scans(terrace_db *db) {
    terrace_transaction *txn = NULL;
    terrace_entries *entries = NULL;
    size_t len = 7;
    OK(terrace_put(db, NULL, B("scan/1"), B("one")));
    OK(terrace_put(db, NULL, B("scan/3"), B("three")));
    OK(terrace_put(db, NULL, B("scan/5"), B("five")));

    OK(terrace_transaction_begin(db, &txn));
    OK(terrace_transaction_put(txn, NULL, B("scan/2"), B("two")));
    OK(terrace_transaction_delete(txn, NULL, B("scan/3")));
    OK(terrace_transaction_scan(txn, NULL, B("scan/"), B("scan0"), SIZE_MAX, &entries));
    CHECK(terrace_entries_len(entries) == 3);
    CHECK(entry_is(entries, 0, "scan/1", "one") && entry_is(entries, 1, "scan/2", "two"));
    CHECK(entry_is(entries, 2, "scan/5", "five"));
    CHECK(terrace_entries_key(entries, 3, &len) == NULL && len == 0);
    /* A key that was absent, in the gap. */
    OK(terrace_put(db, NULL, B("scan/4"), B("four")));
    FAILS(TERRACE_CONFLICT, terrace_transaction_commit(txn, TERRACE_SYNC_DEFAULT));
    terrace_transaction_free(txn);
    CHECK(entry_is(entries, 1, "scan/2", "two"));
    terrace_entries_free(entries);

    /* With a limit the range ends after the last entry. */
    OK(terrace_transaction_begin(db, &txn));
    OK(terrace_transaction_scan(txn, NULL, B("scan/"), NULL, 0, 2, &entries));
    CHECK(terrace_entries_len(entries) == 2 && entry_is(entries, 1, "scan/3", "three"));
    terrace_entries_free(entries);
    OK(terrace_transaction_put(txn, NULL, B("scan/9"), B("")));
    OK(terrace_put(db, NULL, B("scan/4"), B("more")));
    OK(terrace_transaction_commit(txn, TERRACE_SYNC_DEFAULT));
    FAILS(TERRACE_INVALID_ARGUMENT, terrace_transaction_scan(txn, NULL, NULL, 0, NULL, 0, 1, &entries));
    CHECK(entries == NULL && terrace_entries_len(entries) == 0);
    terrace_transaction_free(txn);

    /* Value of no bytes, and none at all. */
    OK(terrace_transaction_begin(db, &txn));
    OK(terrace_transaction_scan(txn, NULL, B("scan/9"), B("scan0"), 10, &entries));
    CHECK(terrace_entries_len(entries) == 1 && entry_is(entries, 0, "scan/9", ""));
    terrace_entries_free(entries);
    OK(terrace_transaction_scan(txn, NULL, B("scan0"), B("scan/"), 10, &entries));
    CHECK(entries != NULL && terrace_entries_len(entries) == 0);
    terrace_entries_free(entries);
    terrace_transaction_free(txn);
    OK(terrace_delete_range(db, NULL, B("scan/"), B("scan0")));
}

static void administration(terrace_db *db, const char *dir) {
    char *text = NULL;
    uint64_t keys = 0, bytes = 0, files = 0;
    bool is_changed = true;
    OK(terrace_sync(db));
    OK(terrace_flush(db));
    OK(terrace_compact_range(db, NULL, NULL, 0, NULL, 0));
    OK(terrace_estimate(db, NULL, B("a"), B("z"), &keys, &bytes));
    CHECK(keys >= 5 && bytes > 0);
    OK(terrace_collect_garbage(db, 1.0));
    OK(terrace_wait_idle(db));
    OK(terrace_verify(db, &files));
    CHECK(files > 0);
    OK(terrace_set_option(db, "gc_garbage_ratio", "0.5"));
    OK(terrace_get_option(db, "gc_garbage_ratio", &text));
    CHECK(strcmp(text, "0.5") == 0);
    terrace_string_free(text);
    OK(terrace_set_option(db, "filter", "ribbon:12,none"));
    OK(terrace_get_option(db, "filter", &text));
    CHECK(strcmp(text, "ribbon:12,none") == 0);
    terrace_string_free(text);
    OK(terrace_metrics_text(db, &text));
    CHECK(strlen(text) > 100);
    terrace_string_free(text);
    OK(terrace_metrics_prometheus(db, &text));
    CHECK(strstr(text, "terrace_gets_total") != NULL);
    terrace_string_free(text);
    OK(terrace_checkpoint(db, below("checkpoint", dir)));

    terrace_db *reader = NULL;
    OK(terrace_open_read_only(dir, NULL, &reader));
    OK(terrace_put(db, NULL, B("news"), B("today")));
    OK(terrace_refresh(reader, &is_changed));
    CHECK(is_changed);
    FAILS(TERRACE_READ_ONLY, terrace_put(reader, NULL, B("a"), B("b")));
    OK(terrace_close(reader));
    terrace_db_free(reader);
}

static const char *file_below(const char *name, const char *root, char *place) {
    snprintf(place, sizeof path, "%s-%s", root, name);
    return place;
}

static void ingestion(terrace_db *db, const char *dir) {
    static char first[sizeof path], second[sizeof path];
    const char *paths[] = {file_below("1.sst", dir, first), file_below("2.sst", dir, second)};
    terrace_options *options = terrace_options_new();
    terrace_sst_writer *writer = NULL;
    terrace_value value;
    uint64_t entries = 0, bytes = 0, expires_at_ms = 0;
    OK(terrace_options_set_family(options, "colours", "merge_operator", "append:,"));

    terrace_family *colours = NULL;
    OK(terrace_family_create(db, "ingested", NULL, &colours));
    OK(terrace_put(db, colours, B("covered"), B("old")));
    OK(terrace_put(db, colours, B("i2"), B("old")));
    OK(terrace_sst_writer_create(paths[0], NULL, NULL, &writer));
    OK(terrace_sst_writer_put(writer, B("i1"), B("red")));
    FAILS(TERRACE_INVALID_ARGUMENT, terrace_sst_writer_put(writer, B("i0"), B("late")));
    FAILS(TERRACE_INVALID_ARGUMENT, terrace_sst_writer_merge(writer, B("i11"), B("x")));
    OK(terrace_sst_writer_delete(writer, B("i2")));
    OK(terrace_sst_writer_delete_range(writer, B("covered"), B("covered!")));
    OK(terrace_sst_writer_estimated_bytes(writer, &bytes));
    CHECK(bytes > 0);
    OK(terrace_sst_writer_finish(writer, &entries));
    CHECK(entries == 2);
    FAILS(TERRACE_INVALID_ARGUMENT, terrace_sst_writer_put(writer, B("i9"), B("late")));
    FAILS(TERRACE_INVALID_ARGUMENT, terrace_sst_writer_finish(writer, NULL));
    terrace_sst_writer_free(writer);
    OK(terrace_sst_writer_create(paths[1], NULL, NULL, &writer));
    OK(terrace_sst_writer_put_until(writer, B("j"), B("soon"), UINT64_MAX));
    OK(terrace_sst_writer_finish(writer, NULL));
    terrace_sst_writer_free(writer);

    FAILS(TERRACE_INVALID_ARGUMENT, terrace_ingest(db, colours, 0, NULL, TERRACE_INGEST_DEFAULT, NULL));
    FAILS(TERRACE_INVALID_ARGUMENT, terrace_ingest(db, colours, 2, paths, 4, NULL));
    OK(terrace_ingest(db, colours, 2, paths, TERRACE_INGEST_MOVE, &entries));
    CHECK(entries == 4);
    OK(terrace_get(db, colours, NULL, B("i1"), &value));
    CHECK(is(&value, "red"));
    OK(terrace_get(db, colours, NULL, B("i2"), &value));
    CHECK(is(&value, NULL));
    OK(terrace_get(db, colours, NULL, B("covered"), &value));
    CHECK(is(&value, NULL));
    OK(terrace_get_with_expiry(db, colours, NULL, B("j"), &value, &expires_at_ms));
    CHECK(is(&value, "soon") && expires_at_ms == UINT64_MAX);
    FAILS(TERRACE_IO, terrace_ingest(db, colours, 2, paths, TERRACE_INGEST_DEFAULT, NULL));

    OK(terrace_sst_writer_create(paths[0], NULL, NULL, &writer));
    OK(terrace_sst_writer_put(writer, B("old"), B("1")));
    OK(terrace_sst_writer_finish(writer, NULL));
    terrace_sst_writer_free(writer);
    OK(terrace_ingest(db, colours, 1, paths, TERRACE_INGEST_MOVE + TERRACE_INGEST_BELOW, NULL));
    terrace_family_free(colours);

    OK(terrace_sst_writer_create(paths[0], options, "colours", &writer));
    OK(terrace_sst_writer_merge(writer, B("merged"), B("blue")));
    OK(terrace_sst_writer_finish(writer, NULL));
    terrace_sst_writer_free(writer);
    OK(terrace_family_get(db, "colours", &colours));
    OK(terrace_put(db, colours, B("merged"), B("red")));
    OK(terrace_ingest(db, colours, 1, paths, TERRACE_INGEST_MOVE, NULL));
    OK(terrace_get(db, colours, NULL, B("merged"), &value));
    CHECK(is(&value, "red,blue"));
    terrace_family_free(colours);

    /* One that is not finished leaves no file: its path is free. */
    for (int round = 0; round < 2; round++) {
        OK(terrace_sst_writer_create(paths[0], options, NULL, &writer));
        OK(terrace_sst_writer_put(writer, B("a"), B("1")));
        terrace_sst_writer_free(writer);
    }
    terrace_sst_writer_free(NULL);
    terrace_options_free(options);
}

/* Whether `call`, which sets `len`, gives `text`, NULL for nothing. */
#define PART_IS(call, text) (data = (call), part_is(data, len, text))

static int part_is(const uint8_t *data, size_t len, const char *text) {
    if (!text) {
        return data == NULL && len == 0;
    }
    return data != NULL && len == strlen(text) && memcmp(data, text, len) == 0;
}

static void updates(const char *dir) {
    terrace_options *options = terrace_options_new();
    terrace_db *db = NULL, *replica = NULL;
    terrace_updates *feed = NULL;
    terrace_family *colours = NULL;
    terrace_value value;
    uint64_t latest = 9, oldest = 9, next;
    const uint8_t *data;
    size_t len, count = 0;
    bool is_there = true;
    OK(terrace_options_set(options, "log_retention_bytes", "64MiB"));
    OK(terrace_options_set_family(options, "colours", "merge_operator", "append:,"));
    OK(terrace_open(below("feed", dir), options, &db));
    OK(terrace_open(below("replica", dir), options, &replica));
    terrace_options_free(options);
    OK(terrace_family_get(db, "colours", &colours));
    OK(terrace_latest_seqno(db, &latest));
    FAILS(TERRACE_INVALID_ARGUMENT, terrace_updates_since(db, latest + 2, false, &feed));
    CHECK(feed == NULL);
    OK(terrace_updates_since(db, latest + 1, false, &feed));
    OK(terrace_updates_next(feed, &is_there));
    CHECK(!is_there && terrace_updates_len(feed) == 0 && terrace_updates_last_seqno(feed) == 0);

    terrace_batch *batch = terrace_batch_new();
    OK(terrace_batch_put(batch, NULL, B("a"), B("1")));
    OK(terrace_batch_put_until(batch, NULL, B("b"), NULL, 0, 4102444800000ull));
    OK(terrace_batch_delete(batch, NULL, B("c")));
    OK(terrace_batch_delete_range(batch, colours, B("r"), B("s")));
    OK(terrace_batch_merge(batch, colours, B("sky"), B("blue")));
    OK(terrace_write(db, batch, TERRACE_SYNC_BATCH));
    terrace_batch_free(batch);
    OK(terrace_merge(db, colours, B("sky"), B("grey")));
    OK(terrace_updates_next(feed, &is_there));
    CHECK(is_there && terrace_updates_len(feed) == 5);
    CHECK(terrace_updates_first_seqno(feed) == latest + 1);
    CHECK(terrace_updates_last_seqno(feed) == latest + 5);
    int kinds[] = {TERRACE_UPDATE_PUT, TERRACE_UPDATE_PUT, TERRACE_UPDATE_DELETE,
                   TERRACE_UPDATE_DELETE_RANGE, TERRACE_UPDATE_MERGE, 0};
    const char *keys[] = {"a", "b", "c", "r", "sky", NULL};
    for (size_t at = 0; at < 6; at++) {
        CHECK(terrace_updates_kind(feed, at) == kinds[at]);
        CHECK(PART_IS(terrace_updates_key(feed, at, &len), keys[at]));
    }
    CHECK(strcmp(terrace_updates_family(feed, 0), "default") == 0);
    CHECK(strcmp(terrace_updates_family(feed, 4), "colours") == 0);
    CHECK(terrace_updates_family(feed, 5) == NULL);
    CHECK(PART_IS(terrace_updates_value(feed, 0, &len), "1"));
    CHECK(PART_IS(terrace_updates_value(feed, 1, &len), ""));
    CHECK(PART_IS(terrace_updates_value(feed, 2, &len), NULL));
    CHECK(PART_IS(terrace_updates_end(feed, 3, &len), "s"));
    CHECK(PART_IS(terrace_updates_value(feed, 4, &len), "blue"));
    CHECK(terrace_updates_expires_at_ms(feed, 0) == 0);
    CHECK(terrace_updates_expires_at_ms(feed, 1) == 4102444800000ull);
    terrace_updates_free(feed);

    /* What was flushed is still there, since the log is kept; a replica is made of it. */
    OK(terrace_flush(db));
    OK(terrace_oldest_update(db, &oldest));
    CHECK(oldest <= latest + 1);
    OK(terrace_updates_since(db, latest + 1, true, &feed));
    for (next = 0; OK(terrace_updates_next(feed, &is_there)), is_there; count++) {
        OK(terrace_updates_to_batch(feed, replica, &batch));
        OK(terrace_write(replica, batch, TERRACE_SYNC_DEFAULT));
        terrace_batch_free(batch);
        next = terrace_updates_last_seqno(feed) + 1;
    }
    CHECK(count == 2 && next == latest + 7);
    FAILS(TERRACE_INVALID_ARGUMENT, terrace_updates_to_batch(feed, replica, &batch));
    CHECK(batch == NULL);
    terrace_family_free(colours);
    OK(terrace_family_get(replica, "colours", &colours));
    OK(terrace_get(replica, colours, NULL, B("sky"), &value));
    CHECK(is(&value, "blue,grey"));
    terrace_family_free(colours);
    OK(terrace_close(replica));
    terrace_db_free(replica);

    /* Without retention, and read by nobody, what is flushed goes, by a thread of the store. */
    terrace_updates_free(feed);
    OK(terrace_set_option(db, "log_retention_bytes", "0"));
    for (int flushes = 0; oldest <= latest + 1; flushes++) {
        CHECK(flushes < 1000);
        OK(terrace_put(db, NULL, B("a"), B("2")));
        OK(terrace_flush(db));
        OK(terrace_wait_idle(db));
        OK(terrace_oldest_update(db, &oldest));
    }
    FAILS(TERRACE_UPDATES_GONE, terrace_updates_since(db, latest + 1, false, &feed));
    CHECK(feed == NULL);
    OK(terrace_close(db));
    terrace_db_free(db);
}

/* What a merge operator of the tests is given; it is freed by the library. */
struct longest {
    bool is_broken;
    int *frees;
};

/* Keeps the longest of all values and operands, the last of several. */
static void longest_of(const uint8_t *const *parts, const size_t *lens, size_t count,
                       const uint8_t *first, size_t first_len, terrace_merge_result *result) {
    for (size_t at = 0; at < count; at++) {
        if (!first || lens[at] >= first_len) {
            first = parts[at];
            first_len = lens[at];
        }
    }
    terrace_merge_result_set(result, first, first_len);
}

static void merge_longest(void *context, const uint8_t *key, size_t key_len, const uint8_t *existing,
                          size_t existing_len, const uint8_t *const *operands,
                          const size_t *operand_lens, size_t count, terrace_merge_result *result) {
    CHECK(key_len > 0 && count > 0);
    if (((struct longest *)context)->is_broken) {
        if (key[0] == 'r') {
            terrace_merge_result_refuse(result, "it is broken");
        } else if (key[0] == 'n') {
            terrace_merge_result_refuse(result, NULL);
        }
        return;
    }
    longest_of(operands, operand_lens, count, existing, existing_len, result);
}

static void combine_longest(void *context, const uint8_t *key, size_t key_len,
                            const uint8_t *const *operands, const size_t *operand_lens,
                            size_t count, terrace_merge_result *result) {
    (void)context;
    CHECK(key && key_len > 0 && count > 1);
    longest_of(operands, operand_lens, count, NULL, 0, result);
}

static void free_longest(void *context) {
    ++*((struct longest *)context)->frees;
    free(context);
}

static void set_longest(terrace_options *options, struct longest **longest, int *frees) {
    *longest = calloc(1, sizeof **longest);
    CHECK(*longest);
    (*longest)->frees = frees;
    OK(terrace_options_set_merge_operator(options, "words", "longest", *longest, merge_longest,
                                          combine_longest, free_longest));
}

static void merge_operators(const char *dir) {
    static char place[sizeof path];
    terrace_options *options = terrace_options_new();
    terrace_db *db = NULL;
    terrace_family *words = NULL;
    terrace_value value;
    struct longest *longest;
    int frees = 0;
    snprintf(place, sizeof place, "%s-merging", dir);
    set_longest(options, &longest, &frees);
    set_longest(options, &longest, &frees);
    CHECK(frees == 1); /* the first one */
    FAILS(TERRACE_INVALID_ARGUMENT,
          terrace_options_set_merge_operator(options, NULL, "counter", NULL, merge_longest, NULL, NULL));
    FAILS(TERRACE_INVALID_ARGUMENT,
          terrace_options_set_merge_operator(options, NULL, "mine", NULL, NULL, NULL, free_longest));
    OK(terrace_open(place, options, &db));
    OK(terrace_family_get(db, "words", &words));
    OK(terrace_put(db, words, B("a"), B("ox")));
    OK(terrace_flush(db));
    OK(terrace_merge(db, words, B("a"), B("hen")));
    OK(terrace_merge(db, words, B("a"), B("cow")));
    OK(terrace_merge(db, words, B("absent"), NULL, 0));
    OK(terrace_get(db, words, NULL, B("a"), &value));
    CHECK(is(&value, "cow"));
    OK(terrace_get(db, words, NULL, B("absent"), &value));
    CHECK(is(&value, ""));
    OK(terrace_flush(db));
    OK(terrace_merge(db, words, B("a"), B("x")));

    /* One that refuses loses nothing. */
    OK(terrace_merge(db, words, B("refused"), B("1")));
    OK(terrace_merge(db, words, B("no reason"), B("2")));
    longest->is_broken = true;
    FAILS(TERRACE_MERGE_FAILED, terrace_get(db, words, NULL, B("a"), &value));
    CHECK(is(&value, NULL));
    FAILS(TERRACE_MERGE_FAILED, terrace_get(db, words, NULL, B("no reason"), &value));
    terrace_error *error = terrace_get(db, words, NULL, B("refused"), &value);
    CHECK(strstr(terrace_error_message(error), "it is broken") != NULL);
    terrace_error_free(error);
    OK(terrace_flush(db));
    OK(terrace_compact_range(db, words, NULL, 0, NULL, 0));
    FAILS(TERRACE_MERGE_FAILED, terrace_get(db, words, NULL, B("a"), &value));
    longest->is_broken = false;
    OK(terrace_compact_range(db, words, NULL, 0, NULL, 0));
    OK(terrace_get(db, words, NULL, B("a"), &value));
    CHECK(is(&value, "cow"));
    OK(terrace_get(db, words, NULL, B("refused"), &value));
    CHECK(is(&value, "1"));
    terrace_iter *iter = NULL;
    OK(terrace_iter_new(db, words, NULL, &iter));
    OK(terrace_close(db));
    terrace_db_free(db);
    CHECK(frees == 1);
    terrace_options_free(options);
    terrace_family_free(words);
    CHECK(frees == 1); /* The iterator may still merge. */
    terrace_iter_free(iter);
    CHECK(frees == 2);
    FAILS(TERRACE_INVALID_ARGUMENT, terrace_open(place, NULL, &db));
}

/* Removes "old...", changes "bad...", fails at "odd...", keeps the rest. The context counts what it is asked about. */
static int32_t by_name(void *context, terrace_filter_entry *entry) {
    size_t key_len, value_len;
    const uint8_t *key = terrace_filter_entry_key(entry, &key_len);
    const uint8_t *value = terrace_filter_entry_value(entry, &value_len);
    CHECK(key_len >= 3 && value != NULL);
    CHECK(terrace_filter_entry_is_separated(entry) == (value_len > 1000));
    CHECK((terrace_filter_entry_expires_at_ms(entry) != 0) == (memcmp(key, "soon", 3) == 0));
    uint32_t level = terrace_filter_entry_output_level(entry);
    CHECK(level < 7 && terrace_filter_entry_is_full(entry) == (level > 0));
    ++*(int *)context;
    if (memcmp(key, "old", 3) == 0) {
        return TERRACE_FILTER_REMOVE;
    }
    if (memcmp(key, "bad", 3) == 0) {
        terrace_filter_entry_change(entry, B("good"));
        return TERRACE_FILTER_CHANGE;
    }
    if (memcmp(key, "odd", 3) == 0) {
        return key_len > 3 ? 17 : TERRACE_FILTER_CHANGE;
    }
    return TERRACE_FILTER_KEEP;
}

static void count_free(void *context) {
    *(int *)context += 1000;
}

static void compaction_filters(const char *dir) {
    static char place[sizeof path];
    static uint8_t large[4000];
    terrace_options *options = terrace_options_new();
    terrace_db *db = NULL;
    terrace_value value;
    int asked = 0;
    snprintf(place, sizeof place, "%s-filtering", dir);
    FAILS(TERRACE_INVALID_ARGUMENT, terrace_options_set_compaction_filter(options, NULL, "by name", &asked,
                                                                          by_name, 4, count_free));
    FAILS(TERRACE_INVALID_ARGUMENT,
          terrace_options_set_compaction_filter(options, NULL, "by name", &asked, NULL, 0, count_free));
    OK(terrace_options_set(options, "value_separation_threshold", "1KiB"));
    OK(terrace_options_set_compaction_filter(options, NULL, "by name", &asked, by_name, 0, count_free));
    OK(terrace_open(place, options, &db));
    terrace_options_free(options);
    OK(terrace_put(db, NULL, B("old"), B("1")));
    OK(terrace_put(db, NULL, B("old large"), large, sizeof large));
    OK(terrace_put(db, NULL, B("bad"), B("evil")));
    OK(terrace_put(db, NULL, B("odd"), B("3")));
    OK(terrace_put(db, NULL, B("odd number"), B("4")));
    OK(terrace_put_with_ttl(db, NULL, B("soon"), B("gone"), 3600 * 1000));
    OK(terrace_flush(db));
    CHECK(asked == 0);
    OK(terrace_compact_range(db, NULL, NULL, 0, NULL, 0));
    CHECK(asked == 6);
    OK(terrace_get(db, NULL, NULL, B("old"), &value));
    CHECK(is(&value, NULL));
    OK(terrace_get(db, NULL, NULL, B("old large"), &value));
    CHECK(is(&value, NULL));
    OK(terrace_get(db, NULL, NULL, B("bad"), &value));
    CHECK(is(&value, "good"));
    OK(terrace_get(db, NULL, NULL, B("odd"), &value));
    CHECK(is(&value, "3"));
    OK(terrace_get(db, NULL, NULL, B("odd number"), &value));
    CHECK(is(&value, "4"));
    OK(terrace_get(db, NULL, NULL, B("soon"), &value));
    CHECK(is(&value, "gone"));
    OK(terrace_close(db));
    terrace_db_free(db);
    CHECK(asked == 1006);

    /* Flushes ask, too, if they are to. */
    options = terrace_options_new();
    OK(terrace_options_set_compaction_filter(options, NULL, "by name", &asked, by_name,
                                             TERRACE_FILTER_FLUSHES + TERRACE_FILTER_IGNORES_SNAPSHOTS, NULL));
    asked = 0;
    snprintf(place, sizeof place, "%s-filtering-flushes", dir);
    OK(terrace_open(place, options, &db));
    terrace_options_free(options);
    OK(terrace_put(db, NULL, B("old"), B("1")));
    OK(terrace_flush(db));
    CHECK(asked == 1);
    OK(terrace_get(db, NULL, NULL, B("old"), &value));
    CHECK(is(&value, NULL));
    OK(terrace_close(db));
    terrace_db_free(db);
    CHECK(asked == 1);
}

static void loads(terrace_db *db) {
    terrace_family *loaded = NULL;
    terrace_bulk_loader *loader = NULL;
    terrace_value value;
    uint64_t entries = 0, expires_at_ms = 0;
    OK(terrace_family_create(db, "loaded", NULL, &loaded));
    OK(terrace_put(db, loaded, B("gone"), B("old")));
    FAILS(TERRACE_INVALID_ARGUMENT, terrace_bulk_loader_new(db, loaded, 1, TERRACE_INGEST_DEFAULT, &loader));
    FAILS(TERRACE_INVALID_ARGUMENT, terrace_bulk_loader_new(db, loaded, 0, TERRACE_INGEST_MOVE, &loader));
    CHECK(loader == NULL);
    OK(terrace_bulk_loader_new(db, loaded, 1 << 20, TERRACE_INGEST_DEFAULT, &loader));
    OK(terrace_bulk_loader_put(loader, B("b"), B("first")));
    OK(terrace_bulk_loader_put(loader, B("a"), B("1")));
    OK(terrace_bulk_loader_put(loader, B("b"), B("last")));
    OK(terrace_bulk_loader_put_until(loader, B("c"), NULL, 0, 4102444800000ull));
    OK(terrace_bulk_loader_delete(loader, B("gone")));
    OK(terrace_get(db, loaded, NULL, B("a"), &value));
    CHECK(is(&value, NULL));
    OK(terrace_bulk_loader_finish(loader, &entries));
    CHECK(entries == 4);
    FAILS(TERRACE_INVALID_ARGUMENT, terrace_bulk_loader_put(loader, B("d"), B("late")));
    FAILS(TERRACE_INVALID_ARGUMENT, terrace_bulk_loader_finish(loader, NULL));
    terrace_bulk_loader_free(loader);
    OK(terrace_get(db, loaded, NULL, B("b"), &value));
    CHECK(is(&value, "last"));
    OK(terrace_get(db, loaded, NULL, B("gone"), &value));
    CHECK(is(&value, NULL));
    OK(terrace_get_with_expiry(db, loaded, NULL, B("c"), &value, &expires_at_ms));
    CHECK(is(&value, "") && expires_at_ms == 4102444800000ull);

    OK(terrace_bulk_loader_new(db, loaded, 0, TERRACE_INGEST_BELOW, &loader));
    OK(terrace_bulk_loader_put(loader, B("a"), B("below")));
    OK(terrace_bulk_loader_put(loader, B("aa"), B("below")));
    OK(terrace_bulk_loader_finish(loader, NULL));
    terrace_bulk_loader_free(loader);
    OK(terrace_get(db, loaded, NULL, B("a"), &value));
    CHECK(is(&value, "1"));
    OK(terrace_get(db, loaded, NULL, B("aa"), &value));
    CHECK(is(&value, "below"));

    /* One that is not finished leaves nothing. */
    OK(terrace_bulk_loader_new(db, loaded, 0, TERRACE_INGEST_DEFAULT, &loader));
    OK(terrace_bulk_loader_put(loader, B("never"), B("1")));
    terrace_bulk_loader_free(loader);
    OK(terrace_get(db, loaded, NULL, B("never"), &value));
    CHECK(is(&value, NULL));
    terrace_family_free(loaded);
}

static void backups(const char *dir) {
    static char kept[sizeof path], restored[sizeof path], store[sizeof path];
    terrace_backups *backups = NULL, *other = NULL;
    terrace_db *db = NULL;
    terrace_value value;
    uint64_t first = 0, second = 0, ids[3] = {0, 0, 0}, created_ms = 0, size_bytes = 0;
    size_t count = 7;
    file_below("backed-up", dir, store);
    file_below("backups", dir, kept);
    file_below("restored", dir, restored);
    OK(terrace_open(store, NULL, &db));
    FAILS(TERRACE_INVALID_ARGUMENT, terrace_backups_open(store, &backups));
    CHECK(backups == NULL);
    OK(terrace_backups_open(kept, &backups));
    FAILS(TERRACE_LOCKED, terrace_backups_open(kept, &other));
    OK(terrace_backups_list(backups, NULL, 0, &count));
    CHECK(count == 0);
    OK(terrace_put(db, NULL, B("a"), B("1")));
    OK(terrace_backups_create(backups, db, &first));
    OK(terrace_put(db, NULL, B("a"), B("2")));
    OK(terrace_backups_create(backups, db, NULL));
    OK(terrace_backups_create(backups, db, &second));
    OK(terrace_backups_list(backups, ids, 2, &count));
    CHECK(count == 3 && ids[0] == first && ids[1] > first && ids[1] < second && ids[2] == 0);
    OK(terrace_backups_describe(backups, first, &created_ms, &size_bytes));
    CHECK(created_ms > 1600000000000ull && size_bytes > 0);
    OK(terrace_backups_describe(backups, first, NULL, NULL));
    OK(terrace_backups_verify(backups, first));
    OK(terrace_backups_restore(backups, first, restored));
    FAILS(TERRACE_INVALID_ARGUMENT, terrace_backups_restore(backups, first, restored));
    OK(terrace_backups_remove(backups, first));
    FAILS(TERRACE_INVALID_ARGUMENT, terrace_backups_verify(backups, first));
    OK(terrace_backups_keep_latest(backups, 1));
    OK(terrace_backups_list(backups, ids, 3, &count));
    CHECK(count == 1 && ids[0] == second);
    OK(terrace_close(db));
    FAILS(TERRACE_CLOSED, terrace_backups_create(backups, db, NULL));
    terrace_db_free(db);
    terrace_backups_free(backups);
    OK(terrace_open(restored, NULL, &db));
    OK(terrace_get(db, NULL, NULL, B("a"), &value));
    CHECK(is(&value, "1"));
    OK(terrace_close(db));
    terrace_db_free(db);
}

/* Changes a byte of each sorted file of a store; gives how many there are. */
static int damage_sorted_files(const char *store) {
    static char at[2 * sizeof path];
    int count = 0;
    DIR *files = opendir(store);
    CHECK(files != NULL);
    for (struct dirent *file = readdir(files); file; file = readdir(files)) {
        if (!strstr(file->d_name, ".sst")) {
            continue;
        }
        snprintf(at, sizeof at, "%s/%s", store, file->d_name);
        FILE *opened = fopen(at, "r+b");
        CHECK(opened != NULL);
        CHECK(fseek(opened, 9, SEEK_SET) == 0);
        int byte = fgetc(opened);
        CHECK(byte != EOF && fseek(opened, 9, SEEK_SET) == 0);
        CHECK(fputc(byte ^ 1, opened) != EOF && fclose(opened) == 0);
        count++;
    }
    CHECK(closedir(files) == 0);
    return count;
}

static void backups_as_they_are(const char *dir) {
    static char kept[sizeof path], store[sizeof path];
    terrace_backups *backups = NULL;
    terrace_db *db = NULL;
    terrace_options *options = terrace_options_new();
    uint64_t id = 0;
    size_t count = 7;
    OK(terrace_options_set(options, "compact_when_idle", "false"));
    file_below("damaged", dir, store);
    file_below("backups-as-they-are", dir, kept);
    OK(terrace_open(store, options, &db));
    OK(terrace_put(db, NULL, B("a"), B("1")));
    OK(terrace_flush(db));
    CHECK(damage_sorted_files(store) == 1);
    OK(terrace_backups_open(kept, &backups));
    FAILS(TERRACE_CORRUPTION, terrace_backups_create(backups, db, &id));
    OK(terrace_backups_list(backups, NULL, 0, &count));
    CHECK(count == 0 && id == 0);
    OK(terrace_backups_create_as_is(backups, db, &id));
    CHECK(id != 0);
    OK(terrace_backups_verify(backups, id));
    OK(terrace_backups_create_as_is(backups, db, NULL));
    OK(terrace_close(db));
    FAILS(TERRACE_CLOSED, terrace_backups_create_as_is(backups, db, NULL));
    terrace_db_free(db);
    terrace_backups_free(backups);
    terrace_options_free(options);
}

int main(int argc, char **argv) {
    CHECK(argc == 2);
    CHECK(terrace_version()[0] != '\0');
    terrace_db *db = open_store(argv[1]);
    points(db);
    families(db);
    iterators(db);
    transactions(db);
    transaction_scans(db);
    administration(db, argv[1]);
    ingestion(db, argv[1]);
    loads(db);
    backups(argv[1]);
    backups_as_they_are(argv[1]);
    updates(argv[1]);
    merge_operators(argv[1]);
    compaction_filters(argv[1]);
    OK(terrace_close(db));
    OK(terrace_close(db));
    terrace_db_free(db);

    char *report = NULL;
    OK(terrace_repair(argv[1], NULL, true, &report));
    CHECK(strncmp(report, "sound", 5) == 0);
    terrace_string_free(report);
    OK(terrace_open(below("checkpoint", argv[1]), NULL, &db));
    terrace_value value;
    OK(terrace_get(db, NULL, NULL, B("c"), &value));
    CHECK(is(&value, "new"));
    OK(terrace_get(db, NULL, NULL, B("news"), &value));
    CHECK(is(&value, NULL));
    terrace_db_free(db);
    puts("every function was called");
    return 0;
}
