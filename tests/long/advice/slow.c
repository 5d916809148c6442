/* slow: a small autoencoder whose samples take `wait` milliseconds to read, as from a slow disk. */
#define _POSIX_C_SOURCE 200809L
#include <tenon/model.h>

#include <stdio.h>
#include <stdlib.h>
#include <time.h>

enum { FEATURES, VALID_ROWS, WIDTH = 64, LAYERS = 4 };

static const tn_setting settings[] = {
    TN_SETTING_INT("dim", "256", TN_RANGE(1, 65536), "", "width"),
    TN_SETTING_FLOAT("wait", "0.1", TN_RANGE(0, 1000), "ms", "that a sample takes to read"),
};

static int64_t read_sample(const void *data, int split, int64_t i, int64_t step, void *const *at)
{
    const double *ms = data;
    const struct timespec t = { .tv_nsec = (long)(*ms * 1e6) };
    (void)step;
    if (*ms > 0) nanosleep(&t, NULL);
    for (int64_t k = 0; at[FEATURES] && k < WIDTH; k++)
        ((float *)at[FEATURES])[k] = (float)((i * 7 + k * 3 + split) % 10) / 10;
    return 1;
}

static tn_status open_samples(const tn_settings *st, void **data, tn_records_about *about)
{
    double *ms = malloc(sizeof *ms);
    if (!ms) return TN_MEMORY;
    *ms = tn_settings_float(st, "wait");
    *data = ms;
    *about = (tn_records_about){ .count = { 4096, 64, 64 }, .identity = 1 };
    return TN_OK;
}

static tn_status build(tn_graph *g, const tn_settings *st, const tn_batch *b)
{
    const int64_t d = tn_settings_int(st, "dim");
    tn_ref x = tn_linear(g, tn_in(b, "features"), tn_param(g, "in", tn_shape(d, WIDTH), tn_normal(0.1f)));
    for (int i = 0; i < LAYERS; i++) {
        char name[16];
        snprintf(name, sizeof name, "w%d", i);
        x = tn_tanh(g, tn_linear(g, x, tn_param(g, name, tn_shape(d, d), tn_normal(0.05f))));
    }
    x = tn_linear(g, x, tn_param(g, "out", tn_shape(WIDTH, d), tn_normal(0.05f)));
    tn_output(g, "loss", tn_mse(g, x, tn_in(b, "features")));
    return tn_graph_status(g);
}

static const tn_input_row inputs[] = {
    [FEATURES] = { "features", TN_F32, { TN_B, "64" } },
    [VALID_ROWS] = { "rows", TN_I32, { "1" }, .valid_rows = true },
};
static const tn_metric_row metrics[] = { { "loss", .how = TN_MEAN_BY_COUNT } };
static const tn_records records = { .name = "slow",
                                    .inputs = inputs,
                                    .n_inputs = sizeof inputs / sizeof *inputs,
                                    .open = open_samples,
                                    .close = free,
                                    .read = read_sample };

static const tn_model model = {
    TN_MODEL_HEAD,
    .name = "slow",
    .summary = "an autoencoder of samples that are slow to read",
    .settings = settings,
    .n_settings = sizeof settings / sizeof *settings,
    .build = build,
    TN_INPUTS(inputs),
    TN_METRICS(metrics),
    .records = &records,
};

const tn_model *tenon_model(void);
const tn_model *tenon_model(void) { return &model; }
