/* What a program for LevelDB does with its C interface, and what it relies on. */
#include <leveldb/c.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define CHECK(what)                                                            \
    do {                                                                       \
        if (!(what)) {                                                         \
            fprintf(stderr, "%s:%d: not so: %s (%s)\n", __FILE__, __LINE__,    \
                    #what, err ? err : "no error");                            \
            exit(1);                                                           \
        }                                                                      \
    } while (0)

static char *err = NULL;
static leveldb_t *db;
static leveldb_options_t *options;
static leveldb_readoptions_t *reading;
static leveldb_writeoptions_t *writing;

static void fails(const char *start) {
    CHECK(err != NULL && strncmp(err, start, strlen(start)) == 0);
    leveldb_free(err);
    err = NULL;
}

static void get_is(const leveldb_readoptions_t *how, const char *key, const char *expected) {
    size_t len = 7;
    char *value = leveldb_get(db, how, key, strlen(key), &len, &err);
    CHECK(err == NULL);
    if (!expected) {
        CHECK(value == NULL && len == 0);
    } else {
        CHECK(value != NULL && len == strlen(expected) && memcmp(value, expected, len) == 0);
    }
    leveldb_free(value);
}

static void put(const char *key, const char *value) {
    leveldb_put(db, writing, key, strlen(key), value, strlen(value), &err);
    CHECK(err == NULL);
}

static void iter_is(leveldb_iterator_t *iter, const char *key, const char *value) {
    size_t len;
    CHECK(leveldb_iter_valid(iter));
    const char *text = leveldb_iter_key(iter, &len);
    CHECK(len == strlen(key) && memcmp(text, key, len) == 0);
    text = leveldb_iter_value(iter, &len);
    CHECK(len == strlen(value) && memcmp(text, value, len) == 0);
}

static int puts_seen, deletes_seen;

static void on_put(void *state, const char *k, size_t klen, const char *v, size_t vlen) {
    CHECK(state == &puts_seen);
    CHECK((klen == 3 && memcmp(k, "bar", 3) == 0 && vlen == 1 && v[0] == 'b') ||
          (klen == 3 && memcmp(k, "box", 3) == 0 && vlen == 1 && v[0] == 'c'));
    puts_seen++;
}

static void on_delete(void *state, const char *k, size_t klen) {
    CHECK(state == &puts_seen && klen == 3 && memcmp(k, "bar", 3) == 0);
    deletes_seen++;
}

static int destroyed;

static void destroy_state(void *state) {
    (void)state;
    destroyed++;
}

static int compare(void *state, const char *a, size_t alen, const char *b, size_t blen) {
    (void)state;
    size_t least = alen < blen ? alen : blen;
    int order = memcmp(b, a, least);
    return order ? order : (int)blen - (int)alen;
}

static const char *comparator_name(void *state) {
    (void)state;
    return "reverse";
}

static void open_and_refuse(const char *dir) {
    db = leveldb_open(options, dir, &err);
    CHECK(db == NULL);
    fails("Invalid argument: ");
    leveldb_options_set_create_if_missing(options, 1);
    db = leveldb_open(options, dir, &err);
    CHECK(db != NULL && err == NULL);
    leveldb_options_set_error_if_exists(options, 1);
    CHECK(leveldb_open(options, dir, &err) == NULL);
    fails("Invalid argument: ");
    leveldb_options_set_error_if_exists(options, 0);
    CHECK(leveldb_open(options, dir, &err) == NULL);
    fails("IO error: ");
}

/* The order of a program's comparator, which a store has for good. */
static void comparators(const char *dir) {
    char path[4096];
    snprintf(path, sizeof path, "%s-reverse", dir);
    leveldb_comparator_t *reverse =
        leveldb_comparator_create(NULL, destroy_state, compare, comparator_name);
    for (int round = 0; round < 2; round++) {
        leveldb_options_set_comparator(options, reverse);
        db = leveldb_open(options, path, &err);
        CHECK(db != NULL && err == NULL);
        for (int at = 0; round == 0 && at < 1000; at++) {
            char key[16];
            snprintf(key, sizeof key, "%06d", at * 7919 % 1000);
            put(key, key + 3);
        }
        leveldb_iterator_t *iter = leveldb_create_iterator(db, reading);
        leveldb_iter_seek_to_first(iter);
        for (int at = 999; at >= 0; at--) {
            char key[16];
            snprintf(key, sizeof key, "%06d", at);
            iter_is(iter, key, key + 3);
            leveldb_iter_next(iter);
        }
        CHECK(!leveldb_iter_valid(iter));
        leveldb_iter_seek(iter, "0005005", 7);
        iter_is(iter, "000500", "500");
        leveldb_iter_prev(iter);
        iter_is(iter, "000501", "501");
        leveldb_iter_destroy(iter);
        get_is(reading, "000123", "123");
        get_is(reading, "0001234", NULL);
        leveldb_close(db);
        leveldb_options_set_comparator(options, NULL);
        CHECK(leveldb_open(options, path, &err) == NULL);
        fails("Invalid argument: leveldb.BytewiseComparator does not match");
    }
    /* Nor can a store in the order of bytes get another one. */
    leveldb_options_set_comparator(options, reverse);
    CHECK(leveldb_open(options, dir, &err) == NULL);
    fails("Invalid argument: reverse does not match");
    leveldb_options_set_comparator(options, NULL);
    leveldb_destroy_db(options, path, &err);
    CHECK(err == NULL);
    leveldb_comparator_destroy(reverse);
    CHECK(destroyed == 1);
}

/* Keys that are longer than the engine's can be, among others. */
static void long_keys(void) {
    enum { COUNT = 60, STEP = 2000 };
    static char key[COUNT * STEP];
    memset(key, 'l', sizeof key);
    leveldb_writebatch_t *batch = leveldb_writebatch_create();
    for (size_t at = 1; at <= COUNT; at++) {
        leveldb_writebatch_put(batch, key, at * STEP, (const char *)&at, sizeof at);
    }
    leveldb_writebatch_put(batch, "m", 1, "after", 5);
    leveldb_write(db, writing, batch, &err);
    CHECK(err == NULL);
    leveldb_writebatch_destroy(batch);
    leveldb_iterator_t *iter = leveldb_create_iterator(db, reading);
    leveldb_iter_seek(iter, "l", 1);
    for (size_t at = 1, len; at <= COUNT; at++) {
        CHECK(leveldb_iter_valid(iter));
        leveldb_iter_key(iter, &len);
        const char *value = leveldb_iter_value(iter, &len);
        CHECK(len == sizeof at && memcmp(value, &at, len) == 0);
        leveldb_iter_key(iter, &len);
        CHECK(len == at * STEP);
        leveldb_iter_next(iter);
    }
    iter_is(iter, "m", "after");
    for (size_t at = COUNT, len; at >= 1; at--) {
        leveldb_iter_prev(iter);
        CHECK(leveldb_iter_valid(iter));
        leveldb_iter_key(iter, &len);
        CHECK(len == at * STEP);
        /* One step back and forth, over the border of both kinds of keys. */
        leveldb_iter_next(iter);
        leveldb_iter_prev(iter);
        leveldb_iter_key(iter, &len);
        CHECK(len == at * STEP);
    }
    leveldb_iter_seek(iter, key, 65537);
    size_t len;
    leveldb_iter_key(iter, &len);
    CHECK(len == 66000);
    leveldb_iter_destroy(iter);
    const char *starts[] = {key}, *limits[] = {"m"};
    size_t start_lens[] = {70000}, limit_lens[] = {1};
    uint64_t sizes[1] = {0};
    leveldb_approximate_sizes(db, 1, starts, start_lens, limits, limit_lens, sizes);
    CHECK(sizes[0] > 0);
    leveldb_delete(db, writing, key, 66000, &err);
    CHECK(err == NULL);
    size_t left = 7;
    CHECK(leveldb_get(db, reading, key, 66000, &left, &err) == NULL && err == NULL && left == 0);
    char *value = leveldb_get(db, reading, key, 68000, &left, &err);
    CHECK(value != NULL && left == sizeof left);
    leveldb_free(value);
}

static void batches(void) {
    leveldb_writebatch_t *batch = leveldb_writebatch_create(), *more = leveldb_writebatch_create();
    leveldb_writebatch_put(batch, "foo", 3, "a", 1);
    leveldb_writebatch_clear(batch);
    leveldb_writebatch_put(batch, "bar", 3, "b", 1);
    leveldb_writebatch_put(more, "box", 3, "c", 1);
    leveldb_writebatch_delete(more, "bar", 3);
    leveldb_writebatch_append(batch, more);
    leveldb_write(db, writing, batch, &err);
    CHECK(err == NULL);
    get_is(reading, "foo", "hello");
    get_is(reading, "bar", NULL);
    get_is(reading, "box", "c");
    leveldb_writebatch_iterate(batch, &puts_seen, on_put, on_delete);
    CHECK(puts_seen == 2 && deletes_seen == 1);
    leveldb_writebatch_append(batch, batch);
    leveldb_writebatch_iterate(batch, &puts_seen, on_put, on_delete);
    CHECK(puts_seen == 6 && deletes_seen == 3);
    leveldb_writebatch_destroy(batch);
    leveldb_writebatch_destroy(more);
}

static void iterators(void) {
    leveldb_iterator_t *iter = leveldb_create_iterator(db, reading);
    CHECK(!leveldb_iter_valid(iter));
    leveldb_iter_seek_to_first(iter);
    iter_is(iter, "box", "c");
    leveldb_iter_next(iter);
    iter_is(iter, "foo", "hello");
    leveldb_iter_prev(iter);
    iter_is(iter, "box", "c");
    leveldb_iter_prev(iter);
    CHECK(!leveldb_iter_valid(iter));
    leveldb_iter_seek_to_last(iter);
    iter_is(iter, "foo", "hello");
    leveldb_iter_seek(iter, "b", 1);
    iter_is(iter, "box", "c");
    leveldb_iter_get_error(iter, &err);
    CHECK(err == NULL);
    leveldb_iter_destroy(iter);
}

static void snapshots_and_sizes(void) {
    const leveldb_snapshot_t *snapshot = leveldb_create_snapshot(db);
    leveldb_delete(db, writing, "foo", 3, &err);
    CHECK(err == NULL);
    leveldb_readoptions_set_snapshot(reading, snapshot);
    get_is(reading, "foo", "hello");
    leveldb_readoptions_set_snapshot(reading, NULL);
    get_is(reading, "foo", NULL);
    leveldb_release_snapshot(db, snapshot);

    char key[20], value[120];
    memset(value, 'v', sizeof value);
    for (int at = 0; at < 20000; at++) {
        int len = snprintf(key, sizeof key, "k%08d", at);
        leveldb_put(db, writing, key, (size_t)len, value, sizeof value, &err);
        CHECK(err == NULL);
    }
    const char *starts[] = {"a", "k00000000"}, *limits[] = {"b", "k00020000"};
    size_t start_lens[] = {1, 9}, limit_lens[] = {1, 9};
    uint64_t sizes[2] = {7, 7};
    leveldb_compact_range(db, NULL, 0, NULL, 0);
    leveldb_approximate_sizes(db, 2, starts, start_lens, limits, limit_lens, sizes);
    CHECK(sizes[0] < 10000 && sizes[1] > 10000);

    char *text = leveldb_property_value(db, "nosuchprop");
    CHECK(text == NULL);
    text = leveldb_property_value(db, "leveldb.stats");
    CHECK(text != NULL && strlen(text) > 20);
    leveldb_free(text);
    text = leveldb_property_value(db, "leveldb.num-files-at-level0");
    CHECK(text != NULL && strcmp(text, "0") == 0);
    leveldb_free(text);
    text = leveldb_property_value(db, "leveldb.approximate-memory-usage");
    CHECK(text != NULL && atol(text) > 0);
    leveldb_free(text);
}

/* A directory at path with these files, all of which say the same, is refused and left as it is. */
static void is_refused(const char *path, const char *const *names, const char *text) {
    char file[4200], there[64];
    CHECK(mkdir(path, 0700) == 0);
    for (size_t at = 0; names[at]; at++) {
        snprintf(file, sizeof file, "%s/%s", path, names[at]);
        FILE *out = fopen(file, "w");
        CHECK(out && fputs(text, out) >= 0 && fclose(out) == 0);
    }
    CHECK(leveldb_open(options, path, &err) == NULL);
    fails("Invalid argument: ");
    leveldb_destroy_db(options, path, &err);
    fails("Invalid argument: ");
    leveldb_repair_db(options, path, &err);
    fails("Invalid argument: ");
    for (size_t at = 0; names[at]; at++) {
        snprintf(file, sizeof file, "%s/%s", path, names[at]);
        FILE *in = fopen(file, "r");
        CHECK(in && fgets(there, sizeof there, in) && strcmp(there, text) == 0);
        CHECK(fclose(in) == 0);
    }
}

/* Directories of LevelDB's own files. A young one, whose LOG was removed, is known by its CURRENT. */
static void files_of_leveldb(const char *dir) {
    char path[4096];
    const char *all[] = {"CURRENT", "MANIFEST-000002", "000003.log", "000005.ldb", "LOG", NULL};
    snprintf(path, sizeof path, "%s-leveldb", dir);
    is_refused(path, all, "x");
    const char *few[] = {"CURRENT", "MANIFEST-000002", "000003.log", "000005.sst", NULL};
    snprintf(path, sizeof path, "%s-leveldb-young", dir);
    is_refused(path, few, "MANIFEST-000002\n");
}

/* A relative name is that of the open, wherever the program goes then: also to where another store has the same one. */
static void another_working_directory(const char *dir) {
    char path[4096];
    const char *places[] = {"../a/store", "store"};
    snprintf(path, sizeof path, "%s-moves", dir);
    CHECK(mkdir(path, 0700) == 0 && chdir(path) == 0);
    CHECK(mkdir("a", 0700) == 0 && mkdir("b", 0700) == 0 && chdir("a") == 0);
    leveldb_t *here = leveldb_open(options, "store", &err);
    CHECK(here != NULL && err == NULL && chdir("../b") == 0);
    db = leveldb_open(options, "store", &err);
    CHECK(db != NULL && err == NULL);
    put("k", "v");
    leveldb_put(here, writing, "k", 1, "v", 1, &err);
    CHECK(err == NULL);
    leveldb_compact_range(here, NULL, 0, NULL, 0);
    leveldb_close(here);
    leveldb_compact_range(db, NULL, 0, NULL, 0);
    leveldb_close(db);
    for (int at = 0; at < 2; at++) {
        db = leveldb_open(options, places[at], &err);
        CHECK(db != NULL && err == NULL);
        get_is(reading, "k", "v");
        leveldb_close(db);
    }
}

int main(int argc, char **argv) {
    CHECK(argc == 2);
    CHECK(leveldb_major_version() == 1 && leveldb_minor_version() == 23);
    leveldb_env_t *env = leveldb_create_default_env();
    leveldb_cache_t *cache = leveldb_cache_create_lru(100000);
    leveldb_filterpolicy_t *bloom = leveldb_filterpolicy_create_bloom(10);
    options = leveldb_options_create();
    leveldb_options_set_env(options, env);
    leveldb_options_set_cache(options, cache);
    leveldb_options_set_info_log(options, NULL);
    leveldb_options_set_filter_policy(options, bloom);
    leveldb_options_set_write_buffer_size(options, 100000);
    leveldb_options_set_paranoid_checks(options, 1);
    leveldb_options_set_max_open_files(options, 100);
    leveldb_options_set_block_size(options, 1024);
    leveldb_options_set_block_restart_interval(options, 8);
    leveldb_options_set_max_file_size(options, 3 << 20);
    leveldb_options_set_compression(options, leveldb_snappy_compression);
    reading = leveldb_readoptions_create();
    leveldb_readoptions_set_verify_checksums(reading, 1);
    leveldb_readoptions_set_fill_cache(reading, 1);
    writing = leveldb_writeoptions_create();
    leveldb_writeoptions_set_sync(writing, 1);
    /* TEST_TMPDIR is empty, which is as if it were not set. */
    char expected[64];
    snprintf(expected, sizeof expected, "/tmp/leveldbtest-%d", (int)geteuid());
    char *test_dir = leveldb_env_get_test_directory(env);
    CHECK(test_dir != NULL && strcmp(test_dir, expected) == 0);
    leveldb_free(test_dir);
    leveldb_filelock_t *lock = NULL;
    leveldb_randomfile_t *random = NULL;
    leveldb_seqfile_t *sequential = NULL;
    leveldb_writablefile_t *writable = NULL;
    CHECK(!lock && !random && !sequential && !writable);

    open_and_refuse(argv[1]);
    get_is(reading, "foo", NULL);
    put("foo", "hello");
    get_is(reading, "foo", "hello");
    put("empty", "");
    get_is(reading, "empty", "");
    leveldb_delete(db, writing, "empty", 5, &err);
    leveldb_delete(db, writing, "absent", 6, &err);
    CHECK(err == NULL);
    batches();
    iterators();
    leveldb_writeoptions_set_sync(writing, 0);
    snapshots_and_sizes();

    long_keys();

    leveldb_close(db);
    leveldb_repair_db(options, argv[1], &err);
    CHECK(err == NULL);
    db = leveldb_open(options, argv[1], &err);
    get_is(reading, "box", "c");
    leveldb_destroy_db(options, argv[1], &err);
    fails("IO error: ");
    leveldb_close(db);
    comparators(argv[1]);
    leveldb_destroy_db(options, argv[1], &err);
    CHECK(err == NULL);
    struct stat there;
    CHECK(stat(argv[1], &there) != 0);
    files_of_leveldb(argv[1]);
    another_working_directory(argv[1]);

    /* An error replaces the one before. */
    size_t len;
    CHECK(leveldb_get(NULL, reading, "k", 1, &len, &err) == NULL);
    CHECK(leveldb_get(NULL, reading, "k", 1, &len, &err) == NULL);
    fails("Invalid argument: ");

    leveldb_iterator_t *none = leveldb_create_iterator(NULL, reading);
    CHECK(!leveldb_iter_valid(none));
    leveldb_iter_get_error(none, &err);
    fails("Invalid argument: ");
    leveldb_iter_destroy(none);
    leveldb_options_destroy(options);
    leveldb_readoptions_destroy(reading);
    leveldb_writeoptions_destroy(writing);
    leveldb_filterpolicy_destroy(bloom);
    leveldb_cache_destroy(cache);
    leveldb_env_destroy(env);
    puts("as LevelDB does");
    return 0;
}
