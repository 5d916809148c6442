/* Sets of samples: their memory, and those that are drawn from random numbers. Sizes come from settings and files, so they
 * are checked before anything is allocated. */
#include "tasks/samples.h"

#include "base/alloc.h"

#include <math.h>

enum { SAMPLES_MAX = 1 << 30, NUMBERS_MAX_LOG = 33 };

static tn_status too_large(const tn_samples *a)
{
    return tn_error(TN_USAGE,
                    "%lld samples of %lld x %lld numbers are none, or more than a task may hold in memory: choose "
                    "another task.size, task.bits or task.length",
                    (long long)a->n, (long long)a->tokens, (long long)a->features);
}

tn_status tn__samples_new(const tn_samples *shape, bool u8, tn_sample_set **out)
{
    size_t numbers, labels, x_bytes, y_bytes;
    if (shape->n < 1 || shape->tokens < 1 || shape->features < 1 || shape->labels < 1 || shape->n > SAMPLES_MAX ||
        !tn_mul_ok((size_t)shape->tokens, (size_t)shape->features, &numbers) ||
        !tn_mul_ok(numbers, (size_t)shape->n, &numbers) || numbers > (size_t)1 << NUMBERS_MAX_LOG ||
        !tn_mul_ok(numbers, u8 ? 1 : sizeof(float), &x_bytes) ||
        !tn_mul_ok((size_t)shape->n, (size_t)shape->labels, &labels) || !tn_mul_ok(labels, sizeof(int32_t), &y_bytes))
        return too_large(shape);
    tn_sample_set *b = tn_alloc(sizeof *b);
    if (!b) return TN_MEMORY;
    void *x = tn_alloc(x_bytes);
    b->set = *shape;
    b->set.x_u8 = b->x_u8 = u8 ? x : NULL;
    b->set.x_f32 = b->x_f32 = u8 ? NULL : x;
    b->set.y = b->y = tn_alloc(y_bytes);
    b->index = tn_alloc((size_t)shape->n * sizeof *b->index);
    if (!x || !b->y || !b->index) {
        tn_samples_free(&b->set);
        return TN_MEMORY;
    }
    for (int k = 0; k < TN_SPLITS; k++) b->set.index[k] = b->index;
    *out = b;
    return TN_OK;
}

void tn_samples_free(tn_samples *set)
{
    tn_sample_set *b = (tn_sample_set *)set;
    if (!b) return;
    tn_free(b->x_u8);
    tn_free(b->x_f32);
    tn_free(b->y);
    tn_free(b->index);
    tn_free(b);
}

void tn_samples_read(const tn_samples *set, int64_t row, float *x)
{
    const int64_t k = set->tokens * set->features;
    for (int64_t i = 0; i < k; i++)
        x[i] = set->x_u8 ? (float)set->x_u8[row * k + i] * set->scale : set->x_f32[row * k + i];
}

tn_status tn__open_images(const tn_settings *st, tn_sample_set **out)
{
    tn_samples *set = NULL;
    TN_RETURN_IF(tn_task_named(tn_settings_text(st, "task.images"))->open(st, &set)); /* one of the setting's choices */
    const tn_status s = tn_samples_pool(st, set);
    if (s != TN_OK) {
        tn_samples_free(set);
        return s;
    }
    *out = (tn_sample_set *)set;
    (*out)->set.targets = &(*out)->targets;
    return TN_OK;
}

/* --- pooled images ------------------------------------------------------------------------------------------------------ */

/* The mean of the square of `side` at (y, x) of an image; bytes are rounded to the nearest. */
static void pool_pixel(const tn_sample_set *b, int64_t from, int64_t to, int64_t side)
{
    const int64_t w = b->set.width;
    double sum = 0;
    for (int64_t i = 0; i < side; i++)
        for (int64_t k = 0; k < side; k++)
            sum += b->x_u8 ? (double)b->x_u8[from + i * w + k] : (double)b->x_f32[from + i * w + k];
    const double mean = sum / (double)(side * side);
    if (b->x_u8) b->x_u8[to] = (uint8_t)(mean + 0.5);
    else b->x_f32[to] = (float)mean;
}

/* In place: a pixel is written behind none that is still to be read. */
tn_status tn_samples_pool(const tn_settings *st, tn_samples *set)
{
    tn_sample_set *b = (tn_sample_set *)set;
    const int64_t side = tn_settings_int(st, "task.pool"), w = set->width, h = set->height;
    if (side == 1) return TN_OK;
    if (!w) return tn_error(TN_USAGE, "task.pool=%lld needs images, and these are none: remove it", (long long)side);
    if (w % side || h % side || w / side < 2 || h / side < 2)
        return tn_error(TN_USAGE,
                        "task.pool=%lld does not divide samples of %lld x %lld pixels into 2 x 2 squares or more: use "
                        "a divisor, or task.pool=1",
                        (long long)side, (long long)w, (long long)h);
    const int64_t each = (w / side) * (h / side);
    for (int64_t row = 0, to = 0; row < set->n; row++)
        for (int64_t y = 0; y < h; y += side)
            for (int64_t x = 0; x < w; x += side, to++) pool_pixel(b, (row * h + y) * w + x, to, side);
    set->tokens = 1, set->features = each;
    set->width = w / side, set->height = h / side;
    return TN_OK;
}

/* --- drawn samples ------------------------------------------------------------------------------------------------------ */

int64_t tn__draw_below(tn_task_draws *d, int64_t n) { return (int64_t)tn_rng_below(d->rng, d->next++, (uint64_t)n); }

/* From 53 bits, so that the same number comes out as a double everywhere. */
double tn__draw_between(tn_task_draws *d, double low, double high)
{
    const double u = (double)tn_rng_below(d->rng, d->next++, (uint64_t)1 << 53) * 0x1p-53;
    return fma(high - low, u, low); /* rounded once, whether or not the compiler contracts */
}

tn_status tn__task_width(const tn_settings *st, const char *key, int64_t otherwise, int64_t most, int64_t *out)
{
    const int64_t n = tn_settings_is_auto(st, key) ? otherwise : tn_settings_int(st, key);
    if (n > most)
        return tn_error(TN_USAGE, "%s=%lld is more than the task %.40s takes: at most %lld", key, (long long)n,
                        tn_settings_text(st, "task.name"), (long long)most);
    *out = n;
    return TN_OK;
}

tn_status tn__samples_draw(const tn_settings *st, const tn_recipe *r, tn_samples **out)
{
    const int64_t size = tn_settings_is_auto(st, "task.size") ? r->size : tn_settings_int(st, "task.size");
    const int64_t count[TN_SPLITS] = { size, tn__part_of(size, tn_settings_float(st, "task.valid_frac")),
                                       tn__part_of(size, tn_settings_float(st, "task.test_frac")) };
    const tn_rng rng = { (uint64_t)tn_settings_int(st, "task.split_seed"),
                         tn_rng_stream("task") ^ tn_rng_stream(r->name) };
    tn_samples shape = { .n = count[0] + count[1] + count[2],
                         .tokens = r->tokens,
                         .features = r->features,
                         .labels = r->labels,
                         .classes = r->classes,
                         .scale = 1 };
    tn_status s = TN_OK;
    tn_sample_set *b = NULL;
    TN_TRY(tn__samples_new(&shape, false, &b));
    const int64_t k = shape.tokens * shape.features;
    for (int64_t i = 0; i < shape.n; i++) {
        tn_task_draws d = {
            rng, (uint64_t)i << 20
        }; /* a sample uses less than 2^20 numbers: task.length and task.bits are bounded */
        r->draw(r, &d, b->x_f32 + i * k, b->y + i * shape.labels);
    }
    TN_TRY(tn__split_in_order(st, b, count));
    *out = &b->set;
    b = NULL;
done:
    tn_samples_free(b ? &b->set : NULL);
    return s;
}
