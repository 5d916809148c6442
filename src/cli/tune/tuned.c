/* Settings that tenon tune found, on the command line of another verb. */
#include "cli/tune/tuned.h"

#include "base/memory_limit.h"
#include "train/run/train_settings.h"

#include <stdlib.h>
#include <string.h>

const char *tn_tuned_dir(char buf[TN_PATH_BYTES])
{
    const char *own = getenv("TENON_CACHE"), *cache = getenv("XDG_CACHE_HOME"), *home = getenv("HOME");
    int n = 0;
    buf[0] = 0;
    if (own && own[0]) n = snprintf(buf, TN_PATH_BYTES, "%s/tune", own);
    else if (cache && cache[0] == '/') n = snprintf(buf, TN_PATH_BYTES, "%s/tenon/tune", cache);
    else if (home && home[0]) n = snprintf(buf, TN_PATH_BYTES, "%s/.cache/tenon/tune", home);
    if (n >= TN_PATH_BYTES) buf[0] = 0;
    return buf;
}

tn_status tn_tuned_key_here(const tn_settings *st, tn_tuned_key *out)
{
    char machine[TN_MACHINE_TEXT];
    return tn_tuned_key_of(st, tn_machine_text("/proc", tn_memory_limit(), machine), TN_VERSION, out);
}

/* The rows of a step are those of the command. */
static tn_status check_rows(const tn_settings *st, const tn_tuned *t)
{
    long long batch = 0, accumulate = 1;
    if (tn_settings_is_auto(st, "train.batch")) return TN_OK;
    const int64_t rows = tn_settings_int(st, "train.batch") * tn_settings_int(st, "train.accumulate");
    for (size_t i = 0; i < t->n; i++) {
        if (strncmp(t->word[i], "train.batch=", 12) == 0) batch = strtoll(t->word[i] + 12, NULL, 10);
        if (strncmp(t->word[i], "train.accumulate=", 17) == 0) accumulate = strtoll(t->word[i] + 17, NULL, 10);
    }
    if (!batch || (accumulate > 0 && rows % accumulate == 0 && rows / accumulate == batch)) return TN_OK;
    return tn_error(TN_BAD_FILE,
                    "what is remembered has other rows of a step than the command: run `tenon tune` again");
}

static tn_status find(tn_cli *c, const char *target, tn_tuned *out)
{
    tn_status s = TN_OK;
    tn_settings *st = NULL;
    const tn_model *m;
    tn_tuned_key key;
    char dir[TN_PATH_BYTES];
    bool found = false;
    TN_TRY(tn_settings_resolve_user(&c->user, target, c->args.overrides, c->args.overrides_n, &st, &m));
    TN_TRY(tn_tuned_key_here(st, &key));
    if (tn_tuned_dir(dir)[0]) TN_TRY(tn_tuned_load(dir, &key, out, &found));
    if (!found)
        TN_TRY(tn_error(TN_USAGE, "--tuned: nothing is remembered for these settings on this machine: run `tenon tune` "
                                  "with the same target and settings first"));
    TN_TRY(check_rows(st, out));
done:
    tn_settings_free(st);
    return s;
}

tn_status tn_tuned_apply(tn_cli *c, tn_arena *arena, const char *target, const char *const **word, size_t *n)
{
    tn_tuned t = { .n = 0 };
    TN_RETURN_IF(find(c, target, &t));
    const size_t own = c->args.overrides_n;
    const char **list = tn_arena_alloc(arena, sizeof *list * (own + t.n + 1));
    if (!list) return TN_MEMORY;
    for (size_t i = 0; i < own; i++) list[i] = c->args.overrides[i];
    fprintf(c->err, "tuned  ");
    for (size_t i = 0; i < t.n; i++) {
        if (!(list[own + i] = tn_arena_strdup(arena, t.word[i]))) return TN_MEMORY;
        fprintf(c->err, " %s", t.word[i]);
    }
    if (t.gain.n) fprintf(c->err, "   (%s: %.2f times as fast)\n", t.when, t.gain.median);
    else fprintf(c->err, "   (%s: nothing was faster)\n", t.when);
    *word = list;
    *n = own + t.n;
    return TN_OK;
}
