/* Gets and puts per second of Terrace through terrace.h beside RocksDB through rocksdb/c.h, in one run.
 *
 *     cc -O2 peers.c -lterrace -ldl -o peers && ./peers LIBROCKSDB.so DIRECTORY [KEYS] > result.json
 *
 * Both stores get the same keys and values in the same order and take turns, three rounds with another one first in each,
 * of which the median counts. Nothing is compressed. The data fit the memory of each; everything is merged before it is
 * read, and what is read has been read before. DIRECTORY must not exist; it is made, and removed at the end. RocksDB's
 * library is loaded at run time, since neither its header nor its version is this project's. It copies values
 * (rocksdb_get), as terrace_get does not; with "pinned" it does not copy either.
 */
#define _XOPEN_SOURCE 700
#include <dlfcn.h>
#include <errno.h>
#include <ftw.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <terrace.h>
#include <time.h>
#include <unistd.h>

#define ROUNDS 3
#define KEY_BYTES 16
#define VALUE_BYTES 100
#define MEMORY_MIB 512
#define RANDOM_BYTES (1 << 20) /* of which values are pieces */
#define OPEN_DIRECTORIES 16

static uint64_t keys = 1000000;
static char (*written)[KEY_BYTES + 1]; /* in the order of puts */
static char (*asked)[KEY_BYTES + 1];   /* in the order of gets */
static uint8_t values[RANDOM_BYTES];

static void fail(const char *what) {
    fprintf(stderr, "%s\n", what);
    exit(1);
}

/* The value of the put with this number. */
static const uint8_t *value_of(uint64_t at) {
    return values + at * VALUE_BYTES % (RANDOM_BYTES - VALUE_BYTES);
}

static int remove_one(const char *path, const struct stat *stat, int kind, struct FTW *walk) {
    (void)stat, (void)kind, (void)walk;
    return remove(path);
}

/* A directory with everything in it. */
static void remove_all(const char *path) {
    if (nftw(path, remove_one, OPEN_DIRECTORIES, FTW_DEPTH | FTW_PHYS)) {
        fail(strerror(errno));
    }
}

static void check(terrace_error *error) {
    if (error) {
        fail(terrace_error_message(error));
    }
}

static double now(void) {
    struct timespec time;
    clock_gettime(CLOCK_MONOTONIC, &time);
    return (double)time.tv_sec + (double)time.tv_nsec * 1e-9;
}

/* RocksDB's C interface, as far as it is used. */
typedef void *handle;
#define FUNCTIONS(F)                                                                             \
    F(handle, options_create, (void))                                                            \
    F(void, options_set_create_if_missing, (handle, unsigned char))                              \
    F(void, options_set_write_buffer_size, (handle, size_t))                                     \
    F(void, options_set_compression, (handle, int))                                              \
    F(void, options_set_block_based_table_factory, (handle, handle))                             \
    F(void, options_destroy, (handle))                                                           \
    F(handle, block_based_options_create, (void))                                                \
    F(void, block_based_options_set_block_cache, (handle, handle))                               \
    F(void, block_based_options_set_filter_policy, (handle, handle))                             \
    F(void, block_based_options_destroy, (handle))                                               \
    F(handle, filterpolicy_create_bloom, (double))                                               \
    F(handle, cache_create_lru, (size_t))                                                        \
    F(void, cache_destroy, (handle))                                                             \
    F(handle, open, (handle, const char *, char **))                                             \
    F(void, close, (handle))                                                                     \
    F(handle, readoptions_create, (void))                                                        \
    F(void, readoptions_destroy, (handle))                                                       \
    F(handle, writeoptions_create, (void))                                                       \
    F(void, writeoptions_destroy, (handle))                                                      \
    F(void, put, (handle, handle, const char *, size_t, const char *, size_t, char **))          \
    F(char *, get, (handle, handle, const char *, size_t, size_t *, char **))                    \
    F(handle, get_pinned, (handle, handle, const char *, size_t, char **))                       \
    F(void, pinnableslice_destroy, (handle))                                                     \
    F(void, compact_range, (handle, const char *, size_t, const char *, size_t))                 \
    F(void, free, (void *))
#define DECLARE(result, name, arguments) static result(*rocks_##name) arguments;
FUNCTIONS(DECLARE)

static void load(const char *path) {
    void *library = dlopen(path, RTLD_NOW | RTLD_LOCAL);
    if (!library) {
        fail(dlerror());
    }
#define LOAD(result, name, arguments)                                                            \
    *(void **)&rocks_##name = dlsym(library, "rocksdb_" #name);                                  \
    if (!rocks_##name) {                                                                         \
        fail("the library has no rocksdb_" #name);                                               \
    }
    FUNCTIONS(LOAD)
}

enum { TERRACE, ROCKSDB, ROCKSDB_PINNED, ENGINES };
static const char *const names[ENGINES] = {"terrace", "rocksdb", "rocksdb pinned"};
enum { PUTS, GETS, ABSENT, FIGURES };
static const char *const figures[FIGURES] = {"puts", "gets, cached", "gets of absent keys"};
static double rates[FIGURES][ENGINES][ROUNDS];

static void measure_terrace(const char *path, int round) {
    terrace_options *options = terrace_options_new();
    char budget[32];
    snprintf(budget, sizeof budget, "%dMiB", MEMORY_MIB);
    check(terrace_options_set(options, "memory_budget", budget));
    check(terrace_options_set(options, "sync", "none"));
    check(terrace_options_set(options, "compression", "none"));
    terrace_db *db;
    check(terrace_open(path, options, &db));
    terrace_options_free(options);
    double start = now();
    for (uint64_t at = 0; at < keys; at++) {
        check(terrace_put(db, NULL, (const uint8_t *)written[at], KEY_BYTES, value_of(at), VALUE_BYTES));
    }
    rates[PUTS][TERRACE][round] = (double)keys / (now() - start);
    check(terrace_compact_range(db, NULL, NULL, 0, NULL, 0));
    check(terrace_wait_idle(db));
    for (int pass = 0; pass < 3; pass++) {
        size_t len = pass == 2 ? KEY_BYTES + 1 : KEY_BYTES;
        start = now();
        for (uint64_t at = 0; at < keys; at++) {
            terrace_value found;
            check(terrace_get(db, NULL, NULL, (const uint8_t *)asked[at], len, &found));
            if ((found.data != NULL) != (pass < 2) || (found.data && found.len != VALUE_BYTES)) {
                fail("a wrong answer of terrace");
            }
            terrace_value_free(&found);
        }
        rates[pass == 2 ? ABSENT : GETS][TERRACE][round] = (double)keys / (now() - start);
    }
    check(terrace_close(db));
    terrace_db_free(db);
}

static void measure_rocksdb(const char *path, int round, int engine) {
    char *error = NULL;
    handle cache = rocks_cache_create_lru((size_t)MEMORY_MIB * 3 / 4 << 20);
    handle tables = rocks_block_based_options_create();
    rocks_block_based_options_set_block_cache(tables, cache);
    rocks_block_based_options_set_filter_policy(tables, rocks_filterpolicy_create_bloom(10));
    handle options = rocks_options_create();
    rocks_options_set_create_if_missing(options, 1);
    rocks_options_set_write_buffer_size(options, (size_t)MEMORY_MIB / 16 << 20);
    rocks_options_set_compression(options, 0);
    rocks_options_set_block_based_table_factory(options, tables);
    handle db = rocks_open(options, path, &error);
    if (error) {
        fail(error);
    }
    handle read = rocks_readoptions_create(), write = rocks_writeoptions_create();
    double start = now();
    for (uint64_t at = 0; at < keys && !error; at++) {
        rocks_put(db, write, written[at], KEY_BYTES, (const char *)value_of(at), VALUE_BYTES, &error);
    }
    rates[PUTS][engine][round] = (double)keys / (now() - start);
    rocks_compact_range(db, NULL, 0, NULL, 0);
    for (int pass = 0; pass < 3; pass++) {
        size_t len = pass == 2 ? KEY_BYTES + 1 : KEY_BYTES;
        start = now();
        for (uint64_t at = 0; at < keys && !error; at++) {
            size_t found_len = VALUE_BYTES;
            int is_there;
            if (engine == ROCKSDB_PINNED) {
                handle found = rocks_get_pinned(db, read, asked[at], len, &error);
                is_there = found != NULL;
                if (found) {
                    rocks_pinnableslice_destroy(found);
                }
            } else {
                char *found = rocks_get(db, read, asked[at], len, &found_len, &error);
                is_there = found != NULL;
                rocks_free(found);
            }
            if (is_there != (pass < 2) || (is_there && found_len != VALUE_BYTES)) {
                fail("a wrong answer of rocksdb");
            }
        }
        rates[pass == 2 ? ABSENT : GETS][engine][round] = (double)keys / (now() - start);
    }
    if (error) {
        fail(error);
    }
    rocks_readoptions_destroy(read);
    rocks_writeoptions_destroy(write);
    rocks_close(db);
    rocks_options_destroy(options);
    rocks_block_based_options_destroy(tables);
    rocks_cache_destroy(cache);
}

static uint64_t draw(void) {
    static uint64_t state = 88172645463325252u;
    state ^= state << 13;
    state ^= state >> 7;
    return state ^= state << 17;
}

/* All keys in a random order. */
static void shuffle(char (*order)[KEY_BYTES + 1]) {
    for (uint64_t at = 0; at < keys; at++) {
        snprintf(order[at], KEY_BYTES + 1, "key%013" PRIu64, at % 10000000000000u);
    }
    for (uint64_t at = keys - 1; at > 0; at--) {
        uint64_t other = draw() % (at + 1);
        char moved[KEY_BYTES + 1];
        memcpy(moved, order[at], sizeof moved);
        memcpy(order[at], order[other], sizeof moved);
        memcpy(order[other], moved, sizeof moved);
    }
}

static int by_size(const void *one, const void *other) {
    double a = *(const double *)one, b = *(const double *)other;
    return (a > b) - (a < b);
}

int main(int argc, char **argv) {
    if (argc < 3) {
        fail("usage: peers LIBROCKSDB.so DIRECTORY [KEYS]");
    }
    load(argv[1]);
    keys = argc > 3 ? strtoull(argv[3], NULL, 10) : keys;
    written = malloc(keys * sizeof *written);
    asked = malloc(keys * sizeof *asked);
    if (keys < 2 || !written || !asked) {
        fail("a number of keys that fits the memory, and more than one");
    }
    shuffle(written);
    shuffle(asked);
    for (int at = 0; at < RANDOM_BYTES; at++) {
        values[at] = (uint8_t)draw();
    }
    if (mkdir(argv[2], 0777)) {
        fail(errno == EEXIST ? "the directory is there already" : strerror(errno));
    }
    for (int round = 0; round < ROUNDS; round++) {
        for (int turn = 0; turn < ENGINES; turn++) {
            int engine = (turn + round) % ENGINES;
            char path[4096];
            snprintf(path, sizeof path, "%s/%d-%d", argv[2], round, engine);
            sync(); /* what the one before has left to write */
            if (engine == TERRACE) {
                measure_terrace(path, round);
            } else {
                measure_rocksdb(path, round, engine);
            }
            remove_all(path);
        }
    }
    remove_all(argv[2]);
    printf("{\"keys\": %" PRIu64 ", \"value_bytes\": %d, \"memory_mib\": %d, \"rounds\": %d, \"median_per_second\": {",
           keys, VALUE_BYTES, MEMORY_MIB, ROUNDS);
    for (int figure = 0; figure < FIGURES; figure++) {
        printf("%s\n  \"%s\": {", figure ? "," : "", figures[figure]);
        for (int engine = 0; engine < ENGINES; engine++) {
            qsort(rates[figure][engine], ROUNDS, sizeof(double), by_size);
            printf("%s\"%s\": %.0f", engine ? ", " : "", names[engine], rates[figure][engine][ROUNDS / 2]);
        }
        printf("}");
    }
    printf("\n}}\n");
    return 0;
}
