/* Rehearsal: a single token of a model as programs of a few steps (plan/decode), run by a machine in plain C whose blocks are never at the
 * same place (decode_machine.h), against the plan's kernels one by one. What programs do not take runs by its kernel between them.
 * Plans of the CPU use memory again, and in place: their hazards are more than those of the plans that the GPU runs, whose memory is
 * rehearsed too. */
#include "base/alloc.h"
#include "base/rng.h"
#include "models/decode_cache.h"
#include "plan/plan_internal.h"
#include "decode_machine.h"
#include "train/run/train_settings.h"
#include "world.h"

#include <tenon/ops.h>

/* SLOT: where the token stands in caches of a window */
enum { V = 301, CAPACITY = 24, POSITION = 7, SLOT = 301, TOKEN = 123, MORE = 4, MESSAGE = 1 << 14 };

typedef struct token_row {
    const char *model, *more[MORE];
    int64_t capacity; /* 0: CAPACITY, in which no cache is shorter */
} token_row;

static const token_row rows[] = {
    { "ten", { "pattern=D" }, 0 },
    { "ten", { "pattern=O" }, 0 },
    { "ten", { "pattern=DO" }, 0 },
    { "ten", { "pattern=DOEW", "window=16" }, 0 },
    { "ten", { "pattern=OOOW", "window=40" }, 3000 },
    { "ten", { "dim=72", "heads=3", "k=20" }, 0 },
    { "ten_b", { NULL }, 0 },
    { "ten_static", { NULL }, 0 },
    { "gpt", { "heads=2" }, 0 },
    { "gpt", { "heads=4", "kv_heads=2" }, 0 },
    { "gpt_conv_gate", { "heads=2" }, 0 },
    { "gpt", { "shape=gpt2", "heads=2" }, 0 },
};

/* A plan with memory of its own: what lies in it before the token, and after it ran call by call. */
typedef struct desk {
    tn_plan *plan;
    void *frame;
    char *arena;
    void *outside[512], *before[512], *after[512]; /* by extern */
    size_t bytes[512], arena_bytes;
    float logits[V];
    int32_t next;
    uint32_t barrier[3];
    _Alignas(16) uint64_t message[MESSAGE];
} desk;

typedef struct outcome {
    int programs, steps, barriers, fetches;
    size_t taken; /* calls */
} outcome;

static void *copy_of(const void *from, size_t bytes)
{
    void *to = tn_alloc(bytes + 1);
    assert_non_null(to);
    memcpy(to, from, bytes);
    return to;
}

/* --- the desk --------------------------------------------------------------------------------------------------------------- */

static tn_graph *build_token(const tn_model *model, const tn_settings *st, int64_t capacity, bool inplace)
{
    const char *const off[] = { "opt.pack_weights", inplace ? NULL : "opt.inplace", NULL };
    tn_batch b = { .size = sizeof b, .batch = 1, .length = 1, .want = { "logits" }, .n_wants = 1 };
    tn_graph *g = tn_world_graph(&(tn_graph_options){ .threads = 1, .off = off });
    tn_batch_add(&b, "tokens", tn_input(g, "tokens", tn_shape(1, 1), TN_I32));
    tn_decode_cache_inputs(g, &b, capacity ? capacity : CAPACITY);
    tn_decode_cache_slides(g, &b);
    assert_ok(model->build(g, st, &b));
    assert_true((tn_decode_cache_window(g) > 0) == (capacity > 0));
    tn_output(g, "next", tn_argmax(g, tn_graph_output(g, "logits")));
    assert_ok(tn_graph_status(g));
    return g;
}

/* First values of parameters, but larger matrices, so that a lost state shows; numbers for states and caches. */
static void fill_outside(const tn_gtensor *t, const tn_store *store, void *to)
{
    const int64_t n = tn_dims_count(t->dims);
    const tn_rng r = { .seed = 5, .stream = tn_rng_stream(t->name) };
    float *x = to;
    if (t->role == TN_ROLE_INPUT) {
        assert_int_equal(n, 1);
        *(int32_t *)to = strcmp(t->name, "tokens") == 0            ? TOKEN
                         : strcmp(t->name, "cache.keys") == 0      ? POSITION + 1
                         : strcmp(t->name, "cache.slot") == 0      ? SLOT
                         : strcmp(t->name, "cache.slot_keys") == 0 ? SLOT + 1
                                                                   : POSITION;
        return;
    }
    assert_int_equal(t->dtype, TN_F32);
    tn_rng_normals(r, x, n);
    if (t->role != TN_ROLE_PARAM && t->role != TN_ROLE_FROZEN) return;
    const tn_entry *e = tn_store_find(store, t->name);
    assert_non_null(e);
    memcpy(x, e->data, sizeof *x * (size_t)n);
    const bool small = t->dims.rank == 2 && fabsf(x[0]) < 0.2f && fabsf(x[1]) < 0.2f;
    for (int64_t i = 0; small && i < n; i++) x[i] *= 4;
}

static void restore(const desk *d)
{
    for (int i = 0; i < tn_plan_externs(d->plan); i++) memcpy(d->outside[i], d->before[i], d->bytes[i]);
    memset(d->arena, 0xff, d->arena_bytes); /* NaN: nothing is there before it is made */
}

static void run_by_calls(desk *d)
{
    const tn_frame f = tn_frame_parts(d->plan, d->frame);
    restore(d);
    for (size_t i = 0; i < d->plan->n_steps; i++) assert_ok(d->plan->step[i].kernel(&f.call[i]));
    for (int i = 0; i < tn_plan_externs(d->plan); i++) d->after[i] = copy_of(d->outside[i], d->bytes[i]);
    memcpy(d->logits, tn_frame_output(d->plan, d->frame, "logits"), sizeof d->logits);
    for (int i = 0; i < V; i++) assert_true(isfinite(d->logits[i]));
    d->next = *(int32_t *)tn_frame_output(d->plan, d->frame, "next");
}

/* As plans of the GPU have it for a token: no memory is used twice. */
static void lay_apart(tn_plan *p)
{
    size_t at = 0;
    for (int i = 0; i < p->place.n_slots; i++) {
        if (p->place.slot[i].ext >= 0) continue;
        p->place.slot[i].offset = at;
        at += p->place.slot[i].bytes;
    }
    p->place.arena_bytes = at;
}

typedef enum memory { AGAIN, IN_PLACE, APART, MEMORIES } memory;

static desk *open_desk(const token_row *r, memory how)
{
    const char *list[8] = { "layers=4", "vocab=301", "train.context=32", "dim=64" };
    size_t n = 4;
    tn_settings *st;
    const tn_model *model;
    tn_store *store;
    desk *d = tn_alloc(sizeof *d);
    assert_non_null(d);
    for (int i = 0; i < MORE && r->more[i]; i++) list[n++] = r->more[i];
    assert_ok(tn_settings_resolve(r->model, list, n, &st, &model));
    assert_ok(tn_store_new(TN_CPU, 3, &store));
    tn_graph *g = build_token(model, st, r->capacity, how == IN_PLACE);
    assert_ok(tn_store_adopt(store, g));
    assert_ok(tn_graph_compile(g, &(tn_compile_options){ .threads = 1 }, &d->plan));
    assert_int_equal(d->plan->prologue, 0);
    if (how == APART) lay_apart(d->plan);
    assert_true(tn_plan_externs(d->plan) <= 512);
    for (int i = 0; i < tn_plan_externs(d->plan); i++) {
        const tn_gtensor *t = tn_plan_extern(d->plan, i);
        d->bytes[i] = (size_t)tn_dims_count(t->dims) * tn_dtype_bytes(t->dtype);
        d->outside[i] = tn_alloc(d->bytes[i] + 64);
        assert_non_null(d->outside[i]);
        fill_outside(t, store, d->outside[i]);
        d->before[i] = copy_of(d->outside[i], d->bytes[i]);
    }
    d->arena_bytes = tn_plan_arena_bytes(d->plan);
    d->arena = tn_alloc(d->arena_bytes + 64);
    d->frame = tn_alloc(tn_plan_frame_bytes(d->plan));
    assert_true(d->arena && d->frame);
    tn_frame_init(d->plan, d->frame, d->arena, d->outside, NULL, NULL);
    run_by_calls(d);
    tn_store_free(store);
    tn_settings_free(st);
    return d;
}

static void close_desk(desk *d)
{
    for (int i = 0; i < tn_plan_externs(d->plan); i++) {
        tn_free(d->outside[i]);
        tn_free(d->before[i]);
        tn_free(d->after[i]);
    }
    tn_free(d->arena);
    tn_free(d->frame);
    tn_plan_free(d->plan);
    tn_free(d);
}

/* --- programs ----------------------------------------------------------------------------------------------------------------- */

typedef struct way {
    int blocks;
    int32_t slot_floats, stage_bytes, message_words;
    uint64_t seed;
    int without;  /* the barrier or the fetch, counted over the token's programs, that is left out, or -1 */
    bool fetches; /* which of both */
} way;

static void leave_out(tn_decode_program *p, way *w)
{
    for (int i = 0; i < p->n; i++) {
        tn_decode_step *s = &p->step[i];
        if ((w->fetches ? s->op != TN_DECODE_FETCH : !(s->flags & TN_DECODE_BARRIER)) || w->without-- != 0) continue;
        if (w->fetches) s->n = 0;
        else s->flags &= (uint8_t)~TN_DECODE_BARRIER;
    }
}

static outcome run_by_programs(desk *d, way w)
{
    static tn_decode_program p;
    static tn_decode_builder b;
    const tn_frame f = tn_frame_parts(d->plan, d->frame);
    outcome o = { 0 };
    restore(d);
    for (size_t i = 0, first; i < d->plan->n_steps;) {
        tn_decode_begin(&b, &p, &(tn_decode_space){ w.slot_floats, w.stage_bytes, w.message_words, d->message });
        p.barrier = d->barrier;
        for (first = i;
             i < d->plan->n_steps && tn_decode_add(&b, d->plan->step[i].node->op, &f.call[i], d->plan->n_steps - i);)
            i++;
        if (i == first) {
            assert_ok(d->plan->step[i].kernel(&f.call[i]));
            i++;
            continue;
        }
        leave_out(&p, &w);
        tn_decode_simulate(&p, w.blocks, &w.seed);
        o.programs++;
        o.steps += p.n;
        o.barriers += b.now.barriers;
        o.fetches += b.now.fetches;
        o.taken += i - first;
    }
    return o;
}

/* Fails where the memory after the programs is not that after the calls; the distance that is left, of the largest number. */
static double distance(const desk *d, const char **where)
{
    double most = tn_world_distance(tn_frame_output(d->plan, d->frame, "logits"), d->logits, V);
    *where = "logits";
    if (*(int32_t *)tn_frame_output(d->plan, d->frame, "next") != d->next) return (double)INFINITY;
    for (int i = 0; i < tn_plan_externs(d->plan); i++) {
        const tn_gtensor *t = tn_plan_extern(d->plan, i);
        if (t->role != TN_ROLE_CACHE) {
            assert_memory_equal(d->outside[i], d->before[i], d->bytes[i]);
            continue;
        }
        const double off = tn_world_distance(d->outside[i], d->after[i], tn_dims_count(t->dims));
        if (off <= most || most != most) continue;
        most = off;
        *where = t->name;
    }
    return most;
}

static void programs_equal_calls(void **state)
{
    static const way ways[] = {
        { 1, 12 << 10, 1 << 20, MESSAGE, 1, -1, false }, { 3, 12 << 10, 8 << 10, MESSAGE, 2, -1, false },
        { 7, 12 << 10, 2 << 10, MESSAGE, 3, -1, false }, { 3, 256, 64, MESSAGE, 4, -1, false },
        { 7, 256, 16 << 10, 600, 5, -1, false },         { 7, 12 << 10, 16 << 10, 600, 6, -1, false },
        { 7, 700, 16 << 10, MESSAGE, 7, -1, false },     { 3, 12 << 10, 16 << 10, 0, 8, -1, false },
    };
    static const char *const name[MEMORIES] = { "", ", in place", ", apart" };
    for (int how = 0; how < MEMORIES; how++) {
        desk *d = open_desk(*state, (memory)how);
        for (size_t i = 0; i < sizeof ways / sizeof *ways; i++) {
            const char *where;
            const outcome o = run_by_programs(d, ways[i]);
            const double off = distance(d, &where);
            if (!(off <= 1e-5))
                fail_msg("%d blocks, way %d%s: %s is %.1e off", ways[i].blocks, (int)i, name[how], where, off);
            if (how != IN_PLACE && 4 * o.taken < 3 * d->plan->n_steps)
                fail_msg("programs take %d of %d calls only", (int)o.taken, (int)d->plan->n_steps);
        }
        close_desk(d);
    }
}

/* How many of so many barriers or fetches show when they are left out: a program must go wrong for some order of its blocks. */
static int count_shown(desk *d, int n, int32_t message_words, bool fetches)
{
    int shown = 0;
    for (int i = 0; i < n; i++) {
        bool shows = false;
        for (uint64_t seed = 1; seed <= 12 && !shows; seed++) {
            const char *where;
            (void)run_by_programs(d, (way){ seed % 2 ? 3 : 7, 12 << 10, 8 << 10, message_words, seed, i, fetches });
            shows = !(distance(d, &where) <= 1e-3);
        }
        shown += shows;
    }
    return shown;
}

/* Without message, where there are many, as well as with it, or the test above could not see that one is missing. Those of argmax may not show, where
 * the block that writes the answer has the largest number among its own. */
static void missing_barriers_show(void **state)
{
    desk *d = open_desk(*state, APART);
    for (int32_t message_words = 0; message_words <= MESSAGE; message_words += MESSAGE) {
        const int barriers = run_by_programs(d, (way){ 3, 12 << 10, 8 << 10, message_words, 1, -1, false }).barriers;
        const int shown = count_shown(d, barriers, message_words, false);
        if (shown < barriers - 2 || (!message_words && shown < 8))
            fail_msg("of %d barriers %d are seen to be missing", barriers, shown);
    }
    close_desk(d);
}

static void missing_fetches_show(void **state)
{
    desk *d = open_desk(*state, APART);
    const outcome o = run_by_programs(d, (way){ 3, 12 << 10, 8 << 10, MESSAGE, 1, -1, false });
    const int shown = count_shown(d, o.fetches, MESSAGE, true);
    if (shown < o.fetches || shown < 8) fail_msg("of %d fetches %d are seen to be missing", o.fetches, shown);
    close_desk(d);
}

void tn_tests_decode_kernel(tn_test_list *l)
{
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        const char *more = rows[i].more[0] ? rows[i].more[0] : "";
        tn_test_add(l, programs_equal_calls, &rows[i], "decode kernel: programs equal calls, %s %s", rows[i].model,
                    more);
        tn_test_add(l, missing_barriers_show, &rows[i], "decode kernel: a missing barrier shows, %s %s", rows[i].model,
                    more);
        tn_test_add(l, missing_fetches_show, &rows[i], "decode kernel: a missing fetch shows, %s %s", rows[i].model,
                    more);
    }
}
