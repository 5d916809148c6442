/* Training as it is shown: on a terminal evaluations stay as lines and no field is cut; elsewhere everything is in plain lines. */
#include "cli/train/train_view.h"
#include "testlib.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

static tn_progress_report at(int64_t step, double seconds, double heldout)
{
    static const tn_metric_row loss = { .name = "loss", .unit = "nats", .better = TN_LOWER };
    tn_progress_report r = { .step = step,
                             .steps = 100,
                             .loss = 2.5,
                             .metrics = { .n = 1, .row = { &loss } },
                             .select = &loss,
                             .bits = 1.5,
                             .lr = 1e-3,
                             .grad_norm = 0.5,
                             .tokens_per_s = 12345,
                             .seconds = seconds,
                             .samples_per_s = NAN,
                             .loss_scale = NAN,
                             .utilisation = NAN,
                             .memory_bytes = NAN,
                             .first_step_s = NAN,
                             .best_step = step };
    r.evaluated = !isnan(heldout);
    if (r.evaluated) tn_scores_put(&r.last, "loss", heldout);
    return r;
}

/* What is printed of an evaluation at step 20, one just behind it, one later, and a step, on a terminal of so many columns; 0: piped. */
static char *shown(int columns)
{
    char *text = NULL;
    size_t bytes;
    tn_train_view v;
    FILE *f = open_memstream(&text, &bytes);
    assert_non_null(f);
    tn_train_view_start(&v, f, "");
    if (columns) v.progress.term.tty = true, v.progress.term.width = columns, v.progress.every_s = 0.1;
    const tn_progress_report r[] = { at(10, 5, NAN), at(20, 10, 3.25), at(21, 10.1, 3), at(40, 20, 2.75),
                                     at(50, 25, NAN) };
    for (size_t i = 0; i < sizeof r / sizeof *r; i++) tn_train_view_report(&v, &r[i]);
    tn_train_view_end(&v);
    tn_train_view_free(&v);
    fclose(f);
    return text;
}

static void evaluations_stay(void **state)
{
    (void)state;
    char *t = shown(100);
    assert_non_null(
        strstr(t, "\reval    step  20/100  held out 3.250 (4.88 b/B)  after 0:10  best\033[K\n\rstep  20/100"));
    assert_non_null(
        strstr(t, "\reval    step  40/100  held out 2.750 (4.12 b/B)  after 0:20  best\033[K\n\rstep  40/100"));
    assert_null(strstr(t, "eval    step  21/100")); /* one a second */
    assert_non_null(strstr(t, "  |g| 0.50  12.3 k tok/s\033[K\n"));
    free(t);
}

static void fields_are_whole(void **state)
{
    (void)state;
    for (int columns = 24; columns < 100; columns++) {
        char *t = shown(columns), *last = strrchr(t, '\r');
        assert_non_null(last);
        *strstr(last, "\033[K") = 0;
        static const char *const ends[] = { "/100", "·", "0:25", "2.500", "1.0e-03", "0.50", "tok/s" };
        bool whole = false;
        for (size_t i = 0; i < sizeof ends / sizeof *ends; i++) {
            const size_t n = strlen(last), m = strlen(ends[i]);
            whole = whole || (n >= m && strcmp(last + n - m, ends[i]) == 0);
        }
        if (!whole) fail_msg("%d columns: %s", columns, last + 1);
        free(t);
    }
}

static void piped(void **state)
{
    (void)state;
    char *t = shown(0);
    assert_null(strstr(t, "eval"));
    assert_null(strchr(t, '\r'));
    assert_non_null(
        strstr(t,
               "step  20/100  eta 0:40  loss 2.500  held out 3.250 (4.88 b/B)  lr 1.0e-03  |g| 0.50  12.3 k tok/s\n"));
    free(t);
}

/* Losses of squared errors are small: they have digits, and the line its fields. */
static void small_losses(void **state)
{
    static const struct {
        double loss;
        const char *shown;
    } rows[] = {
        { 2.5, "  loss 2.500  held out 2.500 " },
        { 0.1, "  loss 0.100  held out 0.100 " },
        { 0.04123, "  loss 0.0412  held out 0.0412 " },
        { 0.000412, "  loss 0.000412  held out 0.000412 " },
        { 4.1234e-7, "  loss 4.12e-07  held out 4.12e-07 " },
        { -0.000412, "  loss -0.000412  held out -0.000412 " },
        { 0, "  loss 0.000  held out 0.000 " },
        { 1e25, "  loss 1.000e+25  held out 1.000e+25 " },
    };
    (void)state;
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        char *text = NULL;
        size_t bytes;
        tn_train_view v;
        FILE *f = open_memstream(&text, &bytes);
        assert_non_null(f);
        tn_train_view_start(&v, f, "");
        tn_progress_report r = at(20, 10, rows[i].loss);
        r.loss = rows[i].loss;
        tn_train_view_report(&v, &r);
        tn_train_view_end(&v);
        tn_train_view_free(&v);
        fclose(f);
        if (!strstr(text, rows[i].shown)) fail_msg("%g: no \"%s\" in %s", rows[i].loss, rows[i].shown, text);
        free(text);
    }
}

void tn_tests_train_view(tn_test_list *l)
{
    tn_test_add(l, evaluations_stay, NULL, "train_view: evaluations stay");
    tn_test_add(l, fields_are_whole, NULL, "train_view: no field is cut");
    tn_test_add(l, piped, NULL, "train_view: piped");
    tn_test_add(l, small_losses, NULL, "train_view: small losses have digits");
}
