/* Whole runs of the public interface: trained, stopped, resumed to the same numbers; settings listed; plots drawn. */
#include "tempdir.h"

#include <math.h>
#include <tenon/tenon.h>

enum { STEPS = 6, STOP = 3 };

typedef struct seen {
    int calls, evaluations, stop_at;
    int64_t first, last;
    double best;
    char run[1024], notes[2048];
} seen;

static int watch(void *user, const tenon_progress *p)
{
    seen *s = user;
    if (s->calls++ == 0) s->first = p->step;
    else assert_true(p->step == s->last + 1 && p->loss > 0 && p->lr > 0 && p->rate > 0 && p->seconds > 0);
    assert_true(p->steps == STEPS && p->higher == 0);
    assert_string_equal(p->metric, "loss");
    s->evaluations += p->evaluated;
    s->last = p->step;
    s->best = p->best;
    snprintf(s->run, sizeof s->run, "%s", p->run);
    return s->stop_at && p->step == s->stop_at;
}

static void keep_note(void *user, const char *text, int warning)
{
    seen *s = user;
    const size_t n = strlen(s->notes);
    snprintf(s->notes + n, sizeof s->notes - n, "%s%s\n", warning ? "warning: " : "", text);
}

static tenon_status train(const char *data, const char *run, int fresh, int stop_at, const char *more, seen *s)
{
    char text[TN_PATH_BYTES + 8], dir[TN_PATH_BYTES + 8];
    tenon_train_options o;
    snprintf(text, sizeof text, "data=%s", data);
    snprintf(dir, sizeof dir, "run=%s", run);
    const char *const words[] = { "dim=16",
                                  "layers=1",
                                  "heads=2",
                                  "train.context=16",
                                  "threads=1",
                                  "train.batch=2",
                                  "train.eval_every=2",
                                  "train.eval_batches=2",
                                  "train.steps=6",
                                  text,
                                  dir,
                                  more };
    *s = (seen){ .stop_at = stop_at };
    tenon_train_init(&o);
    o.target = "gpt_tiny";
    o.overrides = words;
    o.n = sizeof words / sizeof *words - !more;
    o.fresh = fresh;
    o.progress = watch;
    o.note = keep_note;
    o.user = s;
    return tenon_train(&o);
}

static void trains_and_resumes(void **state)
{
    (void)state;
    tn_tempdir d;
    seen a, b;
    tenon_net *net = NULL;
    tenon_metric m = { .size = sizeof m };
    tn_tempdir_make(&d);
    const char *text = tn_tempdir_file(&d, "text"), *whole = tn_tempdir_file(&d, "whole"),
               *cut = tn_tempdir_file(&d, "cut");
    FILE *f = fopen(text, "w");
    assert_non_null(f);
    for (int i = 0; i < 4000; i++) fprintf(f, "%d\n", i);
    assert_int_equal(fclose(f), 0);
    if (train(text, whole, 0, 0, NULL, &a) != TENON_OK) fail_msg("%s", tenon_error());
    assert_true(a.calls == 1 + STEPS && a.first == 0 && a.last == STEPS && a.evaluations == 3 && a.best > 0);
    assert_string_equal(a.run, whole);
    assert_int_equal(train(text, cut, 0, STOP, NULL, &b), TENON_INTERRUPTED);
    assert_non_null(strstr(tenon_error(), "interrupted after 3 of 6 steps, saved"));
    assert_true(b.last == STOP);
    if (train(text, cut, 0, 0, "train.eval_batches=2", &b) != TENON_OK) fail_msg("%s", tenon_error());
    assert_true(b.first == STOP && b.last == STEPS && b.best == a.best);
    if (train(text, cut, 0, 0, NULL, &b) != TENON_OK) fail_msg("%s", tenon_error()); /* is finished */
    assert_true(b.calls == 1 && b.first == STEPS && b.best == a.best);
    if (train(text, cut, 1, 0, NULL, &b) != TENON_OK) fail_msg("%s", tenon_error());
    assert_true(b.calls == 1 + STEPS && b.first == 0 && b.best == a.best);
    assert_int_equal(tenon_open(cut, NULL, 0, &net), TENON_OK);
    assert_int_equal(tenon_metric_find(net, "loss", &m), TENON_OK);
    assert_true(m.value == a.best);
    tenon_close(net);
    assert_int_equal(train(tn_tempdir_file(&d, "missing"), whole, 0, 0, NULL, &b), TENON_BAD_FILE);
    assert_int_equal(train(text, whole, 0, 0, "train.lrr=1", &b), TENON_USAGE);
    assert_non_null(strstr(tenon_error(), "did you mean train.lr?"));
    assert_int_equal(tenon_train(&(tenon_train_options){ .size = 0 }), TENON_USAGE);
    tn_tempdir_remove_all(&d);
}

static int find_lr(void *user, const char *key, const char *value, const char *choices, const char *help)
{
    int *found = user;
    if (strcmp(key, "train.schedule") == 0) {
        assert_string_equal(choices, "cosine|wsd|constant");
        *found |= 1;
    }
    if (strcmp(key, "train.lr") != 0) return 0;
    assert_true(strcmp(value, "0.5") == 0 && !choices && strlen(help) > 0);
    *found |= 2;
    return 0;
}

static int at_once(void *user, const char *key, const char *value, const char *choices, const char *help)
{
    (void)key, (void)value, (void)choices, (void)help;
    return ++*(int *)user;
}

static void settings(void **state)
{
    (void)state;
    int found = 0, calls = 0;
    assert_int_equal(tenon_settings_of("gpt_tiny", (const char *const[]){ "train.lr=0.5" }, 1, find_lr, &found),
                     TENON_OK);
    assert_int_equal(found, 3);
    assert_int_equal(tenon_settings_of(NULL, NULL, 0, at_once, &calls), TENON_OK);
    assert_int_equal(calls, 1);
    assert_int_equal(tenon_settings_of("nonsense", NULL, 0, at_once, &calls), TENON_USAGE);
    assert_int_equal(tenon_settings_of("gpt", NULL, 0, NULL, NULL), TENON_USAGE);
}

static void keep_plot(void *user, const char *bytes, size_t n) { snprintf(user, 65536, "%.*s", (int)n, bytes); }

static void plots(void **state)
{
    (void)state;
    static char drawn[65536];
    const double x[] = { 1, 2, 3, 4 }, y[] = { 4, 3, NAN, 1 };
    tenon_plot_options o;
    tenon_plot_init(&o);
    o.title = "a < b";
    o.count = 2;
    o.name = (const char *const[]){ "train", "held out" };
    o.x = (const double *const[]){ x, x };
    o.y = (const double *const[]){ y, x };
    o.n = (const size_t[]){ 4, 4 };
    o.behind = (const size_t[]){ 2, 0 };
    o.write = keep_plot;
    o.user = drawn;
    assert_int_equal(tenon_plot(&o), TENON_OK);
    assert_true(strncmp(drawn, "<svg", 4) == 0 && strstr(drawn, "a &lt; b") && strstr(drawn, "held out"));
    assert_non_null(strstr(drawn, "</svg>"));
    o.text = 1;
    o.width = 40;
    o.height = 10;
    assert_int_equal(tenon_plot(&o), TENON_OK);
    assert_true(strstr(drawn, "held out") && !strstr(drawn, "<svg"));
    o.behind = (const size_t[]){ 3, 0 };
    assert_int_equal(tenon_plot(&o), TENON_USAGE);
    o.count = 0;
    assert_int_equal(tenon_plot(&o), TENON_USAGE);
    o.size = 0;
    assert_int_equal(tenon_plot(&o), TENON_USAGE);
}

void tn_tests_runs_api(tn_test_list *l)
{
    tn_test_add(l, trains_and_resumes, NULL, "api: a run is trained, stopped and resumed");
    tn_test_add(l, settings, NULL, "api: settings of a target");
    tn_test_add(l, plots, NULL, "api: plots");
}
