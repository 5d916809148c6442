/* A model with two frozen readers that come from files: a run and a file of weights, of different shapes. Their shapes are filled in, their
 * weights are those of the files, a run goes on when the files are gone, and wrong files are refused before a number moves. */
#include "base/alloc.h"
#include "base/hash.h"
#include "device_memory.h"
#include "models/models.h"
#include "run_pieces.h"
#include "tempdir.h"
#include "train/run/checkpoint_convert.h"
#include "train/run/parts.h"
#include "train/run/saved_model.h"
#include "train/run/train_settings.h"

#include <math.h>

enum { CELLS = 4, TOKENS = 5, LINE = 1200, STEPS = 4 };

#define SHAPE_A "dim=16 layers=1 heads=2 vocab=256 train.context=8"
#define SHAPE_B "shape=gpt2 dim=8 layers=2 heads=1 vocab=11 train.context=9"

/* --- the model: what it calls is in <tenon/model.h> ------------------------------------------------------------------------ */

static const tn_setting rows[] = {
    TN_SETTING_TEXT("a.model", "", "file of the first reader"),
    TN_SETTING_TEXT("a.shape", SHAPE_A, "its settings"),
    TN_SETTING_TEXT("a.hash", "", "of its weights"),
    TN_SETTING_TEXT("b.model", "", "file of the second reader"),
    TN_SETTING_TEXT("b.shape", "", "its settings; empty: there is none"),
    TN_SETTING_TEXT("b.hash", "", "of its weights"),
};

static const tn_part_row of_files[] = {
    { "a", "a.model", "a.shape", .rms = "a.rms" },
    { "b", "b.model", "b.shape", .rms = "to.b.rms" },
};

static const tn_input_row inputs[] = {
    { "given", TN_F32, .dims = { TN_B, "cells" } },
    { "tokens", TN_I32, .dims = { TN_B, "length" } },
    { "labels", TN_I32, .dims = { TN_B, "length" }, .pad = -1 },
};

static const tn_source_number sizes[] = { { "cells", CELLS }, { "length", TOKENS } };

static tn_status open_data(const tn_settings *st, void **data, tn_records_about *about)
{
    (void)st;
    *data = NULL;
    *about = (tn_records_about){ .count = { 12, 4, 4 }, .numbers = sizes, .n_numbers = 2, .identity = 1 };
    return TN_OK;
}

static int64_t read_record(const void *data, int split, int64_t i, int64_t step, void *const *at)
{
    (void)data, (void)step;
    for (int k = 0; at[0] && k < CELLS; k++) ((float *)at[0])[k] = (float)sin((double)(i * 7 + k + split));
    for (int of = 1; of < 3; of++)
        for (int k = 0; at[of] && k < TOKENS; k++) ((int32_t *)at[of])[k] = (int32_t)(i * 3 + k) % 11;
    return TOKENS;
}

static const tn_records data = { "toy", inputs, 3, .open = open_data, .read = read_record };

/* One vector of the model's own, as large as the embeddings, before what the frozen reader reads. */
static tn_status read_by(tn_graph *g, const tn_settings *st, const tn_batch *b, const tn_part_row *row, tn_ref *loss)
{
    tn_part p;
    tn_forward f;
    char name[32];
    tn_status s = tn_part_open_file(g, st, row->scope, row->shape, &p);
    if (s != TN_OK) return s;
    const int64_t d = tn_settings_int(p.settings, "dim");
    snprintf(name, sizeof name, "to.%s.w", row->scope);
    const tn_ref w = tn_param(g, name, tn_shape(d, CELLS), tn_normal(0.2f));
    tn_frozen_begin(g);
    const tn_ref rms = tn_param(g, row->rms, tn_shape(1), tn_ones);
    tn_batch in = { .size = sizeof in, .batch = b->batch, .length = 1 + TOKENS, .step = b->step };
    tn_batch_add(&in, "tokens", tn_in(b, "tokens"));
    tn_batch_add(&in, "prefix",
                 tn_reshape(g, tn_mul(g, tn_linear(g, tn_in(b, "given"), w), rms), tn_shape(b->batch, 1, d)));
    s = tn_part_forward(g, &p, &in, &f);
    tn_frozen_end(g);
    if (s != TN_OK) return s;
    *loss = tn_linear_xent(g, tn_slice(g, f.hidden, 1, 0, TOKENS), f.head, tn_in(b, "labels"));
    return tn_graph_status(g);
}

static tn_status build(tn_graph *g, const tn_settings *st, const tn_batch *b)
{
    tn_ref loss, more;
    tn_status s = read_by(g, st, b, &of_files[0], &loss);
    if (s == TN_OK && tn_settings_text(st, "b.shape")[0]) {
        s = read_by(g, st, b, &of_files[1], &more);
        if (s == TN_OK) loss = tn_add(g, loss, more);
    }
    if (s == TN_OK) tn_output(g, "loss", loss);
    return s == TN_OK ? tn_graph_status(g) : s;
}

static const tn_model toy = { TN_MODEL_HEAD,    .name = "toy",
                              .settings = rows, .n_settings = sizeof rows / sizeof *rows,
                              .build = build,   TN_INPUTS(inputs),
                              .records = &data, .assumes = sizes,
                              .n_assumes = 2,   TN_PARTS(of_files) };

/* --- files and sessions ---------------------------------------------------------------------------------------------------- */

typedef struct place {
    tn_tempdir d;
    char a[LINE], b[LINE],
        ten[LINE];  /* "a.model=PATH": a run of gpt; "b.model=PATH": a file of another; a file of ten */
    char run[LINE]; /* "run=PATH" */
} place;

/* Weights as no seed gives them. */
static void write_file(place *p, const char *model, const char *name, const char *const *set, size_t n)
{
    tn_settings *st;
    const tn_model *m;
    tn_trainer *t;
    assert_ok(tn_settings_resolve(model, set, n, &st, &m));
    assert_ok(
        tn_trainer_new(&(tn_trainer_options){ .model = m, .settings = st, .batch = 1, .length = 4, .threads = 1 }, &t));
    const tn_store *s = tn_trainer_store(t);
    for (size_t i = 0; i < tn_store_count(s); i++) {
        const tn_entry *e = tn_store_at(s, i);
        const int64_t count = tn_dims_count(e->dims);
        float *x = tn_memory_floats(s, e->data, count);
        for (int64_t k = 0; k < count; k++) x[k] = x[k] * 3 + 0.01f * (float)(k % 7);
        tn_memory_put(s, e->data, x, sizeof *x * (size_t)count);
        free(x);
    }
    assert_ok(tn_weights_save(tn_tempdir_file(&p->d, name), m, st, s));
    tn_trainer_free(t);
    tn_settings_free(st);
}

static void open_place(place *p)
{
    static const char *const b[] = { "shape=gpt2", "dim=8",           "layers=2",  "heads=1",
                                     "vocab=11",   "train.context=9", "device=cpu" },
                             *const ten[] = { "dim=8", "layers=1", "heads=1", "vocab=11", "pattern=D", "device=cpu" };
    char text[600], data_word[LINE], run_word[LINE];
    tn_session on;
    tn_progress_report last;
    tn_tempdir_make_quick(&p->d);
    for (size_t i = 0; i < sizeof text; i++) text[i] = (char)('a' + i * i % 23);
    assert_ok(tn_file_write_atomic(tn_tempdir_file(&p->d, "text"), text, sizeof text));
    snprintf(data_word, sizeof data_word, "data=%s", tn_tempdir_file(&p->d, "text"));
    snprintf(run_word, sizeof run_word, "run=%s", tn_tempdir_file(&p->d, "reader"));
    const char *const a[] = { "dim=16",        "layers=1",       "heads=2",       "train.context=8",
                              "train.batch=2", "train.steps=3",  "train.lr=0.01", "threads=1",
                              "device=cpu",    "train.warmup=0", data_word,       run_word };
    assert_ok(tn_session_open("gpt", a, sizeof a / sizeof *a, true, &on));
    assert_ok(tn_run_piece(&on, "gpt", -1, &last));
    write_file(p, "gpt", "b.safetensors", b, sizeof b / sizeof *b);
    write_file(p, "ten", "ten.safetensors", ten, sizeof ten / sizeof *ten);
    snprintf(p->a, sizeof p->a, "a.model=%s", tn_tempdir_file(&p->d, "reader"));
    snprintf(p->b, sizeof p->b, "b.model=%s", tn_tempdir_file(&p->d, "b.safetensors"));
    snprintf(p->ten, sizeof p->ten, "b.model=%s", tn_tempdir_file(&p->d, "ten.safetensors"));
    snprintf(p->run, sizeof p->run, "run=%s", tn_tempdir_file(&p->d, "run"));
}

/* Words: NULL at the end. */
static tn_status open_toy(const char *const *words, tn_session *on)
{
    static const char *const always[] = { "model=toy",     "train.batch=4", "train.steps=4", "train.warmup=0",
                                          "train.lr=0.05", "device=cpu",    "threads=1",     "ckpt.every=1" };
    tn_settings *st;
    assert_ok(tn_settings_new(&st));
    assert_ok(tn_settings_common(st));
    assert_ok(tn_settings_add(st, rows, sizeof rows / sizeof *rows, "toy"));
    for (size_t i = 0; i < sizeof always / sizeof *always; i++) assert_ok(tn_settings_override(st, always[i]));
    for (; *words; words++) assert_ok(tn_settings_override(st, *words));
    const tn_status s =
        tn_session_open_with(&(tn_session_options){ .settings = st, .model = &toy, .needs_data = true }, on);
    tn_settings_free(st);
    return s;
}

/* As tenon train has it; the session stays open. */
static tn_status train_toy(tn_session *on, int64_t stop_after, int64_t *from_step)
{
    tn_status s = TN_OK;
    tn_run_dir r = { .lock = -1 };
    tn_ckpt_state state = { 0 };
    const tn_ckpt_state *from = NULL;
    tn_progress_report last;
    tn_stopper stop = { .after = stop_after };
    TN_TRY(tn_run_open(on->settings, "toy", false, &r));
    TN_TRY(tn_run_load(&r, on, &state, &from));
    *from_step = from ? from->step : -1;
    s = tn_run_train(&r, on, from, &(tn_training){ .ctx = &stop, .interrupted = tn_stop_now }, NULL, &last);
done:
    tn_ckpt_state_free(&state);
    tn_run_close(&r);
    return s;
}

/* The numbers SCOPE.NAME of a store are the file's NAME; returns how many tensors that are. */
static size_t assert_of_file(const tn_store *store, const char *scope, const char *path)
{
    tn_tensors f = { 0 };
    size_t n = 0;
    char name[300];
    assert_ok(tn_tensors_open(path, &f));
    for (size_t i = 0; i < f.n; i++) {
        const int64_t count = tn_dims_count(f.tensor[i].dims);
        float *x = malloc(sizeof *x * (size_t)count);
        assert_non_null(x);
        snprintf(name, sizeof name, "%s.%s", scope, f.tensor[i].name);
        const tn_entry *e = tn_store_find(store, name);
        if (!e) fail_msg("no %s", name);
        assert_int_equal(e->role, TN_ROLE_FROZEN);
        assert_ok(tn_tensors_read(&f, &f.tensor[i], 0, count, x));
        assert_true(tn_memory_equal(store, e->data, x, sizeof *x * (size_t)count));
        free(x);
        n++;
    }
    tn_tensors_close(&f);
    return n;
}

static double rms_of(const float *x, int64_t n)
{
    double sum = 0;
    for (int64_t i = 0; i < n; i++) sum += (double)x[i] * (double)x[i];
    return sqrt(sum / (double)n);
}

static void assert_rms(const tn_store *store, const char *rms, const char *embed)
{
    const tn_entry *e = tn_store_find(store, embed), *to = tn_store_find(store, rms);
    float *x = tn_memory_floats(store, e->data, tn_dims_count(e->dims)), held;
    tn_memory_get(store, to->data, &held, sizeof held);
    const double wanted = rms_of(x, tn_dims_count(e->dims));
    assert_true(wanted > 0.01 && fabs(wanted - 1) > 0.01); /* not what it begins with */
    assert_true(fabs((double)held - wanted) <= 1e-6 * wanted);
    free(x);
}

static bool config_has(place *p, const char *file, const char *text)
{
    char *config;
    assert_ok(tn_file_read_all(tn_tempdir_file(&p->d, file), 1 << 20, &config, NULL));
    const bool has = strstr(config, text);
    tn_free(config);
    return has;
}

/* --- tests ----------------------------------------------------------------------------------------------------------------- */

static void shapes_and_weights(void **state)
{
    (void)state;
    place p;
    tn_session on, twice;
    int64_t from;
    char same[LINE], hash[TN_HASH_BYTES];
    open_place(&p);
    assert_ok(open_toy((const char *const[]){ p.a, "a.shape=", p.b, p.run, NULL }, &on));
    assert_string_equal(tn_settings_text(on.settings, "a.shape"), SHAPE_A);
    assert_string_equal(tn_settings_text(on.settings, "b.shape"), SHAPE_B);
    assert_string_equal(tn_settings_source(on.settings, "b.shape"), "b.model");
    assert_ok(train_toy(&on, -1, &from));
    assert_int_equal(from, -1);
    const tn_store *store = tn_trainer_store(on.trainer);
    assert_true(assert_of_file(store, "a", p.a + 8) > 5);
    assert_true(assert_of_file(store, "b", p.b + 8) > 10);
    assert_rms(store, "a.rms", "a.embed");
    assert_rms(store, "to.b.rms", "b.embed");
    assert_true(config_has(&p, "run/config.yaml", SHAPE_A) && config_has(&p, "run/config.yaml", SHAPE_B));
    snprintf(hash, sizeof hash, "%s", tn_settings_text(on.settings, "a.hash"));
    assert_int_equal(strlen(hash), 32);
    assert_true(config_has(&p, "run/config.yaml", hash));

    /* the same weights under another scope have the same hash, other weights another */
    snprintf(same, sizeof same, "a.model=%s", tn_tempdir_file(&p.d, "b.safetensors"));
    assert_ok(open_toy((const char *const[]){ same, "a.shape=", p.b, NULL }, &twice));
    assert_ok(tn_parts_load(twice.settings, &toy, tn_trainer_store(twice.trainer)));
    bool changed;
    assert_ok(tn_parts_hash(twice.settings, &toy, tn_trainer_store(twice.trainer), false, &changed));
    assert_true(changed && strcmp(tn_settings_text(twice.settings, "a.hash"), hash) != 0);
    assert_string_equal(tn_settings_text(twice.settings, "a.hash"), tn_settings_text(on.settings, "b.hash"));
    assert_string_equal(tn_settings_text(twice.settings, "b.hash"), tn_settings_text(on.settings, "b.hash"));
    assert_ok(tn_parts_hash(twice.settings, &toy, tn_trainer_store(twice.trainer), true, &changed));
    assert_false(changed);
    tn_session_close(&twice);
    tn_session_close(&on);
    tn_tempdir_remove_all(&p.d);
}

static void assert_same_trained(const tn_store *a, const tn_store *b)
{
    for (size_t i = 0; i < tn_store_count(a); i++) {
        const tn_entry *x = tn_store_at(a, i), *y = tn_store_find(b, x->name);
        if (!x->weight) continue;
        void *held = tn_memory_copy(b, y->data, (size_t)tn_dims_count(y->dims) * sizeof(float));
        if (!tn_memory_equal(a, x->data, held, (size_t)tn_dims_count(x->dims) * sizeof(float)))
            fail_msg("%s differs", x->name);
        free(held);
    }
}

static void goes_on_without_files(void **state)
{
    (void)state;
    place p;
    tn_session whole, on;
    int64_t from;
    char other[LINE], hash[TN_HASH_BYTES];
    open_place(&p);
    snprintf(other, sizeof other, "run=%s", tn_tempdir_file(&p.d, "other"));
    const char *const words[] = { p.a, "a.shape=", p.b, p.run, NULL }, *const elsewhere[] = { p.a, "a.shape=", p.b,
                                                                                              other, NULL };
    assert_ok(open_toy(elsewhere, &whole));
    assert_ok(train_toy(&whole, -1, &from));
    snprintf(hash, sizeof hash, "%s", tn_settings_text(whole.settings, "a.hash"));
    assert_ok(open_toy(words, &on));
    assert_int_equal(train_toy(&on, 2, &from), TN_INTERRUPTED);
    tn_session_close(&on);
    assert_int_equal(rename(p.a + 8, tn_tempdir_file(&p.d, "moved")), 0);
    assert_int_equal(rename(p.b + 8, tn_tempdir_file(&p.d, "moved.safetensors")), 0);

    assert_ok(open_toy(words, &on));
    assert_string_equal(tn_settings_text(on.settings, "a.shape"), SHAPE_A);
    assert_string_equal(tn_settings_text(on.settings, "b.shape"), SHAPE_B);
    assert_ok(train_toy(&on, -1, &from));
    assert_int_equal(from, 2);
    assert_same_trained(tn_trainer_store(whole.trainer), tn_trainer_store(on.trainer));
    assert_true(config_has(&p, "run/config.yaml", hash)); /* though the command has none */
    tn_session_close(&on);
    tn_session_close(&whole);

    snprintf(other, sizeof other, "run=%s", tn_tempdir_file(&p.d, "third")); /* one that has not begun needs them */
    assert_fails(open_toy(elsewhere, &on), TN_BAD_FILE, "a.model: ");
    assert_true(strstr(tn_error_text(), "name that run with run=RUN"));
    assert_ok(open_toy((const char *const[]){ p.a, other, NULL }, &on));
    assert_fails(train_toy(&on, -1, &from), TN_BAD_FILE, "a.model: ");
    tn_session_close(&on);
    tn_tempdir_remove_all(&p.d);
}

/* What the store holds under a scope, as a number of it would change it. */
static void hash_of(tn_session *on, char hash[TN_HASH_BYTES])
{
    bool changed;
    assert_ok(tn_parts_hash(on->settings, &toy, tn_trainer_store(on->trainer), true, &changed));
    snprintf(hash, TN_HASH_BYTES, "%s", tn_settings_text(on->settings, "a.hash"));
}

/* The first part is right and the second is not: neither is loaded. */
static void assert_load_fails(place *p, const char *shape, tn_status code, const char *part, const char *more)
{
    tn_session on;
    char before[TN_HASH_BYTES], after[TN_HASH_BYTES];
    assert_ok(open_toy((const char *const[]){ p->a, p->b, shape, NULL }, &on));
    hash_of(&on, before);
    assert_fails(tn_parts_load(on.settings, &toy, tn_trainer_store(on.trainer)), code, part);
    if (!strstr(tn_error_text(), more)) fail_msg("%s", tn_error_text());
    if (!strstr(tn_error_text(), p->b + 8)) fail_msg("%s", tn_error_text());
    hash_of(&on, after);
    assert_string_equal(before, after);
    tn_session_close(&on);
}

static void refusals(void **state)
{
    (void)state;
    place p;
    tn_session on;
    int64_t from;
    char line[2 * LINE];
    open_place(&p);
    snprintf(line, sizeof line, "%s: is a model of type ten; a reader must be gpt", p.ten);
    assert_fails(open_toy((const char *const[]){ p.ten, NULL }, &on), TN_USAGE, line);
    assert_fails(open_toy((const char *const[]){ "b.model=gpt_tiny", NULL }, &on), TN_USAGE,
                 "b.model=gpt_tiny: has no weights");
    assert_fails(open_toy((const char *const[]){ "b.model=gone.safetensors", NULL }, &on), TN_BAD_FILE,
                 "b.model: cannot open gone.safetensors: ");
    assert_fails(open_toy((const char *const[]){ "b.model=gone", NULL }, &on), TN_BAD_FILE,
                 "b.model: cannot open gone: ");

    assert_load_fails(&p, "b.shape=" SHAPE_B " tied=false", TN_BAD_FILE, "tensor head is missing", "");
    /* The weight or its bias: which of two arguments of a call is made first is the compiler's choice. */
    assert_load_fails(&p, "b.shape=" SHAPE_B " ffn=12", TN_BAD_FILE, "in the file and (12", ".ffn.");
    assert_load_fails(&p, "b.shape=" SHAPE_B " layers=1", TN_USAGE, "b.shape has layers=1", "has layers=2");
    assert_load_fails(&p, "b.shape=" SHAPE_B " heads=2", TN_USAGE, "b.shape has heads=2", "has heads=1");

    assert_ok(open_toy((const char *const[]){ p.b, p.run, "b.shape=" SHAPE_B " layers=1", NULL }, &on));
    assert_fails(train_toy(&on, -1, &from), TN_USAGE, "b.shape has layers=1"); /* a run that starts */
    tn_session_close(&on);

    assert_fails(open_toy((const char *const[]){ "a.shape=dim=8 heads= 1", NULL }, &on), TN_USAGE,
                 "a.shape: heads= is not key=value: a value may not contain blanks");
    assert_fails(open_toy((const char *const[]){ "a.shape=dim=8 heads", NULL }, &on), TN_USAGE,
                 "a.shape: heads is not key=value");
    assert_fails(open_toy((const char *const[]){ "a.shape=widht=8", NULL }, &on), TN_USAGE, "unknown key widht");
    assert_fails(open_toy((const char *const[]){ "a.shape=", NULL }, &on), TN_USAGE, "part a has no shape");
    tn_tempdir_remove_all(&p.d);
}

/* Parts of the model's own: rows that name what is not there. */
static void wrong_rows(void **state)
{
    (void)state;
    place p;
    tn_session on;
    static const tn_part_row no_setting[] = { { "a", "a.file", .shape = "a.shape" } },
                             no_scope[] = { { "c", "a.model", .shape = "a.shape" } },
                             no_rms[] = { { "a", "a.model", .shape = "a.shape", .rms = "a.embed" } };
    tn_model m = toy;
    open_place(&p);
    assert_ok(open_toy((const char *const[]){ p.a, NULL }, &on));
    tn_store *store = tn_trainer_store(on.trainer);
    m.n_parts = 1;
    m.parts = no_setting;
    assert_fails(tn_parts_resolve(on.settings, &m), TN_USAGE, "model toy, part a: it has no setting a.file");
    m.parts = no_scope;
    assert_fails(tn_parts_load(on.settings, &m, store), TN_USAGE, "model toy has no parameters c.NAME for a.model");
    m.parts = no_rms;
    assert_fails(tn_parts_load(on.settings, &m, store), TN_BAD_FILE, "tensor rms is missing");
    tn_session_close(&on);
    tn_tempdir_remove_all(&p.d);
}

/* Matrices as a file has them, and a file of the whole model. */
static void narrow_and_saved(void **state)
{
    (void)state;
    place p;
    tn_session on;
    tn_trainer *t;
    tn_arena arena = { 0 };
    const char **words;
    size_t n;
    tn_matrices matrices;
    open_place(&p);
    assert_ok(open_toy((const char *const[]){ p.a, "a.shape=", p.b, NULL }, &on));
    assert_ok(tn_parts_load(on.settings, &toy, tn_trainer_store(on.trainer)));
    assert_ok(tn_trainer_new(&(tn_trainer_options){ .model = &toy,
                                                    .settings = on.settings,
                                                    .batch = 1,
                                                    .length = on.length,
                                                    .forward_only = true,
                                                    .frozen = true,
                                                    .weights = TN_BF16,
                                                    .threads = 1 },
                             &t));
    tn_store *narrow = tn_trainer_store(t);
    assert_ok(tn_parts_load(on.settings, &toy, narrow));
    const tn_entry *e = tn_store_find(narrow, "a.embed"), *to = tn_store_find(narrow, "a.rms"),
                   *wide = tn_store_find(tn_trainer_store(on.trainer), "a.embed");
    assert_true(e->dtype == TN_BF16 && to->dtype == TN_F32);
    float *x = tn_memory_floats(tn_trainer_store(on.trainer), wide->data, tn_dims_count(wide->dims)), held;
    for (int64_t i = 0; i < tn_dims_count(wide->dims); i++) x[i] = tn_bf16_to_f32(tn_f32_to_bf16(x[i]));
    const double wanted = rms_of(x, tn_dims_count(wide->dims));
    tn_memory_get(narrow, to->data, &held, sizeof held);
    assert_true(fabs((double)held - wanted) <= 1e-6 * wanted);
    free(x);
    tn_trainer_free(t);

    const char *file = tn_tempdir_file(&p.d, "toy.safetensors"); /* words of a shape inside words */
    assert_ok(tn_weights_save(file, &toy, on.settings, tn_trainer_store(on.trainer)));
    assert_ok(tn_weights_words(file, &arena, &words, &n, &matrices));
    bool found = false;
    for (size_t i = 0; i < n; i++)
        found |= strcmp(words[i], "a.shape=dim=16,layers=1,heads=2,vocab=256,train.context=8") == 0;
    assert_true(found);
    tn_arena_free(&arena);
    tn_session_close(&on);
    assert_ok(
        open_toy((const char *const[]){ "a.shape=dim=16,layers=1,heads=2,vocab=256,train.context=8", NULL }, &on));
    assert_int_equal(tn_store_find(tn_trainer_store(on.trainer), "a.embed")->dims.dim[1], 16);
    assert_null(tn_store_find(tn_trainer_store(on.trainer), "b.embed"));
    assert_ok(
        tn_parts_load(on.settings, &toy, tn_trainer_store(on.trainer))); /* first values, and of what size they are */
    assert_rms(tn_trainer_store(on.trainer), "a.rms", "a.embed");
    tn_session_close(&on);
    tn_tempdir_remove_all(&p.d);
}

void tn_tests_frozen_parts(tn_test_list *l)
{
    tn_test_add(l, shapes_and_weights, NULL, "families: parts of files have their shapes, weights and sizes");
    tn_test_add(l, goes_on_without_files, NULL, "families: a run goes on when the files of its parts are gone");
    tn_test_add(l, refusals, NULL, "families: wrong files of parts are refused before a number moves");
    tn_test_add(l, wrong_rows, NULL, "families: mistakes in the rows of parts of files");
    tn_test_add(l, narrow_and_saved, NULL, "families: parts of files in bf16, and in a file of the whole model");
}
