/* A flow network in a trainer of its own, on batches that a formula fills; in f32 on the device of TENON_TEST_DEVICE. Header only. */
#ifndef TN_FLOW_WORLD_H
#define TN_FLOW_WORLD_H

#include "device_memory.h"
#include "models/flow/flow.h"
#include "models/models.h"
#include "testlib.h"
#include "train/run/train_settings.h"
#include "train/trainer/trainer.h"
#include "world.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

enum { FLOW_CLASSES = 3 };

typedef struct flow_world {
    tn_settings *settings;
    tn_trainer *trainer;
    int64_t B, F;
    bool target;
} flow_world;

#define FLOW_LIST(...) ((const char *const[]){ __VA_ARGS__, NULL })

/* side x side cells; target: a surface is wanted, else a class. */
static inline tn_status flow_try(int64_t side, int64_t B, bool target, int threads, const char *const *words,
                                 flow_world *w)
{
    static const tn_input_row labelled[] = { { "features", TN_F32, .dims = { TN_B, TN_T, "features" } },
                                             { "count", TN_I32, { "1" }, .valid_rows = true },
                                             { "sample", TN_I32, .dims = { TN_B } },
                                             { "labels", TN_I32, { TN_B, "labels" }, .pad = -1 } },
                              wanted[] = { { "features", TN_F32, .dims = { TN_B, TN_T, "features" } },
                                           { "count", TN_I32, { "1" }, .valid_rows = true },
                                           { "sample", TN_I32, .dims = { TN_B } },
                                           { "target", TN_F32, .dims = { TN_B, "cells" } },
                                           { "goal", TN_I32, { TN_B, "cells" }, .pad = -1 } };
    char size[3][32];
    const char *list[24] = { size[0],
                             "tokens=1",
                             size[1],
                             "train.steps=5000",
                             "train.warmup=0",
                             "compute=f32",
                             tn_test_device() == TN_CUDA ? "device=cuda" : "device=cpu" };
    size_t n = 7;
    const tn_model *model;
    const tn_source_number numbers[] = { { "features", (double)(side * side) },
                                         { "labels", 1 },
                                         { "cells", (double)(side * side) } };
    const tn_input_spec in = {
        .rows = target ? wanted : labelled, .n_rows = target ? 5 : 4, .numbers = numbers, .n_numbers = 3
    };
    snprintf(size[0], sizeof size[0], "inputs=%d", (int)(side * side));
    snprintf(size[1], sizeof size[1], target ? "cells=%d" : "classes=%d", target ? (int)(side * side) : FLOW_CLASSES);
    for (int i = 0; words && words[i]; i++) list[n++] = words[i];
    *w = (flow_world){ .B = B, .F = side * side, .target = target };
    tn_status s = tn_settings_resolve("flow", list, n, &w->settings, &model);
    if (s == TN_OK)
        s = tn_trainer_new(&(tn_trainer_options){ .model = model,
                                                  .settings = w->settings,
                                                  .batch = B,
                                                  .length = 1,
                                                  .threads = threads,
                                                  .instruments = true,
                                                  .input_spec = &in },
                           &w->trainer);
    if (s != TN_OK) tn_settings_free(w->settings);
    return s;
}

static inline flow_world flow_open(int64_t side, int64_t B, bool target, const char *const *words)
{
    flow_world w;
    assert_ok(flow_try(side, B, target, 1, words, &w));
    return w;
}

static inline void flow_close(flow_world *w)
{
    tn_trainer_free(w->trainer);
    tn_settings_free(w->settings);
}

/* Rows are samples first, first + 1, ...; ink here and there, the target one cell to the right. */
static inline void flow_give(flow_world *w, int64_t first, int64_t rows)
{
    const tn_feed f = tn_trainer_feed(w->trainer);
    const int64_t side = (int64_t)llround(sqrt((double)w->F));
    float *x = tn_feed_at(&f, "features"), *target = tn_feed_at(&f, "target");
    int32_t *labels = tn_feed_at(&f, "labels"), *sample = tn_feed_at(&f, "sample"), *goal = tn_feed_at(&f, "goal");
    for (int64_t b = 0; b < rows; b++) {
        const int64_t i = first + b;
        for (int64_t k = 0; k < w->F; k++) {
            const int64_t at = b * w->F + k;
            const bool edge = k % side == 0, last = k % side == side - 1;
            x[at] = fmaxf(0, sinf(0.7f * (float)k + 1.3f * (float)(i * i % 17)));
            if (target) target[at] = edge ? 0 : fmaxf(0, sinf(0.7f * (float)(k - 1) + 1.3f * (float)(i * i % 17)));
            if (goal) goal[at] = last ? -1 : (int32_t)k + 1;
        }
        if (labels) labels[b] = (int32_t)(i % FLOW_CLASSES);
        if (sample) sample[b] = (int32_t)i;
    }
    tn_feed_end(&f, rows);
}

/* Gradients of all parameters, one after the other, into x (most); returns how many. */
static inline int64_t flow_gradients(const flow_world *w, float *x, int64_t most)
{
    int64_t n = 0;
    for (size_t i = 0; i < tn_store_count(tn_trainer_store(w->trainer)); i++) {
        const tn_entry *e = tn_store_at(tn_trainer_store(w->trainer), i);
        if (e->role != TN_ROLE_PARAM) continue;
        assert_true(n + tn_dims_count(e->dims) <= most);
        tn_memory_get(tn_trainer_store(w->trainer), e->grad, x + n, sizeof *x * (size_t)tn_dims_count(e->dims));
        n += tn_dims_count(e->dims);
    }
    return n;
}

static inline const void *flow_output(flow_world *w, const char *step, const char *name, int64_t *n)
{
    tn_dtype type;
    const void *x = tn_trainer_step_output(w->trainer, step, name, &type, n);
    if (!x) fail_msg("step %s has no output %s", step, name);
    return x;
}

#endif
