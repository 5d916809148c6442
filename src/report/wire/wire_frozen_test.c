/* Runs of wire whose readers are in the store as halves (frozen=bf16): their memory, losses and gradients against those of floats,
 * checkpoints that go on with the same bits, and what the hash of a reader says. */
#include "run_pieces.h"
#include "train/checkpoint/checkpoint.h"
#include "train/run/weights_hash.h"
#include "wire_run.h"

#include <math.h>
#include <stdio.h>

enum { STEPS = 6 };

static void open_run(const wire_run *w, const char *words, tn_session *out)
{
    char text[2600];
    snprintf(text, sizeof text,
             "a.model=%s b.model=%s task=recall task.keys=50 task.pairs=3 task.questions=0 task.heldout=4 task.size=8 "
             "train.batch=2 slots=3 width=8 dim=16 heads=2 ffn=24 layers=1 hidden=12 train.steps=%d train.warmup=0 "
             "train.eval_every=2 ckpt.every=2 loss.kd=0.5 loss.state=0.1 loss.first=0.5 place=embeddings %s",
             w->model[0], w->model[1], STEPS, words);
    tn_settings *st = wire_run_settings(tn_model_named("wire"), text);
    *out = (tn_session){ 0 };
    assert_ok(tn_session_open_with(
        &(tn_session_options){ .settings = st, .model = tn_model_named("wire"), .needs_data = true }, out));
    tn_settings_free(st);
}

static bool of_reader(const tn_entry *e) { return (e->name[0] == 'a' || e->name[0] == 'b') && e->name[1] == '.'; }

/* --- memory ---------------------------------------------------------------------------------------------------------------- */

/* Matrices of readers have two bytes a number, all that is trained and all vectors four: by the store and by the memory plan. */
static void two_bytes_each(void **state)
{
    (void)state;
    static const struct {
        const char *word;
        tn_dtype type;
    } kinds[] = {
        { "frozen=auto", TN_F32 }, { "frozen=f32", TN_F32 }, { "frozen=bf16", TN_BF16 }, { "frozen=f16", TN_F16 }
    };
    wire_run w;
    size_t whole = 0, numbers = 0;
    wire_run_open(&w, "slots=3");
    for (size_t k = 0; k < sizeof kinds / sizeof *kinds; k++) {
        tn_session s;
        numbers = 0;
        open_run(&w, kinds[k].word, &s);
        const tn_store *store = tn_trainer_store(s.trainer);
        for (size_t i = 0; i < tn_store_count(store); i++) {
            const tn_entry *e = tn_store_at(store, i);
            const bool matrix = of_reader(e) && e->dims.rank == 2;
            if (matrix) numbers += (size_t)tn_dims_count(e->dims);
            if (tn_dtype_is_float(e->dtype)) assert_int_equal(e->dtype, matrix ? kinds[k].type : TN_F32);
        }
        const tn_memory_plan m = tn_trainer_memory(s.trainer);
        if (!k) whole = m.frozen;
        assert_true(numbers > 10000);
        assert_int_equal(whole - m.frozen, kinds[k].type == TN_F32 ? 0 : 2 * numbers);
        tn_session_close(&s);
    }
    wire_run_close(&w);
}

/* --- numbers ---------------------------------------------------------------------------------------------------------------- */

/* Loss and gradients of the first batch. */
static float first_batch(tn_session *s)
{
    float loss;
    int64_t count;
    const tn_source_start how = { .trainer = s->trainer, .batch = s->batch, .length = s->length, .heldout = TN_VALID };
    assert_ok(tn_parts_load(s->settings, s->model, tn_trainer_store(s->trainer)));
    assert_ok(tn_source_begin(&s->source, &how, 0));
    assert_ok(tn_source_next(&s->source, 0, s->trainer, &count));
    assert_ok(tn_trainer_grad(s->trainer, 0, &loss));
    return loss;
}

static double cosine(const tn_store *a, const tn_store *b)
{
    double ab = 0, aa = 0, bb = 0;
    for (size_t i = 0; i < tn_store_count(a); i++) {
        const tn_entry *x = tn_store_at(a, i), *y = tn_store_find(b, x->name);
        if (x->role != TN_ROLE_PARAM) continue;
        for (int64_t k = 0; k < tn_dims_count(x->dims); k++) {
            const double p = (double)((const float *)x->grad)[k], q = (double)((const float *)y->grad)[k];
            ab += p * q, aa += p * p, bb += q * q;
        }
    }
    return ab / sqrt(aa * bb);
}

/* The same numbers in f32: what is rounded is the readers alone. */
static void take_readers(const tn_store *to, const tn_store *from)
{
    for (size_t i = 0; i < tn_store_count(to); i++) {
        const tn_entry *e = tn_store_at(to, i), *x = tn_store_find(from, e->name);
        if (e->weight && x->dtype != e->dtype)
            assert_ok(tn_store_put(to, e, 0, tn_dims_count(e->dims), x->data, x->dtype));
    }
}

static void near_floats(void **state)
{
    wire_run w;
    tn_session half, whole;
    float loss[2];
    char words[64];
    wire_run_open(&w, "slots=3");
    snprintf(words, sizeof words, "frozen=%s", (const char *)*state);
    open_run(&w, words, &half);
    open_run(&w, "frozen=f32", &whole);
    loss[0] = first_batch(&half);
    loss[1] = first_batch(&whole);
    assert_true(loss[0] != loss[1]); /* something is rounded */
    if (!(fabsf(loss[0] - loss[1]) <= 1e-2f * loss[1])) fail_msg("%g and %g", (double)loss[0], (double)loss[1]);
    const double turned = cosine(tn_trainer_store(half.trainer), tn_trainer_store(whole.trainer));
    if (!(turned >= 0.999)) fail_msg("gradients have the cosine %g", turned);
    tn_session_close(&whole);
    open_run(&w, "frozen=f32", &whole); /* of rounded numbers: kernels read halves as what they are */
    assert_ok(tn_parts_load(whole.settings, whole.model, tn_trainer_store(whole.trainer)));
    take_readers(tn_trainer_store(whole.trainer), tn_trainer_store(half.trainer));
    int64_t count;
    const tn_source_start how = { .trainer = whole.trainer, .batch = 2, .length = whole.length, .heldout = TN_VALID };
    assert_ok(tn_source_begin(&whole.source, &how, 0));
    assert_ok(tn_source_next(&whole.source, 0, whole.trainer, &count));
    assert_ok(tn_trainer_grad(whole.trainer, 0, &loss[1]));
    const double same = cosine(tn_trainer_store(half.trainer), tn_trainer_store(whole.trainer));
    if (!(fabsf(loss[0] - loss[1]) <= 1e-5f * loss[1] && same >= 0.9999999))
        fail_msg("%.8g and %.8g, cosine %.9g", (double)loss[0], (double)loss[1], same);
    tn_session_close(&half);
    tn_session_close(&whole);
    wire_run_close(&w);
}

/* --- what is kept ------------------------------------------------------------------------------------------------------------ */

/* Layers of the encoder are computed again, those of readers are not: the same bits, less memory, less work than all of them again. */
static void trained_again(void **state)
{
    (void)state;
    static const char *const how[] = { "plan.recompute=none", "plan.recompute=trained", "plan.recompute=layer" };
    wire_run w;
    tn_session s[3];
    float loss[3];
    size_t arena[3], steps[3];
    wire_run_open(&w, "slots=3");
    for (int i = 0; i < 3; i++) {
        char words[64];
        snprintf(words, sizeof words, "%s layers=4", how[i]);
        open_run(&w, words, &s[i]);
        loss[i] = first_batch(&s[i]);
        arena[i] = tn_plan_memory(tn_trainer_plan(s[i].trainer, true)).arena;
        steps[i] = tn_plan_steps(tn_trainer_plan(s[i].trainer, true));
    }
    assert_true(loss[0] == loss[1]);
    assert_true(cosine(tn_trainer_store(s[0].trainer), tn_trainer_store(s[1].trainer)) > 0.99999999);
    assert_true(arena[1] < arena[0] && steps[0] < steps[1] && steps[1] < steps[2]);
    for (int i = 0; i < 3; i++) tn_session_close(&s[i]);
    wire_run_close(&w);
}

/* --- checkpoints ------------------------------------------------------------------------------------------------------------- */

static void run_piece(const wire_run *w, const char *run, int64_t stop_after)
{
    char words[TN_PATH_BYTES];
    tn_session s;
    tn_progress_report last;
    snprintf(words, sizeof words, "frozen=bf16 run=%s/%s", w->d.path, run);
    open_run(w, words, &s);
    const tn_status st = tn_run_piece(&s, "wire", stop_after, &last);
    assert_true(st == TN_OK || (stop_after >= 0 && st == TN_INTERRUPTED));
}

/* The last checkpoint of a run into a store whose readers are of a type. */
static void load_run(const wire_run *w, const char *run, const char *words, tn_session *s)
{
    char path[TN_PATH_BYTES];
    tn_ckpt_state state = { 0 };
    open_run(w, words, s);
    snprintf(path, sizeof path, "%s/%s/latest", w->d.path, run);
    assert_ok(tn_ckpt_load(path, tn_trainer_store(s->trainer), NULL, &state));
    assert_int_equal(state.step, STEPS);
    tn_ckpt_state_free(&state);
}

static void same_bits(const tn_store *a, const tn_store *b)
{
    for (size_t i = 0; i < tn_store_count(a); i++) {
        const tn_entry *x = tn_store_at(a, i), *y = tn_store_find(b, x->name);
        if (!x->weight) continue;
        assert_int_equal(x->dtype, y->dtype);
        if (memcmp(x->data, y->data, (size_t)tn_dims_count(x->dims) * tn_dtype_bytes(x->dtype)) != 0)
            fail_msg("%s differs", x->name);
    }
}

static void check_file(const wire_run *w, const char *run)
{
    char path[TN_PATH_BYTES];
    tn_safetensors *f;
    const tn_file_tensor *t;
    snprintf(path, sizeof path, "%s/%s/latest/model.safetensors", w->d.path, run);
    assert_ok(tn_safetensors_open(path, &f));
    assert_ok(tn_safetensors_find(f, "a.layer0.attn.w_qkv", &t));
    assert_int_equal(t->dtype, TN_BF16);
    assert_ok(tn_safetensors_find(f, "encoder.embed", &t));
    assert_int_equal(t->dtype, TN_F32);
    tn_safetensors_close(f);
}

/* A run that stops and goes on has the bits of one that does not; a checkpoint has halves as halves, and whoever keeps floats reads the
 * same numbers from it. */
static void goes_on(void **state)
{
    (void)state;
    wire_run w;
    tn_session a, b, floats;
    wire_run_open(&w, "slots=3");
    run_piece(&w, "whole", -1);
    run_piece(&w, "pieces", 3);
    run_piece(&w, "pieces", -1);
    check_file(&w, "whole");
    load_run(&w, "whole", "frozen=bf16", &a);
    load_run(&w, "pieces", "frozen=bf16", &b);
    same_bits(tn_trainer_store(a.trainer), tn_trainer_store(b.trainer));
    load_run(&w, "whole", "frozen=f32", &floats);
    const tn_entry *half = tn_store_find(tn_trainer_store(a.trainer), "b.layer0.ffn.w1"),
                   *whole = tn_store_find(tn_trainer_store(floats.trainer), "b.layer0.ffn.w1");
    assert_true(half->dtype == TN_BF16 && whole->dtype == TN_F32);
    const int64_t n = tn_dims_count(half->dims);
    float *x = tn_alloc(sizeof *x * (size_t)n);
    tn_convert(x, TN_F32, half->data, TN_BF16, n);
    assert_memory_equal(x, whole->data, sizeof *x * (size_t)n);
    tn_free(x);
    tn_session_close(&a);
    tn_session_close(&b);
    tn_session_close(&floats);
    wire_run_close(&w);
}

/* --- the hash ---------------------------------------------------------------------------------------------------------------- */

static void hash_of(tn_session *s, char out[TN_HASH_BYTES])
{
    bool changed;
    assert_ok(tn_parts_hash(s->settings, s->model, tn_trainer_store(s->trainer), true, &changed));
    snprintf(out, TN_HASH_BYTES, "%s", tn_settings_text(s->settings, "a.hash"));
}

/* It is of the numbers that compute: rounded ones have another, in whatever type they are. */
static void hashes(void **state)
{
    (void)state;
    wire_run w;
    tn_session half, whole;
    char hash[3][TN_HASH_BYTES];
    wire_run_open(&w, "slots=3");
    open_run(&w, "frozen=bf16", &half);
    open_run(&w, "frozen=f32", &whole);
    assert_ok(tn_parts_load(half.settings, half.model, tn_trainer_store(half.trainer)));
    assert_ok(tn_parts_load(whole.settings, whole.model, tn_trainer_store(whole.trainer)));
    hash_of(&half, hash[0]);
    hash_of(&whole, hash[1]);
    take_readers(tn_trainer_store(whole.trainer), tn_trainer_store(half.trainer));
    hash_of(&whole, hash[2]);
    assert_true(hash[0][0] && strcmp(hash[0], hash[1]) != 0);
    assert_string_equal(hash[0], hash[2]);
    tn_session_close(&half);
    tn_session_close(&whole);
    wire_run_close(&w);
}

void tn_tests_wire_frozen(tn_test_list *l)
{
    tn_test_add(l, two_bytes_each, NULL, "wire frozen: matrices of readers have two bytes a number");
    tn_test_add(l, near_floats, "bf16", "wire frozen: losses and gradients through bf16 are near those through f32");
    tn_test_add(l, near_floats, "f16", "wire frozen: losses and gradients through f16 are near those through f32");
    tn_test_add(l, trained_again, NULL, "wire frozen: plan.recompute=trained leaves the layers of readers alone");
    tn_test_add(l, goes_on, NULL, "wire frozen: checkpoints hold halves and go on with the same bits");
    tn_test_add(l, hashes, NULL, "wire frozen: the hash is of the numbers that compute");
}
