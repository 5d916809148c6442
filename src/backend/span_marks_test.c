/* Marks of graph nodes: many, copied, and those that are not there. */
#include "backend/span_marks.h"
#include "testlib.h"

static void copies(void **state)
{
    (void)state;
    enum { N = 5000 };
    tn_span_marks m = { 0 };
    assert_true(tn_span_marks_find(&m, 7) == 0);
    for (uint64_t i = 1; i <= N; i++) assert_ok(tn_span_marks_add(&m, i << 32, i % 3 ? 100 + i : 0));
    for (uint64_t i = 1; i <= N; i++) assert_ok(tn_span_marks_copy(&m, (i << 32) + N, i << 32));
    for (uint64_t i = 1; i <= N; i++) {
        assert_true(tn_span_marks_find(&m, i << 32) == (i % 3 ? 100 + i : 0));
        assert_true(tn_span_marks_find(&m, (i << 32) + N) ==
                    (i % 3 ? 100 + i : 0)); /* of a copy that of its original */
    }
    assert_true(tn_span_marks_find(&m, 1) == 0 && tn_span_marks_find(&m, 0) == 0);
    assert_ok(tn_span_marks_add(&m, (uint64_t)1 << 32, 9)); /* captured again */
    assert_true(tn_span_marks_find(&m, (uint64_t)1 << 32) == 9);
    tn_span_marks_free(&m);
}

void tn_tests_span_marks(tn_test_list *l) { tn_test_add(l, copies, NULL, "span_marks: nodes and their copies"); }
