/* What is encrypted: a store, its repair, its backups and sorted files, with keys, with others and without. */
#include "check.h"
#include <dirent.h>
#include <sys/stat.h>

static char path[4096];

static const char *below(const char *name, const char *root, char *place) {
    snprintf(place, sizeof path, "%s-%s", root, name);
    return place;
}

/* Writes a file of keys: one with this number. Its digits are those of `digit` and of the digits around it. */
static const char *key_file(const char *name, const char *dir, int number, char digit) {
    static char at[2][sizeof path];
    static int turn;
    char *place = at[turn = !turn];
    below(name, dir, place);
    FILE *file = fopen(place, "w");
    CHECK(file != NULL);
    fprintf(file, "%d ", number);
    for (int n = 0; n < 32; n++) {
        fprintf(file, "%c%d", digit, n % 10);
    }
    fprintf(file, "\n");
    CHECK(fclose(file) == 0);
    return place;
}

static terrace_options *with_keys(const char *file) {
    terrace_options *options = terrace_options_new();
    OK(terrace_options_set(options, "encryption_key_file", file));
    return options;
}

/* Writes a sorted file below `dir` with `options` and gives its path. */
static const char *sorted_file(const char *name, const char *dir, const terrace_options *options) {
    terrace_sst_writer *writer = NULL;
    const char *at = below(name, dir, path);
    OK(terrace_sst_writer_create(at, options, NULL, &writer));
    OK(terrace_sst_writer_put(writer, B("sorted"), B("file")));
    OK(terrace_sst_writer_finish(writer, NULL));
    terrace_sst_writer_free(writer);
    return at;
}

/* Whether the path of a file below a store fits into `place`, where it is put. */
static int joined(char *place, const char *store, const char *folder, const char *name) {
    int len = snprintf(place, sizeof path, "%s/%s%s", store, folder, name);
    return len > 0 && (size_t)len < sizeof path;
}

/* Moves the sorted files of a store to where an open puts what it cannot use. */
static int lose_sorted_files(const char *store) {
    static char from[sizeof path], to[sizeof path];
    int count = 0;
    CHECK(joined(to, store, "lost", "") && mkdir(to, 0777) == 0);
    DIR *files = opendir(store);
    CHECK(files != NULL);
    for (struct dirent *file = readdir(files); file; file = readdir(files)) {
        if (strstr(file->d_name, ".sst")) {
            CHECK(joined(from, store, "", file->d_name) && joined(to, store, "lost/", file->d_name));
            CHECK(rename(from, to) == 0);
            count++;
        }
    }
    CHECK(closedir(files) == 0);
    return count;
}

/* Whether a repair that succeeded says `words`; frees what it says. */
static int reports(terrace_error *error, char **report, const char *words) {
    OK(error);
    int says = strstr(*report, words) != NULL;
    if (!says) {
        fprintf(stderr, "no `%s`: %s\n", words, *report);
    }
    terrace_string_free(*report);
    return says;
}

static void repairs(const char *dir) {
    static char store[sizeof path];
    terrace_options *options = with_keys(key_file("keys-of-repairs", dir, 1, 'c'));
    terrace_db *db = NULL;
    terrace_value value;
    char *report = NULL;
    below("repaired", dir, store);
    OK(terrace_open(store, options, &db));
    OK(terrace_put(db, NULL, B("kept"), B("here")));
    OK(terrace_flush(db));
    OK(terrace_close(db));
    terrace_db_free(db);

    FAILS(TERRACE_UNSUPPORTED, terrace_repair(store, NULL, false, &report));
    FAILS(TERRACE_UNSUPPORTED, terrace_repair_from_lost(store, NULL, false, &report));
    CHECK(report == NULL);
    CHECK(reports(terrace_repair(store, options, false, &report), &report, "sound"));
    CHECK(lose_sorted_files(store) > 0);
    CHECK(reports(terrace_repair_from_lost(store, options, true, &report), &report, "lost: "));
    CHECK(reports(terrace_repair(store, options, false, &report), &report, "lost: "));
    CHECK(reports(terrace_repair_from_lost(store, options, false, &report), &report, "taken back"));
    OK(terrace_open(store, options, &db));
    OK(terrace_get(db, NULL, NULL, B("kept"), &value));
    CHECK(is(&value, "here"));
    OK(terrace_close(db));
    terrace_db_free(db);
    terrace_options_free(options);
}

static void encryption(const char *dir) {
    static char kept[sizeof path], clear[sizeof path], restored[sizeof path], store[sizeof path];
    terrace_options *options = with_keys(key_file("keys", dir, 1, 'a'));
    terrace_options *other = with_keys(key_file("other-keys", dir, 1, 'b'));
    terrace_backups *backups = NULL;
    terrace_db *db = NULL, *copy = NULL;
    terrace_value value;
    const char *file;
    below("encrypted", dir, store);
    below("encrypted-backups", dir, kept);
    below("clear-backups", dir, clear);
    below("encrypted-copy", dir, restored);
    OK(terrace_open(store, options, &db));

    file = sorted_file("sorted-in-the-clear.sst", dir, NULL);
    FAILS(TERRACE_UNSUPPORTED, terrace_ingest(db, NULL, 1, &file, TERRACE_INGEST_DEFAULT, NULL));
    file = sorted_file("sorted-with-another-key.sst", dir, other);
    FAILS(TERRACE_UNSUPPORTED, terrace_ingest(db, NULL, 1, &file, TERRACE_INGEST_DEFAULT, NULL));
    file = sorted_file("sorted-encrypted.sst", dir, options);
    OK(terrace_ingest(db, NULL, 1, &file, TERRACE_INGEST_DEFAULT, NULL));
    OK(terrace_get(db, NULL, NULL, B("sorted"), &value));
    CHECK(is(&value, "file"));

    OK(terrace_backups_open(clear, &backups));
    FAILS(TERRACE_INVALID_ARGUMENT, terrace_backups_create(backups, db, NULL));
    terrace_backups_free(backups);
    OK(terrace_backups_open_with(kept, options, &backups));
    OK(terrace_backups_create(backups, db, NULL));
    OK(terrace_backups_verify(backups, 1));
    OK(terrace_backups_restore(backups, 1, restored));
    terrace_backups_free(backups);
    /* Without the keys, and with others. */
    for (int round = 0; round < 2; round++) {
        OK(terrace_backups_open_with(kept, round ? other : NULL, &backups));
        FAILS(TERRACE_UNSUPPORTED, terrace_backups_describe(backups, 1, NULL, NULL));
        FAILS(TERRACE_UNSUPPORTED, terrace_backups_verify(backups, 1));
        terrace_backups_free(backups);
    }
    OK(terrace_close(db));
    terrace_db_free(db);
    FAILS(TERRACE_UNSUPPORTED, terrace_open(restored, NULL, &copy));
    OK(terrace_open(restored, options, &copy));
    OK(terrace_get(copy, NULL, NULL, B("sorted"), &value));
    CHECK(is(&value, "file"));
    OK(terrace_close(copy));
    terrace_db_free(copy);

    /* Keys for backups that are not encrypted. */
    OK(terrace_open(below("clear", dir, store), NULL, &db));
    OK(terrace_backups_open_with(clear, NULL, &backups));
    OK(terrace_backups_create(backups, db, NULL));
    terrace_backups_free(backups);
    OK(terrace_backups_open_with(clear, options, &backups));
    FAILS(TERRACE_UNSUPPORTED, terrace_backups_create(backups, db, NULL));
    FAILS(TERRACE_UNSUPPORTED, terrace_backups_keep_latest(backups, 1));
    terrace_backups_free(backups);
    OK(terrace_close(db));
    terrace_db_free(db);
    terrace_options_free(options);
    terrace_options_free(other);
}

int main(int argc, char **argv) {
    CHECK(argc == 2);
    encryption(argv[1]);
    repairs(argv[1]);
    puts("everything was encrypted");
    return 0;
}
