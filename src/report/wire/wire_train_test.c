/* Runs of wire with two readers from files: which checkpoint is the best (D10), and what the learning rate counts (D14; wire_defects_test.c). */
#include "run_pieces.h"
#include "train/checkpoint/checkpoint.h"
#include "wire_run.h"

#include <math.h>
#include <stdio.h>

enum { STEPS = 8, HELDOUT = 5 };

static tn_settings *settings_of(const wire_run *w, const char *run, const char *words)
{
    char text[2600];
    snprintf(text, sizeof text,
             "a.model=%s b.model=%s task=recall task.keys=50 task.pairs=3 task.questions=0 task.heldout=%d task.size=8 "
             "train.batch=2 slots=3 width=8 dim=16 heads=2 ffn=24 layers=1 hidden=12 train.steps=%d train.warmup=3 "
             "train.eval_every=2 log.every=1 ckpt.every=3 run=%s/%s %s",
             w->model[0], w->model[1], HELDOUT, STEPS, w->d.path, run, words);
    return wire_run_settings(tn_model_named("wire"), text);
}

static void train(const wire_run *w, const char *run, const char *words, tn_progress_report *last)
{
    tn_settings *st = settings_of(w, run, words);
    tn_session s = { 0 };
    assert_ok(tn_session_open_with(
        &(tn_session_options){ .settings = st, .model = tn_model_named("wire"), .needs_data = true }, &s));
    assert_ok(tn_run_piece(&s, "wire", -1, last));
    tn_settings_free(st);
}

/* Numbers of KEY by step (NaN: none) from the metrics of a run. */
static void read_metrics(const wire_run *w, const char *run, const char *key, double to[STEPS + 1])
{
    char path[TN_PATH_BYTES], line[8192], wanted[64];
    for (int i = 0; i <= STEPS; i++) to[i] = NAN;
    snprintf(path, sizeof path, "%s/%s/metrics.jsonl", w->d.path, run);
    snprintf(wanted, sizeof wanted, "\"%s\":", key);
    FILE *f = fopen(path, "r");
    assert_non_null(f);
    while (fgets(line, sizeof line, f)) {
        int step;
        const char *at = strstr(line, wanted);
        if (!at || sscanf(line, "{\"step\":%d", &step) != 1) continue;
        assert_true(step >= 0 && step <= STEPS);
        to[step] = strtod(at + strlen(wanted), NULL);
    }
    fclose(f);
}

/* Mean loss of the best checkpoint over all contexts that are held out. Nothing but the checkpoint is read: what a run has found out about its
 * readers is in there. */
static double loss_of_best(const wire_run *w, const char *run, const char *words)
{
    char path[TN_PATH_BYTES], note[TN_CKPT_NOTE];
    tn_settings *st = settings_of(w, run, words);
    tn_session s = { 0 };
    double sum = 0, seen = 0;
    assert_ok(tn_session_open_with(
        &(tn_session_options){ .settings = st, .model = tn_model_named("wire"), .needs_data = true, .evaluates = true },
        &s));
    snprintf(path, sizeof path, "%s/%s", w->d.path, run);
    assert_ok(tn_ckpt_load_weights(path, tn_trainer_store(s.trainer), note));
    for (int64_t i = 0, count;; i++) {
        float loss;
        assert_ok(tn_source_heldout(&s.source, i, s.trainer, &count));
        if (!count) break;
        assert_ok(tn_trainer_eval(s.trainer, &loss));
        sum += loss * (double)count;
        seen += (double)count;
    }
    assert_true(seen == HELDOUT);
    tn_session_close(&s);
    tn_settings_free(st);
    return sum / seen;
}

/* The step of the least; *evaluations: how many there were. */
static int least(const double held[STEPS + 1], int *evaluations)
{
    int best = 0;
    *evaluations = 0;
    for (int i = 1; i <= STEPS; i++) {
        if (isnan(held[i])) continue;
        ++*evaluations;
        if (!best || held[i] < held[best]) best = i;
    }
    return best;
}

/* A run whose best evaluation is not its last: at so high a rate losses jump, and one of a few seeds has it. */
static void best_of_all(void **state)
{
    enum { SEEDS = 12 };
    (void)state;
    wire_run w;
    tn_progress_report last;
    tn_ckpt_list l;
    double held[STEPS + 1];
    char path[TN_PATH_BYTES], run[16], words[96];
    int best = STEPS, evaluations = 0;
    wire_run_open(&w, "slots=3");
    for (int seed = 0; seed < SEEDS && best == STEPS; seed++) {
        snprintf(run, sizeof run, "run%d", seed);
        snprintf(words, sizeof words, "train.lr=0.3 train.schedule=constant place=embeddings seed=%d", seed);
        train(&w, run, words, &last);
        read_metrics(&w, run, "heldout", held);
        best = least(held, &evaluations);
    }
    assert_true(evaluations >= 4 && best > 0 && best < STEPS);
    assert_true(last.best_step == best && tn_scores_first(&last.best) == held[best]);
    snprintf(path, sizeof path, "%s/%s", w.d.path, run);
    assert_ok(tn_ckpt_list_read(path, &l));
    for (size_t i = 0; i < l.n; i++) assert_true(l.entry[i].best == (l.entry[i].step == best));
    tn_ckpt_list_free(&l);
    const double again = loss_of_best(&w, run, words);
    if (!(fabs(again - held[best]) < 1e-5 * again)) fail_msg("%g, and the run says %g", again, held[best]);
    wire_run_close(&w);
}

/* What a run says of its batches and of its arena, in each line from log.level=training on. A run that goes on says the same. */
static void places_and_holes(void **state)
{
    (void)state;
#define LENGTHS "task.fewer=on task.size=24 " /* texts of 1, 2 or 3 pairs */
    static const char *const words[] = { LENGTHS "log.level=training", LENGTHS "log.level=training loader.mode=bucket",
                                         LENGTHS "log.level=info",
                                         LENGTHS "log.level=training train.steps=4 train.schedule=constant" };
    static const char *const runs[] = { "plain", "bucket", "info", "on" };
    wire_run w;
    tn_progress_report last;
    double padding[4][STEPS + 1], holes[4][STEPS + 1];
    wire_run_open(&w, "slots=3");
    for (int k = 0; k < 4; k++) {
        train(&w, runs[k], words[k], &last);
        if (k == 3) train(&w, runs[k], LENGTHS "log.level=training train.schedule=constant", &last);
        read_metrics(&w, runs[k], "padding_frac", padding[k]);
        read_metrics(&w, runs[k], "memory_fragmentation_percent", holes[k]);
    }
    for (int i = 1; i <= STEPS; i++) {
        assert_true(isnan(padding[2][i]) && isnan(holes[2][i]));
        for (int k = 0; k < 4; k++) {
            if (k == 2) continue;
            assert_true(padding[k][i] < 0.9 && padding[k][i] == padding[k][1]);
            assert_true(holes[k][i] >= 0 && holes[k][i] < 100);
        }
        assert_true(padding[0][i] > 0.1 && padding[1][i] >= 0 && padding[1][i] < padding[0][i]);
        assert_true(padding[3][i] == padding[0][1] && holes[3][i] == holes[0][1]);
    }
    wire_run_close(&w);
}

static void rate_counts_steps(void **state)
{
    (void)state;
    wire_run w;
    tn_progress_report last[2];
    double rate[2][STEPS + 1];
    wire_run_open(&w, "slots=3");
    train(&w, "one", "train.accumulate=1", &last[0]);
    train(&w, "four", "train.accumulate=4", &last[1]);
    for (int k = 0; k < 2; k++) read_metrics(&w, k ? "four" : "one", "lr", rate[k]);
    for (int i = 1; i <= STEPS; i++) {
        assert_true(rate[0][i] > 0 && rate[0][i] == rate[1][i]);
        if (i > 1) assert_true(i <= 4 ? rate[0][i] > rate[0][i - 1] : rate[0][i] <= rate[0][i - 1]);
    }
    assert_true(last[0].step == STEPS && last[1].step == STEPS && rate[0][STEPS] < 0.5 * rate[0][4]);
    assert_true(last[0].loss != last[1].loss);
    wire_run_close(&w);
}

void tn_tests_wire_train(tn_test_list *l)
{
    tn_test_add(l, best_of_all, NULL, "wire run: the best checkpoint is the best whole evaluation");
    tn_test_add(l, places_and_holes, NULL, "wire run: padding and holes are metrics");
    tn_test_add(l, rate_counts_steps, NULL, "wire run: the learning rate counts steps, not batches");
}
