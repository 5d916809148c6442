/* Rows of inputs: every mistake in them is one line that names model, row and remedy; how a model's rows and a supplier's become slots, with
 * their sizes and numbers; padding and made-up numbers reach the inputs they are for, and no others. */
#include "train/trainer/inputs.h"

#include "testlib.h"
#include "train/run/train_settings.h"
#include "train/trainer/trainer.h"

#include <tenon/ops.h>

#include <math.h>
#include <string.h>

static const tn_setting settings[] = {
    TN_SETTING_INT("cells", "4", TN_RANGE(1, 1e12), "", "numbers of a record"),
    TN_SETTING_AUTO_INT("width", "auto", TN_RANGE(1, 1e6), "", "taken from the data"),
    TN_SETTING_FLOAT("rate", "0.5", TN_RANGE(0, 1), "", "no size"),
    TN_SETTING_INT("frames", "6", TN_RANGE(1, 1e6), "", "length of a record"),
};

static tn_settings *settings_of(const char *set)
{
    tn_settings *st;
    assert_ok(tn_settings_new(&st));
    assert_ok(tn_settings_common(st));
    assert_ok(tn_settings_add(st, settings, sizeof settings / sizeof *settings, "toy"));
    if (set) assert_ok(tn_settings_override(st, set));
    return st;
}

/* --- mistakes --------------------------------------------------------------------------------------------------------------- */

enum { MOST = TN_INPUTS_MAX + 1 };

#define F32(name, ...)                                                                                                 \
    {                                                                                                                  \
        name, TN_F32, .dims = { __VA_ARGS__ }                                                                          \
    }
#define I32(name, ...)                                                                                                 \
    {                                                                                                                  \
        name, TN_I32, .dims = { __VA_ARGS__ }                                                                          \
    }
#define X4 F32("x", TN_B, "4")
#define OWN                                                                                                            \
    {                                                                                                                  \
        {                                                                                                              \
            0                                                                                                          \
        }                                                                                                              \
    } /* nobody gives any */
static const tn_input_row x4 = X4;

static const struct mistake {
    const char *name;
    tn_input_row own[3], given[3]; /* those with a name; none given: the model's own */
    const char *says[3];
} mistakes[] = {
    { "a dim that nobody knows",
      { F32("x", TN_B, "colour") },
      OWN,
      { "model toy, input x: dim \"colour\"", "an integer setting nor a size that its data supply",
        "add the setting, or correct the row" } },
    { "a dim that nobody knows, of the data", { X4 }, { F32("x", TN_B, "colour") }, { "input x: dim \"colour\"" } },
    { "digits and more", { F32("x", TN_B, "4x") }, OWN, { "dim \"4x\" is not a number: write digits" } },
    { "a size of 0", { F32("x", TN_B, "0") }, OWN, { "input x: 0 is 0, and a size is at least 1" } },
    { "a setting that is no count",
      { F32("x", TN_B, "rate") },
      OWN,
      { "input x: dim \"rate\"", "an integer setting", "correct the row" } },
    { "sizes beyond any machine",
      { F32("x", TN_B, "1000000", "1000000", "1000000") },
      OWN,
      { "input x is too large: use smaller sizes" } },
    { "a size of more digits than a number has",
      { F32("x", TN_B, "99999999999999999999999") },
      OWN,
      { "model toy, input x" } },
    { "a bound that nobody knows",
      { { "x", TN_I32, .dims = { TN_B }, .below = "colours" } },
      OWN,
      { "model toy, input x: dim \"colours\"" } },
    { "a bound of a length that nobody knows",
      { { "x", TN_I32, .dims = { TN_B }, .below = "colours+1" } },
      OWN,
      { "model toy, input x: dim \"colours\"" } },
    { "a size that is auto, without data",
      { F32("x", TN_B, "width") },
      OWN,
      { "input x: width is auto and there are no data to take it from", "task=NAME or data=FILE", "or set width" } },
    { "a size that is auto, and data that do not say it",
      { F32("x", TN_B, "width") },
      { X4 },
      { "input x: width is auto" } },
    { "a type of no input",
      { { "x", TN_BF16, .dims = { TN_B, "4" } } },
      OWN,
      { "input x: its type is bf16: use TN_F32 or TN_I32" } },
    { "types that differ",
      { X4 },
      { I32("x", TN_B, "4") },
      { "input x: the model takes f32 (B,4) and the data have i32 (B,4)",
        "change the model's settings or its row, or use other data" } },
    { "sizes that differ",
      { F32("x", TN_B, "cells") },
      { F32("x", TN_B, "5") },
      { "the model takes f32 (B,4) and the data have f32 (B,5)" } },
    { "ranks that differ",
      { X4 },
      { F32("x", TN_B, "4", "1") },
      { "the model takes f32 (B,4) and the data have f32 (B,4,1)" } },
    { "time on one side",
      { F32("x", TN_B, TN_T) },
      { F32("x", TN_B, "4") },
      { "the model takes f32 (B,T) and the data have f32 (B,4)" } },
    { "rows on one side",
      { F32("x", TN_B) },
      { F32("x", "1") },
      { "the model takes f32 (B) and the data have f32 (1)" } },
    { "two of one name", { X4, I32("x", TN_B) }, OWN, { "model toy has two inputs called x: rename one of the rows" } },
    { "two of one name, of the data",
      { X4 },
      { X4, I32("x", TN_B) },
      { "two inputs called x: rename one of the rows" } },
    { "one that nobody fills",
      { X4, F32("y", TN_B) },
      { X4, F32("z", TN_B) },
      { "model toy, input y: the data have none of that name (they have x, z)",
        "rename the row, make it .optional, or use other data" } },
    { "rows behind",
      { F32("x", "4", TN_B) },
      OWN,
      { "input x: TN_B must be the first dim and TN_T the second: reorder the row's dims" } },
    { "rows twice", { F32("x", TN_B, TN_B) }, OWN, { "TN_B must be the first dim" } },
    { "time first", { F32("x", TN_T, TN_B) }, OWN, { "TN_B must be the first dim" } },
    { "time third", { F32("x", TN_B, "4", TN_T) }, OWN, { "TN_B must be the first dim" } },
    { "time without rows", { F32("x", "4", TN_T) }, OWN, { "TN_B must be the first dim" } },
    { "cut, without time",
      { { "x", TN_F32, .dims = { TN_B, "4" }, .cut = true } },
      OWN,
      { "input x has .cut but no TN_T: add TN_T to its dims, or remove .cut" } },
    { "no dims", { F32("x", NULL) }, OWN, { "input x has no dims: write for example { TN_B, \"inputs\" }" } },
    { "an empty name", { F32("", TN_B) }, OWN, { "model toy has an input without a name: give its row one" } },
    { "no inputs", { { 0 } }, OWN, { "model toy declares no inputs: add TN_LANGUAGE_ROWS, or TN_INPUTS(rows)" } },
};

static size_t named(const tn_input_row *rows)
{
    size_t n = 0;
    while (n < 3 && rows[n].name) n++;
    return n;
}

static void assert_refused(const tn_model *model, const tn_settings *st, const tn_input_spec *input_spec,
                           const char *const says[3])
{
    tn_inputs in = { .n = 77 };
    assert_int_equal(tn_inputs_match(model, st, input_spec, &in), TN_USAGE);
    for (int i = 0; i < 3 && says[i]; i++)
        if (!strstr(tn_error_text(), says[i])) fail_msg("\"%s\" does not say \"%s\"", tn_error_text(), says[i]);
    assert_null(strchr(tn_error_text(), '\n'));
    assert_int_equal(in.n, 77); /* untouched */
}

static void refused(void **state)
{
    const struct mistake *m = *state;
    const tn_model model = { TN_MODEL_HEAD, .name = "toy", .inputs = m->own, .n_inputs = named(m->own) };
    const tn_input_spec given = { .rows = m->given, .n_rows = named(m->given) };
    tn_settings *st = settings_of(NULL);
    assert_refused(&model, st, given.n_rows ? &given : NULL, m->says);
    tn_settings_free(st);
}

/* Those that a table cannot hold. */
static void refused_others(void **state)
{
    (void)state;
    tn_input_row rows[MOST] = { { NULL, TN_F32, .dims = { TN_B } } };
    static const char *const names[MOST] = { "a", "b", "c", "d", "e", "f", "g", "h", "i",
                                             "j", "k", "l", "m", "n", "o", "p", "q" };
    tn_model model = { TN_MODEL_HEAD, .name = "toy", .inputs = rows, .n_inputs = 1 };
    const tn_input_spec nameless = { .rows = rows, .n_rows = 1 };
    tn_settings *st = settings_of(NULL);
    assert_refused(&model, st, NULL, (const char *const[3]){ "an input without a name" });
    model.inputs = &x4;
    assert_refused(&model, st, &nameless, (const char *const[3]){ "an input without a name" });
    for (int i = 0; i < MOST; i++) rows[i] = (tn_input_row){ names[i], TN_F32, .dims = { TN_B } };
    const tn_input_spec many = { .rows = rows, .n_rows = MOST };
    assert_refused(&model, st, &many, (const char *const[3]){ "its data have more than 48 inputs: combine some" });
    model.inputs = rows;
    model.n_inputs = MOST;
    assert_refused(&model, st, NULL, (const char *const[3]){ "more than 48 inputs: combine some" });
    model.inputs = &x4;
    model.n_inputs = 1;
    for (int i = 0; i < 2; i++) {
        model.time = i ? "rate" : "moments";
        assert_refused(&model, st, NULL,
                       (const char *const[3]){ "model toy: .time is \"", i ? "rate" : "moments",
                                               "add it, or remove .time" });
        assert_int_equal(tn_inputs_length(&model, st), 1);
    }
    model.time = NULL;
    static const tn_input_row wide = { "x", TN_F32, .dims = { TN_B, "width" } };
    static const double bad[] = { 0, -3, 1e300, INFINITY, 0.4 };
    model.inputs = &wide;
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) { /* numbers of data that are no sizes */
        const tn_input_spec s = {
            .rows = &wide, .n_rows = 1, .numbers = &(tn_source_number){ "width", bad[i] }, .n_numbers = 1
        };
        assert_refused(&model, st, &s, (const char *const[3]){ "input x: width is 0, and a size is at least 1" });
    }
    tn_settings_free(st);
}

/* --- slots ------------------------------------------------------------------------------------------------------------------ */

static const tn_input_row own_rows[] = {
    { "picture", TN_F32, .dims = { TN_B, "cells", "width", "3" } },
    { "words", TN_I32, .dims = { TN_B, TN_T }, .cut = true, .below = "kinds" },
    { "table", TN_F32, .dims = { "3", "cells" } },
    { "marks", TN_I32, .dims = { TN_B, TN_T }, .optional = true },
    { "place", TN_I32, .dims = { "1" }, .from = TN_TRAINER },
};

static const tn_input_row their_rows[] = {
    { "words", TN_I32, .dims = { TN_B, TN_T }, .cut = true },
    { "other", TN_F32, .dims = { TN_B, "nobody knows this" } }, /* which nobody reads */
    { "table", TN_F32, .dims = { "3", "columns" } },
    { "place", TN_I32, .dims = { TN_B } }, /* the trainer's, not theirs */
    { "picture", TN_F32, .dims = { TN_B, "columns", "width", "3" } },
};

static const tn_source_number numbers[] = { { "width", 5 }, { "columns", 4 }, { "kinds", 11 }, { "samples", 70 } };
static const tn_input_spec theirs = { .rows = their_rows, .n_rows = 5, .numbers = numbers, .n_numbers = 4 };
static const tn_model toy = { TN_MODEL_HEAD, .name = "toy", TN_INPUTS(own_rows), .time = "frames" };

static void slots(void **state)
{
    (void)state;
    tn_inputs in;
    tn_settings *st = settings_of(NULL);
    assert_ok(tn_inputs_match(&toy, st, &theirs, &in));
    assert_true(in.n == 5 && in.cut && in.n_numbers == 4);
    for (size_t i = 0; i < 5; i++)
        assert_string_equal(in.slot[i].row->name, their_rows[i].name); /* in the supplier's order */
    static const bool read[] = { true, false, true, false, true };
    for (size_t i = 0; i < 5; i++) assert_true(in.slot[i].read == read[i]);
    assert_ptr_equal(in.slot[0].row, &own_rows[1]); /* how it is padded and cut is the model's to say */
    const tn_input_slot *words = &in.slot[0], *table = &in.slot[2], *picture = &in.slot[4];
    assert_true(words->has_time && words->rank == 2 && words->each == 1 && words->below == 11);
    assert_true(!table->has_time && table->rank == 2 && table->each == 0 && table->all == 12 && table->dim[0] == 3 &&
                table->dim[1] == 4);
    assert_true(!picture->has_time && picture->rank == 4 && picture->each == 60 && picture->dim[0] == 0 &&
                picture->dim[2] == 5);
    assert_true(tn_input_items(words, 3, 7) == 21 && tn_input_items(table, 3, 7) == 12 &&
                tn_input_items(picture, 3, 7) == 180);
    assert_true(tn_input_spec_number(&theirs, "samples") == 70 && isnan(tn_input_spec_number(&theirs, "nothing")) &&
                isnan(tn_input_spec_number(NULL, "width")));
    const tn_feed_map m = tn_feed_map_of(&in, own_rows, 5);
    assert_true(m.slot[0] == 4 && m.slot[1] == 0 && m.slot[2] == 2 && m.slot[3] == -1 && m.slot[4] == -1 &&
                m.slot[5] == -1);
    tn_settings_free(st);
}

/* A setting beside the data's number: the model is as it is set, and the data are as they are. */
static void settings_and_numbers(void **state)
{
    (void)state;
    static const tn_input_row row = { "x", TN_F32, .dims = { TN_B, "width" } };
    const tn_model model = { TN_MODEL_HEAD, .name = "toy", .inputs = &row, .n_inputs = 1 };
    const tn_input_spec data = { .rows = &row, .n_rows = 1, .numbers = numbers, .n_numbers = 4 },
                        own = { .numbers = numbers, .n_numbers = 4 };
    tn_inputs in;
    tn_settings *st = settings_of("width=5");
    assert_ok(tn_inputs_match(&model, st, &data, &in));
    assert_int_equal(in.slot[0].each, 5);
    assert_ok(tn_settings_override(st, "width=6"));
    assert_fails(tn_inputs_match(&model, st, &data, &in), TN_USAGE,
                 "the model takes f32 (B,6) and the data have f32 (B,5)");
    assert_ok(tn_inputs_match(&model, st, &own, &in)); /* whoever fills the model's own rows fills what it takes */
    assert_int_equal(in.slot[0].each, 6);
    assert_ok(tn_settings_override(st, "width=auto"));
    assert_ok(tn_inputs_match(&model, st, &own, &in));
    assert_int_equal(in.slot[0].each, 5);
    tn_settings_free(st);
}

/* Without a supplier: the model's rows in their order, what it assumes, optional ones where they are asked for. */
static void own_inputs(void **state)
{
    (void)state;
    static const tn_source_number assumes[] = { { "kinds", 9 }, { "width", 7 } };
    tn_model model = toy;
    tn_inputs in;
    tn_settings *st = settings_of("width=2");
    assert_fails(tn_inputs_match(&model, st, NULL, &in), TN_USAGE, "model toy, input words: dim \"kinds\"");
    model.assumes = assumes;
    model.n_assumes = 2;
    assert_ok(tn_inputs_match(&model, st, NULL, &in));
    assert_true(in.n == 3 && in.slot[0].each == 24 && in.slot[1].below == 9 && in.n_numbers == 0);
    for (size_t i = 0; i < 3; i++) assert_true(in.slot[i].read && in.slot[i].row == &own_rows[i]);
    assert_ok(tn_inputs_match(&model, st, &(tn_input_spec){ .optional = true }, &in));
    assert_true(in.n == 4 && in.slot[3].row == &own_rows[3]);
    assert_ok(tn_settings_override(st, "width=auto")); /* the model would read 0 there: settings are assumed before */
    assert_fails(tn_inputs_match(&model, st, NULL, &in), TN_USAGE, "width is auto");
    assert_true(tn_model_reads(&model, "words") && !tn_model_reads(&model, "word") && tn_model_reads_sequences(&model));
    assert_true(tn_inputs_length(&model, st) == 6);
    model.time = NULL;
    assert_true(tn_inputs_length(&model, st) == tn_settings_int(st, "train.context"));
    model.inputs = &x4;
    model.n_inputs = 1;
    assert_true(tn_inputs_length(&model, st) == 1 && !tn_model_reads_sequences(&model));
    tn_settings_free(st);
}

/* Plans are shared by it: all that they depend on changes it, and nothing else. */
static void hashes(void **state)
{
    (void)state;
    tn_inputs in, other;
    char hash[5][TN_HASH_BYTES];
    static const char *const wants[] = { "logits", NULL };
    tn_source_number more[4];
    tn_settings *st = settings_of(NULL);
    assert_ok(tn_inputs_match(&toy, st, &theirs, &in));
    assert_ok(tn_inputs_hash(&in, NULL, hash[0]));
    tn_input_spec s = theirs;
    s.rows =
        (const tn_input_row[]){ their_rows[0], their_rows[2], their_rows[4] }; /* without those that nobody reads */
    s.n_rows = 3;
    assert_ok(tn_inputs_match(&toy, st, &s, &other));
    assert_ok(tn_inputs_hash(&other, NULL, hash[1]));
    assert_string_equal(hash[0], hash[1]);
    assert_ok(tn_inputs_hash(&in, wants, hash[1]));
    for (int i = 0; i < 2; i++) { /* another size, another number */
        memcpy(more, numbers, sizeof more);
        more[i ? 3 : 0].value++;
        s = theirs;
        s.numbers = more;
        assert_ok(tn_inputs_match(&toy, st, &s, &other));
        assert_ok(tn_inputs_hash(&other, NULL, hash[2 + i]));
    }
    for (int i = 0; i < 4; i++)
        for (int k = 0; k < i; k++) assert_string_not_equal(hash[i], hash[k]);
    tn_settings_free(st);
}

/* --- feeds ------------------------------------------------------------------------------------------------------------------ */

enum { B = 4, T = 6 };

static const tn_input_row feed_rows[] = {
    { "features", TN_F32, .dims = { TN_B, TN_T, "2" }, .pad = 0.5 },
    { "tokens", TN_I32, .dims = { TN_B, TN_T }, .cut = true, .below = "7" },
    { "labels", TN_I32, .dims = { TN_B, TN_T }, .cut = true, .below = "7", .pad = -1 },
    { "class", TN_I32, .dims = { TN_B, "2" }, .below = "2+1", .pad = -1 },
    { "sample", TN_I32, .dims = { TN_B } },
    { "table", TN_F32, .dims = { "3" }, .pad = 9 },
    { "rows", TN_I32, .dims = { "1" }, .valid_rows = true },
    { "unused", TN_F32, .dims = { TN_B } },
};
enum { FEATURES, TOKENS, LABELS, CLASS, SAMPLE, TABLE, VALID, UNUSED, ROWS };

/* Puts out what it was given; one input it has no use for. */
static tn_status build_feed(tn_graph *g, const tn_settings *st, const tn_batch *b)
{
    (void)st;
    for (int i = 0; i < UNUSED; i++) tn_output(g, feed_rows[i].name, tn_copy(g, tn_in(b, feed_rows[i].name)));
    tn_output(g, "loss", tn_mean_all(g, tn_square(g, tn_in(b, "features"))));
    if (tn_number(b, "samples") != 70 || !isnan(tn_number(b, "nothing")) || tn_in(b, "nothing").id)
        return tn_model_error("numbers or inputs are not those given");
    return tn_graph_status(g);
}

typedef struct rig {
    tn_settings *settings;
    tn_trainer *trainer;
    tn_feed f;
    float *real[ROWS];
    int32_t *whole[ROWS];
} rig;

static void open_rig(rig *r)
{
    static const tn_model model = { TN_MODEL_HEAD, .name = "toy", .build = build_feed, TN_INPUTS(feed_rows),
                                    .time = "frames" };
    *r = (rig){ .settings = settings_of("threads=1") };
    assert_ok(
        tn_trainer_new(&(tn_trainer_options){ .model = &model,
                                              .settings = r->settings,
                                              .batch = B,
                                              .length = T,
                                              .forward_only = true,
                                              .input_spec = &(tn_input_spec){ .numbers = numbers, .n_numbers = 4 } },
                       &r->trainer));
    r->f = tn_trainer_feed(r->trainer);
    assert_int_equal(r->f.inputs->n, ROWS);
    for (int i = 0; i < ROWS; i++) r->real[i] = tn_feed_at(&r->f, feed_rows[i].name);
    for (int i = 0; i < ROWS; i++) r->whole[i] = tn_feed_at(&r->f, feed_rows[i].name);
    assert_null(tn_feed_at(&r->f, "nothing"));
    assert_true(r->whole[TOKENS] && r->whole[TOKENS] != r->whole[LABELS] && r->real[UNUSED] == NULL);
    assert_ptr_equal(tn_trainer_input(r->trainer, "tokens"), r->whole[TOKENS]);
}

static void close_rig(rig *r)
{
    tn_trainer_free(r->trainer);
    tn_settings_free(r->settings);
}

/* 44 everywhere. */
static void scribble(const rig *r)
{
    for (int i = 0; i < UNUSED; i++)
        for (int64_t k = 0; k < tn_input_items(&r->f.inputs->slot[i], B, T); k++) {
            if (feed_rows[i].type == TN_F32) r->real[i][k] = 44;
            else r->whole[i][k] = 44;
        }
}

static double item(const rig *r, int i, int64_t k)
{
    return feed_rows[i].type == TN_F32 ? (double)r->real[i][k] : (double)r->whole[i][k];
}

static void pads_rows(void **state)
{
    (void)state;
    rig r;
    float loss;
    open_rig(&r);
    for (int64_t n = 0; n <= B; n++) {
        scribble(&r);
        tn_feed_end(&r.f, n);
        for (int i = 0; i < VALID; i++) {
            const int64_t all = tn_input_items(&r.f.inputs->slot[i], B, T);
            for (int64_t k = 0; k < all; k++)
                assert_true(item(&r, i, k) == (i == TABLE || k * B < n * all ? 44 : feed_rows[i].pad));
        }
        assert_int_equal(r.whole[VALID][0], n);
    }
    scribble(&r);
    tn_feed_end(&r.f, 1); /* and the plan sees it */
    assert_ok(tn_trainer_eval(r.trainer, &loss));
    assert_true(fabs((double)loss - (44. * 44 + 3 * 0.25) / 4) < 1e-3);
    close_rig(&r);
}

static void pads_tokens(void **state)
{
    (void)state;
    rig r;
    open_rig(&r);
    scribble(&r);
    tn_feed_pad_row(&r.f, 1, 4);
    tn_feed_pad_row(&r.f, 2, 0);
    tn_feed_pad_row(&r.f, 3, T);
    for (int i = 0; i < UNUSED; i++)
        for (int64_t k = 0; k < tn_input_items(&r.f.inputs->slot[i], B, T); k++) {
            const int64_t b = k / T, t = k % T, width = b == 1 ? 4 : b == 2 ? 0 : T;
            assert_true(item(&r, i, k) == (feed_rows[i].cut && t >= width ? feed_rows[i].pad : 44));
        }
    close_rig(&r);
}

static void makes_up(void **state)
{
    (void)state;
    rig r;
    float kept[B * T * 2];
    int32_t tokens[B * T];
    int seen[7] = { 0 }, alike = 0;
    double sum = 0, squares = 0;
    open_rig(&r);
    scribble(&r);
    tn_feed_random(&r.f, (tn_rng){ .seed = 3, .stream = 5 });
    for (int k = 0; k < B * T; k++) {
        for (int i = TOKENS; i <= LABELS; i++) assert_true(r.whole[i][k] >= 0 && r.whole[i][k] < 7);
        seen[r.whole[TOKENS][k]]++;
        alike += r.whole[TOKENS][k] == r.whole[LABELS][k];
    }
    for (int i = 0; i < 7; i++) assert_true(seen[i] < B * T / 2);
    assert_true(alike < B * T / 2);
    for (int k = 0; k < 2 * B; k++) assert_true(r.whole[CLASS][k] >= 0 && r.whole[CLASS][k] < 3);
    for (int b = 0; b < B; b++) assert_int_equal(r.whole[SAMPLE][b], b);
    assert_int_equal(r.whole[VALID][0], B);
    for (int k = 0; k < B * T * 2; k++)
        sum += (double)r.real[FEATURES][k], squares += pow((double)r.real[FEATURES][k], 2);
    assert_true(fabs(sum / (B * T * 2)) < 0.5 && fabs(squares / (B * T * 2) - 1) < 0.5);
    assert_true(r.real[TABLE][0] != 44 && r.real[TABLE][0] != r.real[FEATURES][0]);
    memcpy(kept, r.real[FEATURES], sizeof kept);
    memcpy(tokens, r.whole[TOKENS], sizeof tokens);
    tn_feed_random(&r.f, (tn_rng){ .seed = 3, .stream = 6 });
    assert_true(memcmp(kept, r.real[FEATURES], sizeof kept) != 0 &&
                memcmp(tokens, r.whole[TOKENS], sizeof tokens) != 0);
    tn_feed_random(&r.f, (tn_rng){ .seed = 3, .stream = 5 });
    assert_memory_equal(kept, r.real[FEATURES], sizeof kept);
    assert_memory_equal(tokens, r.whole[TOKENS], sizeof tokens);
    close_rig(&r);
}

void tn_tests_inputs(tn_test_list *l)
{
    for (size_t i = 0; i < sizeof mistakes / sizeof *mistakes; i++)
        tn_test_add(l, refused, &mistakes[i], "inputs: refused: %s", mistakes[i].name);
    tn_test_add(l, refused_others, NULL, "inputs: refused: no name, too many, numbers that are no sizes");
    tn_test_add(l, slots, NULL, "inputs: order, sizes and numbers");
    tn_test_add(l, settings_and_numbers, NULL, "inputs: a setting beside the data's number");
    tn_test_add(l, own_inputs, NULL, "inputs: the model's own");
    tn_test_add(l, hashes, NULL, "inputs: what plans depend on");
    tn_test_add(l, pads_rows, NULL, "inputs: padding behind the last row");
    tn_test_add(l, pads_tokens, NULL, "inputs: padding behind a short sequence");
    tn_test_add(l, makes_up, NULL, "inputs: made-up numbers");
}
