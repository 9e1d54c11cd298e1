/* What the programs of the tests share: a check that ends the program, and calls that must succeed or fail. */
#ifndef CHECK_H
#define CHECK_H

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <terrace.h>

#define CHECK(what)                                                                    \
    do {                                                                               \
        if (!(what)) {                                                                 \
            fprintf(stderr, "%s:%d: not so: %s\n", __FILE__, __LINE__, #what);         \
            exit(1);                                                                   \
        }                                                                              \
    } while (0)

/* A call that must succeed. */
#define OK(call) must_be(call, 0, #call, __LINE__)

/* A call that must fail with this code. */
#define FAILS(code, call) must_be(call, code, #call, __LINE__)

static void must_be(terrace_error *error, int code, const char *call, int line) {
    if (terrace_error_code(error) != code) {
        fprintf(stderr, "line %d: %s: code %d instead of %d: %s\n", line, call,
                (int)terrace_error_code(error), code, terrace_error_message(error));
        exit(1);
    }
    if (error && strlen(terrace_error_message(error)) < 10) {
        fprintf(stderr, "line %d: %s: no message\n", line, call);
        exit(1);
    }
    terrace_error_free(error);
}

/* A string as bytes. */
#define B(text) (const uint8_t *)(text), strlen(text)

/* Whether *value* is `text`, NULL for absent; frees it. */
static int is(terrace_value *value, const char *text) {
    int same;
    if (!text) {
        same = value->data == NULL && value->len == 0;
    } else {
        same = value->data != NULL && value->len == strlen(text) &&
               memcmp(value->data, text, value->len) == 0;
    }
    terrace_value_free(value);
    return same && value->data == NULL;
}

#endif
