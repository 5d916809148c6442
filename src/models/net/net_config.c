/* Settings of `net`, reading them with their cross-checks, and the row that registers the model. */
#include "models/net/net.h"

#include "base/status.h"

#include <math.h>

static const tn_setting settings[] = {
    TN_SETTING_CHOICE("kind", "mlp", "linear|mlp|cell_mlp|conv|patches",
                      "network: one matrix; dense layers; the same layers in each cell, from its value and place; "
                      "convolutions; a transformer on patches"),
    TN_SETTING_AUTO_INT("dim", "auto", TN_RANGE(1, 65536), "",
                        "width (auto: 256, cell_mlp and patches 64, conv 32); linear: rank (auto: full)"),
    TN_SETTING_AUTO_INT("layers", "auto", TN_RANGE(1, 1024), "", "hidden layers (auto: 2, conv 3)"),
    TN_SETTING_INT("patch", "4", TN_RANGE(1, 1024), "cells", "patches: side of a patch"),
    TN_SETTING_INT("heads", "4", TN_RANGE(1, 1024), "", "patches: attention heads; dim is a multiple of it"),
    TN_SETTING_AUTO_INT("ffn", "auto", TN_RANGE(1, 1e6), "", "patches: inner width (auto: 4 dim)"),
    TN_SETTING_AUTO_INT("inputs", "auto", TN_RANGE(1, 1e8), "", "numbers of a sample (auto: the task's)"),
    TN_SETTING_AUTO_INT("tokens", "auto", TN_RANGE(1, 65536), "", "rows that a sample comes in (auto: the task's)"),
    TN_SETTING_AUTO_INT("width", "auto", TN_RANGE(1, 65536), "cells",
                        "width of the surface (auto: the task's, or a square)"),
    TN_SETTING_AUTO_INT("height", "auto", TN_RANGE(1, 65536), "cells", "height of the surface (auto: inputs / width)"),
    TN_SETTING_AUTO_INT("classes", "auto", TN_RANGE(2, 1e6), "",
                        "number of classes (auto: the task's; a task without classes wants a surface)"),
};

/* What is chosen where dim and layers are auto, and whether the kind asks where a cell is. */
static const struct {
    const char *name;
    int64_t dim, layers;
    bool places;
} kinds[NET_KINDS] = {
    [NET_LINEAR] = { "linear", 0, 0, false },     [NET_MLP] = { "mlp", 256, 2, false },
    [NET_CELL_MLP] = { "cell_mlp", 64, 2, true }, [NET_CONV] = { "conv", 32, 3, true },
    [NET_PATCHES] = { "patches", 64, 2, true },
};

static tn_status find_surface(net_config *c)
{
    const int64_t S = c->cells;
    const bool given = c->width || c->height;
    if (!given) c->width = (int64_t)llround(sqrt((double)S));
    if (!c->width) c->width = S / c->height;
    if (!c->height) c->height = S / c->width;
    if (c->width * c->height == S) return TN_OK;
    if (!given)
        return tn_model_error("kind=%s needs a surface, and samples of %lld numbers are not a square: set width (a "
                              "divisor of %lld), or use "
                              "kind=mlp",
                              kinds[c->kind].name, (long long)S, (long long)S);
    return tn_model_error("a surface of width=%lld and height=%lld does not hold samples of %lld numbers: set a width "
                          "that divides %lld, and leave height at auto",
                          (long long)c->width, (long long)c->height, (long long)S, (long long)S);
}

static tn_status check_kind(const net_config *c, bool layers_set)
{
    if (c->kind == NET_LINEAR && layers_set)
        return tn_model_error("kind=linear has no hidden layers: leave layers at auto, or use kind=mlp");
    if (c->kind != NET_PATCHES) return TN_OK;
    if (c->width % c->patch || c->height % c->patch)
        return tn_model_error("patch=%lld does not divide the surface of %lld x %lld cells: choose another side",
                              (long long)c->patch, (long long)c->width, (long long)c->height);
    if (c->dim % c->heads)
        return tn_model_error("dim=%lld must be a multiple of heads=%lld", (long long)c->dim, (long long)c->heads);
    return TN_OK;
}

static tn_status check_batch(const net_config *c, const tn_graph *g, const tn_batch *b)
{
    const tn_ref labels = tn_in(b, "labels"), target = tn_in(b, "target");
    if (target.id && c->classes)
        return tn_model_error("the task wants a surface, and classes=%lld: leave classes at auto",
                              (long long)c->classes);
    if (labels.id && !target.id && !c->classes)
        return tn_model_error("classes is auto and no task is set: give task=NAME or classes=N");
    if (labels.id && tn_ref_dim(g, labels, -1) != 1)
        return tn_model_error("net answers with one class for a sample, and these have %lld labels: use another task",
                              (long long)tn_ref_dim(g, labels, -1));
    if (target.id && tn_ref_dim(g, target, -1) != c->cells)
        return tn_model_error("samples of %lld numbers and targets of %lld: net makes a surface of the size it reads",
                              (long long)c->cells, (long long)tn_ref_dim(g, target, -1));
    return TN_OK;
}

tn_status net_config_read(const tn_settings *st, const tn_graph *g, const tn_batch *b, net_config *c)
{
    if (!tn_in(b, "features").id) return tn_model_error("net learns from samples, not from tokens: give task=NAME");
    *c = (net_config){ .kind = (net_kind)tn_settings_choice(st, "kind"),
                       .cells = b->length * tn_ref_dim(g, tn_in(b, "features"), -1),
                       .width = tn_settings_int(st, "width"),
                       .height = tn_settings_int(st, "height"),
                       .classes = tn_settings_int(st, "classes"),
                       .dim = tn_settings_int(st, "dim"),
                       .layers = tn_settings_int(st, "layers"),
                       .patch = tn_settings_int(st, "patch"),
                       .heads = tn_settings_int(st, "heads"),
                       .ffn = tn_settings_int(st, "ffn"),
                       .dropout = (float)tn_settings_float(st, "train.dropout") };
    const bool layers_set = c->layers != 0;
    if (!c->dim) c->dim = kinds[c->kind].dim;
    if (!c->layers) c->layers = kinds[c->kind].layers;
    if (!c->ffn) c->ffn = 4 * c->dim;
    if (kinds[c->kind].places) TN_RETURN_IF(find_surface(c));
    TN_RETURN_IF(check_kind(c, layers_set));
    return check_batch(c, g, b);
}

/* --- rows ------------------------------------------------------------------------------------------------------------- */

/* A class or a surface is wanted of a sample. labels has no .below: where a surface is wanted, nobody knows the classes. */
static const tn_input_row inputs[] = {
    { "features", TN_F32, .dims = { TN_B, TN_T, "inputs" } },
    { "labels", TN_I32, { TN_B, "labels" }, .pad = -1, .optional = true },
    { "target", TN_F32, { TN_B, "inputs" }, .optional = true },
    { "count", TN_I32, { "1" }, .valid_rows = true },
};

static const tn_source_number assumes[] = { { "inputs", 64 }, { "tokens", 1 }, { "labels", 1 } };

/* Of values 0..1; at most 100 dB, so that a perfect surface has a number too. */
static double psnr(const double *sums, const tn_settings *st)
{
    (void)st;
    return -10 * log10(fmax(sums[0] / sums[1], 1e-10));
}

static const tn_metric_row metrics[] = {
    { "loss", "", TN_LOWER, TN_MEAN_BY_COUNT, .key = "heldout" },
    { "accuracy", "", TN_HIGHER, TN_ADDED, .add = tn_answers_add, .reads = "logits", .needs = "answers",
      .by_group = true },
    { "psnr", "dB", TN_HIGHER, TN_FROM_SUMS, .sums = { "squares", "cells" }, .make = psnr, .needs = "targets" },
    { "psnr_identity", "dB", TN_HIGHER, TN_FROM_SUMS, .sums = { "squares_identity", "cells" }, .make = psnr,
      .needs = "targets" },
};

/* "predict": logits or the surface, for who has features alone. */
static const tn_step_row steps[] = { { "train", net_build, true },
                                     { "eval", net_build, false },
                                     { "predict", net_build, false } };

static const char *const defaults[] = { "train.decay=0.01", NULL };

const tn_model tn_model_net = {
    TN_MODEL_HEAD,
    .name = "net",
    .summary = "baselines on images and other surfaces: linear, mlp, cell_mlp, conv, patches",
    .settings = settings,
    .n_settings = sizeof settings / sizeof *settings,
    .build = net_build,
    .defaults = defaults,
    .time = "tokens",
    .assumes = assumes,
    .n_assumes = sizeof assumes / sizeof *assumes,
    TN_INPUTS(inputs),
    TN_METRICS(metrics),
    TN_STEPS(steps),
};
