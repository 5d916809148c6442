/* Functions of bits. A sample is one token of bits, 0 or 1, uniform; the label is the function. With few bits every point of
 * the test is one of training too: these tasks ask whether a network can represent the function. */
#include "tasks/samples.h"

enum { BITS_MAX = 1024 };

static int64_t draw_bits(const tn_recipe *r, tn_task_draws *d, float *x)
{
    int64_t ones = 0;
    for (int64_t i = 0; i < r->width; i++) {
        const int64_t bit = tn__draw_below(d, 2);
        x[i] = (float)bit;
        ones += bit;
    }
    return ones;
}

static void draw_parity(const tn_recipe *r, tn_task_draws *d, float *x, int32_t *y)
{
    *y = (int32_t)(draw_bits(r, d, x) % 2);
}

static void draw_majority(const tn_recipe *r, tn_task_draws *d, float *x, int32_t *y)
{
    *y = 2 * draw_bits(r, d, x) > r->width;
}

/* One bit of the width is set, the label says which. */
static void draw_identity(const tn_recipe *r, tn_task_draws *d, float *x, int32_t *y)
{
    *y = (int32_t)tn__draw_below(d, r->width);
    x[*y] = 1;
}

static tn_status open_bits(const tn_settings *st, const char *name, int64_t bits, int64_t classes, int64_t size,
                           void (*draw)(const tn_recipe *, tn_task_draws *, float *, int32_t *), tn_samples **out)
{
    const tn_recipe r = { .name = name,
                          .tokens = 1,
                          .features = bits,
                          .labels = 1,
                          .classes = classes,
                          .size = size,
                          .width = bits,
                          .draw = draw };
    return tn__samples_draw(st, &r, out);
}

static tn_status open_xor(const tn_settings *st, tn_samples **out)
{
    return open_bits(st, "xor", 2, 2, 2000, draw_parity, out);
}

static tn_status open_xor3(const tn_settings *st, tn_samples **out)
{
    return open_bits(st, "xor3", 3, 2, 2000, draw_parity, out);
}

static tn_status open_parity(const tn_settings *st, tn_samples **out)
{
    int64_t bits;
    TN_RETURN_IF(tn__task_width(st, "task.bits", 8, BITS_MAX, &bits));
    return open_bits(st, "parity", bits, 2, 10000, draw_parity, out);
}

static tn_status open_majority(const tn_settings *st, tn_samples **out)
{
    int64_t bits;
    TN_RETURN_IF(tn__task_width(st, "task.bits", 5, BITS_MAX, &bits));
    return open_bits(st, "majority", bits, 2, 2000, draw_majority, out);
}

static tn_status open_identity(const tn_settings *st, tn_samples **out)
{
    int64_t bits;
    TN_RETURN_IF(tn__task_width(st, "task.bits", 4, BITS_MAX, &bits));
    return open_bits(st, "identity", bits, bits, 2000, draw_identity, out);
}

const tn_task tn_task_xor = { .name = "xor", .summary = "two bits: do they differ", .open = open_xor };
const tn_task tn_task_xor3 = { .name = "xor3", .summary = "three bits: is the number of ones odd", .open = open_xor3 };
const tn_task tn_task_parity = { .name = "parity",
                                 .summary = "task.bits bits: is the number of ones odd",
                                 .open = open_parity };
const tn_task tn_task_majority = { .name = "majority",
                                   .summary = "task.bits bits: are more than half ones",
                                   .open = open_majority };
const tn_task tn_task_identity = { .name = "identity",
                                   .summary = "task.bits bits, one of them set: which",
                                   .open = open_identity };
