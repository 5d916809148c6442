/* Chunks of time: the loss and every gradient of a batch in chunks are those of the whole, for every kind of layer, with and
 * without documents, for chunks of any length; nothing leaks; both passes drop the same; memory does not grow with the
 * activations of all tokens. TENON_TEST_DEVICE=cuda: all of it there, in strict f32. */
#include "base/alloc.h"
#include "base/rng.h"
#include "testlib.h"
#include "train/run/train_settings.h"
#include "train/trainer/trainer.h"

#include <tenon/ops.h>

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { B = 2, T = 101, V = 23 };

typedef struct pupil {
    const char *more[4];
    bool no_marks; /* the model knows no documents */
    bool swings;   /* gradients that are small sums of large numbers: f32 gives fewer digits of them */
    int64_t scale; /* chunks are multiples of it */
} pupil;

static const pupil pupils[] = {
    { .more = { "pattern=D" } },
    { .more = { "pattern=O", "chunk=8" } },
    { .more = { "pattern=DO", "energy=0.1", "rotate=true" } },
    { .more = { "pattern=E" } },
    { .more = { "pattern=E", "select=bounded", "resonance=blockdiag", "xmem=true" } },
    { .more = { "pattern=E", "select=rg", "conv=2", "pos=sin" } },
    { .more = { "preset=ten_a", "k=8", "vocab=23", "train.dropout=0" } },
    { .more = { "preset=ten_b", "k=8", "vocab=23", "train.dropout=0" } },
    { .more = { "pattern=DEO", "layers=3", "norm=post" } },
    { .more = { "pattern=O", "rotate=learned", "skip=false", "qk_norm=true" }, .swings = true },
    { .more = { "pattern=O", "rotate=token", "write=normed", "conv_act=none" } },
    { .more = { "pattern=O", "forget=fixed", "write=decay", "gate=none" } },
    { .more = { "pattern=O", "qk_norm=true", "write=delta" } },
    { .more = { "pattern=DO", "omega=zero", "conv=0", "gate=sigmoid" } },
    { .more = { "pattern=E", "hten=1,2,4" }, .no_marks = true, .scale = 4 },
    { .more = { "pattern=DO", "hten=3", "norm=post" }, .no_marks = true, .scale = 3 },
};

typedef struct rig {
    tn_settings *settings;
    tn_trainer *trainer;
} rig;

typedef struct setup {
    const char *const *more; /* NULL at the end, at most 4 */
    int64_t chunk;           /* 0: whole */
    bool documents, logits;
    int threads;
    const char *extra; /* one more setting */
} setup;

static tn_status try_rig(const char *model, const setup *s, rig *r)
{
    char chunk[32];
    const char *list[16] = { "dim=24",
                             "layers=2",
                             "heads=4",
                             "vocab=23",
                             "train.context=101",
                             "compute=f32",
                             tn_test_device() == TN_CUDA ? "device=cuda" : "device=cpu" };
    const tn_model *m;
    size_t n = 7;
    for (int i = 0; i < 4 && s->more && s->more[i]; i++) list[n++] = s->more[i];
    snprintf(chunk, sizeof chunk, "plan.chunk=%lld", (long long)s->chunk);
    if (s->extra) list[n++] = s->extra;
    if (s->chunk) list[n++] = "plan.recompute=chunk";
    if (s->chunk) list[n++] = chunk;
    assert_ok(tn_settings_resolve(model, list, n, &r->settings, &m));
    return tn_trainer_new(&(tn_trainer_options){ .model = m,
                                                 .settings = r->settings,
                                                 .batch = B,
                                                 .length = T,
                                                 .input_spec = &(tn_input_spec){ .optional = s->documents },
                                                 .logits = s->logits,
                                                 .threads = s->threads ? s->threads : 1 },
                          &r->trainer);
}

static void close_rig(rig *r)
{
    tn_trainer_free(r->trainer);
    tn_settings_free(r->settings);
}

/* n numbers of a store's memory, for the test to free. */
static float *numbers(const tn_store *st, const void *data, int64_t n)
{
    tn_host_copy host = { 0 };
    const size_t bytes = sizeof(float) * (size_t)n;
    float *x = malloc(bytes + 1);
    const void *from = tn_store_read(st, data, bytes, &host);
    assert_true(x && from);
    memcpy(x, from, bytes);
    tn_host_copy_free(&host);
    return x;
}

static void put_numbers(const tn_store *st, void *data, const float *x, int64_t n)
{
    assert_ok(tn_store_write(st, data, x, sizeof *x * (size_t)n));
}

/* First values are small, and so is what states do with them: larger ones make a lost state visible. */
static void enlarge(tn_store *st)
{
    for (size_t i = 0; i < tn_store_count(st); i++) {
        const tn_entry *e = tn_store_at(st, i);
        const int64_t n = tn_dims_count(e->dims);
        if (e->role != TN_ROLE_PARAM || e->dims.rank < 2) continue;
        float *x = numbers(st, e->data, n), most = 0;
        for (int64_t k = 0; k < n; k++) most = fmaxf(most, fabsf(x[k]));
        for (int64_t k = 0; k < n && most < 0.2f; k++) x[k] *= 10;
        put_numbers(st, e->data, x, n);
        free(x);
    }
}

/* Random tokens; some labels do not count, among them all of tokens 37 to 73; documents start at uneven places. */
static void fill(rig *r)
{
    int32_t *tokens = tn_trainer_input(r->trainer, "tokens"), *labels = tn_trainer_input(r->trainer, "labels");
    int32_t *reset = tn_trainer_input(r->trainer, "reset"), *positions = tn_trainer_input(r->trainer, "positions"),
            *document = tn_trainer_input(r->trainer, "document");
    for (int64_t i = 0; i < B * T; i++) {
        const int64_t t = i % T, start = t < 30   ? 0
                                         : t < 31 ? 30
                                         : t < 74 ? 31
                                                  : 74; /* 74 = 2 x 37: where a chunk starts too */
        tokens[i] = (int32_t)tn_rng_below((tn_rng){ 3, 1 }, (uint64_t)i, V);
        labels[i] = (int32_t)tn_rng_below((tn_rng){ 3, 2 }, (uint64_t)i, V);
        if ((t >= 37 && t < 74) || i % 7 == 3) labels[i] = -1;
        if (reset) reset[i] = t == start;
        if (positions) positions[i] = (int32_t)(t - start);
        if (document) document[i] = (int32_t)start;
    }
    enlarge(tn_trainer_store(r->trainer));
}

static rig open_rig(const setup *s)
{
    rig r = { 0 };
    assert_ok(try_rig("ten", s, &r));
    fill(&r);
    return r;
}

static double norm(const float *x, const float *y, int64_t n)
{
    double s = 0;
    for (int64_t i = 0; i < n; i++) s += pow((double)x[i] - (y ? (double)y[i] : 0), 2);
    return sqrt(s);
}

/* Worst difference of a gradient as a part of its norm; tensors with next to no gradient count by the largest one's. */
static double gradients_apart(const rig *a, const rig *b)
{
    const tn_store *p = tn_trainer_store(a->trainer), *q = tn_trainer_store(b->trainer);
    double worst = 0, most = 0;
    for (int pass = 0; pass < 2; pass++)
        for (size_t i = 0; i < tn_store_count(p); i++) {
            const tn_entry *e = tn_store_at(p, i), *f = tn_store_find(q, e->name);
            if (e->role != TN_ROLE_PARAM) continue;
            const int64_t n = tn_dims_count(e->dims);
            float *x = numbers(p, e->grad, n), *y = numbers(q, f->grad, n);
            const double size = norm(x, NULL, n);
            most = fmax(most, size);
            if (pass) worst = fmax(worst, norm(y, x, n) / fmax(size, 1e-3 * most));
            free(x);
            free(y);
        }
    return worst;
}

static void equals_whole(const pupil *p, const rig *whole, float loss, const setup *s)
{
    rig r = open_rig(s);
    float got, once, again;
    assert_ok(tn_trainer_grad(r.trainer, 0, &got));
    const double apart = gradients_apart(whole, &r);
    if (fabs((double)got - (double)loss) > 1e-5 * (double)loss ||
        !(apart < (tn_test_device() == TN_CUDA || p->swings ? 5e-5 : 1e-5)))
        fail_msg("%s %s chunk %lld%s: loss %.8g instead of %.8g, gradients apart by %g", p->more[0],
                 p->more[1] ? p->more[1] : "", (long long)s->chunk, s->documents ? " documents" : "", (double)got,
                 (double)loss, apart);
    assert_ok(tn_trainer_eval(whole->trainer, &once));
    assert_ok(tn_trainer_eval(r.trainer, &again));
    assert_true(fabs((double)once - (double)again) <= 1e-5 * (double)once);
    close_rig(&r);
}

static void chunks_equal_whole(void **state)
{
    static const int64_t lengths[] = { 1, 37, 50, 100, T };
    const pupil *p = *state;
    for (int documents = 0; documents < (p->no_marks ? 1 : 2); documents++) {
        rig whole = open_rig(&(setup){ .more = p->more, .documents = documents });
        float loss;
        assert_ok(tn_trainer_grad(whole.trainer, 0, &loss));
        for (size_t i = 0; i < sizeof lengths / sizeof *lengths; i++) {
            const int64_t scale = p->scale ? p->scale : 1, chunk = (lengths[i] + scale - 1) / scale * scale;
            equals_whole(p, &whole, loss, &(setup){ .more = p->more, .chunk = chunk, .documents = documents });
        }
        close_rig(&whole);
    }
}

/* The gradient that crosses boundaries is a part that tells: chunks as sequences of their own have another one. */
static void boundaries_matter(void **state)
{
    (void)state;
    static const char *const more[] = { "pattern=DOE", "layers=3", NULL };
    rig whole = open_rig(&(setup){ .more = more, .chunk = 37, .documents = true });
    rig apart = open_rig(&(setup){ .more = more, .chunk = 37, .documents = true });
    float a, b;
    for (int64_t i = 0; i < B * T; i++) {
        ((int32_t *)tn_trainer_input(whole.trainer, "reset"))[i] = 0;
        ((int32_t *)tn_trainer_input(apart.trainer, "reset"))[i] = i % T % 37 == 0;
    }
    assert_ok(tn_trainer_grad(whole.trainer, 0, &a));
    assert_ok(tn_trainer_grad(apart.trainer, 0, &b));
    assert_true(gradients_apart(&whole, &apart) > 1e-2);
    close_rig(&whole);
    close_rig(&apart);
}

static void same_bits(const rig *a, const rig *b)
{
    const tn_store *p = tn_trainer_store(a->trainer), *q = tn_trainer_store(b->trainer);
    const int64_t n = tn_store_bucket(p, 0)->count;
    float *x = numbers(p, tn_store_bucket(p, 0)->param, n), *y = numbers(q, tn_store_bucket(q, 0)->param, n);
    assert_memory_equal(x, y, sizeof *x * (size_t)n);
    free(x);
    free(y);
}

static const char *const mixed[] = { "pattern=DOE", "layers=3", "train.dropout=0.1", "train.accumulate=2" };

/* Two steps of two batches: threads and packed weights change no bit; nothing is allocated after the first. */
static void threads_and_allocations(void **state)
{
    (void)state;
    rig r[3];
    for (int i = 0; i < 3; i++) {
        r[i] = open_rig(&(setup){ .more = mixed,
                                  .chunk = 16,
                                  .documents = true,
                                  .threads = i ? 2 : 1,
                                  .extra = i == 2 ? "opt.pack_weights=off" : NULL });
        tn_trainer_steady(r[i].trainer, true);
        for (int step = 0; step < 2; step++) {
            float loss;
            tn_update_result a;
            const uint64_t before = tn_alloc_count();
            for (int k = 0; k < 2; k++) assert_ok(tn_trainer_grad(r[i].trainer, 2 * step + k, &loss));
            assert_ok(tn_trainer_apply(r[i].trainer, step, 2, loss, &a));
            assert_ok(tn_trainer_eval(r[i].trainer, &loss));
            assert_true(a.ok && (step == 0 || tn_alloc_count() == before));
        }
    }
    same_bits(&r[0], &r[1]);
    same_bits(&r[0], &r[2]);
    for (int i = 0; i < 3; i++) close_rig(&r[i]);
}

/* Steps that are queued have the losses and the bits of those that are waited for; one that is not finite is found. */
static void queued_steps(void **state)
{
    (void)state;
    enum { STEPS = 5 };
    const setup s = { .more = mixed, .chunk = 16, .documents = true };
    rig waits = open_rig(&s), queues = open_rig(&s);
    double loss[STEPS];
    tn_step_result found[STEPS];
    int64_t collected = 0;
    for (int64_t i = 0; i < STEPS; i++) {
        float x[2];
        tn_update_result a;
        for (int k = 0; k < 2; k++) assert_ok(tn_trainer_grad(waits.trainer, 2 * i + k, &x[k]));
        loss[i] = ((double)x[0] + (double)x[1]) / 2;
        assert_ok(tn_trainer_apply(waits.trainer, i, 2, (float)loss[i], &a));
    }
    for (int64_t i = 0; i < STEPS; i++) {
        for (int k = 0; k < 2; k++) assert_ok(tn_trainer_queue_grad(queues.trainer, 2 * i + k, 1, false));
        assert_ok(tn_trainer_queue_apply(queues.trainer, i));
        if (tn_trainer_queued(queues.trainer) == tn_trainer_queue_depth(queues.trainer))
            assert_ok(tn_trainer_collect(queues.trainer, &found[collected++]));
    }
    while (tn_trainer_queued(queues.trainer)) assert_ok(tn_trainer_collect(queues.trainer, &found[collected++]));
    for (int i = 0; i < STEPS; i++) assert_true(found[i].update.ok && found[i].loss == loss[i]);
    same_bits(&waits, &queues);
    const tn_store *st = tn_trainer_store(queues.trainer);
    put_numbers(st, tn_store_find(st, "norm_f.w")->data, (const float[]){ NAN }, 1);
    for (int k = 0; k < 2; k++) assert_ok(tn_trainer_queue_grad(queues.trainer, k, 1, false));
    assert_ok(tn_trainer_queue_apply(queues.trainer, STEPS));
    assert_fails(tn_trainer_collect(queues.trainer, &found[0]), TN_DIVERGED, "");
    assert_true(isnan(found[0].loss) && !found[0].update.ok);
    close_rig(&waits);
    close_rig(&queues);
}

/* With dropout the gradient is still that of the loss: the boundary states saw the same numbers dropped. */
static void drops_the_same_twice(void **state)
{
    (void)state;
    rig r = open_rig(&(setup){ .more = mixed, .chunk = 8 });
    const tn_store *st = tn_trainer_store(r.trainer);
    const tn_entry *e = tn_store_find(st, "layer0.mixer.w_in");
    const int64_t n = tn_dims_count(e->dims);
    float up, down, other;
    assert_ok(tn_trainer_grad(r.trainer, 3, &up));
    float *x = numbers(st, e->data, n), *g = numbers(st, e->grad, n);
    const double size = norm(g, NULL, n), h = 0.02;
    for (int64_t i = 0; i < n; i++) x[i] += (float)(h / size) * g[i];
    put_numbers(st, e->data, x, n);
    assert_ok(tn_trainer_grad(r.trainer, 3, &up));
    assert_ok(tn_trainer_grad(r.trainer, 4, &other));
    for (int64_t i = 0; i < n; i++) x[i] -= 2 * (float)(h / size) * g[i];
    put_numbers(st, e->data, x, n);
    assert_ok(tn_trainer_grad(r.trainer, 3, &down));
    const double slope = ((double)up - (double)down) / (2 * h);
    if (fabs(slope - size) > 0.01 * size) fail_msg("slope %g, gradient %g", slope, size);
    assert_true(other != up); /* another step drops others */
    free(x);
    free(g);
    close_rig(&r);
}

/* Logits are those of the whole; a token changes none before it, in its chunk or an earlier one. */
static void nothing_leaks(void **state)
{
    (void)state;
    rig whole = open_rig(&(setup){ .more = mixed, .logits = true, .documents = true });
    rig r = open_rig(&(setup){ .more = mixed, .logits = true, .documents = true, .chunk = 37 });
    float loss, *before = malloc(sizeof *before * B * T * V);
    int64_t count, moved = 0;
    int32_t *tokens = tn_trainer_input(r.trainer, "tokens");
    assert_ok(tn_trainer_eval(whole.trainer, &loss));
    assert_ok(tn_trainer_eval(r.trainer, &loss));
    memcpy(before, tn_trainer_output(r.trainer, "logits", &count), sizeof *before * B * T * V);
    assert_int_equal(count, B * T * V);
    const float *all = tn_trainer_output(whole.trainer, "logits", &count);
    assert_true(norm(before, all, count) < 1e-5 * norm(all, NULL, count));
    for (int b = 0; b < B; b++) tokens[b * T + 50] = (tokens[b * T + 50] + 1) % V;
    assert_ok(tn_trainer_eval(r.trainer, &loss));
    const float *after = tn_trainer_output(r.trainer, "logits", &count);
    for (int64_t i = 0; i < count; i++) {
        const int64_t t = i / V % T;
        if (t < 50 || t >= 74) assert_true(before[i] == after[i]); /* a document starts at 74 */
        else moved += before[i] != after[i];
    }
    assert_true(moved > 20 * B * V);
    free(before);
    close_rig(&whole);
    close_rig(&r);
}

static void refused(const char *model, const char *const *more, int64_t chunk, const char *why)
{
    rig r = { 0 };
    assert_fails(try_rig(model, &(setup){ .more = more, .chunk = chunk }, &r), TN_USAGE, why);
    close_rig(&r);
}

static void refusals(void **state)
{
    (void)state;
    refused("gpt", NULL, 10, "plan.recompute=chunk: attention over a cache");
    refused("gpt", NULL, 10, "use plan.recompute=layer");
    refused("ten", (const char *const[]){ "pattern=DW", "heads=2", NULL }, 10, "attention over a cache");
    refused("ten", (const char *const[]){ "pattern=E", "hten=1,4", NULL }, 10, "use a multiple");
    refused("ten", (const char *const[]){ "pattern=E", "tbptt=10", "train.context=100", NULL }, 10, "tbptt");
    refused("ten", (const char *const[]){ "pattern=E", "hten=2", "energy=1", NULL }, 10, "divide");
    rig r = { 0 };
    assert_ok(try_rig("gpt", &(setup){ .chunk = T }, &r)); /* one chunk is the whole */
    close_rig(&r);
}

static tn_status build_stateless(tn_graph *g, const tn_settings *st, const tn_batch *b)
{
    (void)st;
    const tn_ref x = tn_embed(g, tn_in(b, "tokens"), tn_param(g, "embed", tn_shape(V, 4), tn_ones));
    tn_output(g, "loss", tn_mean_all(g, tn_square(g, x)));
    return tn_graph_status(g);
}

static void stateless(void **state)
{
    (void)state;
    static const tn_model model = { TN_MODEL_HEAD, .name = "stateless", .build = build_stateless, TN_LANGUAGE_ROWS };
    static const char *const set[] = { "plan.recompute=chunk", "plan.chunk=10", "device=cpu", "vocab=23" };
    tn_settings *st;
    const tn_model *m;
    tn_trainer *t;
    assert_ok(tn_settings_resolve("ten", set, 4, &st, &m));
    assert_fails(tn_trainer_new(&(tn_trainer_options){ .model = &model, .settings = st, .batch = B, .length = T }, &t),
                 TN_USAGE, "keeps no state");
    tn_settings_free(st);
}

static tn_memory_plan planned(const char *const *set, size_t n, int64_t batch, int64_t length)
{
    tn_settings *st;
    const tn_model *m;
    tn_trainer *t;
    assert_ok(tn_settings_resolve("ten", set, n, &st, &m));
    assert_ok(tn_trainer_new(
        &(tn_trainer_options){ .model = m, .settings = st, .batch = batch, .length = length, .threads = 1 }, &t));
    const tn_memory_plan p = tn_trainer_memory(t);
    tn_trainer_free(t);
    tn_settings_free(st);
    return p;
}

/* Four times as long: states at four times as many boundaries, and not a byte more of activations. */
static void memory(void **state)
{
    (void)state;
    static const char *const set[] = { "dim=32", "layers=2", "vocab=64", "device=cpu", "plan.recompute=chunk" };
    const tn_memory_plan one = planned(set, 5, 1, 16384), four = planned(set, 5, 1, 65536),
                         whole = planned(set, 4, 1, 16384);
    assert_int_equal(one.activations, four.activations);
    assert_int_equal(one.workspace, four.workspace);
    const size_t slot = (four.state - one.state) / 12; /* chunks of 4096 */
    assert_true(slot > 1000 && four.state == 17 * slot && one.state == 5 * slot);
    assert_true(3 * one.total < whole.total);
    const tn_memory_plan wide = planned(set, 5, 64, 256); /* as many tokens in many short sequences: chunks of 64 */
    assert_true((double)(wide.activations + wide.workspace) < 1.05 * (double)(one.activations + one.workspace));
}

void tn_tests_chunks(tn_test_list *l)
{
    for (size_t i = 0; i < sizeof pupils / sizeof *pupils; i++)
        tn_test_add(l, chunks_equal_whole, &pupils[i], "chunks: loss and gradients of the whole, %s %s",
                    pupils[i].more[0], pupils[i].more[1] ? pupils[i].more[1] : "");
    tn_test_add(l, boundaries_matter, NULL, "chunks: gradients cross boundaries");
    tn_test_add(l, threads_and_allocations, NULL, "chunks: threads change no bit, nothing is allocated");
    tn_test_add(l, queued_steps, NULL, "chunks: steps queued ahead");
    tn_test_add(l, drops_the_same_twice, NULL, "chunks: both passes drop the same");
    tn_test_add(l, nothing_leaks, NULL, "chunks: logits of the whole, nothing leaks");
    tn_test_add(l, refusals, NULL, "chunks: what cannot be cut is refused");
    tn_test_add(l, stateless, NULL, "chunks: a model without states is refused");
    tn_test_add(l, memory, NULL, "chunks: memory");
}
