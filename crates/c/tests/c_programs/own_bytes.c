/* Seeks to bytes of the entry that an iterator stands on: a part of its key, and its value. They go with the block and the
 * file that the seek leaves. */
#include "check.h"

#define KEYS 2000

static void key_of(int number, char *key) {
    snprintf(key, 16, "k%05d", number);
}

/* Of a value that begins with the key of another entry. */
static int other(int number) {
    return number * 7 % KEYS;
}

static terrace_db *fill(const char *dir) {
    char key[16], value[128];
    uint64_t files = 0;
    terrace_options *options = terrace_options_new();
    terrace_db *db = NULL;
    OK(terrace_options_set(options, "compression", "none"));
    OK(terrace_options_set(options, "target_file_bytes", "16KiB"));
    OK(terrace_open(dir, options, &db));
    terrace_options_free(options);
    memset(value, 'x', sizeof value);
    /* The keys of both flushes are among each other, so that they are merged. */
    for (int parity = 0; parity < 2; parity++) {
        for (int number = parity; number < KEYS; number += 2) {
            key_of(number, key);
            key_of(other(number), value);
            value[strlen(key)] = 'x';
            OK(terrace_put(db, NULL, B(key), (const uint8_t *)value, sizeof value));
        }
        OK(terrace_flush(db));
    }
    OK(terrace_compact_range(db, NULL, NULL, 0, NULL, 0));
    OK(terrace_verify(db, &files));
    CHECK(files > 3);
    return db;
}

/* Whether the iterator stands on this key; on none if there is no such number. */
static int stands_on(terrace_iter *iter, int number) {
    char key[16];
    size_t len = 0;
    const uint8_t *data = terrace_iter_key(iter, &len);
    if (number < 0 || number >= KEYS) {
        return !terrace_iter_valid(iter) && data == NULL;
    }
    key_of(number, key);
    return terrace_iter_valid(iter) && len == strlen(key) && memcmp(data, key, len) == 0;
}

/* The key of the entry with this number, or its value, as the iterator has it. */
static const uint8_t *bytes_of(terrace_iter *iter, int number, int is_value, size_t *len) {
    char key[16];
    key_of(number, key);
    OK(terrace_iter_seek(iter, B(key)));
    CHECK(stands_on(iter, number));
    return is_value ? terrace_iter_value(iter, len) : terrace_iter_key(iter, len);
}

static void own_bytes(terrace_db *db) {
    terrace_iter *iter = NULL;
    terrace_value absent;
    size_t len = 0;
    OK(terrace_iter_new(db, NULL, NULL, &iter));
    for (int number = 0; number < KEYS; number += 13) {
        OK(terrace_iter_seek(iter, bytes_of(iter, number, 0, &len), 1));
        CHECK(stands_on(iter, 0));
        OK(terrace_iter_seek_for_prev(iter, bytes_of(iter, number, 0, &len), 1));
        CHECK(stands_on(iter, -1));
        OK(terrace_iter_seek(iter, bytes_of(iter, number, 0, &len), 4));
        CHECK(stands_on(iter, number / 100 * 100));
        OK(terrace_iter_seek_for_prev(iter, bytes_of(iter, number, 0, &len), 4));
        CHECK(stands_on(iter, number / 100 * 100 - 1));
        OK(terrace_get(db, NULL, NULL, bytes_of(iter, number, 0, &len), 1, &absent));
        CHECK(is(&absent, NULL));
        /* The value is above the key that it begins with, and below the next one. */
        const uint8_t *value = bytes_of(iter, number, 1, &len);
        OK(terrace_iter_seek(iter, value, len));
        CHECK(stands_on(iter, other(number) + 1));
        value = bytes_of(iter, number, 1, &len);
        OK(terrace_iter_seek_for_prev(iter, value, len));
        CHECK(stands_on(iter, other(number)));
    }
    terrace_iter_free(iter);
}

int main(int argc, char **argv) {
    CHECK(argc == 2);
    terrace_db *db = fill(argv[1]);
    own_bytes(db);
    OK(terrace_close(db));
    terrace_db_free(db);
    puts("every seek found its key");
    return 0;
}
