/* A model that is made of two others: a trained ten reads one text and hands three vectors to a frozen gpt, which reads another text, of
 * another vocabulary and length, behind them. The parts have settings of their own, the user's among them. What flows through the frozen
 * part trains the other; the frozen numbers are those the part would have begun with, stay, and are in every file. In f32 on the device
 * of TENON_TEST_DEVICE. */
#include "base/alloc.h"
#include "device_memory.h"
#include "models/models.h"
#include "optim/optim.h"
#include "tempdir.h"
#include "train/checkpoint/checkpoint.h"
#include "train/run/saved_model.h"
#include "train/run/train_settings.h"
#include "train/checkpoint/weights_check.h"
#include "world.h"

#include <math.h>

enum { B = 3, WRITE_T = 8, READ_T = 6, SOFT = 3, STEPS = 30, MOST = 128 };

/* --- the model: what it calls is in <tenon/model.h> ------------------------------------------------------------------------ */

static const tn_setting rows[] = {
    TN_SETTING_INT("dim", "8", TN_RANGE(1, 64), "", "the model's own: no part sees it"),
    TN_SETTING_TEXT("reader.model", "gpt", "model or preset of the reader; a text of the toy, not a setting of gpt"),
    TN_SETTING_INT("reader.dim", "16", TN_RANGE(1, 64), "", "width of the reader"),
    TN_SETTING_INT("reader.vocab", "11", TN_RANGE(2, 64), "", "tokens of the reader"),
    TN_SETTING_CHOICE("reader.shape", "llama", "llama|gpt2", "shape of the reader"),
    TN_SETTING_TEXT("writer.pattern", "DO", "layers of the writer"),
    TN_SETTING_INT("writer.vocab", "7", TN_RANGE(2, 64), "", "tokens of the writer"),
    TN_SETTING_BOOL("freeze", "true", "the reader is not trained"),
};

static tn_status parts_build(tn_graph *g, const tn_settings *st, const tn_batch *b)
{
    static const char *const small[] = { "layers=2", "heads=2", NULL }, *const writer_words[] = { "dim=24", "layers=2",
                                                                                                  "heads=2", NULL };
    tn_part writer, reader;
    tn_forward w, r;
    tn_status s = tn_part_open(g, st, "writer", "ten", writer_words, &writer);
    if (s == TN_OK) s = tn_part_open(g, st, "reader", tn_settings_text(st, "reader.model"), small, &reader);
    if (s != TN_OK) return s;

    tn_batch in = { .size = sizeof in, .batch = b->batch, .length = WRITE_T, .step = b->step };
    tn_batch_add(&in, "tokens", tn_in(b, "writer_tokens"));
    if ((s = tn_part_forward(g, &writer, &in, &w)) != TN_OK) return s;

    const int64_t d = tn_settings_int(reader.settings, "dim");
    const tn_ref said = tn_slice(g, w.hidden, 1, WRITE_T - SOFT, SOFT);
    in = (tn_batch){ .size = sizeof in, .batch = b->batch, .length = SOFT + READ_T, .step = b->step };
    tn_batch_add(&in, "tokens", tn_in(b, "reader_tokens"));
    tn_batch_add(&in, "prefix", tn_linear(g, said, tn_param(g, "adapter", tn_shape(d, 24), tn_normal(0.2f))));
    const bool freeze = tn_settings_on(st, "freeze");
    if (freeze) tn_frozen_begin(g);
    s = tn_part_forward(g, &reader, &in, &r);
    if (freeze) tn_frozen_end(g);
    if (s != TN_OK) return s;

    const tn_ref own = tn_linear_xent(g, w.hidden, w.head, tn_in(b, "writer_labels"));
    const tn_ref read = tn_linear_xent(g, tn_slice(g, r.hidden, 1, SOFT, READ_T), r.head, tn_in(b, "reader_labels"));
    tn_output(g, "read", read);
    tn_output(g, "loss", tn_add(g, own, read));
    return tn_graph_status(g);
}

static const tn_model parts = { TN_MODEL_HEAD,
                                .name = "parts",
                                .summary = "a writer and a reader",
                                .settings = rows,
                                .n_settings = sizeof rows / sizeof *rows,
                                .build = parts_build };

/* --- running it ------------------------------------------------------------------------------------------------------------ */

typedef struct rig {
    tn_settings *settings;
    tn_world world;
    tn_bound *step;
} rig;

static tn_settings *settings_of(const char *const *words)
{
    tn_settings *st;
    assert_ok(tn_settings_new(&st));
    assert_ok(tn_settings_common(st));
    assert_ok(tn_settings_add(st, rows, sizeof rows / sizeof *rows, "parts"));
    assert_ok(tn_settings_override(st, "train.context=16"));
    for (; words && *words; words++) assert_ok(tn_settings_override(st, *words));
    return st;
}

static tn_status build(const tn_settings *st, tn_graph *g)
{
    tn_batch b = { .size = sizeof b, .batch = B, .length = WRITE_T, .step = "train" };
    static const struct {
        const char *name;
        int64_t length;
    } inputs[] = {
        { "writer_tokens", WRITE_T },
        { "writer_labels", WRITE_T },
        { "reader_tokens", READ_T },
        { "reader_labels", READ_T },
    };
    for (size_t i = 0; i < 4; i++)
        tn_batch_add(&b, inputs[i].name, tn_input(g, inputs[i].name, tn_shape(B, inputs[i].length), TN_I32));
    return tn_model_build(&parts, g, st, &b);
}

/* What the reader's text says is in the writer's alone. */
static void fill(tn_bound *b)
{
    int32_t *x = tn_world_data(b, "writer_tokens"), *y = tn_world_data(b, "writer_labels");
    int32_t *u = tn_world_data(b, "reader_tokens"), *v = tn_world_data(b, "reader_labels");
    for (int i = 0; i < B * WRITE_T; i++) x[i] = (i * 5 + i / WRITE_T) % 7, y[i] = (i * 3 + 1) % 7;
    for (int i = 0; i < B * READ_T; i++) v[i] = x[i / READ_T * WRITE_T + WRITE_T - 1] + 2, u[i] = i % READ_T ? v[i] : 0;
}

static rig open_rig(const char *const *words, bool recompute)
{
    rig r = { .settings = settings_of(words), .world = tn_world_open_on(tn_test_device(), 11, 1) };
    tn_graph *g = tn_world_graph_on(r.world.device, &(tn_graph_options){ .training = true });
    assert_ok(build(r.settings, g));
    r.step =
        tn_world_add(&r.world, g, &(tn_compile_options){ .loss = tn_graph_output(g, "loss"), .recompute = recompute });
    fill(r.step);
    return r;
}

static void close_rig(rig *r)
{
    tn_world_close(&r->world);
    tn_settings_free(r->settings);
}

static float loss_of(rig *r, const char *name)
{
    assert_ok(tn_run(r->step));
    return *(float *)tn_world_data(r->step, name);
}

static bool of_reader(const char *name) { return strncmp(name, "reader.", 7) == 0; }

/* Matrices as of a trained network: first ones of deviation 0.02 say next to nothing. */
static void enlarge(const tn_store *st)
{
    for (size_t i = 0; i < tn_store_count(st); i++) {
        const tn_entry *e = tn_store_at(st, i);
        const int64_t n = tn_dims_count(e->dims);
        if (e->dims.rank < 2) continue;
        float *x = tn_memory_floats(st, e->data, n);
        for (int64_t k = 0; k < n; k++) x[k] *= 10;
        tn_memory_put(st, e->data, x, sizeof *x * (size_t)n);
        free(x);
    }
}

static size_t bytes_of(const tn_entry *e) { return (size_t)tn_dims_count(e->dims) * tn_dtype_bytes(e->dtype); }

/* n numbers of two stores, the same as tn_world_same has it. */
static void assert_same(const tn_store *a, const float *x, const tn_store *b, const float *y, int64_t n)
{
    float *u = tn_memory_floats(a, x, n), *v = tn_memory_floats(b, y, n);
    assert_true(tn_world_same(u, v, n, 1e-4));
    free(u);
    free(v);
}

/* --- tests ----------------------------------------------------------------------------------------------------------------- */

static void frozen_part(void **state)
{
    (void)state;
    rig frozen = open_rig(NULL, false), trained = open_rig((const char *const[]){ "freeze=false", NULL }, false);
    const tn_store *a = frozen.world.store, *b = trained.world.store;
    const float first = loss_of(&frozen, "loss"), same = loss_of(&trained, "loss");
    assert_true(tn_world_same(&first, &same, 1, 1e-5));
    assert_int_equal(tn_store_count(a), tn_store_count(b));
    int64_t in_buckets = 0;
    size_t readers = 0;
    for (size_t i = 0; i < tn_store_count(a); i++) {
        const tn_entry *x = tn_store_at(a, i), *y = tn_store_find(b, x->name);
        assert_non_null(y);
        void *drawn = tn_memory_copy(b, y->data, bytes_of(y));
        assert_true(tn_memory_equal(a, x->data, drawn, bytes_of(x))); /* the stream of its name, trained or not */
        free(drawn);
        assert_true(x->weight && y->weight && y->role == TN_ROLE_PARAM && x->dtype == TN_F32);
        assert_int_equal(x->role, of_reader(x->name) ? TN_ROLE_FROZEN : TN_ROLE_PARAM);
        if (of_reader(x->name)) assert_null(x->grad);
        else {
            assert_same(a, x->grad, b, y->grad, tn_dims_count(x->dims)); /* what flows through is the same */
            in_buckets += (tn_dims_count(x->dims) + 15) / 16 * 16;
        }
        readers += of_reader(x->name);
    }
    assert_true(readers > 10 && tn_store_find(a, "reader.layer1.attn.w_qkv") &&
                tn_store_find(a, "writer.layer0.mixer.nu"));
    assert_int_equal(tn_store_find(a, "reader.embed")->dims.dim[0], 11);
    assert_int_equal(tn_store_find(a, "writer.embed")->dims.dim[0], 7);
    assert_int_equal(tn_store_find(a, "reader.embed")->dims.dim[1], 16);
    assert_int_equal(tn_store_bucket(a, 0)->count, in_buckets);
    assert_true(tn_plan_memory(frozen.world.plan[0]).gradients < tn_plan_memory(trained.world.plan[0]).gradients);
    assert_true(tn_plan_memory(frozen.world.plan[0]).activations < tn_plan_memory(trained.world.plan[0]).activations);
    close_rig(&frozen);
    close_rig(&trained);
}

/* The slope along a tensor's own gradient is its norm. */
static void gradients(void **state)
{
    const char *const words[] = { *state, NULL };
    rig r = open_rig(words, false);
    const tn_store *st = r.world.store;
    float *grad[MOST] = { 0 };
    enlarge(st);
    (void)loss_of(&r, "loss");
    for (size_t i = 0; i < tn_store_count(st); i++) {
        const tn_entry *e = tn_store_at(st, i);
        if (e->role == TN_ROLE_PARAM) grad[i] = tn_memory_floats(st, e->grad, tn_dims_count(e->dims));
    }
    for (size_t i = 0; i < tn_store_count(st); i++) {
        const tn_entry *e = tn_store_at(st, i);
        const int64_t n = tn_dims_count(e->dims);
        double norm = 0, loss[2];
        if (!grad[i]) continue;
        for (int64_t k = 0; k < n; k++) norm += (double)grad[i][k] * (double)grad[i][k];
        norm = sqrt(norm);
        if (!(norm > 1e-3)) fail_msg("%s has no gradient (%g)", e->name, norm);
        float *was = tn_memory_floats(st, e->data, n), *x = tn_memory_floats(st, e->data, n);
        const double h = fmin(0.01, 4e-3 / norm);
        for (int side = 0; side < 2; side++) {
            const double step = (side ? -h : h) / norm;
            for (int64_t k = 0; k < n; k++) x[k] = (float)((double)was[k] + step * (double)grad[i][k]);
            tn_memory_put(st, e->data, x, bytes_of(e));
            loss[side] = (double)loss_of(&r, "loss");
        }
        tn_memory_put(st, e->data, was, bytes_of(e));
        const double slope = (loss[0] - loss[1]) / (2 * h), rounded = 1e-6 / h; /* of a loss of about 4 in f32 */
        if (!(fabs(slope - norm) <= 0.02 * norm + rounded)) fail_msg("%s: slope %g, gradient %g", e->name, slope, norm);
        free(x);
        free(was);
        free(grad[i]);
    }
    close_rig(&r);
}

static void recomputed(void **state)
{
    (void)state;
    rig keep = open_rig(NULL, false), again = open_rig(NULL, true);
    const float a = loss_of(&keep, "loss"), b = loss_of(&again, "loss");
    const tn_bucket *x = tn_store_bucket(keep.world.store, 0), *y = tn_store_bucket(again.world.store, 0);
    assert_true(tn_world_same(&a, &b, 1, 1e-5));
    assert_same(keep.world.store, x->grad, again.world.store, y->grad, x->count);
    assert_true(tn_plan_memory(again.world.plan[0]).activations < tn_plan_memory(keep.world.plan[0]).activations);
    close_rig(&keep);
    close_rig(&again);
}

static void steps(rig *r, int n)
{
    tn_plan *apply;
    assert_ok(tn_optim_plan(r->world.store, &(tn_optim_options){ .kind = TN_ADAMW }, r->world.device, 1, &apply));
    tn_bound *update = tn_world_bind(&r->world, apply);
    for (int i = 0; i < n; i++) {
        const float loss = loss_of(r, "loss");
        assert_ok(tn_optim_set(
            update,
            &(tn_optim_scalars){
                .lr = 0.02f, .beta1 = 0.9f, .beta2 = 0.95f, .eps = 1e-8f, .clip = 1, .scale = 1, .opt_step = i + 1 }));
        memcpy(tn_world_data(update, "loss"), &loss, sizeof loss);
        assert_ok(tn_run(update));
        assert_int_equal(*(int32_t *)tn_world_data(update, "ok"), 1);
    }
}

static void same_weights(const tn_store *a, const tn_store *b)
{
    for (size_t i = 0; i < tn_store_count(a); i++) {
        const tn_entry *x = tn_store_at(a, i), *y = tn_store_find(b, x->name);
        void *held = tn_memory_copy(b, y->data, bytes_of(y));
        assert_true(tn_memory_equal(a, x->data, held, bytes_of(x)));
        free(held);
    }
}

/* Numbers are not those that a seed gives, so that files which do not hold them would show. */
static void trained_and_saved(void **state)
{
    (void)state;
    tn_tempdir d;
    char path[1024], note[TN_CKPT_NOTE];
    rig r = open_rig(NULL, false), other = open_rig(NULL, false), third = open_rig(NULL, false);
    unsigned char *before[MOST];
    enlarge(r.world.store);
    for (size_t i = 0; i < tn_store_count(r.world.store); i++) {
        const tn_entry *e = tn_store_at(r.world.store, i);
        before[i] = tn_memory_copy(r.world.store, e->data, bytes_of(e));
    }
    const float first = loss_of(&r, "read");
    tn_store_zero_grad(r.world.store);
    steps(&r, STEPS);
    const float last = loss_of(&r, "read");
    if (!(last < 0.8f * first)) fail_msg("the reader's loss went from %g to %g", (double)first, (double)last);
    for (size_t i = 0; i < tn_store_count(r.world.store); i++) {
        const tn_entry *e = tn_store_at(r.world.store, i);
        const bool same = tn_memory_equal(r.world.store, e->data, before[i], bytes_of(e));
        if (same != of_reader(e->name))
            fail_msg("%s %s", e->name, same ? "has not moved" : "is frozen and has changed");
        free(before[i]);
    }
    tn_tempdir_make(&d);
    snprintf(path, sizeof path, "%s", tn_tempdir_file(&d, "w.safetensors"));
    assert_ok(tn_weights_save(path, &parts, r.settings, r.world.store));
    assert_ok(tn_weights_load(path, other.world.store, note));
    same_weights(r.world.store, other.world.store);

    const tn_ckpt_state st = { .step = STEPS,
                               .tokens = 1,
                               .batch = B,
                               .length = WRITE_T,
                               .seed = 11,
                               .guard = { .lr_factor = 1 },
                               .scaling = { 1, 0 } };
    tn_ckpt_state got;
    assert_ok(tn_ckpt_save(d.path, &(tn_ckpt_what){ .store = r.world.store, .state = &st }));
    snprintf(path, sizeof path, "%s/latest", d.path);
    assert_ok(tn_store_moments(third.world.store, 2));
    assert_ok(tn_ckpt_load(path, third.world.store, NULL, &got));
    tn_ckpt_state_free(&got);
    same_weights(r.world.store, third.world.store);
    const float a = loss_of(&r, "loss"), b = loss_of(&other, "loss"), c = loss_of(&third, "loss");
    assert_true(tn_world_same(&a, &b, 1, 1e-5));
    assert_true(tn_world_same(&a, &c, 1, 1e-5));
    tn_tempdir_remove_all(&d);
    close_rig(&r);
    close_rig(&other);
    close_rig(&third);
}

static tn_status forward_alone(const tn_settings *st, const char *scope, const char *name, const char *const *words)
{
    tn_graph *g = tn_world_graph(NULL);
    tn_part p;
    tn_forward f;
    tn_batch b = { .size = sizeof b, .batch = 1, .length = 4, .step = "eval" };
    tn_batch_add(&b, "tokens", tn_input(g, "tokens", tn_shape(1, 4), TN_I32));
    tn_status s = tn_part_open(g, st, scope, name, words, &p);
    if (s == TN_OK) s = tn_part_forward(g, &p, &b, &f);
    tn_graph_free(g);
    return s;
}

static void settings_and_mistakes(void **state)
{
    (void)state;
    tn_settings *st = settings_of((const char *const[]){ "reader.dim=32", "train.dropout=0.25", NULL });
    tn_graph *g = tn_world_graph(NULL);
    tn_part p;
    static const char *const words[] = { "vocab=9", "rope_base=500", NULL };
    assert_ok(tn_part_open(g, st, "reader", "gpt_tiny", words, &p));
    assert_int_equal(tn_settings_int(p.settings, "dim"), 32);            /* the user's, over the preset's 64 */
    assert_int_equal(tn_settings_int(p.settings, "vocab"), 11);          /* the row of the model, over its words */
    assert_int_equal(tn_settings_int(p.settings, "layers"), 2);          /* the preset's */
    assert_int_equal(tn_settings_int(p.settings, "train.context"), 128); /* the preset's, over the run's 16 */
    assert_true(tn_settings_float(p.settings, "rope_base") == 500);
    assert_true(tn_settings_float(p.settings, "train.dropout") == 0.25); /* the run's */
    assert_string_equal(tn_settings_source(p.settings, "dim"), "reader.dim (command line)");
    assert_string_equal(p.scope, "reader");
    assert_int_equal(tn_settings_int(st, "dim"), 8);
    tn_graph_free(g);

    static const char *const bad_key[] = { "widht=9", NULL }, *const no_value[] = { "dim", NULL },
                             *const range[] = { "heads=0", NULL };
    static const char *const odd[] = { "dim=9", "heads=2", NULL };
    assert_fails(forward_alone(st, "a", "gpt3", NULL), TN_USAGE, "part a: unknown model or preset gpt3");
    assert_fails(forward_alone(st, "a", "tep", NULL), TN_USAGE, "part a: model tep has no forward pass");
    assert_fails(forward_alone(st, "a", "gpt", bad_key), TN_USAGE, "unknown key widht");
    assert_fails(forward_alone(st, "a", "gpt", bad_key), TN_USAGE, "part a");
    assert_fails(forward_alone(st, "a", "gpt", no_value), TN_USAGE, "part a: dim is not key=value");
    assert_fails(forward_alone(st, "a", "gpt", range), TN_USAGE, "part a");
    assert_fails(forward_alone(st, "a", "gpt", odd), TN_USAGE, "part a: dim=9 must be a multiple of heads=2");
    tn_settings_free(st);

    st = settings_of(NULL); /* an error from before is not the part's */
    g = tn_world_graph(NULL);
    assert_ok(tn_part_open(g, st, "reader", "gpt_tiny", NULL, &p));
    (void)tn_tied(g, "nothing");
    tn_forward f;
    tn_batch b = { .size = sizeof b, .batch = 1, .length = 4, .step = "eval" };
    tn_batch_add(&b, "tokens", tn_input(g, "tokens", tn_shape(1, 4), TN_I32));
    assert_fails(tn_part_forward(g, &p, &b, &f), TN_USAGE, "no tensor nothing to tie to");
    assert_null(strstr(tn_error_text(), "part reader"));
    tn_graph_free(g);
    tn_settings_free(st);

    g = tn_world_graph(NULL);
    tn_param(g, "w", tn_shape(2), tn_ones);
    tn_frozen_begin(g);
    tn_param(g, "w", tn_shape(2), tn_ones);
    tn_frozen_end(g);
    assert_fails(tn_graph_status(g), TN_USAGE, "w is frozen f32 (2) here and f32 (2) before");
    tn_graph_free(g);
    g = tn_world_graph(NULL);
    tn_frozen_end(g);
    assert_fails(tn_graph_status(g), TN_USAGE, "tn_frozen_end without a tn_frozen_begin");
    tn_graph_free(g);
}

void tn_tests_parts(tn_test_list *l)
{
    tn_test_add(l, frozen_part, NULL,
                "families: a frozen part has its numbers, no gradient, and lets gradients through");
    tn_test_add(l, gradients, "reader.shape=llama",
                "families: gradients of a model made of parts, through a frozen llama");
    tn_test_add(l, gradients, "reader.shape=gpt2",
                "families: gradients of a model made of parts, through a frozen gpt2");
    tn_test_add(l, recomputed, NULL, "families: layers of parts are recomputed");
    tn_test_add(l, trained_and_saved, NULL, "families: frozen parts stay, and are in weights and checkpoints");
    tn_test_add(l, settings_and_mistakes, NULL, "families: settings of a part, and mistakes in them");
}
