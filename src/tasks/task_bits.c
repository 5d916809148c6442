/* Functions of bits: xor, and later its kin. A sample is one token of 0s and 1s, uniform; the label is the function. */
#include "tasks/samples.h"

static void draw_parity(const tn_recipe *r, tn_dice *d, float *x, int32_t *y)
{
    int64_t ones = 0;
    for (int64_t i = 0; i < r->width; i++) {
        const int64_t bit = tn__dice_below(d, 2);
        x[i] = (float)bit;
        ones += bit;
    }
    *y = (int32_t)(ones % 2);
}

static tn_status open_xor(const tn_settings *st, tn_samples **out)
{
    const tn_recipe r = { .name = "xor", .tokens = 1, .features = 2, .labels = 1, .classes = 2, .size = 2000, .width = 2,
                          .draw = draw_parity };
    return tn__samples_draw(st, &r, out);
}

const tn_task tn_task_xor = { .name = "xor", .summary = "two bits, whether they differ", .open = open_xor };
