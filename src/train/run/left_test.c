/* Runs that are stopped between steps and between batches of evaluations, the last one too: an evaluation is made as a whole when the run
 * goes on, its line is there once, and what is best follows from it. */
#include "run_sessions.h"

enum { STEPS = 12, EVERY = 3 };

static bool is_unevaluated(place *p)
{
    const char *text = file_text(&p->d, "b/latest/state.json");
    const bool found = strstr(text, "\"unevaluated\"") != NULL;
    tn_free((void *)(uintptr_t)text);
    return found;
}

/* As a process leaves it that made the evaluation up and was killed before its next checkpoint. */
static void write_line(place *p, int64_t step)
{
    FILE *f = fopen(tn_tempdir_file(&p->d, "b/metrics.jsonl"), "a");
    assert_non_null(f);
    assert_true(fprintf(f, "{\"step\":%lld,\"loss\":1}\n", (long long)step) > 0 && fclose(f) == 0);
}

static void inside_evaluations(void **state)
{
    const char *const set[] = { "train.steps=12", "ckpt.every=5", "train.eval_every=3", "train.eval_batches=4",
                                "train.warmup=3" };
    place p;
    tn_progress_report last, whole;
    int64_t from;
    int left = 0, at_end = 0;
    tn_status s = TN_INTERRUPTED;
    open_place(&p, false);
    p.queue_depth = *(const int *)*state;
    assert_ok(session(&p, "a", set, 5, false, -1, &whole, &from));
    p.leaves = true;
    for (int i = 0; i < 60 && (s = session(&p, "b", set, 5, false, 1 + i % 7, &last, &from)) != TN_OK; i++) {
        assert_int_equal(s, TN_INTERRUPTED);
        assert_non_null(strstr(tn_error_text(), ": rerun this command to resume"));
        if (!is_unevaluated(&p)) continue;
        assert_true(last.step % EVERY == 0 && !last.evaluated);
        write_line(&p, last.step);
        left++;
        at_end += last.step == STEPS;
    }
    assert_int_equal(s, TN_OK);
    if (left < 3 || !at_end) fail_msg("%d evaluations were left, %d of them the last", left, at_end);
    assert_true(last.step == STEPS && tn_scores_first(&last.last) == tn_scores_first(&whole.last) &&
                last.best_step == whole.best_step && !is_unevaluated(&p));
    same_metrics(&p);
    tn_tempdir_remove_all(&p.d);
}

void tn_tests_left(tn_test_list *l)
{
    static const int depth[] = { 0, TN_TRAINER_QUEUE_MAX };
    tn_test_add(l, inside_evaluations, &depth[0], "run: stopped inside evaluations");
    tn_test_add(l, inside_evaluations, &depth[1], "run: stopped inside evaluations, steps queued ahead");
}
