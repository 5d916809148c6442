/* Sums of a trace: overlapping work counts once, holes are found, waits are counted by kind. */
#include "report/trace.h"
#include "testlib.h"

static void sums(void **state)
{
    tn_span s[] = {
        { 900, 1000, TN_SPAN_KERNEL },    { 100, 300, TN_SPAN_KERNEL },
        { 200, 400, TN_SPAN_KERNEL }, /* out of order, overlapping */
        { 250, 260, TN_SPAN_KERNEL },     { 400, 450, TN_SPAN_COPY },
        { 10, 2000, TN_SPAN_EVENT_WAIT }, { 1000, 1100, TN_SPAN_KERNEL },
        { 500, 510, TN_SPAN_WAIT },
    };
    (void)state;
    const tn_trace t = tn_trace_sum(s, sizeof s / sizeof *s);
    assert_true(t.kernels == 5 && t.copies == 1 && t.waits == 1 && t.event_waits == 1);
    assert_float_equal(t.kernel_s, 500e-9, 1e-15);
    assert_float_equal(t.busy_s, 550e-9, 1e-15);
    assert_float_equal(t.span_s, 1000e-9, 1e-15);
    assert_float_equal(t.gap_s, 450e-9, 1e-15); /* from the end of the copy to the next kernel */
}

static void nothing(void **state)
{
    (void)state;
    const tn_trace t = tn_trace_sum(NULL, 0);
    assert_true(t.kernel_s == 0 && t.busy_s == 0 && t.span_s == 0 && t.gap_s == 0 && t.kernels == 0);
}

void tn_tests_trace(tn_test_list *l)
{
    tn_test_add(l, sums, NULL, "trace: overlap, holes and waits");
    tn_test_add(l, nothing, NULL, "trace: nothing");
}
