/* The flags of `tenon eval`: one view at a time, and what belongs to it. */
#include "cli/eval/eval.h"

#include "base/setting_value.h"

static const tn_setting rows[] = {
    TN_SETTING_INT("--positions", "0", TN_RANGE(2, 1e9), "tokens", ""),
    TN_SETTING_INT("--effective", "0", TN_RANGE(8, 1e9), "tokens", ""),
    TN_SETTING_INT("--tokens", "0", TN_RANGE(1, 1e18), "tokens", ""),
};

static const struct {
    const char *flag;
    tn_eval_view view;
    const tn_setting *value; /* its value is a context, which may be left out; NULL: not so */
} views[] = {
    { "positions", TN_EVAL_POSITIONS, &rows[0] },
    { "contexts", TN_EVAL_CONTEXTS, NULL },
    { "effective", TN_EVAL_RECEPTIVE_FIELD, &rows[1] },
    { "spectrum", TN_EVAL_SPECTRUM, NULL },
};

static tn_status read_number(const tn_setting *row, const char *text, int64_t *out)
{
    tn_setting_value v;
    if (!text) return TN_OK;
    TN_RETURN_IF(tn_setting_parse(row, text, "command line", &v));
    *out = v.i;
    return TN_OK;
}

tn_status tn_eval_read(tn_cli *c, tn_eval *out)
{
    const tn_args *a = &c->args;
    tn_eval e = {
        .c = c, .target = tn_args_positional(a, 0), .csv = tn_args_value(a, "csv"), .svg = tn_args_value(a, "svg")
    };
    for (size_t i = 0; i < sizeof views / sizeof *views; i++) {
        if (!tn_args_flag(a, views[i].flag)) continue;
        if (e.view)
            return tn_error(TN_USAGE, "--positions, --contexts, --effective and --spectrum conflict: choose one");
        e.view = views[i].view;
        if (views[i].value) TN_RETURN_IF(read_number(views[i].value, tn_args_value(a, views[i].flag), &e.context));
    }
    if (e.view == TN_EVAL_CONTEXTS) TN_RETURN_IF(tn_context_list_read(tn_args_value(a, "contexts"), &e.contexts));
    TN_RETURN_IF(read_number(&rows[2], tn_args_value(a, "tokens"), &e.tokens));
    if (e.view == TN_EVAL_LOSS && (e.csv || e.svg || e.tokens))
        return tn_error(TN_USAGE, "--csv, --svg and --tokens need --positions, --contexts, --effective or --spectrum");
    *out = e;
    return TN_OK;
}
