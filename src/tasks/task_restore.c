/* Damaged images; the target is the image as it was. The hole is a square in the centre, set to the background. Noise is normal
 * and not clipped to 0..1. A held-out image always has the same noise, a training image another one in each optimizer step; it
 * depends on task.split_seed, the step and the image alone. */
#include "tasks/samples.h"

#include <stdio.h>
#include <string.h>

static const double NOISE_MAX = 10;

static void add_noise(const tn_samples *set, int64_t row, int64_t step, float *x)
{
    enum { PART = 256 }; /* a multiple of 4: random numbers come four to a block */
    const tn_targets *t = set->targets;
    const int64_t cells = set->width * set->height;
    const uint64_t first = (uint64_t)row * (((uint64_t)cells + 3) / 4 * 4);
    const tn_rng rng = { t->seed, step < 0 ? tn_rng_stream("restore.heldout")
                                           : tn_rng_stream("restore.train") + (uint64_t)step };
    float noise[PART];
    for (int64_t at = 0; at < cells; at += PART) {
        const int64_t n = cells - at < PART ? cells - at : PART;
        tn_rng_normals_from(rng, first + (uint64_t)at, noise, n);
        for (int64_t i = 0; i < n; i++) x[at + i] += (float)t->noise * noise[i];
    }
}

static void erase(const tn_samples *set, float *x)
{
    const int64_t w = set->width, h = set->height, side = set->targets->hole, left = (w - side) / 2,
                  top = (h - side) / 2;
    for (int64_t i = 0; i < side; i++)
        for (int64_t k = 0; k < side; k++) x[(top + i) * w + left + k] = 0;
}

static void read_restore(const tn_samples *set, int64_t row, int64_t step, double progress, float *x, float *target,
                         int32_t *goal)
{
    (void)progress;
    (void)goal; /* where an energy should land is not known */
    if (target) tn_samples_read(set, row, target);
    if (!x) return;
    tn_samples_read(set, row, x);
    if (set->targets->hole) erase(set, x);
    else add_noise(set, row, step, x);
}

static tn_status check_damage(const tn_targets *t, const tn_samples *set)
{
    const int64_t side = set->width < set->height ? set->width : set->height;
    if (t->hole >= side)
        return tn_error(TN_USAGE, "task.hole=%lld leaves nothing of an image with %lld x %lld cells: use 1 to %lld",
                        (long long)t->hole, (long long)set->width, (long long)set->height, (long long)side - 1);
    if (t->noise > NOISE_MAX)
        return tn_error(
            TN_USAGE,
            "task.noise=%g is the standard deviation of noise on pixels of 0..1 here: use %g at most, such as "
            "0.3",
            t->noise, NOISE_MAX);
    return TN_OK;
}

static tn_status open_restore(const tn_settings *st, tn_samples **out)
{
    const bool hole = strcmp(tn_settings_text(st, "task.damage"), "hole") == 0;
    tn_sample_set *b = NULL;
    TN_RETURN_IF(tn__open_images(st, &b));
    tn_targets *t = &b->targets;
    *t = (tn_targets){ .same_x = hole, .same_target = true, .read = read_restore };
    if (hole) {
        t->hole = tn_settings_int(st, "task.hole");
        snprintf(t->about, sizeof t->about, "a hole of %lld x %lld", (long long)t->hole, (long long)t->hole);
    } else {
        t->noise = tn_settings_float(st, "task.noise");
        t->seed = (uint64_t)tn_settings_int(st, "task.split_seed");
        snprintf(t->about, sizeof t->about, "noise %.9g, seed %llu", t->noise, (unsigned long long)t->seed);
    }
    const tn_status s = check_damage(t, &b->set);
    if (s == TN_OK) *out = &b->set;
    else tn_samples_free(&b->set);
    return s;
}

static const char *const defaults[] = { "task.noise", "0.3", NULL };

const tn_task tn_task_restore = { .name = "restore",
                                  .summary = "repair an image with a hole or noise (task.images, task.damage)",
                                  .defaults = defaults,
                                  .open = open_restore };
