/* train.dropout=auto: the rate by epochs, of text, documents and samples; a run keeps the rate that it began with, and goes on bit for
 * bit. */
#include "train/run/dropout_auto.h"

#include "io/yaml_settings.h"
#include "tempdir.h"
#include "train/run/run_train.h"
#include "train/run/same_settings.h"
#include "train/run/train_settings.h"

#include <math.h>

static void by_epochs(void **state)
{
    static const struct {
        double epochs, rate;
    } rows[] = { { 0, 0 },      { 0.5, 0 }, { 1, 0 },   { 2, 0 },      { 2.2, 0 },       { 2.3, 0.05 },
                 { 4.7, 0.05 }, { 5, 0.1 }, { 6, 0.1 }, { 8, 0.15 },   { 9.9, 0.2 },     { 12, 0.2 },
                 { 1e6, 0.2 },  { -3, 0 },  { NAN, 0 }, { 1e18, 0.2 }, { INFINITY, 0.2 } };
    (void)state;
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++)
        if (fabs(tn_dropout_auto_rate(rows[i].epochs) - rows[i].rate) > 1e-12)
            fail_msg("%g epochs: %g", rows[i].epochs, tn_dropout_auto_rate(rows[i].epochs));
    for (double e = 0; e < 30; e += 0.01) assert_true(tn_dropout_auto_rate(e) <= tn_dropout_auto_rate(e + 0.01));
}

/* --- what a session chooses ------------------------------------------------------------------------------------------ */

typedef struct place {
    tn_tempdir d;
    char text[TN_PATH_BYTES], documents[TN_PATH_BYTES];
} place;

/* 5000 bytes, of which 4500 are trained on; 40 documents. */
static void open_place(place *p)
{
    char text[5000], *lines;
    size_t bytes;
    tn_tempdir_make_quick(&p->d);
    for (size_t i = 0; i < sizeof text; i++) text[i] = (char)('a' + i * i % 23);
    assert_ok(tn_file_write_atomic(tn_tempdir_file(&p->d, "text"), text, sizeof text));
    FILE *f = open_memstream(&lines, &bytes);
    assert_non_null(f);
    for (int i = 0; i < 40; i++) fprintf(f, "{\"text\":\"%d and %.*s\"}\n", i, i % 17, "letters and more");
    fclose(f);
    assert_ok(tn_file_write_atomic(tn_tempdir_file(&p->d, "text.jsonl"), lines, bytes));
    free(lines);
    snprintf(p->text, sizeof p->text, "data=%s", tn_tempdir_file(&p->d, "text"));
    snprintf(p->documents, sizeof p->documents, "data=%s", tn_tempdir_file(&p->d, "text.jsonl"));
}

static const char *const small[] = { "dim=16",
                                     "layers=1",
                                     "heads=2",
                                     "train.context=10",
                                     "threads=1",
                                     "device=cpu",
                                     "train.dropout=auto",
                                     "train.holdout_frac=0.1",
                                     "train.eval_batches=1",
                                     "train.warmup=2" };
enum { SMALL = sizeof small / sizeof *small, MORE = 8 };

static tn_status open_session(const char *target, const char *const *more, size_t n, tn_session_options o,
                              tn_session *s)
{
    const char *set[SMALL + MORE];
    size_t count = 0;
    const bool text = strcmp(target, "gpt") == 0;
    for (size_t i = text ? 0 : 4; i < (text ? SMALL : 7u); i++) set[count++] = small[i];
    for (size_t i = 0; i < n; i++) set[count++] = more[i];
    *s = (tn_session){ 0 };
    o.target = target;
    o.overrides = set;
    o.n = count;
    return tn_session_open_with(&o, s);
}

#define OPEN(target, s, ...)                                                                                           \
    open_session(target, (const char *const[]){ __VA_ARGS__ },                                                         \
                 sizeof((const char *const[]){ __VA_ARGS__ }) / sizeof(char *),                                        \
                 (tn_session_options){ .needs_data = true }, s)

/* The rate that the settings have, and what is said of it. */
static void chosen(tn_session *s, double rate, const char *said)
{
    char text[TN_DROPOUT_AUTO_TEXT];
    assert_true(tn_settings_float(s->settings, "train.dropout") == rate);
    assert_string_equal(tn_settings_source(s->settings, "train.dropout"), "auto");
    assert_string_equal(tn_dropout_auto_text(&s->dropout, s->settings, text), said);
    tn_session_close(s);
}

static void of_text(void **state)
{
    place p;
    tn_session s;
    (void)state;
    open_place(&p);
    assert_ok(OPEN("gpt", &s, p.text, "train.batch=9", "train.steps=50")); /* 50 x 9 x 10 tokens */
    chosen(&s, 0, "dropout 0 (auto): 1.0 epochs planned of 4.5 k tokens");
    assert_ok(OPEN("gpt", &s, p.text, "train.batch=9", "train.steps=300"));
    chosen(&s, 0.1, "dropout 0.1 (auto): 6.0 epochs planned of 4.5 k tokens");
    assert_ok(OPEN("gpt", &s, p.text, "train.batch=9", "train.steps=50", "train.accumulate=6"));
    chosen(&s, 0.1, "dropout 0.1 (auto): 6.0 epochs planned of 4.5 k tokens");
    assert_ok(OPEN("gpt", &s, p.text, "train.batch=18", "plan.microbatches=2", "train.steps=150"));
    chosen(&s, 0.1, "dropout 0.1 (auto): 6.0 epochs planned of 4.5 k tokens");
    assert_ok(OPEN("gpt", &s, p.text, "train.steps=22")); /* an automatic batch: 409 rows */
    assert_int_equal(s.batch, 409);
    chosen(&s, 0.2, "dropout 0.2 (auto): 20.0 epochs planned of 4.5 k tokens");
    assert_ok(
        OPEN("gpt", &s, p.documents, "train.batch=37", "train.steps=6", "loader.mode=bucket")); /* rows are documents */
    chosen(&s, 0.1, "dropout 0.1 (auto): 6.0 epochs planned of 37 documents");
    assert_ok(OPEN("gpt", &s, p.text, "train.batch=9", "train.steps=300", "train.dropout=0.3"));
    assert_true(tn_settings_float(s.settings, "train.dropout") == 0.3 && !s.dropout.chosen);
    tn_session_close(&s);
    tn_tempdir_remove_all(&p.d);
}

static void of_tasks(void **state)
{
    tn_session s;
    (void)state;
    assert_ok(OPEN("net", &s, "task=majority", "task.bits=8", "dim=8", "train.batch=16", "train.epochs=6"));
    const double samples = s.source.train_samples, steps = (double)tn_settings_int(s.settings, "train.steps");
    assert_true(samples > 16 && fabs(s.dropout.epochs - steps * 16 / samples) < 1e-9 && s.dropout.epochs >= 6);
    assert_true(s.dropout.rate == 0.1 && strcmp(s.dropout.unit, "samples") == 0);
    assert_true(tn_settings_float(s.settings, "train.dropout") == 0.1);
    tn_session_close(&s);
    assert_ok(OPEN("net", &s, "task=majority", "task.bits=8", "dim=8", "train.batch=16", "train.epochs=1"));
    assert_true(s.dropout.chosen && tn_settings_float(s.settings, "train.dropout") == 0);
    tn_session_close(&s);
    assert_ok(OPEN("recall", &s, "task=mqar", "dim=16", "layers=1", "heads=2")); /* made up, never twice */
    chosen(&s, 0, "dropout 0 (auto): the data have no epochs");
}

/* Where nothing is trained by these steps there is no rate. */
static void of_nothing(void **state)
{
    place p;
    tn_session s;
    char text[TN_DROPOUT_AUTO_TEXT];
    (void)state;
    open_place(&p);
    const char *const more[] = { "train.batch=9", "train.steps=300", "vocab=256", p.text };
    for (int evaluates = 0; evaluates < 2; evaluates++) {
        assert_ok(open_session("gpt", more, evaluates ? 4 : 3, (tn_session_options){ .evaluates = evaluates }, &s));
        assert_true(tn_settings_is_auto(s.settings, "train.dropout"));
        assert_true(tn_settings_float(s.settings, "train.dropout") == 0);
        assert_string_equal(tn_dropout_auto_text(&s.dropout, s.settings, text), "");
        tn_session_close(&s);
    }
    tn_tempdir_remove_all(&p.d);
}

/* --- runs ------------------------------------------------------------------------------------------------------------ */

static bool stop_now(void *ctx) { return (*(int *)ctx)-- <= 0; }

/* A session of a run, as the command has it; `steps` of it, or all. */
static tn_status train(place *p, const char *name, const char *const *more, size_t n, int steps,
                       char text[TN_DROPOUT_AUTO_TEXT])
{
    tn_status s = TN_OK;
    tn_session on = { 0 };
    tn_run_dir run = { .lock = -1 };
    tn_ckpt_state state = { 0 };
    const tn_ckpt_state *from;
    tn_progress_report last;
    char dir[TN_PATH_BYTES];
    const char *set[MORE] = { p->text, "train.batch=9", dir };
    snprintf(dir, sizeof dir, "run=%s", tn_tempdir_file(&p->d, name));
    for (size_t i = 0; i < n; i++) set[3 + i] = more[i];
    TN_TRY(open_session("gpt", set, 3 + n, (tn_session_options){ .needs_data = true, .runs = true }, &on));
    TN_TRY(tn_run_open(on.settings, "gpt", false, &run));
    TN_TRY(tn_run_load(&run, &on, &state, &from));
    tn_dropout_auto_text(&on.dropout, on.settings, text);
    const tn_training calls = { .ctx = &steps, .interrupted = stop_now };
    TN_TRY(tn_run_train(&run, &on, from, &calls, NULL, &last));
done:
    tn_ckpt_state_free(&state);
    tn_run_close(&run);
    tn_session_close(&on);
    return s;
}

static bool same_files(place *p, const char *a, const char *b)
{
    char command[900];
    snprintf(
        command, sizeof command,
        "cd '%s' && cmp %s/latest/model.safetensors %s/latest/model.safetensors && cmp %s/latest/state.safetensors "
        "%s/latest/state.safetensors",
        p->d.path, a, b, a, b);
    return system(command) == 0;
}

static void resumed(void **state)
{
    static const char six[] = "dropout 0.1 (auto): 6.0 epochs planned of 4.5 k tokens";
    const char *const plan[] = { "train.steps=300", "train.schedule=constant", "ckpt.every=50" };
    const char *const longer[] = { "train.steps=600", "train.schedule=constant", "ckpt.every=50" };
    const char *const said[] = { "train.steps=600", "train.schedule=constant", "ckpt.every=50", "train.dropout=0.1" };
    const char *const other[] = { "train.steps=300", "train.schedule=constant", "ckpt.every=50", "train.dropout=0.2" };
    const char *const none[] = { "train.steps=300", "train.schedule=constant", "ckpt.every=50", "train.dropout=0" };
    place p;
    char text[TN_DROPOUT_AUTO_TEXT];
    (void)state;
    open_place(&p);
    assert_ok(train(&p, "a", plan, 3, 1000, text));
    assert_string_equal(text, six);
    for (int i = 0; i < 3; i++) assert_int_equal(train(&p, "b", plan, 3, 40 + 30 * i, text), TN_INTERRUPTED);
    assert_string_equal(text, six);
    assert_ok(train(&p, "b", plan, 3, 1000, text));
    assert_true(same_files(&p, "a", "b"));
    assert_fails(train(&p, "b", other, 4, 1000, text), TN_USAGE, "train.dropout: the run has train.dropout=0.1");
    assert_ok(train(&p, "none", none, 4, 1000, text)); /* it does something */
    assert_false(same_files(&p, "a", "none"));
    /* Twice as long is 12 epochs, and a rate of 0.2 in a new run; this one keeps what it began with. */
    assert_ok(train(&p, "b", longer, 3, 1000, text));
    assert_string_equal(text, "dropout 0.1 (auto): the run began with it");
    assert_ok(train(&p, "said", said, 4, 1000, text));
    assert_string_equal(text, "");
    assert_true(same_files(&p, "said", "b"));
    tn_tempdir_remove_all(&p.d);
}

/* Whether settings with this dropout find a run that has that one: of two that were chosen, by other batches, neither was asked for. */
static void found_again(void **state)
{
    static const struct {
        const char *there, *from, *here, *by;
        bool same;
    } rows[] = { { "0.1", "auto", "0.1", "auto", true },
                 { "0.1", "auto", "0.2", "auto", true },
                 { "0.1", "auto", "0.2", "command line", false },
                 { "0.1", "command line", "0.2", "auto", false },
                 { "0.1", "command line", "0.1", "auto", true } };
    const tn_model *m;
    tn_tempdir d;
    (void)state;
    tn_tempdir_make_quick(&d);
    const char *config = tn_tempdir_file(&d, "config.yaml");
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        tn_settings *st;
        FILE *f = fopen(config, "w");
        assert_non_null(f);
        assert_ok(tn_settings_resolve("gpt_tiny", NULL, 0, &st, &m));
        assert_ok(tn_settings_set(st, "train.dropout", rows[i].there, "%s", rows[i].from));
        assert_ok(tn_settings_write_yaml(st, f));
        fclose(f);
        assert_ok(tn_settings_set(st, "train.dropout", rows[i].here, "%s", rows[i].by));
        if (tn_settings_same_run(st, config) != rows[i].same)
            fail_msg("%s (%s) for %s (%s)", rows[i].there, rows[i].from, rows[i].here, rows[i].by);
        tn_settings_free(st);
    }
    tn_tempdir_remove_all(&d);
}

void tn_tests_dropout_auto(tn_test_list *l)
{
    tn_test_add(l, by_epochs, NULL, "dropout: by epochs");
    tn_test_add(l, of_text, NULL, "dropout: auto for text and documents");
    tn_test_add(l, of_tasks, NULL, "dropout: auto for tasks");
    tn_test_add(l, of_nothing, NULL, "dropout: auto where nothing is trained");
    tn_test_add(l, found_again, NULL, "dropout: a run is found again with another rate");
    tn_test_add(l, resumed, NULL, "dropout: a run keeps its rate");
}
