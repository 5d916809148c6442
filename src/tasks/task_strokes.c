/* Images that need no file: 28 x 28 pixels with one of ten figures, drawn with anti-aliased strokes of random place, size, form
 * and thickness. An image is a function of task.split_seed and its number. Coordinates are integers, and what is rounded is
 * rounded once: every machine draws the same bytes. */
#include "tasks/samples.h"

#include <math.h>
#include <stdlib.h>

enum { SIDE = 28, CLASSES = 10, SIZE = 12000, UNIT = 64 /* of a pixel, and of half a figure */ };

/* Lines through points, in the order of the labels; y points down. */
enum { POINTS = 13 };
typedef struct figure {
    const char *name;
    int n, line;               /* points; points of a line: 2 for separate lines, n for one line through all */
    signed char at[POINTS][2]; /* x, y */
} figure;

static const figure figures[CLASSES] = {
    { "level", 2, 2, { { -64, 0 }, { 64, 0 } } },
    { "upright", 2, 2, { { 0, -64 }, { 0, 64 } } },
    { "rising", 2, 2, { { -64, 64 }, { 64, -64 } } },
    { "falling", 2, 2, { { -64, -64 }, { 64, 64 } } },
    { "circle",
      13,
      13,
      { { 64, 0 },
        { 55, 32 },
        { 32, 55 },
        { 0, 64 },
        { -32, 55 },
        { -55, 32 },
        { -64, 0 },
        { -55, -32 },
        { -32, -55 },
        { 0, -64 },
        { 32, -55 },
        { 55, -32 },
        { 64, 0 } } },
    { "plus", 4, 2, { { -64, 0 }, { 64, 0 }, { 0, -64 }, { 0, 64 } } },
    { "cross", 4, 2, { { -64, -64 }, { 64, 64 }, { -64, 64 }, { 64, -64 } } },
    { "triangle", 4, 4, { { 0, -64 }, { 64, 56 }, { -64, 56 }, { 0, -64 } } },
    { "square", 5, 5, { { -60, -60 }, { 60, -60 }, { 60, 60 }, { -60, 60 }, { -60, -60 } } },
    { "zigzag", 4, 4, { { -64, -64 }, { 64, -64 }, { -64, 64 }, { 64, 64 } } },
};

static int64_t between(tn_task_draws *d, int64_t low, int64_t high) { return low + tn__draw_below(d, high - low + 1); }

static int64_t smaller(int64_t a, int64_t b) { return a < b ? a : b; }
static int64_t larger(int64_t a, int64_t b) { return a > b ? a : b; }

/* From the centre of a pixel, at (x, y) seen from the line's begin, to the line towards (dx, dy). Integers are exact, so that one
 * division and one root are all that is rounded. */
static double distance(int64_t x, int64_t y, int64_t dx, int64_t dy)
{
    const int64_t along = x * dx + y * dy, length = dx * dx + dy * dy;
    if (along <= 0) return sqrt((double)(x * x + y * y));
    if (along >= length) return sqrt((double)((x - dx) * (x - dx) + (y - dy) * (y - dy)));
    return (double)llabs(x * dy - y * dx) / sqrt((double)length);
}

/* The pixels near a line become at least as dark as it is there. reach: half its thickness and half a pixel. */
static void draw_line(uint8_t *pixels, const int64_t a[2], const int64_t b[2], int64_t reach)
{
    int64_t from[2], to[2];
    for (int k = 0; k < 2; k++) {
        from[k] = larger(0, (smaller(a[k], b[k]) - reach) / UNIT);
        to[k] = smaller(SIDE - 1, (larger(a[k], b[k]) + reach) / UNIT);
    }
    for (int64_t i = from[1]; i <= to[1]; i++)
        for (int64_t k = from[0]; k <= to[0]; k++) {
            uint8_t *p = pixels + i * SIDE + k;
            const double ink = (double)reach - distance(UNIT * k + UNIT / 2 - a[0], UNIT * i + UNIT / 2 - a[1],
                                                        b[0] - a[0], b[1] - a[1]);
            if (ink > 0) *p = (uint8_t)larger(*p, smaller(255, (int64_t)fma(ink, 255.0 / UNIT, 0.5)));
        }
}

/* Stretched and sheared a little, less than would make one figure another. */
static void draw_figure(tn_task_draws *d, const figure *f, uint8_t *pixels)
{
    int64_t at[POINTS][2], m[2][2], extent = 0, centre[2];
    const int64_t size = between(d, 5 * UNIT, 17 * UNIT / 2), reach = between(d, UNIT / 2, 7 * UNIT / 4) + UNIT / 2;
    for (int k = 0; k < 2; k++)
        for (int c = 0; c < 2; c++) m[k][c] = k == c ? between(d, 205, 269) : between(d, -41, 41); /* of 256 */
    for (int i = 0; i < f->n; i++)
        for (int k = 0; k < 2; k++) {
            at[i][k] = (m[k][0] * f->at[i][0] + m[k][1] * f->at[i][1]) * size / (256 * UNIT);
            extent = larger(extent, llabs(at[i][k]));
        }
    const int64_t room = (SIDE / 2 - 1) * UNIT - extent - reach; /* the outermost pixels stay empty */
    for (int k = 0; k < 2; k++) centre[k] = SIDE * UNIT / 2 + between(d, -room, room);
    for (int i = 0; i < f->n; i++)
        for (int k = 0; k < 2; k++) at[i][k] += centre[k];
    for (int i = 0; i + 1 < f->n; i += f->line == 2 ? 2 : 1) draw_line(pixels, at[i], at[i + 1], reach);
}

static tn_status open_strokes(const tn_settings *st, tn_samples **out)
{
    const int64_t size = tn_settings_is_auto(st, "task.size") ? SIZE : tn_settings_int(st, "task.size");
    const int64_t count[TN_SPLITS] = { size, tn__part_of(size, tn_settings_float(st, "task.valid_frac")),
                                       tn__part_of(size, tn_settings_float(st, "task.test_frac")) };
    const tn_samples shape = { .n = count[0] + count[1] + count[2],
                               .tokens = 1,
                               .features = SIDE * SIDE,
                               .labels = 1,
                               .classes = CLASSES,
                               .scale = 1.0f / 255,
                               .width = SIDE,
                               .height = SIDE };
    const tn_rng rng = { (uint64_t)tn_settings_int(st, "task.split_seed"), tn_rng_stream("task.strokes") };
    tn_sample_set *b = NULL;
    TN_RETURN_IF(tn__samples_new(&shape, true, &b));
    for (int64_t i = 0; i < shape.n; i++) {
        tn_task_draws d = { rng, (uint64_t)i << 8 }; /* an image uses less than 2^8 numbers */
        b->y[i] = (int32_t)tn__draw_below(&d, CLASSES);
        draw_figure(&d, &figures[b->y[i]], b->x_u8 + i * SIDE * SIDE);
    }
    const tn_status s = tn__split_in_order(st, b, count);
    if (s == TN_OK) *out = &b->set;
    else tn_samples_free(&b->set);
    return s;
}

const tn_task tn_task_strokes = { .name = "strokes",
                                  .summary = "ten figures drawn on 28 x 28 pixels; no files needed",
                                  .open = open_strokes };
