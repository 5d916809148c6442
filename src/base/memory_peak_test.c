/* The peak of resident memory, and forgetting it. */
#include "base/memory_peak.h"
#include "base/alloc.h"
#include "testlib.h"

#include <math.h>
#include <string.h>

enum { BYTES = 48 << 20 };

static void peaks(void **state)
{
    (void)state;
    double before = tn_memory_peak_begin();
    assert_true(before > 1e5);
    char *p = tn_alloc(BYTES);
    assert_non_null(p);
    memset(p, 1, BYTES);
    tn_free(p);
    assert_true(tn_memory_peak() - before > 0.9 * BYTES);
    assert_true(tn_process_peak() - before > 0.9 * BYTES);
    before = tn_memory_peak_begin();
    assert_true(tn_memory_peak() - before < 0.2 * BYTES);
}

void tn_tests_memory_peak(tn_test_list *l) { tn_test_add(l, peaks, NULL, "memory: the peak of a while"); }
