/* Reads what a run wrote about itself. Whatever is damaged or not there becomes a row of what is missing. */
#include "report/recorded/recorded.h"

#include "base/text.h"
#include "io/yaml_settings.h"
#include "report/run_tail.h"
#include "train/run/train_settings.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

static tn_status put_missing(tn_recorded *r, const char *what, const char *why)
{
    if (!what || !why) return tn_error(TN_MEMORY, "out of memory");
    if (r->n_missing < TN_RECORDED_MISSING) r->missing[r->n_missing++] = (tn_recorded_missing){ what, why };
    return TN_OK;
}

/* Texts of files are shown on terminals. NULL stays NULL: out of memory. */
static char *clean(char *s)
{
    if (s) tn_text_clean(s);
    return s;
}

/* --- settings -------------------------------------------------------------------------------------------------------- */

static tn_status take_settings(tn_recorded *r, size_t i, const tn_settings *st, tn_arena *a)
{
    static const char *const keys[] = { "model",          "preset",        "data",
                                        "device",         "threads",       "compute",
                                        "train.batch",    "train.context", "train.accumulate",
                                        "train.steps",    "train.lr",      "plan.recompute",
                                        "loader.workers", "log.level" };
    const size_t n = sizeof keys / sizeof *keys;
    _Static_assert(sizeof keys / sizeof *keys <= TN_RECORDED_SETTINGS, "room for all of them");
    for (size_t k = 0; k < n; k++) {
        const char *text = clean(tn_arena_strdup(a, tn_settings_text_at(st, tn_settings_find(st, keys[k]))));
        if (!text) return tn_error(TN_MEMORY, "out of memory");
        if (r->n_settings < n) r->setting[r->n_settings++] = (tn_recorded_setting){ keys[k], { "", "" } };
        r->setting[k].value[i] = text;
    }
    return TN_OK;
}

static void drop_empty_settings(tn_recorded *r)
{
    size_t n = 0;
    for (size_t k = 0; k < r->n_settings; k++)
        if (r->setting[k].value[0][0] || r->setting[k].value[1][0]) r->setting[n++] = r->setting[k];
    r->n_settings = n;
}

/* Those of training; a model's own may be in a shared object, which is not loaded here. */
static tn_status read_settings(tn_recorded *r, size_t i, tn_arena *a)
{
    const char *run = r->run[i].name;
    char path[TN_PATH_BYTES];
    tn_settings *st = NULL;
    tn_status s = TN_OK;
    TN_TRY(tn_path_join(run, "config.yaml", path, sizeof path));
    TN_TRY(tn_settings_new(&st));
    TN_TRY(tn_settings_add(st, tn_train_settings, tn_train_settings_n, "train"));
    TN_TRY(tn_settings_peek_yaml(st, path));
    TN_TRY(take_settings(r, i, st, a));
done:
    tn_settings_free(st);
    if (s == TN_OK || s == TN_MEMORY) return s;
    return put_missing(r, tn_arena_printf(a, "settings of %s", run), tn_arena_strdup(a, tn_error_text()));
}

/* --- the checkpoint -------------------------------------------------------------------------------------------------- */

static tn_status checkpoint_path(const tn_recorded_run *x, int64_t step, char path[TN_PATH_BYTES])
{
    char name[TN_CKPT_NAME];
    return tn_path_join(x->name, tn_ckpt_name(step, name), path, TN_PATH_BYTES);
}

/* Why the newest of its checkpoints is not the one that is read; NULL: it is, or there is none. */
static const char *newest_damaged(const tn_recorded_run *x, tn_arena *a, bool *some)
{
    char path[TN_PATH_BYTES];
    json_t *manifest = NULL;
    tn_ckpt_state st;
    tn_ckpt_list l = { 0 };
    const char *why = NULL;
    *some = false;
    if (tn_ckpt_list_read(x->name, &l) != TN_OK) return tn_arena_strdup(a, tn_error_text());
    *some = l.n > 0;
    const int64_t newest = l.n ? l.entry[l.n - 1].step : 0;
    tn_ckpt_list_free(&l);
    if (!*some || newest == x->info.saved || checkpoint_path(x, newest, path) != TN_OK) return NULL;
    if (tn_ckpt_read_manifest(path, &manifest) != TN_OK) why = tn_arena_strdup(a, tn_error_text());
    else if (tn_ckpt_read_state(path, &st) != TN_OK) why = tn_arena_strdup(a, tn_error_text());
    else {
        tn_ckpt_state_free(&st);
        why = tn_arena_printf(a, "files of %s are missing or have other sizes: `tenon ckpt verify %s` names them", path,
                              x->name);
    }
    json_decref(manifest);
    return why;
}

static tn_status miss_checkpoint(tn_recorded *r, const tn_recorded_run *x, bool known, tn_arena *a)
{
    bool some;
    const char *why = newest_damaged(x, a, &some);
    if (known && !why) return TN_OK;
    if (known)
        return put_missing(r, tn_arena_printf(a, "what %s did after step %lld", x->name, (long long)x->info.saved),
                           why);
    return put_missing(r, tn_arena_printf(a, "shares of the time of %s, planned memory", x->name),
                       why    ? why
                       : some ? "its checkpoints cannot be read: `tenon ckpt verify` on the run says why"
                              : "it has no checkpoint: ckpt.every=N or ckpt.every_s=S makes a run save earlier");
}

/* Where it is not known all its numbers are NaN. */
static tn_status read_checkpoint(tn_recorded *r, tn_recorded_run *x, tn_ckpt_state *st, tn_arena *a)
{
    char path[TN_PATH_BYTES];
    json_t *manifest = NULL;
    bool known = checkpoint_path(x, x->info.saved, path) == TN_OK && tn_ckpt_read_state(path, st) == TN_OK;
    if (known) tn_ckpt_state_free(st);
    else st->tokens_per_s = st->samples_per_s = st->planned_bytes = st->peak_bytes = st->utilisation = NAN;
    x->timed = known && tn_run_time_read(x->name, &x->time) == TN_OK;
    if (known && tn_ckpt_read_manifest(path, &manifest) == TN_OK) {
        const char *version = json_string_value(json_object_get(manifest, "tenon"));
        x->version = version ? clean(tn_arena_printf(a, "%.31s", version)) : NULL;
    }
    json_decref(manifest);
    return miss_checkpoint(r, x, known, a);
}

/* --- numbers --------------------------------------------------------------------------------------------------------- */

enum { LAST, MEAN };

/* Of the checkpoint, or where that does not say it of the last lines of the metrics. */
static const struct {
    const char *name, *unit;
    int at; /* in the state of a checkpoint; -1: it has none */
    const char *key;
    int kind;
    double scale, tail_scale;
} rows[] = {
#define IN(field) (int)offsetof(tn_ckpt_state, field)
    { "speed", "tokens/s", IN(tokens_per_s), "tokens_per_s", MEAN, 1, 1 },
    { "speed", "samples/s", IN(samples_per_s), "samples_per_s", MEAN, 1, 1 },
    { "time of a step", "ms", -1, "step_ms", MEAN, 1, 1 },
    { "steps waiting for data", "%", -1, "stall_frac", LAST, 1, 100 },
    { "memory planned", "MB", IN(planned_bytes), NULL, LAST, 1e-6, 1 },
    { "memory at most", "MB", IN(peak_bytes), "memory_mb", LAST, 1e-6, 1 },
    { "utilisation", "% of the peak", IN(utilisation), "utilisation", MEAN, 100, 100 },
    { "GPU busy", "%", -1, "gpu_utilization_percent", MEAN, 1, 1 },
    { "GPU memory", "GB", -1, "memory_used_gb", LAST, 1, 1 },
    { "training loss, last", "", -1, "loss", LAST, 1, 1 },
#undef IN
};
enum { ROWS = sizeof rows / sizeof *rows };

static void take_numbers(const tn_ckpt_state *st, const json_t *tail, double out[ROWS])
{
    for (size_t i = 0; i < ROWS; i++) {
        double x = rows[i].at < 0 ? NAN : rows[i].scale * *(const double *)((const char *)st + rows[i].at);
        if (isnan(x) && rows[i].key)
            x = rows[i].tail_scale *
                (rows[i].kind == MEAN ? tn_run_tail_mean(tail, rows[i].key) : tn_run_tail_last(tail, rows[i].key));
        out[i] = isfinite(x) ? x : NAN;
    }
}

static void put_number(tn_recorded *r, const char *name, const char *unit, double first, double second)
{
    if (r->n_numbers == TN_RECORDED_NUMBERS || (isnan(first) && isnan(second))) return;
    r->number[r->n_numbers++] = (tn_recorded_number){ name, unit, { first, second } };
}

static double known(double x) { return isfinite(x) ? x : NAN; }

static void put_curves(tn_recorded *r)
{
    double last[TN_RECORDED_RUNS] = { NAN, NAN }, best[TN_RECORDED_RUNS] = { NAN, NAN };
    for (size_t k = 0; k < r->curves.n; k++)
        for (size_t i = 0; i < r->n; i++) {
            if (r->curves.run[k].dir != r->run[i].name) continue;
            last[i] = known(r->curves.run[k].final.value), best[i] = known(r->curves.run[k].lowest.value);
        }
    if (!r->curves.n || !r->curves.evaluated) return;
    put_number(r, "held-out loss, last", r->curves.unit, last[0], last[1]);
    put_number(r, "held-out loss, best", r->curves.unit, best[0], best[1]);
}

/* --- components that the run timed itself ------------------------------------------------------------------------------ */

static bool ends_in(const char *s, const char *end, size_t *n)
{
    const size_t all = strlen(s), m = strlen(end);
    *n = all - m;
    return all > m && strcmp(s + all - m, end) == 0;
}

static tn_recorded_part *part_of(tn_recorded_run *x, const char *name, size_t n, tn_arena *a)
{
    size_t i = 0;
    while (i < x->n_parts && !(strncmp(x->part[i].name, name, n) == 0 && !x->part[i].name[n])) i++;
    if (i < x->n_parts) return &x->part[i];
    char *copy = i == TN_RECORDED_PARTS ? NULL : clean(tn_arena_printf(a, "%.*s", (int)n, name));
    if (!copy) return NULL;
    x->part[x->n_parts++] = (tn_recorded_part){ copy, NAN, NAN };
    return &x->part[i];
}

static double total(const tn_recorded_part *p)
{
    return (isnan(p->forward_ms) ? 0 : p->forward_ms) + (isnan(p->backward_ms) ? 0 : p->backward_ms);
}

static int longest_first(const void *a, const void *b)
{
    const double x = total(a), y = total(b);
    return (x < y) - (x > y);
}

/* The keys of the last line with such times; their means over all the lines. */
static void take_parts(tn_recorded_run *x, const json_t *tail, tn_arena *a)
{
    const char *key;
    json_t *v, *line = NULL;
    size_t n;
    for (size_t i = json_array_size(tail); i-- > 0 && !json_object_get(line, "optimizer_ms");)
        line = json_array_get(tail, i);
    if (!json_object_get(line, "optimizer_ms")) return;
    json_object_foreach(line, key, v)
    {
        const bool forward = ends_in(key, ".forward_ms", &n), backward = !forward && ends_in(key, ".backward_ms", &n),
                   whole = strcmp(key, "data_ms") == 0 || strcmp(key, "optimizer_ms") == 0;
        if (whole) n = strlen(key) - strlen("_ms");
        if (!(forward || backward || whole) || strncmp(key, "op.", 3) == 0) continue;
        tn_recorded_part *p = part_of(x, key, n, a);
        if (p) *(backward ? &p->backward_ms : &p->forward_ms) = tn_run_tail_mean(tail, key);
    }
    qsort(x->part, x->n_parts, sizeof *x->part, longest_first);
}

/* --- what a measurement would have ------------------------------------------------------------------------------------- */

/* Of a run that another version wrote, or NULL. */
static const char *other_version(const tn_recorded *r)
{
    for (size_t i = 0; i < r->n; i++)
        if (r->run[i].version && strcmp(r->run[i].version, TN_VERSION) != 0) return r->run[i].version;
    return NULL;
}

/* The first of all, although what wrote the runs is known last. */
static tn_status miss_measured(tn_recorded *r, const char *why, tn_arena *a)
{
    const char *version = other_version(r),
               *text = "nothing was measured (--recorded): the same command without it does";
    if (why && version)
        text = tn_arena_printf(a, "nothing could be measured: %s; tenon %s, which wrote the run, measures it", why,
                               version);
    else if (why)
        text =
            tn_arena_printf(a,
                            "nothing could be measured: %s; what is elsewhere now can be said behind the command, as "
                            "data=FILE or device=cpu",
                            why);
    if (!text) return tn_error(TN_MEMORY, "out of memory");
    if (r->n_missing < TN_RECORDED_MISSING) r->n_missing++;
    memmove(r->missing + 1, r->missing, (r->n_missing - 1) * sizeof *r->missing);
    r->missing[0] =
        (tn_recorded_missing){ "components and ops of a step, what bounds them, timeline, memory map, advice", text };
    return TN_OK;
}

/* --- the whole ------------------------------------------------------------------------------------------------------- */

static tn_status read_run(tn_recorded *r, size_t i, tn_arena *a, double numbers[ROWS])
{
    tn_recorded_run *x = &r->run[i];
    tn_ckpt_state st = { 0 };
    if (tn_run_info_read(x->name, &x->info) != TN_OK)
        return put_missing(r, tn_arena_printf(a, "all of %s", x->name), tn_arena_strdup(a, tn_error_text()));
    tn_text_clean(x->info.model), tn_text_clean(x->info.preset);
    TN_RETURN_IF(read_settings(r, i, a));
    TN_RETURN_IF(read_checkpoint(r, x, &st, a));
    json_t *tail = tn_run_tail(x->name);
    const double last = tn_run_tail_last(tail, "step"); /* its very last line may be damaged */
    if (last > (double)x->info.step && last < 1e18) x->info.step = (int64_t)last;
    take_numbers(&st, tail, numbers);
    take_parts(x, tail, a);
    json_decref(tail);
    if (x->n_parts) return TN_OK;
    return put_missing(r, tn_arena_printf(a, "times of components within the training of %s", x->name),
                       "its metrics have none: train with log.level=performance");
}

/* Whose curves lack something: of two the one with damaged lines, where the other has none. */
static const char *whose(const tn_curves *c, bool none, const char *const *dirs, size_t n, tn_arena *a)
{
    if (n < 2) return dirs[0];
    const bool first = c->run[0].damaged > 0, second = c->run[1].damaged > 0;
    if (!none && first != second) return dirs[second];
    return tn_arena_printf(a, "%s and %s", dirs[0], dirs[1]);
}

/* Of these (n); where one of two has none, that of the other is drawn. */
static tn_status read_curves(tn_recorded *r, const char *const *dirs, size_t n, tn_arena *a)
{
    bool none = true;
    tn_curves c;
    const tn_status s = tn_curves_read(dirs, n, NULL, a, &c);
    if (s == TN_MEMORY) return s;
    if (s != TN_OK && n == 2) {
        TN_RETURN_IF(read_curves(r, dirs, 1, a));
        const tn_curves first = r->curves;
        TN_RETURN_IF(read_curves(r, dirs + 1, 1, a));
        if (!r->curves.n) r->curves = first;
        return TN_OK;
    }
    const char *why = s != TN_OK ? tn_arena_strdup(a, tn_error_text()) : tn_curves_trouble(&c, a, &none);
    r->curves = none ? (tn_curves){ .n = 0 } : c;
    if (s == TN_OK && !why) return TN_OK;
    const char *of = s == TN_OK ? whose(&c, none, dirs, n, a) : dirs[0];
    return put_missing(r, of ? tn_arena_printf(a, "%slearning curve of %s", none ? "" : "parts of the ", of) : NULL,
                       why);
}

tn_status tn_recorded_read(const char *const *runs, size_t n, const char *why, tn_arena *arena, tn_recorded *out)
{
    double number[TN_RECORDED_RUNS][ROWS];
    tn_recorded r = { .n = n, .title = n > 1 ? tn_arena_printf(arena, "%s, then %s", runs[0], runs[1]) : runs[0] };
    if (!r.title) return tn_error(TN_MEMORY, "out of memory");
    for (size_t i = 0; i < ROWS; i++) number[0][i] = number[1][i] = NAN;
    for (size_t i = 0; i < n; i++) {
        r.run[i].name = runs[i];
        TN_RETURN_IF(read_run(&r, i, arena, number[i]));
    }
    for (size_t i = 0; i < ROWS; i++) put_number(&r, rows[i].name, rows[i].unit, number[0][i], number[1][i]);
    TN_RETURN_IF(read_curves(&r, runs, n, arena));
    TN_RETURN_IF(miss_measured(&r, why, arena));
    put_curves(&r);
    drop_empty_settings(&r);
    *out = r;
    return TN_OK;
}
