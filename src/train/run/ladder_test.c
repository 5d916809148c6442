/* The memory ladder: which rung comes next, that a step in parts is the same step, and that a run without the memory it needs goes on with
 * the same effective batch or ends with its last save whole. */
#include "run_pieces.h"
#include "tempdir.h"
#include "train/run/same_settings.h"
#include "train/run/train_settings.h"
#include "wire_run.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>

enum { BATCH = 8, STEPS = 6 };

/* --- rungs --------------------------------------------------------------------------------------------------------------- */

static void order_of_rungs(void **state)
{
    static const char *const lines[] = {
        "micro-batch 12 -> 6, accumulate 2 -> 4",
        "micro-batch 12 -> 3, accumulate 2 -> 8",
        "micro-batch 12 -> 1, accumulate 2 -> 24",
        "plan.recompute none -> layer",
        "loss.kd 0.5 -> 0",
        "loss.state 0.25 -> 0",
    };
    const tn_model *wire = tn_model_named("wire");
    tn_settings *st = wire_run_settings(wire, "train.accumulate=2 loss.kd=0.5 loss.state=0.25 loss.nce=0"), *again;
    const tn_ladder_step how = { .model = wire, .batch = 12, .gives_up = true };
    tn_ladder l = { .n = 0 };
    (void)state;
    for (size_t i = 0; i < sizeof lines / sizeof *lines; i++) {
        assert_ok(tn_ladder_lower(&l, &how, st));
        assert_string_equal(l.line[l.n - 1], lines[i]);
    }
    assert_true(l.n == 4 && tn_settings_int(st, "plan.microbatches") == 12);
    assert_true(tn_settings_float(st, "loss.kd") == 0 && tn_settings_float(st, "loss.state") == 0);
    assert_string_equal(tn_settings_text(st, "train.dropped"), "loss.kd=0.5 loss.state=0.25");
    (void)tn_error(TN_MEMORY, "none");
    assert_fails(tn_ladder_lower(&l, &how, st), TN_MEMORY, "none (tried: micro-batch 12 -> 1");
    again = wire_run_settings(wire, "train.accumulate=2 loss.kd=0.5 loss.state=0.25 loss.nce=0");
    bool lowered = false;
    assert_ok(tn_ladder_keep(again, st, &lowered)); /* the same command once more */
    assert_true(lowered && tn_settings_int(again, "plan.microbatches") == 12 &&
                tn_settings_float(again, "loss.kd") == 0);
    assert_string_equal(tn_settings_text(again, "plan.recompute"), "layer");
    assert_ok(tn_ladder_undo(again));
    assert_true(tn_settings_float(again, "loss.kd") == 0.5 && !tn_settings_text(again, "train.dropped")[0]);
    tn_settings_free(again);
    tn_settings_free(st);
}

/* What is trained alone was computed again, and the rest is before anything is given up. */
static void frozen_layers_too(void **state)
{
    const tn_model *wire = tn_model_named("wire");
    tn_settings *st = wire_run_settings(wire, "plan.recompute=trained loss.kd=1 loss.nce=0"),
                *again = wire_run_settings(wire, "loss.kd=1 loss.nce=0");
    const tn_ladder_step how = { .model = wire, .batch = 1, .gives_up = true };
    tn_ladder l = { .n = 0 };
    bool lowered = false;
    (void)state;
    assert_ok(tn_ladder_lower(&l, &how, st));
    assert_string_equal(l.line[0], "plan.recompute trained -> layer");
    assert_ok(tn_settings_set(again, "plan.recompute", "trained", "a preset"));
    assert_ok(tn_ladder_keep(again, st, &lowered));
    assert_true(lowered && strcmp(tn_settings_text(again, "plan.recompute"), "layer") == 0);
    tn_settings_free(again);
    tn_settings_free(st);
}

/* Episodes, and losses that compare rows, are not cut; who measures gives nothing up. */
static void rungs_left_out(void **state)
{
    const tn_model *wire = tn_model_named("wire");
    tn_settings *st = wire_run_settings(wire, "loss.nce=0.1 loss.kd=1");
    const tn_ladder_step how = { .model = wire, .batch = 12, .whole_batch = *state != NULL };
    tn_ladder l = { .n = 0 };
    if (how.whole_batch) assert_ok(tn_settings_override(st, "loss.nce=0"));
    assert_ok(tn_ladder_lower(&l, &how, st));
    assert_true(tn_settings_int(st, "plan.microbatches") == 1 &&
                strcmp(l.line[0], "plan.recompute none -> layer") == 0);
    (void)tn_error(TN_MEMORY, "none");
    assert_fails(tn_ladder_lower(&l, &how, st), TN_MEMORY, "none (tried: plan.recompute none -> layer)");
    assert_true(tn_settings_float(st, "loss.kd") == 1);
    tn_settings_free(st);
}

/* --- a step in parts ----------------------------------------------------------------------------------------------------- */

typedef struct step {
    double loss;
    int64_t n;
    float *grad; /* (n): of all parameters */
} step;

/* Of one step, from the source's first batches. */
static step step_of(tn_session *s)
{
    step x = { 0 };
    double weights = 0;
    tn_store *store = tn_trainer_store(s->trainer);
    for (int64_t i = 0; i < tn_trainer_batches(s->trainer); i++) {
        int64_t count;
        float loss;
        assert_ok(tn_source_next(&s->source, 0, s->trainer, &count));
        const float weight = tn_source_weight(&s->source, count);
        tn_trainer_weigh(s->trainer, weight);
        assert_ok(tn_trainer_grad(s->trainer, i, &loss));
        x.loss += (double)weight * (double)loss;
        weights += (double)weight;
    }
    x.loss /= weights;
    for (int k = 0; k < tn_store_buckets(store); k++) x.n += tn_store_bucket(store, k)->count;
    x.grad = malloc(sizeof *x.grad * (size_t)x.n);
    assert_non_null(x.grad);
    int64_t at = 0;
    for (int k = 0; k < tn_store_buckets(store); k++)
        for (int64_t i = 0; i < tn_store_bucket(store, k)->count; i++)
            x.grad[at++] = (float)((double)tn_store_bucket(store, k)->grad[i] / weights);
    return x;
}

static double distance(const step *a, const step *b)
{
    double d = 0, all = 0;
    assert_int_equal(a->n, b->n);
    for (int64_t i = 0; i < a->n; i++) {
        d += ((double)a->grad[i] - (double)b->grad[i]) * ((double)a->grad[i] - (double)b->grad[i]);
        all += (double)a->grad[i] * (double)a->grad[i];
    }
    assert_true(all > 0);
    return sqrt(d / all);
}

typedef struct world {
    wire_run w; /* readers, and a folder */
    char text[TN_PATH_BYTES];
    uint64_t fail_at; /* the allocation that fails, counted from where a session is opened; 0: none */
} world;

static void begin(world *x)
{
    x->fail_at = 0;
    wire_run_open(&x->w, "slots=3");
    assert_ok(tn_path_join(x->w.d.path, "text.txt", x->text, sizeof x->text));
    FILE *f = fopen(x->text, "w");
    assert_non_null(f);
    for (int i = 0; i < 900; i++) fprintf(f, "%d%s", i * 7919 % 1000, i % 5 ? " " : "\n");
    fclose(f);
}

static tn_settings *settings_of(const world *x, const char *model, const char *run, const char *words)
{
    char text[2600];
    const int n = snprintf(
        text, sizeof text,
        "train.batch=%d train.steps=%d train.warmup=2 train.eval_every=3 train.lr=1e-2 log.every=1 ckpt.every=2 "
        "run=%s/%s ",
        BATCH, STEPS, x->w.d.path, run);
    if (strcmp(model, "tep") == 0) /* 20 samples: the last batch of an epoch has 4 of 8 rows */
        snprintf(text + n, sizeof text - (size_t)n, "task=strokes task.size=20 %s", words);
    else if (strcmp(model, "gpt") == 0)
        snprintf(text + n, sizeof text - (size_t)n,
                 "data=%s dim=16 layers=2 heads=2 train.context=24 train.eval_batches=1 %s", x->text, words);
    else
        snprintf(text + n, sizeof text - (size_t)n,
                 "a.model=%s b.model=%s task=recall task.keys=50 task.pairs=3 task.questions=0 task.heldout=5 "
                 "task.size=20 slots=3 width=8 dim=16 heads=2 ffn=24 layers=1 hidden=12 loss.nce=0 %s",
                 x->w.model[0], x->w.model[1], words);
    return wire_run_settings(tn_model_named(model), text);
}

static tn_status try_session(const world *x, const char *model, const char *run, const char *words, tn_session *s)
{
    tn_settings *st = settings_of(x, model, run, words);
    *s = (tn_session){ 0 };
    tn_alloc_fail_at(x->fail_at);
    const tn_status status = tn_session_open_with(
        &(tn_session_options){ .settings = st, .model = tn_model_named(model), .needs_data = true, .runs = true }, s);
    tn_settings_free(st);
    return status;
}

static void take_parts(tn_session *s) { assert_ok(tn_parts_load(s->settings, s->model, tn_trainer_store(s->trainer))); }

typedef struct same_case {
    const char *model, *words;
} same_case;

static const same_case same_cases[] = {
    { "gpt", "" },
    { "gpt", "loader.mode=bucket" },
    { "gpt", "loader.mode=pack train.accumulate=2" },
    { "gpt", "task=mqar task.pairs=2,4 train.context=16 data=" },
    { "wire", "loss.kd=1 loss.state=1" },
    { "wire", "loader.prefetch=2 train.accumulate=2" },
    { "wire", "loader.mode=bucket loss.kd=1" },
};

/* The gradient of a x b rows is that of one batch of a b rows. */
static void same_gradient(void **state)
{
    const same_case *c = *state;
    world x;
    step whole = { 0 };
    begin(&x);
    for (int parts = 1; parts <= BATCH; parts *= 2) {
        char words[300];
        tn_session s;
        snprintf(words, sizeof words, "%s plan.microbatches=%d", c->words, parts);
        assert_ok(try_session(&x, c->model, "g", words, &s));
        take_parts(&s);
        assert_int_equal(tn_trainer_feed(s.trainer).batch, BATCH / parts);
        step part = step_of(&s);
        if (parts > 1 && !(distance(&whole, &part) < 1e-5 && fabs(part.loss / whole.loss - 1) < 1e-5))
            fail_msg("%s %s: loss %.9g, in one %.9g; gradients differ by %g", c->model, words, part.loss, whole.loss,
                     distance(&whole, &part));
        if (parts == 1) whole = part;
        else free(part.grad);
        tn_session_close(&s);
    }
    free(whole.grad);
    wire_run_close(&x.w);
}

/* Such a loss is not that of the batch: whoever asks for parts hears so. */
static void coupled_rows(void **state)
{
    world x;
    tn_session s;
    (void)state;
    begin(&x);
    assert_fails(try_session(&x, "wire", "c", "loss.nce=1 plan.microbatches=2", &s), TN_USAGE,
                 "plan.microbatches=2: this loss of wire compares the rows");
    wire_run_close(&x.w);
}

/* A step takes the same memory however many batches it has, but for a number of each. */
static void flat_memory(void **state)
{
    world x;
    static const char *const words[] = { "train.accumulate=1", "train.accumulate=2", "train.accumulate=8" };
    double total[3];
    begin(&x);
    for (int i = 0; i < 3; i++) {
        tn_session s;
        assert_ok(try_session(&x, *state, "m", words[i], &s));
        total[i] = (double)tn_trainer_memory(s.trainer).total;
        tn_session_close(&s);
    }
    if (fabs(total[1] / total[0] - 1) > 0.01 || fabs(total[2] / total[0] - 1) > 0.01)
        fail_msg("%g bytes with one batch, %g with two, %g with eight", total[0], total[1], total[2]);
    wire_run_close(&x.w);
}

/* --- runs ---------------------------------------------------------------------------------------------------------------- */

static double memory_of(const world *x, const char *model, const char *words)
{
    tn_session s;
    assert_ok(try_session(x, model, "m", words, &s));
    const double total = (double)tn_trainer_memory(s.trainer).total;
    tn_session_close(&s);
    return total;
}

/* parts: what it was computed in; stop_after < 0: to the end. */
static tn_status train(const world *x, const char *model, const char *run, const char *words, int64_t stop_after,
                       tn_progress_report *last)
{
    tn_session s;
    const tn_status status = try_session(x, model, run, words, &s);
    return status == TN_OK ? tn_run_piece(&s, model, stop_after, last) : status;
}

static bool config_says(const world *x, const char *run, const char *what)
{
    char path[TN_PATH_BYTES], *text;
    size_t n;
    snprintf(path, sizeof path, "%s/%s/config.yaml", x->w.d.path, run);
    assert_ok(tn_file_read_all(path, 1 << 20, &text, &n));
    const bool found = strstr(text, what) != NULL;
    tn_free(text);
    return found;
}

static void assert_near(const tn_progress_report *a, const tn_progress_report *b)
{
    assert_true(a->step == STEPS && b->step == STEPS && a->tokens == b->tokens);
    if (!(fabs(a->loss / b->loss - 1) < 1e-4)) fail_msg("the last loss is %.9g instead of %.9g", b->loss, a->loss);
    if (!(fabs(tn_scores_first(&a->last) / tn_scores_first(&b->last) - 1) < 1e-4))
        fail_msg("the held-out loss is %.9g instead of %.9g", tn_scores_first(&b->last), tn_scores_first(&a->last));
}

static const char *limit(double bytes, const char *more, char buf[200])
{
    snprintf(buf, 200, "plan.memory_gb=%.9g %s", bytes / 1e9, more);
    return buf;
}

/* A limit below what each rung needs, as the plans say: the next one is taken, and the run has the losses of one with all the memory. */
static void each_rung(void **state)
{
    const char *model = *state;
    const bool wire = strcmp(model, "wire") == 0;
    const char *usual = wire ? "loss.kd=1 loss.state=1" : "";
    char words[200], text[200];
    world x;
    tn_progress_report all, last;
    tn_session s;
    begin(&x);
    assert_ok(train(&x, model, "all", usual, -1, &all));
    const double whole = memory_of(&x, model, usual);
    snprintf(words, sizeof words, "plan.microbatches=%d %s", BATCH, usual);
    const double rows = memory_of(&x, model, words);
    snprintf(words, sizeof words, "plan.microbatches=%d plan.recompute=layer %s", BATCH, usual);
    const double again = memory_of(&x, model, words);
    const double least =
        wire ? memory_of(&x, model, "plan.microbatches=8 plan.recompute=layer loss.kd=0 loss.state=0") : again;
    assert_true(whole > rows && rows > again && again >= least);
    assert_ok(train(&x, model, "parts", limit(whole - 1e3, usual, text), -1, &last));
    assert_near(&all, &last);
    assert_true(config_says(&x, "parts", "microbatches: 2") && config_says(&x, "parts", "recompute: none"));
    assert_ok(train(&x, model, "again", limit(rows - 1e3, usual, text), -1, &last));
    assert_near(&all, &last);
    assert_true(config_says(&x, "again", "microbatches: 8") && config_says(&x, "again", "recompute: layer"));
    if (wire) {
        assert_ok(train(&x, model, "without", limit(again - 1e3, usual, text), -1, &last));
        assert_true(last.step == STEPS && config_says(&x, "without", "dropped: \"loss.kd=1"));
        assert_ok(train(&x, model, "without", usual, -1, &last)); /* the same command: it is finished */
    }
    assert_fails(try_session(&x, model, "none", limit(least / 2, usual, text), &s), TN_MEMORY, "(tried: ");
    assert_fails(try_session(&x, model, "none",
                             limit(whole - 1e3,
                                   wire ? "train.memory=refuse loss.kd=1 loss.state=1" : "train.memory=refuse", text),
                             &s),
                 TN_MEMORY, "plan.memory_gb allows");
    wire_run_close(&x.w);
}

/* Parts without rows are not run: their weight would be a divisor, and states that are kept would move twice. */
static void short_batches(void **state)
{
    world x;
    tn_progress_report all, last;
    (void)state;
    begin(&x);
    assert_ok(train(&x, "tep", "all", "", -1, &all));
    for (int parts = 2; parts <= BATCH; parts *= 2) {
        char run[32], words[64];
        snprintf(run, sizeof run, "parts-%d", parts);
        snprintf(words, sizeof words, "plan.microbatches=%d", parts);
        assert_ok(train(&x, "tep", run, words, -1, &last));
        assert_near(&all, &last);
    }
    wire_run_close(&x.w);
}

/* Resumes a run with these words; its note. Trains to the end. */
static void note_of(const world *x, const char *run, const char *words, char *note, size_t bytes)
{
    tn_session s;
    tn_run_dir r = { .lock = -1 };
    tn_ckpt_state state = { 0 };
    const tn_ckpt_state *from;
    tn_progress_report last;
    assert_ok(try_session(x, "wire", run, words, &s));
    assert_ok(tn_run_open(s.settings, "wire", false, &r));
    snprintf(note, bytes, "%s", r.note);
    assert_ok(tn_run_load(&r, &s, &state, &from));
    assert_ok(tn_run_train(&r, &s, from, &(tn_training){ 0 }, NULL, &last));
    assert_int_equal(last.step, STEPS);
    tn_ckpt_state_free(&state);
    tn_run_close(&r);
    tn_session_close(&s);
}

/* The source has a teacher's rows; without what they are for it is opened again, also where the run that goes on had given them up. */
static void gives_up_teacher(void **state)
{
    static const char *const usual = "loss.kd=1 loss.state=0.5 loss.teacher=cached train.schedule=constant",
                             *const runs[] = { "keep", "refuse" };
    char words[160], text[200], note[2048];
    world x;
    tn_progress_report last;
    (void)state;
    begin(&x);
    snprintf(words, sizeof words, "plan.microbatches=%d plan.recompute=layer %s", BATCH, usual);
    const double least = memory_of(&x, "wire", words);
    snprintf(words, sizeof words, "train.steps=3 %s", usual);
    limit(least - 1e3, words, text);
    for (int i = 0; i < 2; i++) {
        assert_ok(train(&x, "wire", runs[i], text, -1, &last));
        assert_true(last.step == 3 && config_says(&x, runs[i], "dropped: \"loss.kd=1"));
    }
    note_of(&x, "keep", usual, note, sizeof note);
    if (!strstr(note, "stays without loss.kd=1")) fail_msg("the note is \"%s\"", note);
    assert_non_null(strstr(note, "(train.dropped)"));
    assert_true(config_says(&x, "keep", "dropped: \"loss.kd=1"));
    snprintf(words, sizeof words, "train.memory=refuse %s", usual);
    note_of(&x, "refuse", words, note, sizeof note);
    assert_non_null(strstr(note, "loss.kd 0 -> 1"));
    assert_null(strstr(note, "stays without"));
    wire_run_close(&x.w);
}

/* A run goes on where it was, on its rung; on a machine with less memory further down. */
static void resumes(void **state)
{
    char text[200];
    world x;
    tn_progress_report all, last;
    tn_session s;
    const char *model = *state;
    begin(&x);
    assert_ok(train(&x, model, "all", "", -1, &all));
    const double whole = memory_of(&x, model, "");
    assert_fails(train(&x, model, "less", "", 3, &last), TN_INTERRUPTED, "");
    assert_ok(train(&x, model, "less", limit(whole - 1e3, "", text), -1, &last));
    assert_near(&all, &last);
    assert_true(config_says(&x, "less", "microbatches: 2"));
    assert_fails(train(&x, model, "more", limit(whole - 1e3, "", text), 3, &last), TN_INTERRUPTED, "");
    assert_ok(try_session(&x, model, "more", "", &s)); /* all the memory again */
    assert_int_equal(tn_trainer_microbatches(s.trainer), 1);
    assert_ok(tn_run_piece(&s, model, -1, &last));
    assert_near(&all, &last);
    assert_true(config_says(&x, "more", "microbatches: 2"));
    wire_run_close(&x.w);
}

/* train.batch=auto depends on the memory; a run that goes on elsewhere keeps the batch that it had. */
static void resumes_auto(void **state)
{
    char text[200];
    world x;
    tn_progress_report all, last;
    (void)state;
    begin(&x);
    const double few = memory_of(&x, "gpt", "");
    limit(few, "train.batch=auto", text);
    assert_ok(train(&x, "gpt", "all", text, -1, &all));
    assert_true(all.tokens < 2 * STEPS * BATCH * 24);
    assert_fails(train(&x, "gpt", "more", text, 3, &last), TN_INTERRUPTED, "");
    assert_ok(train(&x, "gpt", "more", "train.batch=auto", -1, &last));
    assert_near(&all, &last);
    assert_fails(train(&x, "gpt", "less", text, 3, &last), TN_INTERRUPTED, "");
    assert_ok(train(&x, "gpt", "less", limit(0.8 * few, "train.batch=auto", text), -1, &last));
    assert_near(&all, &last);
    wire_run_close(&x.w);
}

static void assert_whole(const world *x, const char *run)
{
    char dir[TN_PATH_BYTES], path[TN_PATH_BYTES], why[512];
    snprintf(dir, sizeof dir, "%s/%s", x->w.d.path, run);
    if (tn__ckpt_pointed(dir, "latest") < 0) return;
    assert_ok(tn_ckpt_find(dir, "latest", path, why, sizeof why));
    assert_string_equal(why, "");
}

/* The n-th allocation fails, for n = 1, 2, ...: the run has the same losses, or ends with TN_MEMORY, its newest save whole, and goes on from
 * it. TENON_LADDER_EVERY=1 (tests/long/memory.sh): for every n. */
static void every_allocation(void **state)
{
    const char *model = *state, *given = getenv("TENON_LADDER_EVERY");
    const uint64_t every = given ? strtoull(given, NULL, 10) : 53;
    world x;
    tn_progress_report all, last;
    uint64_t count = 0, went_on = 0, ended = 0;
    begin(&x);
    assert_ok(train(&x, model, "all", "loader.workers=0", -1, &all));
    count = tn_alloc_count();
    for (uint64_t n = every; n <= count; n += every) {
        char run[32];
        snprintf(run, sizeof run, "n%llu", (unsigned long long)n);
        x.fail_at = n;
        const tn_status s = train(&x, model, run, "loader.workers=0", -1, &last);
        tn_alloc_fail_at(x.fail_at = 0);
        if (s != TN_OK && s != TN_MEMORY) fail_msg("allocation %llu: %s", (unsigned long long)n, tn_error_text());
        assert_whole(&x, run);
        went_on += s == TN_OK;
        ended += s == TN_MEMORY;
        if (s == TN_MEMORY) assert_ok(train(&x, model, run, "loader.workers=0", -1, &last));
        assert_near(&all, &last);
    }
    if (given)
        printf("%s: %llu allocations, %llu runs went on, %llu ended with TN_MEMORY\n", model, (unsigned long long)count,
               (unsigned long long)went_on, (unsigned long long)ended);
    assert_true(went_on > 0);
    wire_run_close(&x.w);
}

void tn_tests_ladder(tn_test_list *l)
{
    tn_test_add(l, order_of_rungs, NULL, "ladder: rungs in their order, and back");
    tn_test_add(l, frozen_layers_too, NULL, "ladder: plan.recompute=trained, then layer");
    tn_test_add(l, rungs_left_out, NULL, "ladder: a loss that compares rows is not cut");
    tn_test_add(l, rungs_left_out, (void *)(uintptr_t)l, "ladder: an environment's batch is not cut");
    for (size_t i = 0; i < sizeof same_cases / sizeof *same_cases; i++)
        tn_test_add(l, same_gradient, &same_cases[i], "ladder: the same gradient in parts, %s %s", same_cases[i].model,
                    same_cases[i].words);
    tn_test_add(l, coupled_rows, NULL, "ladder: parts of a loss that compares rows are refused");
    tn_test_add(l, gives_up_teacher, NULL, "ladder: a cached teacher is given up, and stays so");
    static const char *const models[] = { "gpt", "wire" };
    tn_test_add(l, short_batches, NULL, "ladder: a short batch in parts, tep");
    tn_test_add(l, resumes_auto, NULL, "ladder: resuming with an automatic batch");
    for (size_t i = 0; i < 2; i++) {
        void *model = (void *)(uintptr_t)models[i];
        tn_test_add(l, flat_memory, model, "ladder: memory and accumulation, %s", models[i]);
        tn_test_add(l, each_rung, model, "ladder: a limit for each rung, %s", models[i]);
        tn_test_add(l, resumes, model, "ladder: resuming, %s", models[i]);
        tn_test_add(l, every_allocation, model, "ladder: an allocation fails, %s", models[i]);
    }
}
