/* What the metrics of wire look at (D7; wire_defects_test.c). */
#include "models/wire/wire.h"

#include "wire_rig.h"

typedef struct said {
    float said[4 * 4];
    int32_t labels[4 * 5];
} said;

static const float *said_output(void *ctx, const char *name, int64_t *n)
{
    const said *s = ctx;
    *n = 4 * 4;
    return strcmp(name, "a.said") == 0 ? s->said : NULL;
}

static const void *said_input(void *ctx, const char *name, int64_t *n)
{
    const said *s = ctx;
    *n = 4 * 5;
    return strcmp(name, "a.labels") == 0 ? s->labels : NULL;
}

static double share(said *s, tn_settings *st, int64_t rows, const char *name)
{
    const tn_metric_view v = { .settings = st, .rows = rows, .ctx = s, .output = said_output, .input = said_input };
    double sums[TN_SUMS_MAX] = { 0 };
    for (size_t i = 0; i < WIRE_METRICS; i++)
        if (strcmp(wire_metrics[i].name, name) == 0) wire_metrics[i].add(&v, sums);
    return sums[0] / sums[1];
}

/* Answers that begin after questions of different lengths, with padding behind them: what is said where an answer begins is its first token, and
 * what is said at padding, in the question or in a row that asks nothing does not count. Two contexts of two questions. */
static void first_is_first(void **state)
{
    (void)state;
    /* Column i of what is said is of label i + 1. */
    said s = { { 5, 6, 0, 0, /**/ 9, 7, 8, 0, /**/ 9, 9, 9, 4, /**/ 5, 5, 5, 5 },
               { -1, 5, 6, -1, -1, /**/ -1, -1, 7, 8, -1, /**/ -1, -1, -1, -1, 4, /**/ -1, -1, -1, -1, -1 } };
    tn_settings *st = settings_of(&usual, NULL);
    assert_true(share(&s, st, 2, "first_a") == 1 && share(&s, st, 2, "em_a") == 1);
    s.said[4] = 8, s.said[7] = 3, s.said[12] = 0; /* nobody looks here */
    assert_true(share(&s, st, 2, "first_a") == 1 && share(&s, st, 2, "em_a") == 1);
    s.said[6] = 1; /* not its first token */
    assert_true(share(&s, st, 2, "first_a") == 1 && share(&s, st, 2, "em_a") == 2.0 / 3);
    s.said[11] = 1; /* the only one */
    assert_true(share(&s, st, 2, "first_a") == 2.0 / 3 && share(&s, st, 2, "em_a") == 1.0 / 3);
    assert_true(share(&s, st, 1, "first_a") == 1); /* a context that is not of the data */
    tn_settings_free(st);
}

void tn_tests_wire_metrics(tn_test_list *l)
{
    tn_test_add(l, first_is_first, NULL, "wire defects: D7 the first token is where an answer begins");
}
