/* Reading metrics.jsonl into curves. A run may be writing it: a line that is cut at the end is not there yet. */
#include "report/curves.h"

#include "base/fs.h"
#include "io/jsonl.h"
#include "train/run/overfit_watch.h"
#include "train/run/run_info.h"

#include <math.h>
#include <string.h>
#include <sys/stat.h>

enum { SMOOTH_PARTS = 60, KEYS_SHOWN = 24, READ_BYTES = 8 << 20, EVALUATIONS = 30000 };

/* --- reading --------------------------------------------------------------------------------------------------------- */

static double number_of(const json_t *line, const char *key)
{
    double x;
    return key && tn_jsonl_get_number(line, key, &x) ? x : NAN;
}

typedef struct reading {
    tn_curves_row *row;
    size_t n, capacity;
} reading;

static tn_status take_line(reading *r, const json_t *line, const char *metric)
{
    char key[96] = "";
    if (metric) snprintf(key, sizeof key, "heldout_%.80s", metric);
    const double named = number_of(line, metric);
    const tn_curves_row row = { .step = number_of(line, "step"),
                                .seconds = number_of(line, "seconds"),
                                .loss = number_of(line, "loss"),
                                .heldout = number_of(line, "heldout"),
                                .bits = number_of(line, "bits_per_byte"),
                                .named = isnan(named) && metric ? number_of(line, key) : named };
    if (isnan(row.step) || (isnan(row.loss) && isnan(row.heldout) && isnan(row.named))) return TN_OK;
    TN_RETURN_IF(tn_grow((void **)&r->row, &r->capacity, r->n + 1, sizeof *r->row));
    r->row[r->n++] = row;
    return TN_OK;
}

/* No picture shows a million steps: of a long file, evaluations and evenly spaced lines. */
static tn_status open_lines(const char *dir, tn_jsonl_reader **out)
{
    char path[TN_PATH_BYTES];
    struct stat st = { 0 };
    TN_RETURN_IF(tn_path_join(dir, "metrics.jsonl", path, sizeof path));
    if (lstat(path, &st) == 0 && !S_ISREG(st.st_mode))
        return tn_error(TN_BAD_FILE, "%.640s is not a file of a run: remove it", path);
    TN_RETURN_IF(tn_jsonl_reader_open(path, out));
    tn_jsonl_reader_thin(*out, (int64_t)(st.st_size / READ_BYTES) + 1, "\"heldout", EVALUATIONS);
    tn_jsonl_reader_forgive(*out);
    return TN_OK;
}

static tn_status read_lines(const char *dir, const char *metric, reading *out, tn_curves_run *run)
{
    tn_jsonl_reader *from;
    json_t *line;
    TN_RETURN_IF(open_lines(dir, &from));
    tn_status s = tn_jsonl_reader_next(from, &line);
    while (s == TN_OK && line) {
        s = take_line(out, line, metric);
        if (s == TN_OK) s = tn_jsonl_reader_next(from, &line);
    }
    run->damaged = tn_jsonl_reader_damaged(from, &run->first_damaged);
    tn_jsonl_reader_close(from);
    return s;
}

static tn_status read_run(const char *dir, const char *metric, tn_arena *arena, tn_curves_run *out)
{
    reading r = { 0 };
    tn_run_info info;
    TN_RETURN_IF(tn_run_info_read(dir, &info));
    *out = (tn_curves_run){
        .dir = dir, .step = info.step, .steps = info.steps, .by_loss = !info.select[0], .stops_early = info.patience > 0
    };
    tn_status s = read_lines(dir, metric, &r, out);
    out->n = r.n;
    out->tokens_per_step = info.saved ? (double)info.tokens / (double)info.saved : NAN;
    out->row = s == TN_OK ? tn_arena_alloc(arena, (r.n + 1) * sizeof *r.row) : NULL;
    if (s == TN_OK && !out->row) s = TN_MEMORY;
    if (s == TN_OK && r.n) memcpy(out->row, r.row, r.n * sizeof *r.row);
    tn_free(r.row);
    return s;
}

/* --- names ----------------------------------------------------------------------------------------------------------- */

/* How many bytes of folders all directories have in common, up to a '/'; the last name stays. */
static size_t common_folders(const char *const *dirs, size_t n)
{
    const char *slash = strrchr(dirs[0], '/');
    size_t common = slash ? (size_t)(slash - dirs[0]) + 1 : 0;
    for (size_t i = 1; i < n; i++) {
        size_t k = 0, folder = 0;
        for (; k < common && dirs[i][k] && dirs[i][k] == dirs[0][k]; k++)
            if (dirs[0][k] == '/') folder = k + 1;
        const char *last = strrchr(dirs[i], '/');
        const size_t most = last ? (size_t)(last - dirs[i]) + 1 : 0;
        common = folder < most ? folder : most;
    }
    return common;
}

/* --- what is drawn --------------------------------------------------------------------------------------------------- */

/* Bits per byte where every evaluation has them: tokenizers can then be compared. */
static bool has_bits(const tn_curves *c)
{
    bool some = false;
    for (size_t i = 0; i < c->n; i++)
        for (size_t k = 0; k < c->run[i].n; k++) {
            const tn_curves_row *r = &c->run[i].row[k];
            if (isnan(r->heldout)) continue;
            if (isnan(r->bits)) return false;
            some = true;
        }
    return some;
}

static size_t evaluations(const tn_curves_run *r)
{
    size_t n = 0;
    for (size_t i = 0; i < r->n; i++) n += !isnan(r->row[i].heldout);
    return n;
}

/* In bits per byte, one nat of a run's training loss is as much as one of its held-out loss. */
static double scale_of(const tn_curves_run *r, bool bits)
{
    for (size_t i = r->n; bits && i-- > 0;)
        if (r->row[i].heldout > 0 && isfinite(r->row[i].bits)) return r->row[i].bits / r->row[i].heldout;
    return 1;
}

static bool in_bits(const tn_curves *c) { return !c->metric && strcmp(c->unit, "bits per byte") == 0; }

static double value_of(const tn_curves *c, const tn_curves_run *run, const tn_curves_row *r)
{
    if (c->metric) return r->named;
    if (!c->evaluated) return r->loss * scale_of(run, in_bits(c));
    return in_bits(c) ? r->bits : r->heldout;
}

static void find_extremes(const tn_curves *c, tn_curves_run *r)
{
    r->final = r->lowest = r->highest = (tn_curves_value){ NAN, NAN };
    for (size_t i = 0; i < r->n; i++) {
        const tn_curves_value v = { value_of(c, r, &r->row[i]), r->row[i].step };
        if (isnan(v.value)) continue;
        r->final = v;
        if (!(r->lowest.value <= v.value)) r->lowest = v;
        if (!(r->highest.value >= v.value)) r->highest = v;
    }
}

/* As the run itself watched its evaluations. */
static void watch_evaluations(const tn_curves *c, tn_curves_run *r)
{
    tn_overfit_watch w;
    tn_overfit_watch_begin(&w, false, NAN, 0);
    for (size_t i = 0; i < r->n; i++) {
        const double v = value_of(c, r, &r->row[i]);
        const int64_t step = (int64_t)r->row[i].step;
        if (isnan(v)) continue;
        const bool best = isnan(w.best) || v < w.best;
        tn_overfit_watch_add(&w, step, v, best);
        tn_patience_add(&r->patience, step, best);
    }
    r->worse = w.worse;
}

static bool has_metric(const tn_curves *c)
{
    for (size_t i = 0; i < c->n; i++)
        for (size_t k = 0; k < c->run[i].n; k++)
            if (!isnan(c->run[i].row[k].named)) return true;
    return false;
}

/* The keys of a run's last evaluation. */
static tn_status refuse_metric(const tn_curves *c)
{
    char keys[640] = "";
    tn_jsonl_reader *from;
    json_t *line, *last = NULL, *v;
    const char *key;
    size_t n = 0, used = 0;
    TN_RETURN_IF(open_lines(c->run[0].dir, &from));
    while (tn_jsonl_reader_next(from, &line) == TN_OK && line)
        if (json_object_get(line, "heldout") || !last) {
            json_decref(last);
            last = json_incref(line);
        }
    tn_jsonl_reader_close(from);
    json_object_foreach(last, key, v) if (json_is_number(v) && n++ < KEYS_SHOWN && used < sizeof keys) used +=
        (size_t)snprintf(keys + used, sizeof keys - used, "%s%.48s", n > 1 ? ", " : "", key);
    json_decref(last);
    return tn_error(TN_USAGE, "--metric=%.64s: %.300s has none of that name; it has %s", c->metric, c->run[0].dir,
                    keys);
}

tn_status tn_curves_read(const char *const *dirs, size_t n, const char *metric, tn_arena *arena, tn_curves *out)
{
    tn_curves c = { .metric = metric, .n = n, .run = tn_arena_alloc(arena, (n + 1) * sizeof *c.run) };
    if (!c.run) return TN_MEMORY;
    const size_t skip = common_folders(dirs, n);
    for (size_t i = 0; i < n; i++) {
        TN_RETURN_IF(read_run(dirs[i], metric, arena, &c.run[i]));
        c.run[i].name = dirs[i] + skip;
        c.evaluated = c.evaluated || evaluations(&c.run[i]) >= 2;
    }
    if (metric && !has_metric(&c)) return refuse_metric(&c);
    c.unit = metric ? metric : has_bits(&c) ? "bits per byte" : "nats";
    for (size_t i = 0; i < n; i++) {
        find_extremes(&c, &c.run[i]);
        if (c.evaluated && !metric && c.run[i].by_loss) watch_evaluations(&c, &c.run[i]);
    }
    *out = c;
    return TN_OK;
}

/* --- what is not there ----------------------------------------------------------------------------------------------- */

static size_t values(const tn_curves *c)
{
    size_t n = 0;
    for (size_t i = 0; i < c->n; i++)
        for (size_t k = 0; k < c->run[i].n; k++) n += isfinite(value_of(c, &c->run[i], &c->run[i].row[k]));
    return n;
}

/* "line 3 of r/metrics.jsonl is damaged", behind what was said of other runs. */
static const char *say_damaged(const tn_curves_run *r, const char *before, tn_arena *arena)
{
    const char *lead = before ? before : "", *comma = before ? ", " : "";
    if (r->damaged == 1)
        return tn_arena_printf(arena, "%s%sline %lld of %s/metrics.jsonl is damaged", lead, comma,
                               (long long)r->first_damaged, r->dir);
    return tn_arena_printf(arena, "%s%s%lld lines of %s/metrics.jsonl are damaged, the first is line %lld", lead, comma,
                           (long long)r->damaged, r->dir, (long long)r->first_damaged);
}

const char *tn_curves_trouble(const tn_curves *c, tn_arena *arena, bool *none)
{
    const char *said = NULL;
    *none = values(c) == 0;
    for (size_t i = 0; i < c->n; i++)
        if (c->run[i].damaged) said = say_damaged(&c->run[i], said, arena);
    if (!*none) return said ? tn_arena_printf(arena, "The learning curve has gaps: %s", said) : NULL;
    if (!said) said = tn_arena_printf(arena, "%s/metrics.jsonl has no loss that is a number", c->run[0].dir);
    return tn_arena_printf(arena, "There is no learning curve: %s", said ? said : "");
}

/* --- overfitting ----------------------------------------------------------------------------------------------------- */

int64_t tn_curves_stop(const tn_curves_run *r)
{
    return r->worse && !r->stops_early ? tn_patience_stop(&r->patience, r->step, 0) : 0;
}

const char *tn_curves_rise(const tn_curves_run *r, char buf[TN_CURVES_RISE])
{
    char patience[TN_PATIENCE_TEXT] = "";
    buf[0] = 0;
    if (!r->worse) return buf;
    if (tn_curves_stop(r))
        tn_patience_text(&r->patience, r->step, 0, r->tokens_per_step * (double)r->step, true, patience);
    snprintf(buf, TN_CURVES_RISE, "held-out loss has risen since step %.0f (%.4f -> %.4f)%s%s", r->lowest.step,
             r->lowest.value, r->final.value, *patience ? "; " : "", patience);
    return buf;
}

/* --- the plot -------------------------------------------------------------------------------------------------------- */

static double place_of(const tn_curves_run *run, const tn_curves_row *r, tn_curves_axis x)
{
    return x == TN_CURVES_SECONDS ? r->seconds : x == TN_CURVES_TOKENS ? r->step * run->tokens_per_step : r->step;
}

/* A mean of the last few values at each, which are fewer at the beginning, where the loss falls fast. */
static void smooth(double *y, size_t n, tn_arena *arena)
{
    const size_t most = n / SMOOTH_PARTS;
    double *sum = most > 1 ? tn_arena_alloc(arena, (n + 1) * sizeof *sum) : NULL; /* of the values before each */
    if (!sum) return;
    sum[0] = 0;
    for (size_t i = 0; i < n; i++) sum[i + 1] = sum[i] + y[i];
    for (size_t i = 0; i < n; i++) {
        const size_t window = i / 4 + 1 < most ? i / 4 + 1 : most;
        y[i] = (sum[i + 1] - sum[i + 1 - window]) / (double)window;
    }
}

/* 1 + the lowest of the values; 0: it is the last, so that a ring would say nothing. */
static size_t place_of_best(const double *y, size_t n)
{
    size_t best = 0;
    for (size_t i = 1; i < n; i++)
        if (y[i] < y[best]) best = i;
    return best + 1 < n ? best + 1 : 0;
}

static tn_status add_series(const tn_curves *c, const tn_curves_run *run, tn_curves_axis axis, bool training,
                            tn_arena *arena, tn_plot *p, tn_series *to)
{
    double *x = tn_arena_alloc(arena, (run->n + 1) * sizeof *x), *y = tn_arena_alloc(arena, (run->n + 1) * sizeof *y);
    size_t n = 0;
    if (!x || !y) return TN_MEMORY;
    for (size_t i = 0; i < run->n; i++) {
        const double v = training ? run->row[i].loss * scale_of(run, in_bits(c)) : value_of(c, run, &run->row[i]);
        if (!isfinite(v)) continue;
        x[n] = place_of(run, &run->row[i], axis);
        y[n++] = v;
    }
    if (training || (!c->evaluated && !c->metric)) smooth(y, n, arena);
    const bool heldout = !training && c->evaluated && !c->metric;
    to[p->count++] = (tn_series){ .name = run->name,
                                  .x = x,
                                  .y = y,
                                  .n = n,
                                  .points = heldout || (!training && c->metric),
                                  .ring = heldout ? place_of_best(y, n) : 0 };
    return TN_OK;
}

tn_status tn_curves_plot(const tn_curves *c, tn_curves_axis x, bool full, tn_arena *arena, tn_plot *out)
{
    static const char *const axes[] = { "step", "tokens", "seconds" };
    tn_series *v = tn_arena_alloc(arena, (2 * c->n + 1) * sizeof *v);
    tn_plot p = { .x_label = axes[x], .y_label = c->unit, .series = v, .ring = "best step" };
    if (!v) return TN_MEMORY;
    full = full && c->evaluated && !c->metric;
    for (size_t i = 0; i < c->n; i++)
        if (x == TN_CURVES_TOKENS && isnan(c->run[i].tokens_per_step))
            return tn_error(TN_USAGE,
                            "--x=tokens: %.300s has no checkpoint that says how many tokens a step has: use --x=steps",
                            c->run[i].dir);
    for (size_t i = 0; full && i < c->n; i++) {
        TN_RETURN_IF(add_series(c, &c->run[i], x, true, arena, &p, v));
        v[i].faint = true;
    }
    for (size_t i = 0; i < c->n; i++) {
        TN_RETURN_IF(add_series(c, &c->run[i], x, false, arena, &p, v));
        if (full) v[p.count - 1].like = i + 1;
    }
    p.title = c->metric       ? c->metric
              : !c->evaluated ? "training loss"
              : full          ? "held-out loss (pale: training loss)"
                              : "held-out loss";
    if (c->metric) p.y_label = NULL;
    *out = p;
    return TN_OK;
}

tn_status tn_curves_draw(const tn_curves *c, tn_arena *arena, FILE *out)
{
    tn_plot plot;
    if (!c->n) return TN_OK;
    TN_RETURN_IF(tn_curves_plot(c, TN_CURVES_STEPS, true, arena, &plot));
    return tn_plot_svg(&plot, out);
}
