/* lattice: flows whose way is known. The flow of cell c of sample i leaves at step 1 + (c + i) % steps on the side of c's parity, one column
 * to the right; every fifth is projected at the end. It has the step "flows" that `tenon eval --flows` asks for, with the outputs of the op
 * rollout; the paths are data, and what is learned is one factor between input and output.
 *
 * LANDINGS (1): 0: nothing ever lands. ENERGY (1): numbers of an energy. */
#include <tenon/model.h>

#include <math.h>
#include <stdio.h>
#include <stdlib.h>

#ifndef LANDINGS
#define LANDINGS 1
#endif
#ifndef ENERGY
#define ENERGY 1
#endif

enum { W = 6, H = 5, S = W * H, STEPS = 4, P = 3 + ENERGY, TRAIN = 40, VALID = 11, TEST = 7 };

static const tn_setting settings[] = {
    TN_SETTING_INT("width", "6", TN_RANGE(2, 64), "cells", "columns of a surface"),
    TN_SETTING_INT("height", "5", TN_RANGE(2, 64), "cells", "rows of a surface"),
    TN_SETTING_INT("depth", "8", TN_RANGE(2, 64), "", "levels of the lattice"),
};

/* --- data ------------------------------------------------------------------------------------------------------------------- */

enum { FEATURES, TARGET, LABELS, PATHS, U, V, PLANE, AGE, LANDED, ROWS };

static float ink(int64_t sample, int c) { return (float)((c * 7 + sample * 3) % 10) / 10; }

static void fill_flow(int64_t sample, int c, void *const *at)
{
    const int last = c % 5 == 0 ? STEPS : 1 + (int)((c + sample) % STEPS), x = c % W, right = x + 1 < W ? x + 1 : x;
    float *paths = at[PATHS];
    for (int t = 0; t <= STEPS && paths; t++) {
        const float part = (float)t / (float)last, place = (float)x + part * (float)(right - x);
        float *p = paths + (t * S + c) * P;
        for (int k = 0; k < P; k++) p[k] = t <= last ? ink(sample, c) : NAN;
        if (t > last) continue;
        p[0] = 2 * place / (W - 1) - 1, p[1] = 2 * (float)(c / W) / (H - 1) - 1, p[2] = c % 2 ? part : -part;
    }
    if (at[U]) ((float *)at[U])[c] = 2 * (float)right / (W - 1) - 1;
    if (at[V]) ((float *)at[V])[c] = 2 * (float)(c / W) / (H - 1) - 1;
    if (at[PLANE]) ((int32_t *)at[PLANE])[c] = c % 2;
    if (at[AGE]) ((int32_t *)at[AGE])[c] = last;
    if (at[LANDED]) ((int32_t *)at[LANDED])[c] = LANDINGS ? c % 5 == 0 ? 2 : 1 : 0;
}

static int64_t read_sample(const void *data, int split, int64_t i, int64_t step, void *const *at)
{
    const int64_t sample = i + 100 * split;
    (void)data, (void)step;
    for (int c = 0; c < S; c++) {
        if (at[FEATURES]) ((float *)at[FEATURES])[c] = ink(sample, c);
        if (at[TARGET]) ((float *)at[TARGET])[c] = 0.5f * ink(sample, c);
        fill_flow(sample, c, at);
    }
    if (at[LABELS]) *(int32_t *)at[LABELS] = (int32_t)(sample % 10);
    return 1;
}

static tn_status open_samples(const tn_settings *st, void **data, tn_records_about *about)
{
    (void)st;
    *data = malloc(1);
    *about = (tn_records_about){ .count = { TRAIN, VALID, TEST }, .identity = 1 };
    return *data ? TN_OK : TN_MEMORY;
}

/* --- the network ------------------------------------------------------------------------------------------------------------ */

static tn_ref output_of(tn_graph *g, const tn_batch *b)
{
    return tn_mul(g, tn_in(b, "features"), tn_param(g, "factor", tn_shape(1), tn_constant(1)));
}

static tn_status build(tn_graph *g, const tn_settings *st, const tn_batch *b)
{
    (void)st;
    tn_output(g, "loss", tn_mse(g, output_of(g, b), tn_in(b, "target")));
    return tn_graph_status(g);
}

/* All inputs are filled where the evaluation reads them. */
static tn_status build_eval(tn_graph *g, const tn_settings *st, const tn_batch *b)
{
    static const char *const also[] = { "labels", "ways", "u", "v", "plane", "age", "landed" };
    char name[32];
    (void)build(g, st, b); /* the graph keeps what went wrong */
    for (size_t i = 0; i < sizeof also / sizeof *also; i++) {
        snprintf(name, sizeof name, "read_%s", also[i]);
        tn_output(g, name, tn_copy(g, tn_in(b, also[i])));
    }
    return tn_graph_status(g);
}

static tn_status build_flows(tn_graph *g, const tn_settings *st, const tn_batch *b)
{
    static const char *const same[] = { "u", "v", "plane", "age", "landed" };
    const tn_dims cells = tn_shape(b->batch, S, 1);
    const tn_ref one = tn_reshape(g, output_of(g, b), cells);
    tn_ref e[ENERGY];
    (void)st;
    for (int k = 0; k < ENERGY; k++) e[k] = one;
    const tn_ref energy = ENERGY > 1 ? tn_concat(g, e, ENERGY, 2) : tn_copy(g, one);
    tn_output(g, "paths",
              tn_copy(g, tn_transpose(g, tn_reshape(g, tn_in(b, "ways"), tn_shape(b->batch, STEPS + 1, S, P)), 1, 0, 2,
                                      3)));
    tn_output(g, "e", energy);
    tn_output(g, "surface", tn_copy(g, energy));
    if (ENERGY > 1) tn_output(g, "answer", tn_copy(g, tn_in(b, "target"))); /* a perfect one */
    for (size_t i = 0; i < sizeof same / sizeof *same; i++) tn_output(g, same[i], tn_copy(g, tn_in(b, same[i])));
    return tn_graph_status(g);
}

/* --- rows ------------------------------------------------------------------------------------------------------------------- */

/* 5 steps of 30 flows of 4 or 6 numbers */
#if ENERGY == 1
#define PATH_ITEMS "600"
#else
#define PATH_ITEMS "900"
#endif

static const tn_input_row inputs[] = {
    [FEATURES] = { "features", TN_F32, { TN_B, "30" } },
    [TARGET] = { "target", TN_F32, { TN_B, "30" } },
    [LABELS] = { "labels", TN_I32, { TN_B, "1" } },
    [PATHS] = { "ways", TN_F32, { TN_B, PATH_ITEMS } },
    [U] = { "u", TN_F32, { TN_B, "30" } },
    [V] = { "v", TN_F32, { TN_B, "30" } },
    [PLANE] = { "plane", TN_I32, { TN_B, "30" } },
    [AGE] = { "age", TN_I32, { TN_B, "30" } },
    [LANDED] = { "landed", TN_I32, { TN_B, "30" } },
    [ROWS] = { "rows", TN_I32, { "1" }, .valid_rows = true },
};
static const tn_metric_row metrics[] = { { "loss", .how = TN_MEAN_BY_COUNT } };
static const tn_step_row steps[] = {
    { "train", .build = build, .gradients = true },
    { "eval", .build = build_eval },
    { "flows", .build = build_flows },
};
static const tn_records records = { .name = "lattice",
                                    .inputs = inputs,
                                    .n_inputs = sizeof inputs / sizeof *inputs,
                                    .open = open_samples,
                                    .close = free,
                                    .read = read_sample };
static const tn_model model = {
    TN_MODEL_HEAD,
    .name = "lattice",
    .summary = "flows whose way is known",
    .settings = settings,
    .n_settings = sizeof settings / sizeof *settings,
    TN_INPUTS(inputs),
    TN_METRICS(metrics),
    TN_STEPS(steps),
    .records = &records,
};

const tn_model *tenon_model(void);
const tn_model *tenon_model(void) { return &model; }
