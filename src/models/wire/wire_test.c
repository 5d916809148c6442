/* wire on random texts and random frozen readers, in f32 on the device of TENON_TEST_DEVICE: what does and does not depend on what.
 * Numbers of the whole model are compared with a second implementation (bench/peers/wire_twin.py, tests/golden). */
#include "models/wire/wire.h"

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

static void set(tn_settings *st, const char *key, int64_t value)
{
    char word[64];
    snprintf(word, sizeof word, "%s=%lld", key, (long long)value);
    assert_ok(tn_settings_override(st, word));
}

static tn_settings *settings_of(const sizes *is, const char *const *more)
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

static bool of_reader(const tn_entry *e) { return strncmp(e->name, "a.", 2) == 0 || strncmp(e->name, "b.", 2) == 0; }

/* First values of readers are small, and they would say nearly the same to everything. */
static void enlarge(tn_store *st)
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

static void open_rig(rig *r, const sizes *is, const char *const *more, bool trains)
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

static void close_rig(rig *r)
{
    tn_trainer_free(r->trainer);
    tn_settings_free(r->settings);
}

/* --- a batch ----------------------------------------------------------------------------------------------------------------- */

static int32_t *input(rig *r, const char *reader, const char *name)
{
    char full[32];
    snprintf(full, sizeof full, "%s%s", reader, name);
    int32_t *x = tn_trainer_input(r->trainer, full);
    return x ? x : r->unread;
}

static int32_t id_of(int64_t context, int64_t i)
{
    return 3 + (int32_t)tn_rng_below((tn_rng){ 7, (uint64_t)context }, (uint64_t)i, IDS - 3);
}

/* Contexts first, first + 1, ... Context c has 12 - 3c bytes, 8 - 2c words, its question 2 - c words (none, then), its answer 3. The
 * second question of context 1 is missing. */
static int words_of(int64_t c) { return 8 - 2 * (int)c; }
static int bytes_of(int64_t c) { return BYTES - 3 * (int)c; }
static int asked(int64_t c) { return 2 - (int)c; }
static int row_of(int64_t c) { return 1 + asked(c) + 3 + 1; }

static void fill_question(rig *r, const char *x, int64_t row, int64_t c, int64_t q)
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

static void fill_context(rig *r, int64_t b, int64_t c)
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

static void fill(rig *r, int64_t first)
{
    for (int64_t b = 0; b < r->is.batch; b++) fill_context(r, b, first + b);
}

/* --- what comes out ------------------------------------------------------------------------------------------------------------ */

/* -log p of every answer token, and Z. */
typedef struct seen {
    float nll[2][B * Q * MOST]; /* by reader: (rows, length-1) */
    float z[B * 3 * 8];
    int64_t n, n_z;
} seen;

static const float *output_of(rig *r, const char *step, const char *name, int64_t *n)
{
    const float *x =
        step ? tn_trainer_step_output(r->trainer, step, name, NULL, n) : tn_trainer_output(r->trainer, name, n);
    if (!x) fail_msg("%s puts out no %s", step ? step : "eval", name);
    return x;
}

/* Step NULL: eval. */
static void look(rig *r, const char *step, seen *s)
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

static bool near(float a, float b) { return fabsf(a - b) <= 1e-5f * fmaxf(1, fabsf(b)); }
static bool same(float a, float b) { return tn_test_device() == TN_CPU ? a == b : near(a, b); }

/* --- tests --------------------------------------------------------------------------------------------------------------------- */

static const char *const embeddings[] = { "place=embeddings", NULL }, *const keys[] = { "place=keys", NULL };
static const char *const of_sender[] = { "place=embeddings", "encoder=sender", NULL };

/* Label i is of the state that has read the tokens before i and nothing else: a token changes what comes behind it, a label its own
 * place. All tokens of row 0 have labels here. */
static void alignment(void **state)
{
    rig r;
    seen before, after;
    open_rig(&r, &usual, *state, false);
    fill(&r, 0);
    const int n = row_of(0);
    for (int k = 0; k < 2; k++) {
        int32_t *tokens = input(&r, k ? "b" : "a", ".tokens"), *labels = input(&r, k ? "b" : "a", ".labels");
        for (int i = 1; i < n; i++) labels[i] = tokens[i];
        look(&r, NULL, &before);
        for (int i = 0; i < n; i++) {
            const int32_t token = tokens[i];
            tokens[i] = 3 + (token + 5) % (IDS - 3);
            look(&r, NULL, &after);
            for (int j = 1; j < n; j++) { /* column j-1 is of label j */
                const float x = before.nll[k][j - 1], y = after.nll[k][j - 1];
                if (j <= i ? !same(x, y) : near(x, y))
                    fail_msg("reader %d: token %d %s label %d", k, i, j <= i ? "reaches" : "does not reach", j);
            }
            for (int64_t j = LENGTH - 1; j < after.n; j++) assert_true(same(before.nll[k][j], after.nll[k][j]));
            assert_memory_equal(before.nll[1 - k], after.nll[1 - k], sizeof before.nll[k]);
            tokens[i] = token;
            if (!i) continue;
            labels[i] = 3 + (token + 5) % (IDS - 3);
            look(&r, NULL, &after);
            for (int64_t j = 0; j < after.n; j++)
                if (j == i - 1 ? near(before.nll[k][j], after.nll[k][j]) : !same(before.nll[k][j], after.nll[k][j]))
                    fail_msg("reader %d: label %d and column %lld", k, i, (long long)j);
            labels[i] = token;
        }
    }
    close_rig(&r);
}

/* The same of rows of text alone, which are aligned on the right: the last tokens are those of the answer. */
static void told_alignment(void **state)
{
    (void)state;
    rig r;
    seen before, after;
    open_rig(&r, &usual, embeddings, false);
    fill(&r, 0);
    const int n = row_of(0), start = TOLD - LENGTH; /* told[start + i] is token i */
    int32_t *told = input(&r, "a", ".told"), *tokens = input(&r, "a", ".tokens"), *labels = input(&r, "a", ".labels");
    for (int i = 1; i < n; i++) labels[i] = tokens[i], assert_int_equal(told[start + i], tokens[i]);
    look(&r, "text", &before);
    for (int i = -3; i < n; i++) { /* before 1: anchor and context */
        const int32_t token = told[start + i];
        told[start + i] = 3 + (token + 5) % (IDS - 3);
        look(&r, "text", &after);
        for (int j = 1; j < n; j++)
            if (j <= i ? !same(before.nll[0][j - 1], after.nll[0][j - 1])
                       : near(before.nll[0][j - 1], after.nll[0][j - 1]))
                fail_msg("token %d %s label %d", i, j <= i ? "reaches" : "does not reach", j);
        told[start + i] = token;
    }
    told = input(&r, "a", ".told") + (B * Q - 1) * TOLD; /* the shortest text: what stands before it is nothing */
    assert_int_equal((input(&r, "a", ".told_document") + (B * Q - 1) * TOLD)[1], 0);
    for (int i = 0; i < 2; i++) told[i] = 9;
    look(&r, "text", &after);
    for (int64_t j = 0; j < after.n; j++) assert_true(same(before.nll[0][j], after.nll[0][j]));
    close_rig(&r);
}

/* Rows without any text are as wide as question and answer at least; wider ones say the same. */
static void told_nothing(void **state)
{
    (void)state;
    static const sizes narrow = { B, BYTES, LENGTH, TEXT, LENGTH }, wider = { B, BYTES, LENGTH, TEXT, LENGTH + 2 };
    rig a, b;
    seen x, y;
    open_rig(&a, &narrow, embeddings, false);
    open_rig(&b, &wider, embeddings, false);
    fill(&a, 0);
    fill(&b, 0);
    assert_true(input(&a, "a", ".told")[0] == 1 && input(&b, "a", ".told")[2] == 1);
    look(&a, "text", &x);
    look(&b, "text", &y);
    for (int k = 0; k < 2; k++)
        for (int64_t i = 0; i < x.n; i++) assert_true(near(x.nll[k][i], y.nll[k][i]));
    close_rig(&a);
    close_rig(&b);
}

/* Bytes (a sender: tokens) behind a text are nothing; those of a text are something, to this text alone. */
static void behind(void **state)
{
    const bool sends = *state == of_sender;
    const int64_t width = sends ? TEXT : BYTES;
    rig r;
    int64_t n;
    float z[B * 24];
    open_rig(&r, &usual, *state, false);
    fill(&r, 0);
    int32_t *x = sends ? input(&r, "a", ".text") : input(&r, "", "bytes");
    assert_ok(tn_trainer_run_step(r.trainer, "encode"));
    memcpy(z, output_of(&r, "encode", "z", &n), sizeof z);
    assert_int_equal(n, B * 24);
    for (int64_t b = 0; b < B; b++)
        for (int64_t i = sends ? 2 + words_of(b) : bytes_of(b); i < width; i++) x[b * width + i] = (int32_t)(5 + i);
    assert_ok(tn_trainer_run_step(r.trainer, "encode"));
    assert_true(tn_world_same(output_of(&r, "encode", "z", &n), z, n, 1e-6));
    const int64_t last = sends ? 1 + words_of(1) : bytes_of(1) - 1;
    x[width + last] ^= 1;
    assert_ok(tn_trainer_run_step(r.trainer, "encode"));
    const float *y = output_of(&r, "encode", "z", &n);
    assert_true(tn_world_same(y, z, 24, 1e-6) && tn_world_same(y + 48, z + 48, 24, 1e-6));
    for (int s = 0; s < 3; s++) assert_true(tn_world_distance(y + 24 + 8 * s, z + 24 + 8 * s, 8) > 1e-4);
    close_rig(&r);
}

/* A context of a batch, and the same alone, in places of other widths. */
static void compare_rows(const seen *all, const seen *one, int64_t c, int64_t wide, const char *what)
{
    for (int k = 0; k < 2; k++)
        for (int64_t q = 0; q < Q; q++)
            for (int64_t i = 0; i < wide; i++) {
                const float x = i < LENGTH - 1 ? all->nll[k][(c * Q + q) * (LENGTH - 1) + i] : 0;
                const float y = one->nll[k][q * wide + i];
                if (!near(x, y))
                    fail_msg("%s: context %d, reader %d, label %d: %g, alone %g", what, (int)c, k, (int)i + 1,
                             (double)x, (double)y);
            }
    for (int64_t i = 0; i < one->n_z; i++) assert_true(near(all->z[24 * c + i], one->z[i]));
}

/* The first values of the pooler's queries depend on the width of the texts: these have those of another rig. */
static void same_queries(rig *to, rig *from)
{
    static const char name[] = "encoder.pool.queries";
    const tn_entry *e = tn_store_find(tn_trainer_store(from->trainer), name);
    const tn_entry *x = tn_store_find(tn_trainer_store(to->trainer), name);
    tn_host_copy h = { 0 };
    assert_true(e && x && tn_dims_equal(e->dims, x->dims));
    const size_t bytes = sizeof(float) * (size_t)tn_dims_count(e->dims);
    const void *data = tn_store_read(tn_trainer_store(from->trainer), e->data, bytes, &h);
    assert_non_null(data);
    assert_ok(tn_store_write(tn_trainer_store(to->trainer), x->data, data, bytes));
    tn_host_copy_free(&h);
}

static void alone(void **state)
{
    static const sizes wide[] = { { 1, BYTES, LENGTH, TEXT, TOLD }, { 1, BYTES + 7, LENGTH + 5, TEXT + 4, TOLD + 9 } };
    rig many, one;
    seen all, all_told, x;
    open_rig(&many, &usual, *state, false);
    fill(&many, 0);
    look(&many, NULL, &all);
    look(&many, "text", &all_told);
    for (size_t k = 0; k < sizeof wide / sizeof *wide; k++) {
        open_rig(&one, &wide[k], *state, false);
        same_queries(&one, &many);
        for (int64_t c = 0; c < B; c++) {
            fill(&one, c);
            look(&one, NULL, &x);
            compare_rows(&all, &x, c, wide[k].length - 1, "message");
            look(&one, "text", &x);
            compare_rows(&all_told, &x, c, wide[k].length - 1, "text");
        }
        close_rig(&one);
    }
    close_rig(&many);
}

/* A message knows its text alone. Other tokens in question and answer of a row change neither Z nor what another row on the same
 * message says. */
static void no_leak(void **state)
{
    rig r;
    seen before, after;
    open_rig(&r, &usual, *state, false);
    fill(&r, 0);
    look(&r, NULL, &before);
    for (int k = 0; k < 2; k++) {
        int32_t *tokens = input(&r, k ? "b" : "a", ".tokens"), *labels = input(&r, k ? "b" : "a", ".labels");
        for (int i = 1; i < LENGTH; i++) {
            tokens[i] = 3 + (tokens[i] + 7) % (IDS - 3);
            labels[i] = i > 3 && i < LENGTH - 1 ? tokens[i] : -1; /* of another length, too */
        }
    }
    look(&r, NULL, &after);
    assert_true(tn_world_same(after.z, before.z, before.n_z, 1e-6));
    for (int k = 0; k < 2; k++) {
        assert_true(tn_world_distance(after.nll[k], before.nll[k], LENGTH - 1) > 1e-3);
        for (int64_t j = LENGTH - 1; j < after.n; j++) assert_true(same(after.nll[k][j], before.nll[k][j]));
    }
    close_rig(&r);
}

/* encode here and read there is eval; and what is read is the message. */
static void sent_and_read(void **state)
{
    static const char *const said[] = { "a.said", "b.said" };
    rig r;
    seen whole, apart;
    int64_t n;
    int32_t words[2][B * Q * (LENGTH - 1)];
    open_rig(&r, &usual, *state, false);
    tn_store *st = tn_trainer_store(r.trainer);
    fill(&r, 0);
    look(&r, NULL, &whole);
    for (int k = 0; k < 2; k++) memcpy(words[k], output_of(&r, NULL, said[k], &n), sizeof words[k]);
    assert_ok(tn_trainer_run_step(r.trainer, "encode"));
    const float *z = output_of(&r, "encode", "z", &n);
    const tn_entry *e = tn_store_find(st, "message");
    assert_non_null(e);
    assert_true(n == tn_dims_count(e->dims) && tn_world_same(z, whole.z, n, 1e-6));
    tn_memory_put(st, e->data, z, sizeof *z * (size_t)n);
    memset(input(&r, "", "bytes"), 0, sizeof(int32_t) * B * BYTES); /* nobody reads the text now */
    look(&r, "read", &apart);
    for (int k = 0; k < 2; k++) {
        assert_true(tn_world_same(apart.nll[k], whole.nll[k], whole.n, 1e-6));
        assert_memory_equal(output_of(&r, "read", said[k], &n), words[k], sizeof words[k]);
    }
    float other[B * 24];
    memcpy(other, whole.z, sizeof other);
    memcpy(other, whole.z + 48, sizeof *other * 24); /* context 0 gets the message of context 2 */
    tn_memory_put(st, e->data, other, sizeof other);
    look(&r, "read", &apart);
    for (int k = 0; k < 2; k++) {
        assert_true(tn_world_distance(apart.nll[k], whole.nll[k], Q * (LENGTH - 1)) > 1e-3);
        for (int64_t j = Q * (LENGTH - 1); j < whole.n; j++) assert_true(same(apart.nll[k][j], whole.nll[k][j]));
    }
    close_rig(&r);
}

#define TERMS "loss.first=0.5", "loss.kd=0.5", "loss.state=0.5", "loss.ae=0.5", "loss.nce=0.1"
static const char *const learns[][8] = {
    { TERMS, "place=embeddings", "refiner=1", NULL }, { TERMS, "place=keys", "private=1", NULL },
    { TERMS, "encoder=sender", "sender=b", NULL },    { TERMS, "encoder=free", "place=embeddings", NULL },
    { TERMS, "encoder=constant", "keep=1", NULL },
};

/* Everything that is trained has a gradient, readers have none, and a step changes the former alone. */
static void gradients(void **state)
{
    rig r;
    float loss;
    tn_update_result done;
    int frozen = 0, trained = 0;
    open_rig(&r, &usual, *state, true);
    fill(&r, 0);
    tn_store *st = tn_trainer_store(r.trainer);
    assert_ok(tn_trainer_grad(r.trainer, 0, &loss));
    float *before[256] = { NULL };
    const size_t count = tn_store_count(st);
    assert_true(count <= 256 && isfinite(loss));
    for (size_t i = 0; i < count; i++) {
        const tn_entry *e = tn_store_at(st, i);
        const int64_t n = tn_dims_count(e->dims);
        if (e->role != TN_ROLE_PARAM && e->role != TN_ROLE_FROZEN) continue;
        if ((e->role == TN_ROLE_PARAM) == of_reader(e)) { /* encoder.places and to.x.rms are frozen and nobody's */
            const bool places = strcmp(e->name, "encoder.places") == 0 || strstr(e->name, ".rms");
            if (of_reader(e) || !places) fail_msg("%s has the wrong role", e->name);
        }
        before[i] = tn_memory_floats(st, e->data, n);
        if (e->role == TN_ROLE_FROZEN) {
            frozen++;
            assert_null(e->grad);
            continue;
        }
        float *g = tn_memory_floats(st, e->grad, n), most = 0;
        for (int64_t k = 0; k < n; k++) most = fmaxf(most, fabsf(g[k]));
        if (!(most > 0 && isfinite(most))) fail_msg("the gradient of %s is %g at most", e->name, (double)most);
        trained++;
        free(g);
    }
    assert_ok(tn_trainer_apply(r.trainer, 0, 1, loss, &done));
    assert_true(done.ok && frozen > 30 && trained > 30);
    for (size_t i = 0; i < count; i++) {
        const tn_entry *e = tn_store_at(st, i);
        if (!before[i]) continue;
        const bool equal = tn_memory_equal(st, e->data, before[i], sizeof **before * (size_t)tn_dims_count(e->dims));
        if (equal != (e->role == TN_ROLE_FROZEN)) fail_msg("%s %s", e->name, equal ? "stays" : "changes");
        free(before[i]);
    }
    close_rig(&r);
}

void tn_tests_wire(tn_test_list *l)
{
    tn_test_add(l, alignment, (void *)embeddings,
                "wire model: a label's state has read what stands before it (embeddings)");
    tn_test_add(l, alignment, (void *)keys, "wire model: a label's state has read what stands before it (keys)");
    tn_test_add(l, told_alignment, NULL, "wire model: a label's state has read what stands before it (text)");
    tn_test_add(l, told_nothing, NULL, "wire model: rows without a text");
    tn_test_add(l, behind, (void *)embeddings, "wire model: bytes behind a text change nothing in its message");
    tn_test_add(l, behind, (void *)of_sender,
                "wire model: tokens behind a sender's text change nothing in its message");
    tn_test_add(l, alone, (void *)embeddings, "wire model: a row alone or padded says the same (embeddings)");
    tn_test_add(l, alone, (void *)keys, "wire model: a row alone or padded says the same (keys)");
    tn_test_add(l, alone, (void *)of_sender, "wire model: a row alone or padded says the same (sender)");
    tn_test_add(l, no_leak, (void *)embeddings, "wire model: answers change no message (embeddings)");
    tn_test_add(l, no_leak, (void *)keys, "wire model: answers change no message (keys)");
    tn_test_add(l, sent_and_read, (void *)embeddings,
                "wire model: a message that is sent and read is eval (embeddings)");
    tn_test_add(l, sent_and_read, (void *)keys, "wire model: a message that is sent and read is eval (keys)");
    for (size_t i = 0; i < sizeof learns / sizeof *learns; i++)
        tn_test_add(l, gradients, (void *)learns[i], "wire model: gradients reach all but the readers (%s, %s)",
                    learns[i][5], learns[i][6]);
}
