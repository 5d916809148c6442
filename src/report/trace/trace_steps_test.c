/* Traced steps of a session: threads that prepare batches are traced with them, and know nothing of the tracer afterwards. */
#include "report/trace/trace_steps.h"

#include "tempdir.h"

enum { STEPS = 4, BATCHES = 12 };

/* Events of all threads that prepare batches. */
static size_t prepared(tn_tracer *t)
{
    size_t sum = 0;
    const tn_event *e;
    for (int k = 1 + tn_tracer_workers(t); k < tn_tracer_tracks(t); k++) sum += tn_tracer_events(t, k, &e);
    return sum;
}

static void trace_and_go_on(const char *model, const char *data, const char *context)
{
    const char *const set[] = {
        data, context, "dim=16", "layers=1", "train.batch=4", "threads=1", "loader.workers=1", "loader.prefetch=2"
    };
    tn_session s = { 0 };
    tn_tracer *t = NULL;
    const tn_event *e;
    int64_t n;
    assert_ok(tn_session_open(model, set, sizeof set / sizeof *set, true, &s));
    assert_ok(tn_trace_tracer(s.trainer, tn_trace_loaders(s.settings), STEPS, 0, &t));
    assert_ok(tn_trace_session(&s, t, STEPS));
    assert_true(tn_tracer_traced(t) == STEPS && tn_tracer_events(t, TN_TRACK_MAIN, &e) > 0 && prepared(t) > 0);
    tn_tracer_restart(t, 0);
    assert_int_equal(tn_tracer_step(t), TN_TRACER_BEGINS);
    for (int64_t i = 0; i < BATCHES; i++) assert_ok(tn_source_next(&s.source, STEPS + i, s.trainer, &n));
    tn_source_rest(&s.source);
    assert_int_equal(prepared(t), 0);
    tn_tracer_free(t); /* before the session, whose threads go on */
    for (int64_t i = 0; i < BATCHES; i++) assert_ok(tn_source_next(&s.source, STEPS + BATCHES + i, s.trainer, &n));
    tn_session_close(&s);
}

static void samples(void **state)
{
    (void)state;
    trace_and_go_on("gpt_tiny", "task=tokens_copy", "train.context=16");
}

static void text(void **state)
{
    (void)state;
    tn_tempdir d;
    char word[400];
    tn_tempdir_make_quick(&d);
    const char *path = tn_tempdir_file(&d, "t.txt");
    FILE *f = fopen(path, "w");
    assert_non_null(f);
    for (int i = 0; i < 400; i++) fprintf(f, "line %d of a text that is traced\n", i);
    assert_int_equal(fclose(f), 0);
    snprintf(word, sizeof word, "data=%s", path);
    trace_and_go_on("gpt_tiny", word, "train.context=32");
    tn_tempdir_remove_all(&d);
}

void tn_tests_trace_steps(tn_test_list *l)
{
    tn_test_add(l, samples, NULL, "traced steps: samples that are prepared ahead");
    tn_test_add(l, text, NULL, "traced steps: text");
}
