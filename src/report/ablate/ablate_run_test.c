/* Whole ablations: a row that cannot be built, and held-out metrics with the dropout that auto stands for. */
#include "report/ablate/ablate_internal.h"
#include "base/clock.h"
#include "mlp.h"
#include "report/probe/probe.h"

#include <string.h>

typedef struct seen {
    int rows, timed;
    tn_ablation row; /* the last */
    tn_scores plain;
} seen;

static void on_begun(void *ctx, const tn_ablate_base *b) { (void)ctx, (void)b; }
static void on_turn(void *ctx, const tn_ablate_turn *t) { (void)ctx, (void)t; }
static void on_row(void *ctx, const tn_ablation *a)
{
    seen *s = ctx;
    s->rows++;
    s->timed += a->ratio.n > 0;
    s->row = *a;
}
static void on_scores(void *ctx, const tn_ablate_scores *s) { ((seen *)ctx)->plain = s->plain; }

static tn_ablate_options options(seen *s)
{
    return (tn_ablate_options){ .seconds = 2,
                                .steps = 2,
                                .dir = "/nowhere",
                                .ctx = s,
                                .begun = on_begun,
                                .row = on_row,
                                .turn = on_turn,
                                .scores = on_scores };
}

/* --- a twin that there is not --------------------------------------------------------------------------------------------------- */

static const tn_setting none_rows[] = {
    TN_SETTING_AUTO_INT("inputs", "auto", TN_RANGE(1, 1e6), "", ""),
    TN_SETTING_AUTO_INT("tokens", "auto", TN_RANGE(1, 1e6), "", ""),
    TN_SETTING_AUTO_INT("classes", "auto", TN_RANGE(2, 1e6), "", ""),
    TN_SETTING_INT("dim", "16", TN_RANGE(1, 65536), "", "width"),
    TN_SETTING_SWITCH("opt.none", "on", "an op without a plain twin"),
};

static tn_status build_none(tn_graph *g, const tn_settings *st, const tn_batch *b)
{
    if (!tn_settings_on(st, "opt.none")) return tn_error(TN_USAGE, "no twin");
    return tn_mlp_build(g, st, b);
}

static const tn_model none = { TN_MODEL_HEAD,   .name = "none",      .settings = none_rows,
                               .n_settings = 5, .build = build_none, TN_MLP_ROWS };

/* It says why, and is none of those for which there was no time. */
static void no_twin(void **state)
{
    (void)state;
    seen s = { 0 };
    tn_settings *st = NULL;
    tn_ablate_result r;
    assert_ok(tn_settings_new(&st));
    assert_ok(tn_settings_common(st));
    assert_ok(tn_settings_add(st, none_rows, 5, "none"));
    assert_ok(tn_settings_set(st, "threads", "1", "test"));
    assert_ok(tn_settings_set(st, "train.batch", "8", "command line"));
    tn_ablate_options o = options(&s);
    o.settings = st;
    o.model = &none;
    o.only = "opt.none";
    assert_ok(tn_ablate_run(&o, &r));
    assert_true(s.rows == 1 && r.rows == 1 && !r.failed);
    assert_string_equal(s.row.why, "no twin");
    assert_int_equal(r.unmeasured, 0);
    assert_int_equal(s.row.ratio.n, 0);
    tn_settings_free(st);
}

/* --- stopped -------------------------------------------------------------------------------------------------------------------- */

static double stops_at;
static bool stops(void *ctx)
{
    (void)ctx;
    return tn_clock_s() > stops_at;
}

/* Rows that have been measured are told when somebody stops it. */
static void stopped(void **state)
{
    (void)state;
    const char *const words[] = { "task=parity", "task.bits=6", "dim=8", "threads=1", "device=cpu", "train.batch=8" };
    seen s = { 0 };
    tn_settings *st = NULL;
    tn_ablate_result r;
    tn_ablate_options o = options(&s);
    o.only = "opt.gemm_kernels,opt.fused_optimizer,batch";
    o.seconds = 16; /* of which the first row has 2 before the others begin */
    o.interrupted = stops;
    assert_ok(tn_settings_resolve("net", words, sizeof words / sizeof *words, &st, &o.model));
    o.settings = st;
    stops_at = tn_clock_s() + 3.5;
    assert_fails(tn_ablate_run(&o, &r), TN_INTERRUPTED, "interrupted");
    assert_true(s.timed >= 1);
    tn_settings_free(st);
}

/* --- dropout -------------------------------------------------------------------------------------------------------------------- */

/* Of one row, after four steps. */
static tn_scores scores_with(const char *dropout)
{
    const char *const words[] = { "task=parity", "task.bits=6",        "dim=8",         "threads=1",
                                  "device=cpu",  "train.steps=400000", "train.batch=8", dropout };
    seen s = { 0 };
    tn_step_probe *base = NULL;
    tn_ablate_result r = { .rows = 0 };
    tn_ablate_options o = options(&s);
    tn_settings *st = NULL;
    tn_ablating *x = tn_alloc(sizeof *x);
    assert_non_null(x);
    o.only = "batch";
    o.eval = 4;
    assert_ok(tn_settings_resolve("net", words, sizeof words / sizeof *words, &st, &o.model));
    assert_ok(tn_step_probe_open(&(tn_step_probe_options){ .settings = st, .model = o.model }, &base));
    *x = (tn_ablating){ .o = &o, .settings = st, .base = tn_step_probe_session(base), .until = tn_clock_s() + 600 };
    assert_ok(tn_ablate_list(&(tn_ablate_facts){ .session = x->base, .only = o.only }, &x->arena, x->row, &x->n));
    assert_ok(tn_ablating_keep_dropout(x, x->base));
    assert_ok(tn_ablate_heldout(x, x->until, &r));
    assert_true(s.plain.n > 0);
    tn_step_probe_close(base);
    tn_settings_free(st);
    tn_arena_free(&x->arena);
    tn_free(x);
    return s.plain;
}

/* Metrics after a few steps have the rate of the whole training, of many epochs, and not that of a few steps. */
static void chosen_dropout(void **state)
{
    (void)state;
    const tn_scores chosen = scores_with("train.dropout=auto"), said = scores_with("train.dropout=0.2"),
                    none_at_all = scores_with("train.dropout=0");
    const double loss = tn_scores_get(&chosen, "loss");
    assert_true(loss == tn_scores_get(&said, "loss") && loss != tn_scores_get(&none_at_all, "loss"));
}

void tn_tests_ablate_run(tn_test_list *l)
{
    tn_test_add(l, no_twin, NULL, "ablate: a row that cannot be built");
    tn_test_add(l, stopped, NULL, "ablate: rows that have been measured when it is stopped");
    tn_test_add(l, chosen_dropout, NULL, "ablate: held-out metrics with the dropout that auto is");
}
