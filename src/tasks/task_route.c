/* Images that are to be moved. The target is the image shifted by (task.dx, task.dy), mirrored left to right or transposed, and
 * the goal of a cell is the cell that its energy should reach. What a network moves by small steps it learns by small steps: a
 * shift grows from 0 over the first task.grow of the training, between cells by bilinear interpolation. Mirroring and transposing
 * reverse orientation; an image that did so gradually would collapse halfway, so they are whole from the first step on. */
#include "tasks/samples.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

typedef enum move { SHIFT, MIRROR, TRANSPOSE } move;

double tn_targets_progress(const tn_targets *t, int64_t step, int64_t steps)
{
    const double whole = t->grow * (double)steps;
    return step < 0 || (double)step >= whole ? 1 : (double)step / whole;
}

/* Outside is background. */
static float pixel(const tn_samples *set, int64_t row, int64_t y, int64_t x)
{
    const int64_t w = set->width, h = set->height, at = (row * h + y) * w + x;
    if (x < 0 || y < 0 || x >= w || y >= h) return 0;
    return set->x_u8 ? (float)set->x_u8[at] * set->scale : set->x_f32[at];
}

static int32_t cell_of(const tn_samples *set, int64_t y, int64_t x)
{
    return x < 0 || y < 0 || x >= set->width || y >= set->height ? -1 : (int32_t)(y * set->width + x);
}

/* The image as it is at (y, x) after a shift by (right, down). Weights are 1 and 0 where it is by whole cells: an exact copy. */
static float shifted(const tn_samples *set, int64_t row, int64_t y, int64_t x, double right, double down)
{
    const double left = floor(right), top = floor(down);
    const float u = (float)(right - left), v = (float)(down - top);
    const int64_t x1 = x - (int64_t)left, y1 = y - (int64_t)top;
    const float here = (1 - u) * pixel(set, row, y1, x1) + u * pixel(set, row, y1, x1 - 1),
                above = (1 - u) * pixel(set, row, y1 - 1, x1) + u * pixel(set, row, y1 - 1, x1 - 1);
    return (1 - v) * here + v * above;
}

static void read_route(const tn_samples *set, int64_t row, int64_t step, double progress, float *x, float *target,
                       int32_t *goal)
{
    const tn_targets *t = set->targets;
    const double right = progress * (double)t->dx, down = progress * (double)t->dy;
    const int64_t w = set->width, h = set->height, columns = (int64_t)floor(right + 0.5),
                  rows = (int64_t)floor(down + 0.5);
    (void)step;
    if (x) tn_samples_read(set, row, x);
    if (!target && !goal) return;
    for (int64_t i = 0, at = 0; i < h; i++)
        for (int64_t k = 0; k < w; k++, at++) {
            if (target)
                target[at] = t->move == MIRROR      ? pixel(set, row, i, w - 1 - k)
                             : t->move == TRANSPOSE ? pixel(set, row, k, i)
                                                    : shifted(set, row, i, k, right, down);
            if (goal)
                goal[at] = t->move == MIRROR      ? cell_of(set, i, w - 1 - k)
                           : t->move == TRANSPOSE ? cell_of(set, k, i)
                                                  : cell_of(set, i + rows, k + columns);
        }
}

static tn_status check_move(const tn_targets *t, const tn_samples *set)
{
    const long long w = set->width, h = set->height;
    if (t->move == SHIFT && (t->dx <= -w || t->dx >= w))
        return tn_error(TN_USAGE, "task.dx=%lld moves all of an image with %lld columns outside: use %lld to %lld",
                        (long long)t->dx, w, 1 - w, w - 1);
    if (t->move == SHIFT && (t->dy <= -h || t->dy >= h))
        return tn_error(TN_USAGE, "task.dy=%lld moves all of an image with %lld rows outside: use %lld to %lld",
                        (long long)t->dy, h, 1 - h, h - 1);
    if (t->move == TRANSPOSE && w != h)
        return tn_error(
            TN_USAGE,
            "task.move=transpose needs square images, and these have %lld x %lld cells: use other images, or "
            "task.move=mirror",
            w, h);
    return TN_OK;
}

static tn_status open_route(const tn_settings *st, tn_samples **out)
{
    const char *name = tn_settings_text(st, "task.move");
    tn_sample_set *b = NULL;
    TN_RETURN_IF(tn__open_images(st, &b));
    tn_targets *t = &b->targets;
    *t = (tn_targets){ .has_goals = true, .same_x = true, .read = read_route };
    t->move = strcmp(name, "mirror") == 0 ? MIRROR : strcmp(name, "transpose") == 0 ? TRANSPOSE : SHIFT;
    snprintf(t->about, sizeof t->about, "%s", name);
    if (t->move == SHIFT) {
        t->dx = tn_settings_int(st, "task.dx");
        t->dy = tn_settings_int(st, "task.dy");
        t->grow = tn_settings_float(st, "task.grow");
        snprintf(t->about, sizeof t->about, "shift by %lld, %lld, growing over %.9g of the training", (long long)t->dx,
                 (long long)t->dy, t->grow);
    }
    t->same_target = t->grow == 0;
    const tn_status s = check_move(t, &b->set);
    if (s == TN_OK) *out = &b->set;
    else tn_samples_free(&b->set);
    return s;
}

const tn_task tn_task_route = { .name = "route",
                                .summary = "move an image: shifted, mirrored or transposed (task.images, task.move)",
                                .open = open_route };
