/* What every test file sees: cmocka, and the list a test file fills.
 *
 * A file NAME_test.c anywhere in src/ or tests/ defines `void tn_tests_NAME(tn_test_list *l)` and adds its tests with
 * tn_test_add; the Makefile collects the names, nothing else has to be edited. `build/unit scan` runs the tests whose
 * names contain "scan". */
#ifndef TN_TESTLIB_H
#define TN_TESTLIB_H

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdbool.h>
#include <cmocka.h>

#include "base/status.h"

#include <tenon/op.h>

/* 1 in builds that check every access, which are several times slower. */
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
#define TN_SANITIZED 1
#elif defined(__has_feature)
#if __has_feature(address_sanitizer) || __has_feature(thread_sanitizer)
#define TN_SANITIZED 1
#endif
#endif
#ifndef TN_SANITIZED
#define TN_SANITIZED 0
#endif

typedef struct tn_test_list tn_test_list;
typedef void tn_test_fn(void **state); /* *state is the pointer given to tn_test_add */

void tn_test_add(tn_test_list *l, tn_test_fn *fn, const void *state, const char *name_fmt, ...) TN_PRINTF(4, 5);

/* Fails the test with the library's error text. */
#define assert_ok(call)                                                                                                \
    do {                                                                                                               \
        tn_status s_ = (call);                                                                                         \
        if (s_ != TN_OK) fail_msg("%s: %s (%s)", #call, tn_error_text(), tn_error_where());                            \
    } while (0)

/* The call must fail with `code` and its message must contain `part`. */
#define assert_fails(call, code, part)                                                                                 \
    do {                                                                                                               \
        tn_status s_ = (call);                                                                                         \
        if (s_ != (code)) fail_msg("%s: status %d instead of %d", #call, (int)s_, (int)(code));                        \
        if (!strstr(tn_error_text(), (part)))                                                                          \
            fail_msg("%s: \"%s\" does not say \"%s\"", #call, tn_error_text(), part);                                  \
    } while (0)

/* Where the rows of ops run: TENON_TEST_DEVICE=cuda, or the CPU. */
tn_device tn_test_device(void);

/* Data folder of real datasets, or NULL; under TENON_REQUIRE_DATA=1 a missing one fails the test. */
const char *tn_test_data(const char *relative_path);

#define TN_TESTS(name) void tn_tests_##name(tn_test_list *l);
#include "tenon_tests.def"
#undef TN_TESTS

#endif
