/* wire with two random readers on random texts, in f32 on the device of TENON_TEST_DEVICE, driven through its trainer. Header only. */
#ifndef TN_WIRE_RIG_H
#define TN_WIRE_RIG_H

#include "base/rng.h"
#include "device_memory.h"
#include "models/models.h"
#include "testlib.h"
#include "train/run/train_settings.h"
#include "train/trainer/trainer.h"
#include "world.h"

#include <stdio.h>
#include <string.h>

enum { B = 3, Q = 2, IDS = 29, BYTES = 12, LENGTH = 8, TEXT = 10, TOLD = 20, MOST = 64 };

/* --- a rig ------------------------------------------------------------------------------------------------------------------- */

/* How wide a batch is; what it holds is the same in all of them. */
typedef struct sizes {
    int64_t batch, bytes, length, text, told;
} sizes;
static const sizes usual = { B, BYTES, LENGTH, TEXT, TOLD };

typedef struct rig {
    sizes is;
    tn_settings *settings;
    tn_trainer *trainer;
    int32_t unread[B * Q * MOST]; /* in the place of inputs that these settings have no use for */
} rig;

static inline void set(tn_settings *st, const char *key, int64_t value)
{
    char word[64];
    snprintf(word, sizeof word, "%s=%lld", key, (long long)value);
    assert_ok(tn_settings_override(st, word));
}

static inline tn_settings *settings_of(const sizes *is, const char *const *more)
{
    static const char *const words[] = {
        "compute=f32",
        "slots=3",
        "width=8",
        "dim=16",
        "heads=2",
        "ffn=24",
        "layers=2",
        "hidden=12",
        "a.ids=29",
        "b.ids=29",
        "questions=2",
        "contexts=3",
        "train.lr=1e-2",
        "a.shape=dim=16 layers=2 heads=2 vocab=29", /* like Llama; the other like Qwen 2 */
        "b.shape=dim=12 layers=3 heads=6 kv_heads=2 head_dim=4 vocab=37 qkv_bias=true tied=false",
    };
    const tn_model *m = tn_model_named("wire");
    tn_settings *st;
    assert_ok(tn_settings_new(&st));
    assert_ok(tn_settings_common(st));
    assert_ok(tn_settings_add(st, m->settings, m->n_settings, "wire"));
    assert_ok(tn_settings_override(st, tn_test_device() == TN_CUDA ? "device=cuda" : "device=cpu"));
    for (size_t i = 0; i < sizeof words / sizeof *words; i++) assert_ok(tn_settings_override(st, words[i]));
    set(st, "bytes", is->bytes);
    set(st, "a.length", is->length), set(st, "a.text", is->text), set(st, "a.told", is->told);
    set(st, "b.length", is->length), set(st, "b.text", is->text), set(st, "b.told", is->told);
    for (; more && *more; more++) assert_ok(tn_settings_override(st, *more));
    return st;
}

static inline bool of_reader(const tn_entry *e)
{
    return strncmp(e->name, "a.", 2) == 0 || strncmp(e->name, "b.", 2) == 0;
}

/* First values of readers are small, and they would say nearly the same to everything. */
static inline void enlarge(tn_store *st)
{
    for (size_t i = 0; i < tn_store_count(st); i++) {
        const tn_entry *e = tn_store_at(st, i);
        const int64_t n = tn_dims_count(e->dims);
        const size_t end = strlen(e->name);
        const bool rms = end > 4 && strcmp(e->name + end - 4, ".rms") == 0;
        if (!rms && !(of_reader(e) && e->dims.rank == 2)) continue;
        float *x = tn_memory_floats(st, e->data, n);
        for (int64_t k = 0; k < n; k++) x[k] *= 12;
        tn_memory_put(st, e->data, x, sizeof *x * (size_t)n);
        free(x);
    }
}

static inline void open_rig(rig *r, const sizes *is, const char *const *more, bool trains)
{
    static const char *const asks[] = { "encode", "read", "text", NULL };
    *r = (rig){ .is = *is, .settings = settings_of(is, more) };
    const tn_trainer_options o = { .model = tn_model_named("wire"),
                                   .settings = r->settings,
                                   .batch = is->batch,
                                   .length = 1,
                                   .steps = asks,
                                   .forward_only = !trains,
                                   .threads = 1 };
    assert_ok(tn_trainer_new(&o, &r->trainer));
    enlarge(tn_trainer_store(r->trainer));
}

static inline void close_rig(rig *r)
{
    tn_trainer_free(r->trainer);
    tn_settings_free(r->settings);
}

/* --- a batch ----------------------------------------------------------------------------------------------------------------- */

static inline int32_t *input(rig *r, const char *reader, const char *name)
{
    char full[32];
    snprintf(full, sizeof full, "%s%s", reader, name);
    int32_t *x = tn_trainer_input(r->trainer, full);
    return x ? x : r->unread;
}

static inline int32_t id_of(int64_t context, int64_t i)
{
    return 3 + (int32_t)tn_rng_below((tn_rng){ 7, (uint64_t)context }, (uint64_t)i, IDS - 3);
}

/* Contexts first, first + 1, ... Context c has 12 - 3c bytes, 8 - 2c words, its question 2 - c words (none, then), its answer 3. The
 * second question of context 1 is missing. */
static inline int words_of(int64_t c) { return 8 - 2 * (int)c; }
static inline int bytes_of(int64_t c) { return BYTES - 3 * (int)c; }
static inline int asked(int64_t c) { return 2 - (int)c; }
static inline int row_of(int64_t c) { return 1 + asked(c) + 3 + 1; }

static inline void fill_question(rig *r, const char *x, int64_t row, int64_t c, int64_t q)
{
    const int64_t n = r->is.length, t = r->is.told;
    const int32_t anchor = 3 + (int32_t)c;
    int32_t *tokens = input(r, x, ".tokens") + row * n, *labels = input(r, x, ".labels") + row * n,
            *told = input(r, x, ".told") + row * t, *document = input(r, x, ".told_document") + row * t;
    memset(tokens, 0, sizeof *tokens * (size_t)n);
    memset(labels, -1, sizeof *labels * (size_t)n);
    memset(told, 0, sizeof *told * (size_t)t);
    memset(document, 0, sizeof *document * (size_t)t);
    if (c == 1 && q == 1) return;
    const int64_t room = t - n, words = room > words_of(c) ? words_of(c) : 0; /* no room: question and answer alone */
    tokens[0] = 1;
    for (int64_t i = 1; i < row_of(c); i++) {
        tokens[i] = i == row_of(c) - 1 ? 2 : id_of(20 + 2 * c + q, i);
        if (i > asked(c)) labels[i] = tokens[i];
    }
    int64_t at = t - (n - 1) - words - (words > 0) - 1; /* right-aligned: BOS, words, anchor, then tokens from 1 on */
    for (int64_t i = at; i < t; i++) document[i] = 1;
    told[at++] = 1;
    for (int i = 0; i < words; i++) told[at++] = id_of(10 + c, i);
    if (words) told[at++] = anchor;
    memcpy(told + at, tokens + 1, sizeof *told * (size_t)(n - 1));
}

static inline void fill_context(rig *r, int64_t b, int64_t c)
{
    static const char *const readers[] = { "a", "b" };
    int32_t *bytes = input(r, "", "bytes") + b * r->is.bytes;
    for (int64_t i = 0; i < r->is.bytes; i++) bytes[i] = i < bytes_of(c) ? 32 + id_of(c, i) : 0;
    input(r, "", "lengths")[b] = bytes_of(c);
    input(r, "", "sample")[b] = (int32_t)c;
    input(r, "", "kind")[b] = (int32_t)c;
    for (int k = 0; k < 2; k++) {
        int32_t *text = input(r, readers[k], ".text") + b * r->is.text,
                *labels = input(r, readers[k], ".text_labels") + b * r->is.text;
        const int n = 2 + words_of(c);
        for (int64_t i = 0; i < r->is.text; i++) {
            text[i] = i >= n ? 0 : i == 0 ? 1 : i == n - 1 ? 2 : id_of(10 + c, i - 1);
            labels[i] = i && i < n ? text[i] : -1;
        }
        input(r, readers[k], ".text_length")[b] = n;
        for (int64_t q = 0; q < Q; q++) fill_question(r, readers[k], b * Q + q, c, q);
    }
}

static inline void fill(rig *r, int64_t first)
{
    *input(r, "", "count") = (int32_t)r->is.batch;
    for (int64_t b = 0; b < r->is.batch; b++) fill_context(r, b, first + b);
}

/* --- what comes out ------------------------------------------------------------------------------------------------------------ */

/* -log p of every answer token, and Z. */
typedef struct seen {
    float nll[2][B * Q * MOST]; /* by reader: (rows, length-1) */
    float z[B * 3 * 8];
    int64_t n, n_z;
} seen;

static inline const float *output_of(rig *r, const char *step, const char *name, int64_t *n)
{
    const float *x =
        step ? tn_trainer_step_output(r->trainer, step, name, NULL, n) : tn_trainer_output(r->trainer, name, n);
    if (!x) fail_msg("%s puts out no %s", step ? step : "eval", name);
    return x;
}

/* Step NULL: eval. */
static inline void look(rig *r, const char *step, seen *s)
{
    static const char *const names[] = { "a.nll", "b.nll" };
    float loss;
    memset(s, 0, sizeof *s);
    if (step) assert_ok(tn_trainer_run_step(r->trainer, step));
    else assert_ok(tn_trainer_eval(r->trainer, &loss));
    for (int k = 0; k < 2; k++) {
        const float *x = output_of(r, step, names[k], &s->n);
        assert_true(s->n == r->is.batch * Q * (r->is.length - 1) && s->n <= B * Q * MOST);
        memcpy(s->nll[k], x, sizeof *x * (size_t)s->n);
    }
    if (step) return;
    const float *z = output_of(r, NULL, "z", &s->n_z);
    assert_true(s->n_z == r->is.batch * 24);
    memcpy(s->z, z, sizeof *z * (size_t)s->n_z);
}

static inline bool near(float a, float b) { return fabsf(a - b) <= 1e-5f * fmaxf(1, fabsf(b)); }
static inline bool same(float a, float b) { return tn_test_device() == TN_CPU ? a == b : near(a, b); }

#endif
