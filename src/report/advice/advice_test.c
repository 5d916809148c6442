/* Rules find what was made slow, and nothing where there is nothing; probes measure what they find. */
#include "report/advice/advice.h"
#include "testlib.h"
#include "train/run/train_settings.h"

#include <math.h>
#include <string.h>

typedef struct example {
    const char *name, *model; /* NULL: gpt, with compute=f32 */
    const char *set[4];
    int64_t batch; /* 0: 32 */
    double data_ms;
    double bf16; /* ceiling over that of f32; 0: the same */
    int threads; /* 0: 2 */
    int64_t epoch;
    const char *rows;
    double document;
    const char *about, *words; /* of the first advice; NULL: there is none */
    int64_t measured;          /* steps with lines, or steps before it shows */
} example;

static const example examples[] = {
    { .name = "nothing to say" },
    { .name = "one row", .batch = 1, .about = "batch", .words = "train.batch=32" },
    { .name = "half of enough rows is enough", .batch = 17 },
    { .name = "rows that are accumulated",
      .set = { "train.accumulate=24" },
      .batch = 2,
      .about = "batch",
      .words = "train.batch=24 train.accumulate=2" },
    { .name = "a prime number of batches", .set = { "train.accumulate=37" }, .batch = 1 },
    { .name = "waits for data, nobody prepares",
      .set = { "loader.workers=0" },
      .data_ms = 50,
      .about = "loader",
      .words = "loader.workers=1 loader.prefetch=4" },
    { .name = "waits for data, one thread prepares",
      .set = { "loader.prefetch=8" },
      .data_ms = 50,
      .about = "loader",
      .words = "loader.workers=2" },
    { .name = "layers again", .set = { "plan.recompute=layer" }, .about = "recompute", .words = "plan.recompute=none" },
    { .name = "a fast bf16", .bf16 = 4, .about = "precision", .words = "compute=bf16" },
    { .name = "a fast bf16 that is used", .set = { "compute=bf16" }, .bf16 = 4 },
    { .name = "auto is f32 here", .set = { "compute=auto" }, .bf16 = 4, .about = "precision", .words = "compute=bf16" },
    { .name = "cores that do nothing", .threads = 1, .about = "threads", .words = "threads=auto" },
    { .name = "a strict solver",
      .model = "tep",
      .set = { "rtol=1e-5", "task=xor" },
      .batch = 64,
      .about = "solver",
      .words = "rtol=1e-2" },
    { .name = "parts", .set = { "plan.microbatches=4" }, .about = "parts", .words = "plan.microbatches=1" },
    { .name = "many evaluations",
      .set = { "train.eval_every=10", "train.eval_batches=16" },
      .about = "evaluation",
      .words = "train.eval_every=200" },
    { .name = "solves that begin at 0",
      .model = "tep",
      .set = { "task=xor" },
      .batch = 64,
      .epoch = 22,
      .about = "cache",
      .words = "cache=true",
      .measured = 23 },
    { .name = "equilibria that are kept",
      .model = "tep",
      .set = { "task=xor", "cache=true" },
      .batch = 64,
      .epoch = 22 },
    { .name = "samples that do not come again", .model = "tep", .set = { "task=xor" }, .batch = 64 },
    { .name = "short documents in long rows",
      .rows = "pack",
      .document = 30,
      .about = "bucketing",
      .words = "loader.mode=bucket train.batch=128" },
    { .name = "long documents in rows", .rows = "pack", .document = 90 },
    { .name = "documents one by one",
      .rows = "bucket",
      .document = 20,
      .about = "bucketing",
      .words = "loader.mode=pack train.batch=8" },
    { .name = "a line for every step",
      .set = { "log.every=1" },
      .about = "log",
      .words = "log.every=10",
      .measured = 10 },
    { .name = "a line for every third step",
      .set = { "log.every=3" },
      .about = "log",
      .words = "log.every=12",
      .measured = 12 },
    { .name = "ops that are timed",
      .set = { "log.level=profiling" },
      .about = "log",
      .words = "log.level=training",
      .measured = 10 },
    { .name = "ops that are timed once in a while", .set = { "log.level=performance", "log.every=100" } },
};

static void rule(void **state)
{
    const example *e = *state;
    const tn_model *m;
    tn_settings *st;
    tn_advice advice[TN_ADVICE_MOST];
    char words[TN_ADVICE_WORDS * TN_ADVICE_WORD];
    const bool tep = e->model && strcmp(e->model, "tep") == 0;
    const char *set[5] = { "compute=f32" };
    size_t n = 1;
    for (; n < 5 && e->set[n - 1]; n++) set[n] = e->set[n - 1];
    assert_ok(tn_settings_resolve(e->model ? e->model : "gpt", set, n, &st, &m));
    tn_profile_row rows[] = { { .component = "linear layers", .ms = 25, .flops = 1e9 },
                              { .component = "linear layers", .ms = 75, .flops = 2e9, .backward = true } };
    const tn_profile p = {
        .compute = tn_settings_text(st, "compute"),
        .device = TN_CPU,
        .threads = e->threads ? e->threads : 2,
        .batch = e->batch ? e->batch : 32,
        .length = 128,
        .batches = 1,
        .unit = tep ? "samples" : "tokens",
        .items = 1,
        .ceilings = { .fma_gflops = 100, .bf16_gflops = e->bf16 ? 100 * e->bf16 : 100, .memory_gbs = 10 },
        .steps = 9,
        .step_ms = 100,
        .spread_ms = 1,
        .timed_ms = 100 + e->data_ms,
        .data_ms = e->data_ms,
        .row = rows,
        .n = 2
    };
    n = tn_advice_list(&(tn_advice_facts){ .settings = st,
                                           .profile = &p,
                                           .cores = 2,
                                           .has_data = true,
                                           .epoch = e->epoch,
                                           .rows = e->rows,
                                           .document = e->document },
                       advice);
    if (!e->about) {
        if (n) fail_msg("%s: %s", e->name, tn_advice_words(&advice[0], words, sizeof words));
    } else {
        assert_true(n >= 1);
        assert_string_equal(advice[0].about, e->about);
        assert_string_equal(tn_advice_words(&advice[0], words, sizeof words), e->words);
        for (size_t i = 0; i < advice[0].n; i++) assert_ok(tn_settings_override(st, advice[0].word[i]));
        assert_true(advice[0].why[0] != 0);
        assert_true(advice[0].after + advice[0].lines == e->measured);
    }
    tn_settings_free(st);
}

/* 16 batches of 25 ms every 10 steps of 100 ms: 40 % on top, 2 % every 200. */
static void evaluations_by_arithmetic(void **state)
{
    (void)state;
    const tn_model *m;
    tn_settings *st;
    tn_advice advice[TN_ADVICE_MOST];
    const char *set[] = { "compute=f32", "train.eval_every=10", "train.eval_batches=16" };
    assert_ok(tn_settings_resolve("gpt", set, 3, &st, &m));
    tn_profile_row row = { .component = "linear layers", .ms = 25 };
    const tn_profile p = { .compute = "f32",
                           .threads = 2,
                           .batch = 32,
                           .length = 128,
                           .batches = 1,
                           .unit = "tokens",
                           .steps = 9,
                           .step_ms = 100,
                           .spread_ms = 1,
                           .timed_ms = 100,
                           .row = &row,
                           .n = 1,
                           .ceilings = { .fma_gflops = 1, .bf16_gflops = 1, .memory_gbs = 1 } };
    assert_int_equal(1,
                     tn_advice_list(&(tn_advice_facts){ .settings = st, .profile = &p, .cores = 2, .has_data = true },
                                    advice));
    assert_true(advice[0].computed && fabs(advice[0].gain.median - 1.4 / 1.02) < 1e-9);
    assert_true(advice[0].gain.low < advice[0].gain.median && advice[0].gain.median < advice[0].gain.high);
    tn_settings_free(st);
}

/* Whatever it finds, it was measured, fits and helps; the session is of use afterwards. */
static void probes(void **state)
{
    (void)state;
    const char *set[] = { "vocab=64", "dim=32", "layers=1", "train.context=16", "train.batch=1", "threads=1" };
    tn_session s = { 0 };
    tn_profile *p = NULL;
    tn_advice advice[TN_ADVICE_MOST];
    size_t n, untried;
    const tn_ceilings ceilings = {
        .threads = 1, .fma_gflops = 10, .bf16_gflops = 10, .memory_gbs = 5, .cache_gbs = 50
    };
    assert_ok(tn_session_open("gpt_tiny", set, 6, false, &s));
    assert_ok(tn_profile_take(&s, &(tn_profile_options){ .seconds = 1e-3, .ceilings = &ceilings }, &p));
    assert_ok(tn_advice_find(&s, p, &(tn_advice_options){ .seconds = 0.2 }, advice, &n, &untried));
    for (size_t i = 0; i < n; i++) {
        assert_true(advice[i].gain.median >= TN_ADVICE_LEAST && advice[i].gain.low > 1 && advice[i].gain.n >= 3);
        for (size_t k = 0; k < i; k++) assert_string_not_equal(advice[i].about, advice[k].about);
    }
    tn_profile_free(p);
    tn_session_close(&s);
}

void tn_tests_advice(tn_test_list *l)
{
    for (size_t i = 0; i < sizeof examples / sizeof *examples; i++)
        tn_test_add(l, rule, &examples[i], "advice: %s", examples[i].name);
    tn_test_add(l, evaluations_by_arithmetic, NULL, "advice: evaluations by arithmetic");
    tn_test_add(l, probes, NULL, "advice: probes of one row");
}
