/* A model whose logits of a whole sequence are known, and decoders of it, on the device of TENON_TEST_DEVICE. Header only. */
#ifndef TN_DECODE_STAGE_H
#define TN_DECODE_STAGE_H

#include "sample/sample_decode_parts.h"

#include "device_memory.h"
#include "train/run/train_settings.h"
#include "world.h"

enum { V = 37, MOST = 16 };

typedef struct pupil {
    const char *model, *more[5];
    int64_t batch, length;
    bool exact; /* a row's bits do not depend on what stands beside it: attention and products, in f32 */
    bool half;  /* compute=bf16 */
} pupil;

typedef struct stage {
    tn_world w;
    const tn_model *model;
    tn_settings *st;
    int32_t *tokens; /* (B,T) */
    float *logits;   /* (B,T,V) of the whole sequence */
} stage;

static inline void resolve(stage *s, const pupil *p)
{
    const char *list[MOST] = { "layers=2", "vocab=37", "train.context=512", "threads=2", "compute=f32" };
    size_t n = 5;
    for (int i = 0; i < 5 && p->more[i]; i++) list[n++] = p->more[i];
    assert_ok(tn_settings_resolve(p->model, list, n, &s->st, &s->model));
}

/* First values are small: larger ones make a lost state visible. */
static inline void enlarge(tn_store *st)
{
    for (size_t i = 0; i < tn_store_count(st); i++) {
        const tn_entry *e = tn_store_at(st, i);
        const int64_t n = tn_dims_count(e->dims);
        if (e->role != TN_ROLE_PARAM || e->dims.rank != 2) continue;
        float *x = tn_memory_floats(st, e->data, n);
        const bool small = fabsf(x[0]) < 0.2f && fabsf(x[1]) < 0.2f;
        for (int64_t k = 0; small && k < n; k++) x[k] *= 4;
        tn_memory_put(st, e->data, x, sizeof *x * (size_t)n);
        free(x);
    }
}

static inline void open_stage(stage *s, const pupil *p)
{
    const int64_t B = p->batch, T = p->length;
    resolve(s, p);
    const tn_dtype type = p->half ? TN_BF16 : TN_F32;
    const tn_device device = tn_test_device();
    s->w = tn_world_open_on(device, 3, 2);
    tn_graph *g =
        tn_world_graph_on(device, &(tn_graph_options){
                                      .threads = 2, .round = type, .activation = device == TN_CPU ? TN_F32 : type });
    tn_batch b = { .size = sizeof b, .batch = B, .length = T, .want = { "logits" }, .n_wants = 1 };
    tn_batch_add(&b, "tokens", tn_input(g, "tokens", tn_shape(B, T), TN_I32));
    assert_ok(s->model->build(g, s->st, &b));
    tn_bound *whole = tn_world_add(&s->w, g, NULL);
    enlarge(s->w.store);
    s->tokens = calloc((size_t)(B * T), sizeof *s->tokens);
    s->logits = calloc((size_t)(B * T * V), sizeof *s->logits);
    assert_true(s->tokens && s->logits);
    uint32_t x = 7;
    for (int64_t i = 0; i < B * T; i++) s->tokens[i] = (int32_t)((x = x * 1664525u + 1013904223u) >> 24) % V;
    memcpy(tn_world_data(whole, "tokens"), s->tokens, sizeof *s->tokens * (size_t)(B * T));
    assert_ok(tn_run(whole));
    memcpy(s->logits, tn_world_data(whole, "logits"), sizeof *s->logits * (size_t)(B * T * V));
}

static inline void close_stage(stage *s)
{
    free(s->tokens);
    free(s->logits);
    tn_world_close(&s->w);
    tn_settings_free(s->st);
}

static inline tn_decoder *open_decoder(const stage *s, int64_t batch, int64_t capacity, int threads)
{
    tn_decoder *d;
    assert_ok(tn_decoder_new(&(tn_decoder_options){ .model = s->model,
                                                    .settings = s->st,
                                                    .store = s->w.store,
                                                    .batch = batch,
                                                    .capacity = capacity,
                                                    .threads = threads,
                                                    .greedy = true },
                             &d));
    return d;
}

/* Tokens [first, first + n) of every row in a row of n. */
static inline void gather(const stage *s, const pupil *p, int64_t first, int64_t n, int32_t *out)
{
    for (int64_t b = 0; b < p->batch; b++)
        memcpy(out + b * n, s->tokens + b * p->length + first, sizeof *out * (size_t)n);
}

/* The likeliest of V tokens. */
static inline int32_t largest(const float *x)
{
    int at = 0;
    for (int i = 1; i < V; i++)
        if (x[i] > x[at]) at = i;
    return at;
}

static inline double tolerance(const pupil *p)
{
    const bool cpu = tn_test_device() == TN_CPU; /* a GPU's activations are halves too, and bits depend on shapes */
    return p->half ? cpu ? 2e-2 : 6e-2 : cpu && p->exact ? 0 : 2e-4;
}

static inline void check_logits(const stage *s, const pupil *p, int64_t t, const float *got)
{
    for (int64_t b = 0; b < p->batch; b++) {
        const float *want = s->logits + (b * p->length + t) * V;
        const double off = tn_world_distance(got + b * V, want, V);
        if (!(off <= tolerance(p))) fail_msg("row %d at position %d is off by %g", (int)b, (int)t, off);
    }
}

#endif
