/* The rows of an ablation: every switch is one, and every other row's setting exists. */
#include "report/ablate/table.h"
#include "base/fs.h"
#include "testlib.h"
#include "train/run/train_settings.h"

#include <math.h>
#include <string.h>

static const char *const tiny[] = {
    "threads=1", "dim=16", "train.batch=8", "device=cpu", "vocab=64", "train.context=32"
};

static tn_session open_tiny(const char *target, const char *more)
{
    tn_session s = { 0 };
    const char *words[8];
    size_t n = 0;
    const size_t most = strcmp(target, "tep") == 0 ? 4 : sizeof tiny / sizeof *tiny; /* which reads no tokens */
    for (; n < most; n++) words[n] = tiny[n];
    if (more) words[n++] = more;
    assert_ok(tn_session_open(target, words, n, false, &s));
    return s;
}

static const tn_ablate_row *find(const tn_ablate_row *rows, size_t n, const char *name)
{
    for (size_t i = 0; i < n; i++)
        if (strcmp(rows[i].name, name) == 0) return &rows[i];
    return NULL;
}

static bool is_gpu_only(const tn_setting *r) { return strncmp(r->help, "CUDA:", 5) == 0; }

/* By the settings table alone: whatever becomes a switch is a row. */
static void every_switch(void **state)
{
    tn_ablate_row rows[TN_ABLATE_ROWS];
    tn_arena arena = { 0 };
    size_t n, switches = 0;
    (void)state;
    tn_session s = open_tiny("ten", NULL);
    assert_ok(tn_ablate_list(&(tn_ablate_facts){ .session = &s }, &arena, rows, &n));
    for (size_t i = 0; i < tn_settings_count(s.settings); i++) {
        const tn_setting *r = tn_settings_row_at(s.settings, i);
        if (r->type != TN_TYPE_SWITCH || strncmp(r->key, "opt.", 4) != 0) continue;
        const tn_ablate_row *row = find(rows, n, r->key);
        switches++;
        if ((row != NULL) == is_gpu_only(r)) fail_msg("%s: %s", r->key, row ? "a row of a CPU" : "no row");
        if (row) assert_true(row->is_switch && row->tolerance > 0 && row->tolerance < 0.1);
    }
    assert_true(switches >= 30 && switches + 20 < TN_ABLATE_ROWS);
    tn_session_close(&s);
    tn_arena_free(&arena);
}

/* Every key of rows.def is a setting of some model; the words set it, and it accepts them. */
static void every_key(void **state)
{
    (void)state;
    for (size_t i = 0; tn_ablate_key_at(i); i++) {
        bool found = !tn_ablate_key_at(i)[0];
        for (size_t m = 0; tn_model_at(m) && !found; m++) {
            tn_settings *st = NULL;
            const tn_model *model;
            assert_ok(tn_settings_resolve(tn_model_at(m)->name, NULL, 0, &st, &model));
            found = tn_settings_find(st, tn_ablate_key_at(i)) < tn_settings_count(st);
            tn_settings_free(st);
        }
        if (!found) fail_msg("no model has the setting %s", tn_ablate_key_at(i));
    }
}

/* One step per token is that of every recurrence. */
static void no_recurrence_is_left_out(void **state)
{
    static const char *const off[] = { "opt.scan=off", "opt.scan_gated=off", "opt.outer=off", "opt.delta_chunked=off" };
    tn_ablate_row rows[TN_ABLATE_ROWS];
    tn_arena arena = { 0 };
    size_t n;
    (void)state;
    tn_session s = open_tiny("ten", NULL);
    assert_ok(tn_ablate_list(&(tn_ablate_facts){ .session = &s, .only = "recurrence" }, &arena, rows, &n));
    assert_true(n == 1 && rows[0].n_plain == sizeof off / sizeof *off);
    for (size_t i = 0; i < sizeof off / sizeof *off; i++) assert_string_equal(rows[0].plain[i], off[i]);
    tn_session_close(&s);
    tn_arena_free(&arena);
}

static void words_are_settings(void **state)
{
    static const char *const models[] = { "ten", "tep", "gpt" };
    (void)state;
    for (size_t m = 0; m < 3; m++) {
        tn_ablate_row rows[TN_ABLATE_ROWS];
        tn_arena arena = { 0 };
        size_t n;
        tn_session s = open_tiny(models[m], m == 1 ? NULL : "train.accumulate=3");
        assert_ok(tn_ablate_list(&(tn_ablate_facts){ .session = &s, .prepared = "/nowhere" }, &arena, rows, &n));
        for (size_t i = 0; i < n; i++)
            for (size_t k = 0; k < rows[i].n_plain + rows[i].n_fast; k++) {
                const bool plain = k < rows[i].n_plain;
                const char *word = plain ? rows[i].plain[k] : rows[i].fast[k - rows[i].n_plain];
                assert_null(strpbrk(word, "{} "));
                assert_ok(tn_settings_override(s.settings, word));
            }
        tn_session_close(&s);
        tn_arena_free(&arena);
    }
}

static void numbers_in_words(void **state)
{
    tn_ablate_row rows[TN_ABLATE_ROWS];
    tn_arena arena = { 0 };
    size_t n;
    (void)state;
    tn_session s = open_tiny("ten", "train.accumulate=3");
    assert_ok(
        tn_ablate_list(&(tn_ablate_facts){ .session = &s, .only = "batch,plan.chunk,opt.scan" }, &arena, rows, &n));
    assert_int_equal(n, 3);
    const tn_ablate_row *r = find(rows, n, "batch");
    assert_non_null(r);
    assert_string_equal(r->plain[0], "train.batch=2");
    assert_string_equal(r->plain[1], "train.accumulate=12");
    assert_string_equal(r->fast[1], "train.accumulate=3");
    assert_true(isnan(r->tolerance) && !r->as_it_is);
    r = find(rows, n, "plan.chunk");
    assert_string_equal(r->plain[1], "plan.chunk=4");
    assert_string_equal(r->fast[1], "plan.chunk=16");
    assert_true(find(rows, n, "opt.scan")->as_it_is);
    tn_session_close(&s);
    tn_arena_free(&arena);
}

/* What is named must be there; f16 has to be asked for; a switch that is off stays off. */
static void names(void **state)
{
    tn_ablate_row rows[TN_ABLATE_ROWS];
    tn_arena arena = { 0 };
    size_t n;
    (void)state;
    tn_session s = open_tiny("ten", "opt.norm=off");
    tn_ablate_facts f = { .session = &s, .only = "opt.scan,opt.none" };
    assert_fails(tn_ablate_list(&f, &arena, rows, &n), TN_USAGE, "no row opt.none");
    f.only = "opt.scna";
    assert_fails(tn_ablate_list(&f, &arena, rows, &n), TN_USAGE, "no row opt.scna: did you mean opt.scan?");
    f.only = "opt.norm"; /* known, and off here */
    assert_fails(tn_ablate_list(&f, &arena, rows, &n), TN_USAGE, "no row opt.norm: leave --rows out to see all");
    f.only = "half,all";
    assert_ok(tn_ablate_list(&f, &arena, rows, &n));
    assert_true(n == 1 && strcmp(rows[0].fast[0], "compute=f16") == 0);
    f.only = NULL;
    assert_ok(tn_ablate_list(&f, &arena, rows, &n));
    assert_null(find(rows, n, "half"));
    assert_null(find(rows, n, "opt.norm"));
    assert_null(find(rows, n, "loader.workers")); /* there are no data */
    assert_null(find(rows, n, "data.prepared"));
    assert_null(find(rows, n, "rtol"));
    assert_non_null(find(rows, n, "precision"));
    assert_non_null(find(rows, n, "decode.cache"));
    assert_true(tn_ablate_in("a,bc", "bc") && !tn_ablate_in("a,bc", "b") && !tn_ablate_in("", "") &&
                tn_ablate_in(NULL, "x"));
    assert_true(tn_ablate_in("opt", "opt.scan") && !tn_ablate_in("op", "opt.scan") &&
                !tn_ablate_in("opt.scan", "opt.scan_gated"));
    tn_session_close(&s);
    tn_arena_free(&arena);
}

/* With compute=f16 it is a row, but not beside others that are named. */
static void half(void **state)
{
    tn_ablate_row rows[TN_ABLATE_ROWS];
    tn_arena arena = { 0 };
    size_t n;
    (void)state;
    tn_session s = open_tiny("ten", "compute=f16");
    assert_ok(tn_ablate_list(&(tn_ablate_facts){ .session = &s }, &arena, rows, &n));
    assert_non_null(find(rows, n, "half"));
    assert_ok(tn_ablate_list(&(tn_ablate_facts){ .session = &s, .only = "opt.scan" }, &arena, rows, &n));
    assert_true(n == 1 && strcmp(rows[0].name, "opt.scan") == 0);
    tn_session_close(&s);
    tn_arena_free(&arena);
}

/* However long its folder's name is. */
static void long_path(void **state)
{
    tn_ablate_row rows[TN_ABLATE_ROWS];
    tn_arena arena = { 0 };
    size_t n;
    char path[TN_PATH_BYTES];
    (void)state;
    memset(path, 'x', sizeof path - 1);
    path[0] = '/', path[sizeof path - 1] = 0;
    tn_session s = open_tiny("ten", NULL);
    assert_ok(tn_ablate_list(&(tn_ablate_facts){ .session = &s, .prepared = path, .only = "data.prepared" }, &arena,
                             rows, &n));
    assert_true(n == 1 && rows[0].n_fast == 2 && strncmp(rows[0].fast[1], "data=", 5) == 0);
    assert_string_equal(rows[0].fast[1] + 5, path);
    tn_session_close(&s);
    tn_arena_free(&arena);
}

/* The exact form of GELU is the plain side where a model has the other; levels have a row each; rows whose ops are timed alone. */
static void rows_of_one_model(void **state)
{
    static const char *const levels[] = { "log.training", "log.performance", "log.profiling" };
    tn_ablate_row rows[TN_ABLATE_ROWS];
    tn_arena arena = { 0 };
    size_t n;
    (void)state;
    for (int tanh = 0; tanh < 2; tanh++) {
        tn_session s = open_tiny("ten", tanh ? "act=gelu_tanh" : NULL);
        assert_ok(tn_ablate_list(&(tn_ablate_facts){ .session = &s }, &arena, rows, &n));
        const tn_ablate_row *r = find(rows, n, "gelu");
        assert_true((r != NULL) == (tanh == 1));
        if (r) assert_true(r->as_it_is && strcmp(r->plain[0], "act=gelu_erf") == 0);
        assert_string_equal(find(rows, n, "recurrence")->component, "recurrence");
        assert_string_equal(find(rows, n, "opt.scan_gated")->component, "recurrence");
        assert_string_equal(find(rows, n, "opt.delta_chunked")->component, "recurrence");
        assert_null(find(rows, n, "opt.norm")->component);
        assert_null(find(rows, n, levels[0])); /* there are no data */
        tn_session_close(&s);
        tn_arena_free(&arena);
    }
    tn_session s = { 0 };
    assert_ok(tn_session_open("net", (const char *const[]){ "task=parity", "dim=8", "threads=1" }, 3, false, &s));
    assert_ok(tn_ablate_list(&(tn_ablate_facts){ .session = &s, .only = "log" }, &arena, rows, &n));
    assert_int_equal(n, 3);
    for (size_t i = 0; i < 3; i++) {
        assert_string_equal(rows[i].name, levels[i]);
        assert_string_equal(rows[i].fast[0], "log.level=info");
    }
    tn_session_close(&s);
    tn_arena_free(&arena);
}

void tn_tests_ablate_table(tn_test_list *l)
{
    tn_test_add(l, every_switch, NULL, "ablate: every switch is a row");
    tn_test_add(l, every_key, NULL, "ablate: every row has a setting");
    tn_test_add(l, no_recurrence_is_left_out, NULL, "ablate: one step per token in every recurrence");
    tn_test_add(l, words_are_settings, NULL, "ablate: words are settings");
    tn_test_add(l, numbers_in_words, NULL, "ablate: numbers in words");
    tn_test_add(l, rows_of_one_model, NULL, "ablate: rows that a model has");
    tn_test_add(l, names, NULL, "ablate: rows by name");
    tn_test_add(l, half, NULL, "ablate: f16 by name");
    tn_test_add(l, long_path, NULL, "ablate: a long path in a word");
}
