/* What has no bytes has an address all the same, wherever it comes from: of memtables, sorted files and the log, to the
 * program and to its callbacks. */
#include "check.h"

/* Whether it can be an address: small numbers are none, and some languages refuse pointers that say so. */
static int is_address(const uint8_t *data) {
    return (uintptr_t)data >= 4096;
}

/* Gives no bytes; all that it is given are at an address. */
static void merge_nothing(void *context, const uint8_t *key, size_t key_len, const uint8_t *existing,
                          size_t existing_len, const uint8_t *const *operands,
                          const size_t *operand_lens, size_t count, terrace_merge_result *result) {
    (void)context;
    CHECK(is_address(key) && key_len == 0 && is_address(existing) && existing_len == 0);
    CHECK(count == 1 && is_address(operands[0]) && operand_lens[0] == 0);
    terrace_merge_result_set(result, NULL, 0);
}

static int32_t keep_nothing(void *context, terrace_filter_entry *entry) {
    size_t key_len = 7, value_len = 7;
    ++*(int *)context;
    CHECK(is_address(terrace_filter_entry_key(entry, &key_len)) && key_len == 0);
    CHECK(is_address(terrace_filter_entry_value(entry, &value_len)) && value_len == 0);
    return TERRACE_FILTER_KEEP;
}

static void no_bytes(const char *dir) {
    terrace_options *options = terrace_options_new();
    terrace_db *db = NULL;
    terrace_iter *iter = NULL;
    terrace_updates *feed = NULL;
    terrace_value value;
    size_t len = 7;
    bool is_there = false;
    int asked = 0;
    OK(terrace_options_set_merge_operator(options, NULL, "nothing", NULL, merge_nothing, NULL, NULL));
    OK(terrace_options_set_compaction_filter(options, NULL, "nothing", &asked, keep_nothing, 0, NULL));
    OK(terrace_open(dir, options, &db));
    terrace_options_free(options);
    OK(terrace_updates_since(db, 1, false, &feed));
    OK(terrace_put(db, NULL, NULL, 0, NULL, 0));
    for (int flushes = 0; flushes < 2; flushes++) {
        OK(terrace_get(db, NULL, NULL, NULL, 0, &value));
        CHECK(is_address(value.data) && value.len == 0);
        CHECK(is(&value, ""));
        OK(terrace_iter_new(db, NULL, NULL, &iter));
        OK(terrace_iter_seek_to_first(iter));
        CHECK(terrace_iter_valid(iter));
        CHECK(is_address(terrace_iter_key(iter, &len)) && len == 0);
        CHECK(is_address(terrace_iter_value(iter, &len)) && len == 0);
        terrace_iter_free(iter);
        OK(terrace_flush(db));
    }
    OK(terrace_updates_next(feed, &is_there));
    CHECK(is_there && terrace_updates_kind(feed, 0) == TERRACE_UPDATE_PUT);
    CHECK(is_address(terrace_updates_key(feed, 0, &len)) && len == 0);
    CHECK(is_address(terrace_updates_value(feed, 0, &len)) && len == 0);
    terrace_updates_free(feed);
    OK(terrace_compact_range(db, NULL, NULL, 0, NULL, 0));
    CHECK(asked > 0);
    OK(terrace_merge(db, NULL, NULL, 0, NULL, 0));
    OK(terrace_get(db, NULL, NULL, NULL, 0, &value));
    CHECK(is_address(value.data) && value.len == 0);
    CHECK(is(&value, ""));
    OK(terrace_close(db));
    terrace_db_free(db);
}

int main(int argc, char **argv) {
    CHECK(argc == 2);
    no_bytes(argv[1]);
    puts("all of it had an address");
    return 0;
}
