/* Switches of models and of the blocks they share: a training step with the switch on and off has the same loss and gradients, by another
 * graph. */
#include "models/models.h"
#include "testlib.h"
#include "train/run/train_settings.h"
#include "train/trainer/trainer.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

enum { B = 2, T = 10, V = 19, MOST = 14 };

typedef struct row {
    const char *off, *model, *more[6]; /* "documents": no setting, documents have marks */
} row;

static const row rows[] = {
    { "joint_projections", "ten", { "pattern=D" } },
    { "joint_projections", "ten", { "pattern=D", "gate=sigmoid", "conv=0" } },
    { "joint_projections", "ten", { "pattern=O" } },
    { "joint_projections", "ten", { "pattern=O", "gate=none", "conv_act=none", "skip=false" } },
    { "joint_projections", "ten", { "pattern=W", "act=silu" } },
    { "joint_projections", "gpt", { "shape=gpt2" } },
    { "joint_projections", "gpt", { "kv_heads=2", "qk_norm=true", "conv=3", "gate=silu" } },
    { "batched_input", "ten", { "pattern=DOE" } },
    { "batched_input", "ten", { "pattern=DO", "opt.joint_projections=off" } },
    { "batched_output", "ten", { "pattern=DOE" } },
    { "batched_output", "ten", { "pattern=E", "gate=sigmoid" } },
    { "one_pass_energy", "ten", { "pattern=DE", "energy=0.5" } },
    { "fused_step", "ten", { "pattern=E" } },
    { "fused_step", "ten", { "pattern=E", "rho=sigmoid", "gamma_norm=false", "documents" } },
    { "joint_projections", "ten", { "pattern=O", "documents" } },
    { "views", "ten", { "pattern=DOE" } },
    { "views", "ten", { "pattern=EW", "rotate=learned", "select=rg" } },
    { "views", "gpt", { "shape=gpt2" } },
    { "views", "gpt", { "kv_heads=2", "qk_norm=true", "conv=3" } },
    { "fold_resonance", "ten", { "pattern=E", "gate=none", "resonance=blockdiag" } },
    { "fold_resonance", "ten", { "pattern=E", "gate=sigmoid", "resonance=dense_frob", "n_cells=2", "readout=re" } },
};

static tn_trainer *open_side(const row *r, bool off, tn_settings **st)
{
    const char *words[MOST] = { "dim=24", "layers=3", "heads=4", "vocab=19", "train.context=10", "train.dropout=0" };
    char word[64];
    size_t n = 6;
    const tn_model *m;
    tn_trainer *t;
    snprintf(word, sizeof word, "opt.%s=%s", r->off, off ? "off" : "on");
    words[n++] = word;
    bool documents = false;
    for (int i = 0; i < 6 && r->more[i]; i++) {
        if (strcmp(r->more[i], "documents") == 0) documents = true;
        else words[n++] = r->more[i];
    }
    assert_ok(tn_settings_resolve(r->model, words, n, st, &m));
    const tn_input_spec spec = { .optional = documents };
    assert_ok(tn_trainer_new(
        &(tn_trainer_options){
            .model = m, .settings = *st, .batch = B, .length = T, .threads = 2, .input_spec = &spec },
        &t));
    int32_t *starts = tn_trainer_input(t, "reset");
    assert_true(!documents || starts);
    for (int i = 0; starts && i < B * T; i++) starts[i] = i % 7 == 4;
    for (int i = 0; i < B * T; i++) {
        ((int32_t *)tn_trainer_input(t, "tokens"))[i] = i * 7 % V;
        ((int32_t *)tn_trainer_input(t, "labels"))[i] = i * 5 % V;
    }
    return t;
}

static void compare(const tn_entry *a, const tn_entry *b)
{
    float most = 0;
    const int64_t n = tn_dims_count(a->dims);
    for (int64_t i = 0; i < n; i++) most = fmaxf(most, fabsf(a->grad[i]));
    if (!(most > 0)) fail_msg("no gradient reaches %s: the row tests nothing of it", a->name);
    for (int64_t i = 0; i < n; i++)
        if (!(fabsf(a->grad[i] - b->grad[i]) <= 5e-5f * most))
            fail_msg("gradient of %s, element %lld: %.9g, the twin's %.9g", a->name, (long long)i, (double)a->grad[i],
                     (double)b->grad[i]);
}

static void agrees(void **state)
{
    const row *r = *state;
    tn_settings *st[2];
    tn_trainer *t[2];
    float loss[2];
    for (int i = 0; i < 2; i++) {
        t[i] = open_side(r, i, &st[i]);
        assert_ok(tn_trainer_grad(t[i], 0, &loss[i]));
    }
    const tn_graph *g = tn_plan_graph(tn_trainer_plan(t[0], true)), *h = tn_plan_graph(tn_trainer_plan(t[1], true));
    if (g->n_nodes == h->n_nodes) fail_msg("opt.%s=off changes nothing", r->off);
    if (!(fabsf(loss[0] - loss[1]) <= 1e-5f)) fail_msg("loss %.9g, the twin's %.9g", (double)loss[0], (double)loss[1]);
    const tn_store *a = tn_trainer_store(t[0]), *b = tn_trainer_store(t[1]);
    assert_int_equal(tn_store_count(a), tn_store_count(b));
    for (size_t i = 0; i < tn_store_count(a); i++) {
        const tn_entry *x = tn_store_at(a, i), *y = tn_store_find(b, x->name);
        assert_non_null(y);
        if (x->role == TN_ROLE_PARAM) compare(x, y);
    }
    for (int i = 0; i < 2; i++) {
        tn_trainer_free(t[i]);
        tn_settings_free(st[i]);
    }
}

void tn_tests_project(tn_test_list *l)
{
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        const row *r = &rows[i];
        tn_test_add(l, agrees, r, "twins: opt.%s=off of %s %s %s", r->off, r->model, r->more[0],
                    r->more[1] ? r->more[1] : "");
    }
}
