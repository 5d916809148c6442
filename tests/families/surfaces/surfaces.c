/* surfaces: a small network that learns how a surface on a ring of rows and columns moves on by one step.
 *
 *     m = u, carried by a wind v and smoothed:   each wave of u keeps its length, is turned by -k.v and shrinks by exp(-nu |k|^2)
 *     target = m + r (m - m^3)                   and what is far from -1, 0 and 1 moves towards -1 or 1
 *
 * All that a run knows of it is in the rows below: what a batch holds, what the network is judged by, what follows the run, which plans there
 * are, and where the surfaces come from. A surface is a function of its number; in the first `curriculum` steps of a run it has less detail
 * and more noise. */
#include <tenon/model.h>

#include <math.h>
#include <stdlib.h>

enum { WAVES = 4, PATH = 3, EVERY = 4 };

static const tn_setting settings[] = {
    TN_SETTING_INT("cells", "64", TN_RANGE(4, 65536), "", "cells of a surface, a square number"),
    TN_SETTING_INT("dim", "96", TN_RANGE(1, 65536), "", "width of a layer"),
    TN_SETTING_INT("layers", "2", TN_RANGE(1, 64), "", "number of layers"),
    TN_SETTING_FLOAT("noise", "0.1", TN_RANGE(0, 10), "", "noise on the surfaces of the first step"),
    TN_SETTING_FLOAT("noise_last", "0", TN_RANGE(0, 10), "", "noise behind the curriculum, and of evaluations"),
    TN_SETTING_FLOAT("drift", "0.1", TN_RANGE(0, 10), "",
                     "weight of the consistency under a shift, behind the curriculum"),
    TN_SETTING_INT("curriculum", "120", TN_RANGE(0, 1e12), "steps", "steps until surfaces have all their detail"),
    TN_SETTING_FLOAT("tolerance", "0.05", TN_RANGE_ABOVE(0), "", "error of a cell that has landed"),
    TN_SETTING_INT("surfaces.train", "600", TN_RANGE(1, 1e9), "", "surfaces to train on"),
    TN_SETTING_INT("surfaces.valid", "101", TN_RANGE(0, 1e9), "", "surfaces held out"),
    TN_SETTING_INT("surfaces.test", "67", TN_RANGE(0, 1e9), "", "surfaces to test on"),
    TN_SETTING_INT("surfaces.seed", "1", TN_RANGE(0, 1e15), "", "which surfaces there are"),
};

/* How far a step is through the curriculum, 0 .. 1. Held-out surfaces (-1) are behind it. */
static double progress(int64_t curriculum, int64_t step)
{
    return step < 0 || step >= curriculum ? 1 : (double)step / (double)curriculum;
}

/* --- surfaces ------------------------------------------------------------------------------------------------------------- */

typedef struct surfaces {
    int64_t cells, side, curriculum;
    uint64_t seed;
} surfaces;

/* splitmix64 */
static uint64_t mixed(uint64_t x)
{
    x += 0x9E3779B97F4A7C15u;
    x = (x ^ (x >> 30)) * 0xBF58476D1CE4E5B9u;
    x = (x ^ (x >> 27)) * 0x94D049BB133111EBu;
    return x ^ (x >> 31);
}

static double uniform(uint64_t key, uint64_t i) { return (double)(mixed(key ^ mixed(i)) >> 11) * 0x1p-53; }

typedef struct wave {
    double height, angle;
    int across, down; /* how often it goes up and down on the ring */
} wave;

/* The first is broad; the others are the detail. */
static wave wave_of(uint64_t key, int w, double detail)
{
    const uint64_t at = (uint64_t)(8 * w);
    const double size = 0.4 + 0.6 * uniform(key, 100); /* of the whole surface */
    wave v = { .height = size * (w ? 0.4 * detail : 0.9), .angle = 2 * M_PI * uniform(key, at) };
    v.across = (int)(uniform(key, at + 1) * (w ? 3 : 2));
    v.down = 1 + (int)(uniform(key, at + 2) * (w ? 2 : 1));
    return v;
}

static double wave_at(const wave *w, int64_t i, int64_t k, int64_t side)
{
    return w->height * cos(2 * M_PI * (double)(w->across * i + w->down * k) / (double)side + w->angle);
}

/* One step on. */
static wave carried(wave w)
{
    w.height *= exp(-0.03 * (double)(w.across * w.across + w.down * w.down));
    w.angle -= 0.5 * w.across + 0.3 * w.down;
    return w;
}

static double normal(uint64_t key, uint64_t i)
{
    return sqrt(-2 * log(1 - uniform(key, 2 * i))) * cos(2 * M_PI * uniform(key, 2 * i + 1));
}

enum { SURFACE, TARGET, GRAIN, ROWS };

static int64_t read_surface(const void *data, int split, int64_t i, int64_t step, void *const *at)
{
    const surfaces *s = data;
    const uint64_t key = mixed(s->seed ^ mixed(((uint64_t)split << 40) + (uint64_t)i)),
                   grain = key ^ mixed((uint64_t)step + 7);
    float *surface = at[SURFACE], *target = at[TARGET], *noise = at[GRAIN];
    wave now[WAVES], then[WAVES];
    for (int w = 0; w < WAVES; w++) then[w] = carried(now[w] = wave_of(key, w, progress(s->curriculum, step)));
    for (int64_t c = 0; c < s->cells; c++) {
        double u = 0, m = 0;
        for (int w = 0; w < WAVES; w++)
            u += wave_at(&now[w], c / s->side, c % s->side, s->side),
                m += wave_at(&then[w], c / s->side, c % s->side, s->side);
        if (surface) surface[c] = (float)u;
        if (target) target[c] = (float)(m + 0.2 * (m - m * m * m));
        if (noise) noise[c] = (float)normal(grain, (uint64_t)c);
    }
    return s->cells;
}

static tn_status open_surfaces(const tn_settings *st, void **data, tn_records_about *about)
{
    const int64_t cells = tn_settings_int(st, "cells"), side = (int64_t)(sqrt((double)cells) + 0.5);
    if (side * side != cells)
        return tn_model_error("cells=%lld is not a square number: use 64, 100 or 144", (long long)cells);
    surfaces *s = malloc(sizeof *s);
    if (!s) return TN_MEMORY;
    *s = (surfaces){ cells, side, tn_settings_int(st, "curriculum"), (uint64_t)tn_settings_int(st, "surfaces.seed") };
    *about =
        (tn_records_about){ .count = { tn_settings_int(st, "surfaces.train"), tn_settings_int(st, "surfaces.valid"),
                                       tn_settings_int(st, "surfaces.test") },
                            .identity = mixed(s->seed ^ mixed((uint64_t)cells ^ mixed((uint64_t)s->curriculum))) };
    *data = s;
    return TN_OK;
}

/* --- the network ---------------------------------------------------------------------------------------------------------- */

/* What a layer adds to x (B,cells). */
static tn_ref layer(tn_graph *g, int64_t dim, tn_ref x)
{
    const int64_t n = tn_ref_dim(g, x, 1);
    const tn_ref up = tn_param(g, "up", tn_shape(dim, n), tn_normal(0.15f)),
                 down = tn_param(g, "down", tn_shape(n, dim), tn_normal(0.05f));
    const tn_ref h = tn_linear(g, x, up, .bias = tn_param(g, "up_bias", tn_shape(dim), tn_zeros), .act = TN_ACT_GELU);
    return tn_linear(g, h, down, .bias = tn_param(g, "down_bias", tn_shape(n), tn_zeros));
}

static tn_ref moved_on(tn_graph *g, const tn_settings *st, tn_ref x)
{
    const int64_t layers = tn_settings_int(st, "layers"), dim = tn_settings_int(st, "dim");
    for (int64_t l = 0; l < layers; l++) {
        tn_region r = tn_segment_begin(g, "layer%lld", (long long)l);
        x = tn_add(g, x, layer(g, dim, x));
        tn_region_end(g, r);
    }
    return x;
}

/* The rows of the batch that are surfaces, as the source says. */
static tn_ref valid(tn_graph *g, const tn_batch *b, tn_ref x) { return tn_live(g, x, tn_in(b, "rows")); }

static tn_ref noisy(tn_graph *g, const tn_batch *b)
{
    const tn_ref noise = tn_scalar(g, "noise", 0);
    return valid(g, b, tn_add(g, tn_in(b, "surface"), tn_mul(g, tn_in(b, "grain"), noise)));
}

/* One row down on the ring. */
static tn_ref shifted(tn_graph *g, tn_ref x)
{
    const int64_t n = tn_ref_dim(g, x, 1), side = (int64_t)(sqrt((double)n) + 0.5);
    const tn_ref parts[] = { tn_slice(g, x, 1, n - side, side), tn_slice(g, x, 1, 0, n - side) };
    return tn_concat(g, parts, 2, 1);
}

static tn_status build_train(tn_graph *g, const tn_settings *st, const tn_batch *b)
{
    tn_output(g, "loss", tn_mse(g, moved_on(g, st, noisy(g, b)), valid(g, b, tn_in(b, "target"))));
    return tn_graph_status(g);
}

/* A surface that is shifted moves on as the other does. */
static tn_status build_consistency(tn_graph *g, const tn_settings *st, const tn_batch *b)
{
    const tn_ref x = noisy(g, b), y = moved_on(g, st, x), there = moved_on(g, st, shifted(g, x));
    const tn_ref apart = tn_reshape(g, tn_mse(g, there, shifted(g, y)), tn_shape(1));
    const tn_ref off = tn_reshape(g, tn_mse(g, y, valid(g, b, tn_in(b, "target"))), tn_shape(1));
    tn_output(g, "apart", apart);
    tn_output(g, "loss", tn_add(g, off, tn_mul(g, apart, tn_scalar(g, "drift", 0))));
    return tn_graph_status(g);
}

static tn_status build_eval(tn_graph *g, const tn_settings *st, const tn_batch *b)
{
    const tn_ref target = valid(g, b, tn_in(b, "target")), y = moved_on(g, st, noisy(g, b)), off = tn_sub(g, y, target);
    const tn_ref ones = tn_fill(g, tn_ref_dims(g, off), TN_F32, 1);
    /* 1 where the error is below the tolerance, 0 where it is above */
    const tn_ref landed =
        tn_minimum(g, tn_relu(g, tn_affine(g, tn_abs(g, off), -1e6f, 1e6f * (float)tn_settings_float(st, "tolerance"))),
                   ones);
    tn_output(g, "loss", tn_mse(g, y, target));
    tn_output(g, "squares", tn_sum_all(g, tn_square(g, off)));
    tn_output(g, "landed", tn_sum_all(g, landed));
    tn_output(g, "seen", tn_sum_all(g, valid(g, b, ones)));
    return tn_graph_status(g);
}

/* Where a surface goes when the network is asked again and again: (B,PATH,cells). */
static tn_status build_trace(tn_graph *g, const tn_settings *st, const tn_batch *b)
{
    tn_ref x = tn_in(b, "surface"), path[PATH];
    const tn_dims one = tn_shape(b->batch, 1, tn_ref_dim(g, x, 1));
    for (int i = 0; i < PATH; i++) path[i] = tn_reshape(g, x = moved_on(g, st, x), one);
    tn_output(g, "path", tn_concat(g, path, PATH, 1));
    return tn_graph_status(g);
}

/* --- rows ------------------------------------------------------------------------------------------------------------------- */

static const tn_input_row inputs[] = {
    { "surface", TN_F32, { TN_B, "cells" }, .pad = 0 },
    { "target", TN_F32, { TN_B, "cells" }, .pad = 0 },
    { "grain", TN_F32, { TN_B, "cells" }, .pad = 0 },
    { "rows", TN_I32, { "1" }, .valid_rows = true },
};

static double decibel(const double *sums, const tn_settings *st)
{
    const double peak = 2; /* from -1 to 1 */
    (void)st;
    return 10 * log10(peak * peak * sums[1] / fmax(sums[0], 1e-12 * sums[1]));
}

static const tn_metric_row metrics[] = {
    { "loss", .how = TN_MEAN_BY_COUNT },
    { "psnr", "dB", TN_HIGHER, TN_FROM_SUMS, .sums = { "squares", "seen" }, .make = decibel },
    { "landing", "", TN_HIGHER, TN_QUOTIENT, .sums = { "landed", "seen" } },
};

static double noise_at(const tn_settings *st, int64_t step)
{
    const double done = progress(tn_settings_int(st, "curriculum"), step), first = tn_settings_float(st, "noise");
    return first + done * (tn_settings_float(st, "noise_last") - first);
}

static double drift_at(const tn_settings *st, int64_t step)
{
    return progress(tn_settings_int(st, "curriculum"), step) * tn_settings_float(st, "drift");
}

static const tn_schedule_row schedules[] = { { "noise", noise_at }, { "drift", drift_at } };

enum { TRAIN, CONSISTENCY };

static const tn_step_row steps[] = {
    [TRAIN] = { "train", build_train, .gradients = true },
    [CONSISTENCY] = { "consistency", build_consistency, .gradients = true },
    { "eval", .build = build_eval },
    { "trace", .build = build_trace },
};

static size_t choose(const tn_settings *st, int64_t step)
{
    (void)st;
    return step % EVERY == EVERY - 1 ? CONSISTENCY : TRAIN;
}

static const tn_records records = { .name = "surfaces",
                                    .inputs = inputs,
                                    .n_inputs = sizeof inputs / sizeof *inputs,
                                    .open = open_surfaces,
                                    .close = free,
                                    .read = read_surface };

static const char *const defaults[] = { "train.lr=5e-3", "train.decay=0", "train.warmup=10", NULL };

static const tn_model model = {
    TN_MODEL_HEAD,
    .name = "surfaces",
    .summary = "how a surface moves on by one step",
    .settings = settings,
    .n_settings = sizeof settings / sizeof *settings,
    .defaults = defaults,
    TN_INPUTS(inputs),
    TN_METRICS(metrics),
    TN_STEPS(steps),
    TN_SCHEDULES(schedules),
    .choose = choose,
    .records = &records,
};

const tn_model *tenon_model(void);
const tn_model *tenon_model(void) { return &model; }
