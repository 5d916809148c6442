/* tenon ablate: every optimisation and setting off and on, what it is worth, and whether it computes the same. */
#include "cli/ablate/ablate_print.h"

#include "report/ablate/scratch.h"
#include "train/run/train_settings.h"

#include <stdlib.h>
#include <string.h>

static void on_begun(void *ctx, const tn_ablate_base *b) { tn_ablate_print_base(ctx, b); }
static void on_row(void *ctx, const tn_ablation *a) { tn_ablate_print_row(ctx, a); }
static void on_turn(void *ctx, const tn_ablate_turn *t) { tn_ablate_print_turn(ctx, t); }
static void on_scores(void *ctx, const tn_ablate_scores *s) { tn_ablate_print_scores(ctx, s); }
static void on_progress(void *ctx, const char *what, double part) { tn_ablate_print_progress(ctx, what, part); }

static tn_status read_flags(const tn_cli *c, tn_ablate_options *o)
{
    int64_t steps = o->steps;
    TN_RETURN_IF(tn_args_number(&c->args, "seconds", 0.001, 1e6, &o->seconds));
    TN_RETURN_IF(tn_args_whole(&c->args, "steps", 1, 1000, &steps));
    TN_RETURN_IF(tn_args_whole(&c->args, "eval", 1, 1000000, &o->eval));
    o->steps = (int)steps;
    o->only = tn_args_value(&c->args, "rows");
    if (o->only && strcmp(o->only, "all") == 0) o->only = NULL; /* alone it is what all rows end with */
    return TN_OK;
}

/* A folder beside other temporary ones; what is in it goes with it. */
static tn_status make_dir(char dir[TN_PATH_BYTES])
{
    const char *temp = getenv("TMPDIR");
    const int n = snprintf(dir, TN_PATH_BYTES, "%s/tenon-ablate-XXXXXX", temp && temp[0] == '/' ? temp : "/tmp");
    if (n >= TN_PATH_BYTES || !mkdtemp(dir)) return tn_error(TN_DISK, "no temporary folder: set TMPDIR to one");
    return TN_OK;
}

/* Task files that nobody has are made up; a task that says where its data lie reads them. */
static tn_status make_ready(tn_cli *c, tn_settings *st, const char *dir, char prepared[TN_PATH_BYTES])
{
    bool made;
    TN_RETURN_IF(tn_ablate_make_images(st, dir, &made));
    if (made) TN_RETURN_IF(tn_cli_warn(c, "the task's images are made up: name real ones with task.data=FOLDER"));
    return tn_ablate_prepare(st, dir, prepared);
}

static tn_status ablate(tn_cli *c, tn_settings *st, const tn_model *model, const char *dir)
{
    char prepared[TN_PATH_BYTES];
    tn_ablate_result r;
    tn_ablate_printing p = { .c = c };
    tn_ablate_options o = { .user = &c->user,
                            .settings = st,
                            .model = model,
                            .seconds = 180,
                            .steps = 5,
                            .dir = dir,
                            .ctx = &p,
                            .begun = on_begun,
                            .row = on_row,
                            .turn = on_turn,
                            .scores = on_scores,
                            .progress = on_progress,
                            .interrupted = tn_interrupted };
    TN_RETURN_IF(read_flags(c, &o));
    TN_RETURN_IF(make_ready(c, st, dir, prepared));
    o.prepared = prepared[0] ? prepared : NULL;
    p.options = &o;
    tn_interrupt_watch();
    tn_progress_start(&p.progress, c->err);
    const tn_status s = tn_ablate_run(&o, &r);
    tn_ablate_print_end(&p, s == TN_OK ? &r : NULL);
    if (s != TN_OK) return s;
    if (r.failed)
        return tn_error(TN_DIVERGED, "%d of %d rows compute something else than their plain side; the first is %s",
                        r.failed, r.rows, r.worst);
    if (!r.moved) return TN_OK;
    return tn_error(TN_DIVERGED, "%d of %d rows move a held-out metric that they must not; the first is %s", r.moved,
                    r.rows, r.furthest);
}

tn_status tn_cmd_ablate(tn_cli *c)
{
    tn_settings *st = NULL;
    const tn_model *model;
    char dir[TN_PATH_BYTES];
    TN_RETURN_IF(tn_args_expect(&c->args, 1, 1));
    TN_RETURN_IF(tn_settings_resolve_user(&c->user, tn_args_positional(&c->args, 0), c->args.overrides,
                                          c->args.overrides_n, &st, &model));
    tn_status s = make_dir(dir);
    if (s == TN_OK) {
        s = ablate(c, st, model, dir);
        tn_ablate_sweep(dir);
    }
    tn_settings_free(st);
    return s;
}
