/* Adding two numbers of task.length digits, each digit / 9, most significant first. The sum is taken modulo 10^length.
 *
 * addition: both numbers are one token and the whole sum is one class, so that a network of one token and one label can be
 * asked; 4 digits are 10,000 classes, of which a training set of 10,000 shows many once or never, hence 2 by default.
 * seq_addition: one token (a digit of each number) and one label (the digit of the sum) per place, for any length. */
#include "tasks/samples.h"

enum { FLAT_DIGITS_MAX = 4, DIGITS_MAX = 4096 };

static void draw_addition(const tn_recipe *r, tn_task_draws *d, float *x, int32_t *y)
{
    const int64_t n = r->width, a = tn__draw_below(d, r->classes), b = tn__draw_below(d, r->classes);
    for (int64_t i = n - 1, p = a, q = b; i >= 0; i--, p /= 10, q /= 10) {
        x[i] = (float)(p % 10) / 9;
        x[n + i] = (float)(q % 10) / 9;
    }
    *y = (int32_t)((a + b) % r->classes);
}

static void draw_seq_addition(const tn_recipe *r, tn_task_draws *d, float *x, int32_t *y)
{
    int64_t carry = 0;
    for (int64_t i = r->width - 1; i >= 0; i--) {
        const int64_t a = tn__draw_below(d, 10), b = tn__draw_below(d, 10);
        x[2 * i] = (float)a / 9;
        x[2 * i + 1] = (float)b / 9;
        y[i] = (int32_t)((a + b + carry) % 10);
        carry = (a + b + carry) / 10;
    }
}

static tn_status open_addition(const tn_settings *st, tn_samples **out)
{
    tn_recipe r = { .name = "addition", .tokens = 1, .labels = 1, .classes = 1, .size = 10000, .draw = draw_addition };
    TN_RETURN_IF(tn__task_width(st, "task.length", 2, FLAT_DIGITS_MAX, &r.width));
    r.features = 2 * r.width;
    for (int64_t i = 0; i < r.width; i++) r.classes *= 10;
    return tn__samples_draw(st, &r, out);
}

static tn_status open_seq_addition(const tn_settings *st, tn_samples **out)
{
    tn_recipe r = { .name = "seq_addition", .features = 2, .classes = 10, .size = 10000, .draw = draw_seq_addition };
    TN_RETURN_IF(tn__task_width(st, "task.length", 4, DIGITS_MAX, &r.width));
    r.tokens = r.labels = r.width;
    return tn__samples_draw(st, &r, out);
}

const tn_task tn_task_addition = { .name = "addition",
                                   .summary = "two numbers of task.length digits: their sum modulo 10^length",
                                   .open = open_addition };
const tn_task tn_task_seq_addition = { .name = "seq_addition",
                                       .summary = "the same with a token and a label per digit",
                                       .open = open_seq_addition };
