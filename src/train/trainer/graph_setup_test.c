/* What the setting compute makes of a graph on either device: its options, the types of frozen matrices and caches, and, in plans
 * for a GPU, what lies between the kernels. Plans need no GPU; that the kernels read and write halves of both kinds is for the rows
 * of the ops (TENON_TEST_DEVICE=cuda). */
#include "train/trainer/graph_setup.h"

#include "models/decode_cache.h"
#include "ops/loop/loop_body.h"
#include "ops/rollout/rollout.h"
#include "plan/plan_internal.h"
#include "testlib.h"
#include "train/run/train_settings.h"

#include <string.h>
#include <tenon/ops.h>

static tn_settings *settings_of(const char *target, const char *const *words, size_t n, const tn_model **model)
{
    tn_settings *st;
    assert_ok(tn_settings_resolve(target, words, n, &st, model));
    return st;
}

/* --- options ------------------------------------------------------------------------------------------------------------ */

typedef struct choice {
    const char *compute;
    tn_device device;
    tn_dtype activation, round;
    const char *refused; /* what is said then */
} choice;

static const choice choices[] = {
    { "compute=auto", TN_CPU, TN_F32, TN_F32, NULL },
    { "compute=f32", TN_CPU, TN_F32, TN_F32, NULL },
    { "compute=bf16", TN_CPU, TN_F32, TN_BF16, NULL },
    { "compute=f16", TN_CPU, TN_F32, TN_F16, NULL },
    { "compute=bf16x3", TN_CPU, TN_F32, TN_F32, NULL },
    { "compute=tf32", TN_CPU, TN_F32, TN_F32, "compute=tf32 needs a GPU" },
    { "compute=auto", TN_CUDA, TN_BF16, TN_BF16, NULL },
    { "compute=f32", TN_CUDA, TN_F32, TN_F32, NULL },
    { "compute=tf32", TN_CUDA, TN_F32, TN_F32, NULL },
    { "compute=bf16", TN_CUDA, TN_BF16, TN_BF16, NULL },
    { "compute=f16", TN_CUDA, TN_F16, TN_F16, NULL },
    { "compute=bf16x3", TN_CUDA, TN_F32, TN_F32, "on the GPU use compute=bf16, f16, tf32 or f32" },
};

static void types_of_compute(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof choices / sizeof *choices; i++) {
        const choice *c = &choices[i];
        const tn_model *model;
        tn_settings *st = settings_of("gpt_tiny", &c->compute, 1, &model);
        tn_graph_setup s = { 0 };
        if (c->refused) {
            assert_fails(tn_graph_setup_read(st, &c->device, 1, &s), TN_USAGE, c->refused);
        } else {
            assert_ok(tn_graph_setup_read(st, &c->device, 1, &s));
            if (s.options.activation != c->activation || s.options.round != c->round)
                fail_msg("%s, row %zu: activations are %s, operands %s", c->compute, i,
                         tn_dtype_name(s.options.activation), tn_dtype_name(s.options.round));
            assert_int_equal(s.options.tf32, strcmp(c->compute, "compute=tf32") == 0);
            assert_int_equal(s.options.bf16x3, strcmp(c->compute, "compute=bf16x3") == 0);
        }
        tn_settings_free(st);
    }
}

/* Of parts that a model freezes, on a GPU. */
static void frozen_go_with_activations(void **state)
{
    static const struct {
        const char *words[2];
        tn_dtype type;
        const char *refused;
    } rows[] = {
        { { "compute=f16", "frozen=auto" }, TN_F16, NULL },
        { { "compute=f16", "frozen=f16" }, TN_F16, NULL },
        { { "compute=f16", "frozen=f32" }, TN_F32, NULL },
        { { "compute=f16", "frozen=bf16" }, TN_F32, "use frozen=auto or f32, or compute=bf16" },
        { { "compute=bf16", "frozen=auto" }, TN_BF16, NULL },
        { { "compute=bf16", "frozen=f16" }, TN_F32, "use frozen=auto or f32, or compute=f16" },
        { { "compute=f32", "frozen=auto" }, TN_F32, NULL },
        { { "compute=f32", "frozen=f16" }, TN_F32, "use frozen=auto or f32, or compute=f16" },
    };
    const tn_device gpu = TN_CUDA;
    (void)state;
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        const tn_model *model;
        tn_settings *st = settings_of("gpt_tiny", rows[i].words, 2, &model);
        tn_graph_setup s = { 0 };
        if (rows[i].refused) {
            assert_fails(tn_graph_setup_read(st, &gpu, 1, &s), TN_USAGE, rows[i].refused);
        } else {
            assert_ok(tn_graph_setup_read(st, &gpu, 1, &s));
            tn_graph_setup_freeze(&s, TN_F32);
            if (s.options.weights != rows[i].type)
                fail_msg("%s %s: %s", rows[i].words[0], rows[i].words[1], tn_dtype_name(s.options.weights));
        }
        tn_settings_free(st);
    }
}

static void caches_go_with_activations(void **state)
{
    static const struct {
        tn_dtype activation, round, cache;
    } rows[] = { { TN_F32, TN_F32, TN_F32 },
                 { TN_F32, TN_BF16, TN_BF16 }, /* the CPU's */
                 { TN_F32, TN_F16, TN_F32 },
                 { TN_BF16, TN_BF16, TN_BF16 },
                 { TN_F16, TN_F16, TN_F16 } };
    (void)state;
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        const tn_batch b = { .size = sizeof b, .batch = 1, .length = 1, .cached = true };
        tn_graph *g;
        assert_ok(tn_graph_new(&(tn_graph_options){ .activation = rows[i].activation, .round = rows[i].round }, &g));
        const tn_ref keys = tn_decode_cache_kv(g, &b, "keys", tn_shape(1, 4, 2, 8));
        assert_ok(tn_graph_status(g));
        assert_int_equal(tn_ref_dtype(g, keys), rows[i].cache);
        tn_graph_free(g);
    }
}

/* --- plans -------------------------------------------------------------------------------------------------------------- */

typedef struct pupil {
    const char *target, *words[6];
    int features; /* of a sample with one label; 0: text */
} pupil;

static const pupil pupils[] = {
    { "gpt", { "dim=64", "layers=2", "heads=4", "vocab=70", "train.context=24", "shape=gpt2" }, 0 },
    { "gpt", { "dim=64", "layers=2", "heads=4", "vocab=70", "train.context=24", "plan.recompute=layer" }, 0 },
    { "ten", { "dim=64", "layers=4", "vocab=70", "train.context=96", "pattern=DOEW", "heads=2" }, 0 },
    { "ten", { "dim=64", "layers=1", "vocab=70", "train.context=96", "qk_norm=true", "pattern=O" }, 0 },
    { "flow", { "dim=32", "depth=4", "inputs=64", "tokens=1", "classes=4", "keep=2" }, 64 },
    { "tep", { "dim=16", "inputs=4", "tokens=1", "classes=3", "iterations=5", "grad=implicit" }, 4 },
};

static const tn_input_row labelled[] = { { "features", TN_F32, .dims = { TN_B, TN_T, "features" } },
                                         { "count", TN_I32, { "1" }, .valid_rows = true },
                                         { "sample", TN_I32, .dims = { TN_B } },
                                         { "labels", TN_I32, { TN_B, "labels" }, .pad = -1 } };

/* The grad plan of 2 rows or samples for a GPU. */
static tn_plan *plan_of(const pupil *p, const char *compute)
{
    const tn_device gpu = TN_CUDA;
    const char *words[] = { p->words[0], p->words[1], p->words[2], p->words[3], p->words[4], p->words[5], compute };
    const tn_model *model;
    tn_settings *st = settings_of(p->target, words, sizeof words / sizeof *words, &model);
    tn_graph_setup setup = { 0 };
    tn_graph *g;
    tn_plan *plan;
    const tn_source_number numbers[] = { { "features", p->features }, { "labels", 1 } };
    const tn_input_spec samples = {
        .rows = labelled, .n_rows = sizeof labelled / sizeof *labelled, .numbers = numbers, .n_numbers = 2
    };
    assert_ok(tn_graph_setup_read(st, &gpu, 1, &setup));
    const tn_graph_shape shape = { .batch = 2,
                                   .length = p->features ? 1 : tn_settings_int(st, "train.context"),
                                   .training = true,
                                   .input_spec = p->features ? &samples : NULL };
    assert_ok(tn_graph_setup_build(&setup, model, st, &shape, &g));
    const tn_compile_options how = { .device = gpu,
                                     .loss = tn_graph_output(g, "loss"),
                                     .recompute = strcmp(tn_settings_text(st, "plan.recompute"), "layer") == 0 };
    assert_ok(tn_graph_compile(g, &how, &plan));
    tn_settings_free(st);
    return plan;
}

typedef struct found {
    int f32, bf16, f16; /* arguments of nodes by type */
    int rounds;         /* f32 weights that a node rounds to a half */
} found;

static void look_at(const tn_graph *g, const tn_node *n, const int32_t *ids, int count, found *f)
{
    for (int i = 0; i < count; i++) {
        const tn_dtype t = ids[i] ? g->tensor[ids[i]].dtype : TN_I32;
        f->f32 += t == TN_F32;
        f->bf16 += t == TN_BF16;
        f->f16 += t == TN_F16;
        if (n->op->flags & TN_OP_FULL && (t == TN_BF16 || t == TN_F16))
            fail_msg("%s reads or writes %s", n->op->name, tn_dtype_name(t));
    }
}

static found look(const tn_plan *p)
{
    const tn_graph *g = tn_plan_graph(p);
    found f = { 0 };
    for (size_t i = 0; i < g->n_nodes; i++) {
        const tn_node *n = &g->node[i];
        look_at(g, n, n->in, n->n_in, &f);
        look_at(g, n, n->out, n->n_out, &f);
        if (n->backward) look_at(g, n, n->dout, n->n_out, &f);
        if (n->backward) look_at(g, n, n->din, n->n_in, &f);
        for (int k = 0; n->op == &tn_op_copy && !n->backward && k < n->n_in; k++) {
            const tn_gtensor *w = &g->tensor[n->in[k]];
            f.rounds += w->role == TN_ROLE_PARAM && g->tensor[n->out[k]].dtype == g->options.activation;
        }
        if (n->op == &tn_op_loop)
            assert_int_equal(((const tn_loop_attr *)n->attr)->body->spec.options.tf32, g->options.activation != TN_F32);
        if (n->op == &tn_op_rollout && g->options.activation == TN_F16 && !n->backward && n->out[TN_ROLLOUT_STATE])
            assert_int_equal(g->tensor[n->out[TN_ROLLOUT_STATE]].dtype, TN_F32);
    }
    for (size_t i = 1; i < g->n_tensors; i++)
        if (g->tensor[i].role == TN_ROLE_GRAD) assert_int_equal(g->tensor[i].dtype, TN_F32);
    return f;
}

/* A GPU's plan in f16 holds no bf16, whatever passes and ops add to it, and one in bf16 no f16; weights are rounded to the one of the
 * plan. Kernels that take no halves get f32, gradients of parameters are f32, and so are bodies of loops, whose products may round to
 * the digits of f16. */
static void halves_of_one_kind(void **state)
{
    const pupil *p = *state;
    tn_plan *f32 = plan_of(p, "compute=f32"), *bf16 = plan_of(p, "compute=bf16"), *f16 = plan_of(p, "compute=f16");
    const found single = look(f32), coarse = look(bf16), half = look(f16);
    print_message("           arguments: %d f32 of f32, %d and %d bf16, %d and %d f16; %d weights rounded\n",
                  single.f32, coarse.f32, coarse.bf16, half.f32, half.f16, half.rounds);
    assert_int_equal(single.bf16 + single.f16 + coarse.f16 + half.bf16, 0);
    assert_true(coarse.bf16 > 0 && half.f16 > 0 && coarse.rounds > 0);
    assert_int_equal(half.rounds, coarse.rounds);
    tn_plan_free(f32);
    tn_plan_free(bf16);
    tn_plan_free(f16);
}

static void tokens_are_not_fused(void **state)
{
    static const tn_dtype types[] = { TN_F32, TN_BF16, TN_F16 };
    (void)state;
    for (int i = 0; i < 3; i++) {
        tn_graph *g;
        tn_plan *p;
        assert_ok(tn_graph_new(&(tn_graph_options){ .activation = types[i], .device = TN_CUDA }, &g));
        tn_output(g, "y",
                  tn_linear(g, tn_input(g, "x", tn_shape(1, 16), types[i]),
                            tn_param(g, "w", tn_shape(8, 16), tn_normal(1.f))));
        assert_ok(tn_graph_compile(g, &(tn_compile_options){ .device = TN_CUDA, .token = true }, &p));
        assert_int_equal(p->decode != NULL, types[i] != TN_F16);
        tn_plan_free(p);
    }
}

void tn_tests_graph_setup(tn_test_list *l)
{
    tn_test_add(l, types_of_compute, NULL, "setup: types that compute asks for, by device");
    tn_test_add(l, frozen_go_with_activations, NULL, "setup: frozen matrices go with a GPU's activations");
    tn_test_add(l, caches_go_with_activations, NULL, "setup: caches go with a GPU's activations");
    tn_test_add(l, tokens_are_not_fused, NULL, "setup: a token in f16 takes a kernel for each op, half precision");
    for (size_t i = 0; i < sizeof pupils / sizeof *pupils; i++)
        tn_test_add(l, halves_of_one_kind, &pupils[i], "setup: one kind of halves on a GPU, half precision (%s %s)",
                    pupils[i].target, pupils[i].words[5]);
}
