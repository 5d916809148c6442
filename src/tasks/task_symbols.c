/* Sequences of ten symbols, one-hot. copy and reversal see the whole sequence as one token and are asked for the first symbol
 * of what comes out; seq_copy has a token and a label per symbol; tiny_lm continues four symbols by one of three rules. */
#include "tasks/samples.h"

enum { SYMBOLS = 10, CONTEXT = 4, LENGTH_MAX = 4096 };

static void draw_copy(const tn_recipe *r, tn_task_draws *d, float *x, int32_t *y)
{
    for (int64_t i = 0; i < r->width; i++) {
        const int64_t symbol = tn__draw_below(d, SYMBOLS);
        x[i * SYMBOLS + symbol] = 1;
        if (i == 0) *y = (int32_t)symbol;
    }
}

/* The sequence backwards begins with its last symbol. */
static void draw_reversal(const tn_recipe *r, tn_task_draws *d, float *x, int32_t *y)
{
    for (int64_t i = 0; i < r->width; i++) {
        const int64_t symbol = tn__draw_below(d, SYMBOLS);
        x[i * SYMBOLS + symbol] = 1;
        *y = (int32_t)symbol;
    }
}

static void draw_seq_copy(const tn_recipe *r, tn_task_draws *d, float *x, int32_t *y)
{
    for (int64_t i = 0; i < r->width; i++) {
        y[i] = (int32_t)tn__draw_below(d, SYMBOLS);
        x[i * SYMBOLS + y[i]] = 1;
    }
}

/* A third each: any four symbols and the last once more; a, a+1, a+2, a+3 and a+4; a b a b and a. */
static void draw_tiny_lm(const tn_recipe *r, tn_task_draws *d, float *x, int32_t *y)
{
    int64_t c[CONTEXT];
    const int64_t rule = tn__draw_below(d, 3);
    const int64_t a = tn__draw_below(d, rule == 1 ? SYMBOLS - CONTEXT - 1 : SYMBOLS), b = tn__draw_below(d, SYMBOLS);
    (void)r;
    for (int i = 0; i < CONTEXT; i++) {
        c[i] = rule == 1 ? a + i : i % 2 ? b : a;
        if (rule == 0) c[i] = tn__draw_below(d, SYMBOLS);
        x[i * SYMBOLS + c[i]] = 1;
    }
    *y = (int32_t)(rule == 0 ? c[CONTEXT - 1] : rule == 1 ? a + CONTEXT : a);
}

static tn_status open_flat(const tn_settings *st, const char *name,
                           void (*draw)(const tn_recipe *, tn_task_draws *, float *, int32_t *), tn_samples **out)
{
    tn_recipe r = { .name = name, .tokens = 1, .labels = 1, .classes = SYMBOLS, .size = 10000, .draw = draw };
    TN_RETURN_IF(tn__task_width(st, "task.length", 8, LENGTH_MAX, &r.width));
    r.features = r.width * SYMBOLS;
    return tn__samples_draw(st, &r, out);
}

static tn_status open_copy(const tn_settings *st, tn_samples **out) { return open_flat(st, "copy", draw_copy, out); }

static tn_status open_reversal(const tn_settings *st, tn_samples **out)
{
    return open_flat(st, "reversal", draw_reversal, out);
}

static tn_status open_seq_copy(const tn_settings *st, tn_samples **out)
{
    tn_recipe r = { .name = "seq_copy", .features = SYMBOLS, .classes = SYMBOLS, .size = 10000, .draw = draw_seq_copy };
    TN_RETURN_IF(tn__task_width(st, "task.length", 8, LENGTH_MAX, &r.width));
    r.tokens = r.labels = r.width;
    return tn__samples_draw(st, &r, out);
}

static tn_status open_tiny_lm(const tn_settings *st, tn_samples **out)
{
    const tn_recipe r = { .name = "tiny_lm",
                          .tokens = 1,
                          .features = CONTEXT * SYMBOLS,
                          .labels = 1,
                          .classes = SYMBOLS,
                          .size = 2000,
                          .width = CONTEXT,
                          .draw = draw_tiny_lm };
    return tn__samples_draw(st, &r, out);
}

const tn_task tn_task_copy = { .name = "copy",
                               .summary = "task.length symbols as one token: the first",
                               .open = open_copy };
const tn_task tn_task_reversal = { .name = "reversal",
                                   .summary = "task.length symbols as one token: the first of them backwards",
                                   .open = open_reversal };
const tn_task tn_task_seq_copy = { .name = "seq_copy",
                                   .summary = "task.length tokens: each one's symbol",
                                   .open = open_seq_copy };
const tn_task tn_task_tiny_lm = { .name = "tiny_lm",
                                  .summary = "four symbols: the next by one of three rules",
                                  .open = open_tiny_lm };
