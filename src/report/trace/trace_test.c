/* Sums of a trace: overlapping work counts once, holes are found, waits are counted by kind. */
#include "report/trace/trace.h"
#include "testlib.h"

#define SPAN(from, to, what, called)                                                                                   \
    {                                                                                                                  \
        .begin = from, .end = to, .kind = what, .name = called                                                         \
    }

static void sums(void **state)
{
    tn_span s[] = {
        SPAN(900, 1000, TN_SPAN_KERNEL, NULL),    SPAN(100, 300, TN_SPAN_KERNEL, NULL),
        SPAN(200, 400, TN_SPAN_KERNEL, NULL), /* out of order, overlapping */
        SPAN(250, 260, TN_SPAN_KERNEL, NULL),     SPAN(400, 450, TN_SPAN_COPY, NULL),
        SPAN(10, 2000, TN_SPAN_EVENT_WAIT, NULL), SPAN(1000, 1100, TN_SPAN_KERNEL, NULL),
        SPAN(500, 510, TN_SPAN_WAIT, NULL),
    };
    (void)state;
    tn_trace_sort(s, sizeof s / sizeof *s);
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

/* Static functions, nested ones, templates, and names that are plain. */
static void kernels(void **state)
{
    tn_span s[] = {
        SPAN(0, 100, TN_SPAN_KERNEL, "_Z11tiled_gates8gate_job"),
        SPAN(100, 200, TN_SPAN_KERNEL, "_ZN10tn_rollout10tiled_rowsEi"),
        SPAN(200, 500, TN_SPAN_KERNEL, "_ZL11tiled_gates8gate_job"),
        SPAN(500, 560, TN_SPAN_KERNEL, "_ZN19_INTERNAL_5a_trace_11gate_slopesILi8EEEvi"),
        SPAN(600, 650, TN_SPAN_KERNEL, "nvjet_hsh_256x128"),
        SPAN(650, 651, TN_SPAN_KERNEL, "_Z99short"),
        SPAN(650, 990, TN_SPAN_COPY, NULL),
    };
    tn_kernel_time rows[8];
    (void)state;
    assert_int_equal(tn_trace_kernels(s, sizeof s / sizeof *s, rows, 8), 5);
    assert_string_equal(rows[0].name, "tiled_gates");
    assert_true(rows[0].runs == 2);
    assert_float_equal(rows[0].seconds, 400e-9, 1e-15);
    assert_string_equal(rows[1].name, "tiled_rows");
    assert_string_equal(rows[2].name, "gate_slopes");
    assert_string_equal(rows[4].name, "_Z99short");
    assert_int_equal(tn_trace_kernels(s, sizeof s / sizeof *s, rows, 1), 1);
    assert_int_equal(tn_trace_kernels(NULL, 0, rows, 8), 0);
}

void tn_tests_trace(tn_test_list *l)
{
    tn_test_add(l, sums, NULL, "trace: overlap, holes and waits");
    tn_test_add(l, nothing, NULL, "trace: nothing");
    tn_test_add(l, kernels, NULL, "trace: kernels by name");
}
