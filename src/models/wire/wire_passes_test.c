/* All terms from one pass over an answer against a pass for each term and token (opt.one_pass): the same numbers by other work. */
#include "models/wire/wire.h"

#include "wire_rig.h"

#define TERMS "loss.first=0.7", "loss.k_ce=0.6", "loss.kd=0.8", "loss.state=0.3", "loss.states=2"
enum { WORDS = 16 };

typedef struct kind {
    const char *name;
    const char *words[WORDS];
    bool half; /* compute=bf16 */
} kind;

/* Answers of the rig have 4 tokens with their end, behind BOS and 0 to 2 tokens of a question. */
static const kind kinds[] = {
    { "two tokens", { "place=embeddings", "loss.k=2", TERMS, "a.before=3", "b.before=3" }, false },
    { "one token, keys", { "place=keys", "loss.k=1", TERMS, "a.before=3", "b.before=3" }, false },
    { "all tokens", { "place=embeddings", "loss.k=4", TERMS, "a.before=3", "b.before=3" }, false },
    { "more tokens than answers have, keys", { "place=keys", "loss.k=9", TERMS, "a.before=3", "b.before=3" }, false },
    { "questions of unknown length", { "place=embeddings", "loss.k=3", TERMS }, false },
    { "distillation alone", { "place=keys", "loss.k=3", "loss.kd=1", "a.before=3", "b.before=3" }, false },
    { "states alone", { "place=embeddings", "loss.k=2", "loss.state=1", "a.before=3" }, false },
    { "cross-entropy alone", { "place=embeddings", "loss.k=3", "loss.k_ce=1", "a.before=3" }, false },
    { "no first tokens", { "place=embeddings", "loss.first=0.7", "loss.kd=0.8", "loss.state=0.3" }, false },
    { "in bf16", { "place=embeddings", "compute=bf16", "loss.k=3", TERMS, "a.before=3", "b.before=3" }, true },
    { "of bf16 readers, keys",
      { "place=keys", "compute=bf16", "frozen=bf16", "loss.k=3", TERMS, "a.before=3", "b.before=3" },
      true },
};

static void open_side(rig *r, const kind *k, bool one)
{
    const char *words[WORDS + 2] = { NULL };
    size_t n = 0;
    while (k->words[n]) words[n] = k->words[n], n++;
    words[n] = one ? "opt.one_pass=on" : "opt.one_pass=off";
    *r = (rig){ .is = usual, .settings = settings_of(&usual, words) };
    const tn_trainer_options o = {
        .model = tn_model_named("wire"), .settings = r->settings, .batch = B, .length = 1, .threads = 1
    };
    assert_ok(tn_trainer_new(&o, &r->trainer));
    if (tn_trainer_graph_options(r->trainer)->weights == TN_F32) enlarge(tn_trainer_store(r->trainer));
    fill(r, 0);
}

static double cosine(const rig *a, const rig *b)
{
    const tn_store *p = tn_trainer_store(a->trainer), *q = tn_trainer_store(b->trainer);
    double ab = 0, aa = 0, bb = 0;
    for (size_t i = 0; i < tn_store_count(p); i++) {
        const tn_entry *x = tn_store_at(p, i), *y = tn_store_find(q, x->name);
        if (x->role != TN_ROLE_PARAM) continue;
        const int64_t n = tn_dims_count(x->dims);
        float *dx = tn_memory_floats(p, x->grad, n), *dy = tn_memory_floats(q, y->grad, n);
        for (int64_t k = 0; k < n; k++)
            ab += (double)dx[k] * dy[k], aa += (double)dx[k] * dx[k], bb += (double)dy[k] * dy[k];
        free(dx);
        free(dy);
    }
    return ab / sqrt(aa * bb);
}

static void same_numbers(void **state)
{
    const kind *k = *state;
    rig one, each;
    float loss[2];
    open_side(&one, k, true);
    open_side(&each, k, false);
    assert_ok(tn_trainer_grad(one.trainer, 0, &loss[0]));
    assert_ok(tn_trainer_grad(each.trainer, 0, &loss[1]));
    const float most = k->half ? 2e-2f : 1e-4f;
    if (!(fabsf(loss[0] - loss[1]) <= most * fabsf(loss[1]))) fail_msg("%g and %g", (double)loss[0], (double)loss[1]);
    const double turned = cosine(&one, &each);
    if (!(turned >= 0.9999)) fail_msg("gradients have the cosine %.8g", turned);
    close_rig(&one);
    close_rig(&each);
}

/* Rows of the first prototype's workload (preset wire_seed): 32 slots, BOS, anchor, 2 tokens of a question and 23 of an answer, K = 4. One
 * pass reads 58 positions; passes for the cross-entropies read 58, 36 for the first token, and 36 + 37 + 38 + 39: 4.2 times as many. */
static void less_work(void **state)
{
    (void)state;
    static const sizes seed = { 2, 16, 26, 24, 48 };
    static const char *const sides[] = { "opt.one_pass=on", "opt.one_pass=off" };
    double flops[2];
    for (int i = 0; i < 2; i++) {
        const char *const words[] = {
            "loss.k=4",   "loss.k_ce=1", "loss.first=1", "slots=32",  "place=embeddings",
            "a.before=3", "questions=1", "layers=0",     "readers=a", "a.shape=dim=64 layers=4 heads=4 vocab=29",
            sides[i],     NULL
        };
        tn_settings *st = settings_of(&seed, words);
        tn_trainer *t;
        const tn_trainer_options o = {
            .model = tn_model_named("wire"), .settings = st, .batch = 2, .length = 1, .threads = 1
        };
        assert_ok(tn_trainer_new(&o, &t));
        flops[i] = tn_trainer_flops(t);
        tn_trainer_free(t);
        tn_settings_free(st);
    }
    if (!(flops[1] > 3 * flops[0] && flops[1] < 4.2 * flops[0])) fail_msg("%g and %g", flops[0], flops[1]);
}

/* What distillation sees ends with token k: labels behind it, and the text that the teacher has behind it, are nothing to it. */
static void sees_k_tokens(void **state)
{
    (void)state;
    static const char *const words[] = {
        "place=embeddings", "loss.k=2", "loss.kd=1", "loss.state=1", "a.before=3", NULL
    };
    rig r;
    float before, after;
    open_rig(&r, &usual, words, true);
    fill(&r, 0);
    assert_ok(tn_trainer_grad(r.trainer, 0, &before));
    for (int64_t row = 0; row < B * Q; row++) {
        if (row == 3) continue;                                           /* nothing is asked there */
        const int64_t c = row / Q, at = TOLD - LENGTH + asked(c) + 1 + 2; /* the third token of the answer, as text */
        int32_t *told = input(&r, "a", ".told") + row * TOLD;
        for (int64_t i = at; i < TOLD; i++) told[i] = 3 + (told[i] + 7) % (IDS - 3);
    }
    assert_ok(tn_trainer_grad(r.trainer, 0, &after));
    assert_true(same(after, before));
    input(&r, "a", ".told")[TOLD - LENGTH + asked(0) + 1] ^=
        1; /* the first one, which the second one's state has read */
    assert_ok(tn_trainer_grad(r.trainer, 0, &after));
    assert_true(!near(after, before));
    close_rig(&r);
}

static void needs_k(void **state)
{
    (void)state;
    static const char *const words[] = { "loss.k_ce=1", NULL };
    tn_settings *st = settings_of(&usual, words);
    tn_trainer *t;
    const tn_trainer_options o = { .model = tn_model_named("wire"), .settings = st, .batch = B, .length = 1 };
    assert_int_equal(tn_trainer_new(&o, &t), TN_USAGE);
    assert_non_null(strstr(tn_error_text(), "loss.k=4"));
    tn_settings_free(st);
}

void tn_tests_wire_passes(tn_test_list *l)
{
    for (size_t i = 0; i < sizeof kinds / sizeof *kinds; i++)
        tn_test_add(l, same_numbers, &kinds[i], "wire passes: one is as good as each, %s", kinds[i].name);
    tn_test_add(l, less_work, NULL, "wire passes: one is less work");
    tn_test_add(l, sees_k_tokens, NULL, "wire passes: distillation sees the first k tokens of an answer");
    tn_test_add(l, needs_k, NULL, "wire passes: loss.k_ce needs loss.k");
}
