/* A session store: sessions that end by themselves, a visitor's counter that two programs may count at the
 * same time, and a list of who is there.
 *
 *     cc sessions.c -lterrace -o sessions && ./sessions /tmp/sessions
 */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <terrace.h>

/* Half an hour, in milliseconds. */
#define SESSION_MS (30 * 60 * 1000)

/* Ends the program if a call failed. */
static void check(terrace_error *error) {
    if (error) {
        fprintf(stderr, "error %" PRId32 ": %s\n", terrace_error_code(error),
                terrace_error_message(error));
        terrace_error_free(error);
        exit(1);
    }
}

/* Begins the session of a user; it ends by itself. */
static void begin_session(terrace_db *db, const char *id, const char *user) {
    char key[128];
    int len = snprintf(key, sizeof key, "session/%s", id);
    check(terrace_put_with_ttl(db, NULL, (const uint8_t *)key, (size_t)len, (const uint8_t *)user,
                               strlen(user), SESSION_MS));
}

/* Adds one to the visits of a user, whoever else does at the same time. */
static uint64_t count_visit(terrace_db *db, terrace_family *visits, const char *user) {
    for (;;) {
        terrace_transaction *transaction;
        check(terrace_transaction_begin(db, &transaction));
        terrace_value value;
        check(terrace_transaction_get(transaction, visits, (const uint8_t *)user, strlen(user), &value));
        uint64_t count = 0;
        if (value.len == sizeof count) {
            memcpy(&count, value.data, sizeof count);
        }
        terrace_value_free(&value);
        count++;
        check(terrace_transaction_put(transaction, visits, (const uint8_t *)user, strlen(user),
                                      (const uint8_t *)&count, sizeof count));
        terrace_error *error = terrace_transaction_commit(transaction, TERRACE_SYNC_DEFAULT);
        terrace_transaction_free(transaction);
        if (terrace_error_code(error) != TERRACE_CONFLICT) {
            check(error);
            return count;
        }
        /* Somebody was faster: read again. */
        terrace_error_free(error);
    }
}

/* Prints who is there. */
static void list_sessions(terrace_db *db) {
    terrace_read_options *options = terrace_read_options_new();
    check(terrace_read_options_set_prefix(options, (const uint8_t *)"session/", 8));
    terrace_iter *iter;
    check(terrace_iter_new(db, NULL, options, &iter));
    terrace_read_options_free(options);
    check(terrace_iter_seek_to_first(iter));
    while (terrace_iter_valid(iter)) {
        size_t key_len, user_len;
        const uint8_t *key = terrace_iter_key(iter, &key_len);
        const uint8_t *user = terrace_iter_value(iter, &user_len);
        printf("%.*s: %.*s until %" PRIu64 "\n", (int)key_len, (const char *)key, (int)user_len,
               (const char *)user, terrace_iter_expires_at_ms(iter));
        check(terrace_iter_next(iter));
    }
    terrace_iter_free(iter);
}

int main(int argc, char **argv) {
    if (argc != 2) {
        fprintf(stderr, "usage: %s DIRECTORY\n", argv[0]);
        return 2;
    }
    terrace_options *options = terrace_options_new();
    check(terrace_options_set(options, "memory_budget", "64MiB"));
    check(terrace_options_add_family(options, "visits"));
    terrace_db *db;
    check(terrace_open(argv[1], options, &db));
    terrace_options_free(options);
    terrace_family *visits;
    check(terrace_family_get(db, "visits", &visits));

    begin_session(db, "5d41", "anna");
    begin_session(db, "7f2b", "bert");
    printf("anna was here %" PRIu64 " times\n", count_visit(db, visits, "anna"));
    list_sessions(db);

    terrace_family_free(visits);
    check(terrace_close(db));
    terrace_db_free(db);
    return 0;
}
