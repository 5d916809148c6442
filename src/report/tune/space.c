/* The axes of tenon tune, one function for each. An axis with one value is left out. */
#include "report/tune/space.h"

#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

static const double LEAST_APART = 1.5, NEAR = 1.1; /* of rows that are tried in any case; of those that there are */
enum { MOST_ROWS = 10, MOST_PARTS = 4096, MOST_CHUNKS = 4, LEAST_CHUNK = 64 };

typedef struct making {
    const tn_tune_space_options *o;
    const tn_session *s;
    const tn_settings *st;
    tn_tune_space *out;
} making;

/* --- values ------------------------------------------------------------------------------------------------------------------- */

static void add_word(tn_tune_value *v, const char *fmt, ...) TN_PRINTF(2, 3);
static void add_word(tn_tune_value *v, const char *fmt, ...)
{
    va_list list;
    va_start(list, fmt);
    if (v->n < TN_TUNE_VALUE_WORDS) vsnprintf(v->word[v->n++], TN_TUNE_WORD, fmt, list);
    va_end(list);
}

static bool equal(const tn_tune_value *a, const tn_tune_value *b)
{
    for (int i = 0; i < a->n && a->n == b->n; i++)
        if (strcmp(a->word[i], b->word[i]) != 0) return false;
    return a->n == b->n;
}

/* Its index; a value that already exists is not added again. */
static int add_value(tn_tune_axis *a, const tn_tune_value *v)
{
    for (int i = 0; i < a->n; i++)
        if (equal(&a->value[i], v)) return i;
    if (a->n == TN_TUNE_VALUES) return a->n - 1;
    a->value[a->n] = *v;
    return a->n++;
}

static int add_text(tn_tune_axis *a, const char *key, const char *text)
{
    tn_tune_value v = { .n = 0 };
    add_word(&v, "%s=%s", key, text);
    return add_value(a, &v);
}

static int add_number(tn_tune_axis *a, const char *key, int64_t x)
{
    char text[32];
    snprintf(text, sizeof text, "%lld", (long long)x);
    return add_text(a, key, text);
}

/* --- rows at once ------------------------------------------------------------------------------------------------------------- */

/* Without data the rate that auto stands for is not known. */
static bool may_drop(const tn_settings *st)
{
    return tn_settings_is_auto(st, "train.dropout") || tn_settings_float(st, "train.dropout") > 0;
}

/* Dropout draws by the number of the batch: other parts have other masks. */
static bool may_cut(const making *m)
{
    const tn_model *model = m->s->model;
    return !may_drop(m->st) && !m->s->source.on_policy && !(model->couples_rows && model->couples_rows(m->st));
}

/* Rows of a step that do not depend on the batch: windows are drawn by the number of the row, made-up numbers are nobody's. */
static bool may_grow(const making *m)
{
    const tn_source *source = &m->s->source;
    return may_cut(m) && (!source->ctx || (source->text && source->mode == TN_LOADER_WINDOW));
}

/* Rows as parts of the batch, or as batches of a step: what evaluations see stays the same number of rows, or almost. */
static tn_tune_value rows_value(const making *m, int64_t rows, int64_t all)
{
    tn_tune_value v = { .n = 0 };
    const int64_t now = m->s->batch, batch = now % rows == 0 ? now : rows;
    const double evaluated = (double)tn_settings_int(m->st, "train.eval_batches");
    const int64_t accumulate = batch == now ? tn_settings_int(m->st, "train.accumulate") : all / rows;
    add_word(&v, "train.batch=%lld", (long long)batch);
    add_word(&v, "train.accumulate=%lld", (long long)accumulate);
    add_word(&v, "plan.microbatches=%lld", (long long)(batch / rows));
    if (all > now) add_word(&v, "train.eval_batches=%.0f", ceil(evaluated * (double)now / (double)batch));
    return v;
}

/* In rising order. */
static void each_divisor(int64_t n, void (*take)(void *ctx, int64_t divisor), void *ctx)
{
    int64_t k = 1;
    for (; k <= n / k; k++)
        if (n % k == 0) take(ctx, k);
    while (--k >= 1)
        if (n % k == 0 && n / k != k) take(ctx, n / k);
}

typedef struct offering {
    const making *m;
    tn_tune_axis *a;
    int64_t all, now;     /* rows of a step, or of a batch; at once */
    double apart;         /* values that are tried in any case */
    int64_t tried, known; /* the last of these, and of all */
    int n;                /* values */
    int left_out;         /* of those between, the lowest: there is no room */
} offering;

/* *between: it is tried only where more rows do not fit. The present value and all rows of a batch are there in any case. */
static bool is_offered(offering *f, int64_t rows, bool *between)
{
    const int64_t batch = f->m->s->batch;
    const bool stays = rows == f->now || rows == batch || rows == f->all;
    *between = !stays && (double)rows < f->apart * (double)f->tried;
    if (!stays && rows < (batch + MOST_PARTS - 1) / MOST_PARTS) return false;
    if (*between && (double)rows < NEAR * (double)f->known) return false;
    f->known = rows;
    if (!*between) f->tried = rows;
    return true;
}

static void count_rows(void *ctx, int64_t rows)
{
    offering *f = ctx;
    bool between;
    f->n += is_offered(f, rows, &between);
}

static void add_row(void *ctx, int64_t rows)
{
    offering *f = ctx;
    bool between;
    const int axis = f->m->out->n;
    if (!is_offered(f, rows, &between)) return;
    if (between && f->left_out-- > 0) return;
    const tn_tune_value v = rows_value(f->m, rows, f->all);
    const int at = add_value(f->a, &v);
    f->a->between[at] = between;
    if (!between) f->m->out->first.at[axis] = at;
    if (rows == f->now) f->m->out->start.at[axis] = at;
}

static void add_rows(const making *m, tn_tune_axis *a, bool grows)
{
    const int64_t times = grows ? tn_settings_int(m->st, "train.accumulate") : 1;
    offering f = { .m = m, .a = a, .all = m->s->batch * times };
    f.now = m->s->batch / tn_settings_int(m->st, "plan.microbatches");
    f.apart = fmax(LEAST_APART, pow((double)f.all, 1.0 / MOST_ROWS));
    each_divisor(f.all, count_rows, &f);
    f.left_out = f.n - TN_TUNE_VALUES;
    f.tried = f.known = 0;
    each_divisor(f.all, add_row, &f);
}

static void make_rows(const making *m, tn_tune_axis *a)
{
    const bool grows = may_grow(m) && tn_settings_int(m->st, "train.accumulate") > 1;
    a->name = "train.batch";
    m->out->rows = m->out->n;
    if (may_cut(m)) add_rows(m, a, grows);
}

/* --- recomputation ------------------------------------------------------------------------------------------------------------ */

static int add_recompute(const making *m, tn_tune_axis *a, const char *how, int64_t chunk)
{
    tn_tune_value v = { .n = 0 };
    add_word(&v, "plan.recompute=%s", how);
    if (chunk) add_word(&v, "plan.chunk=%lld", (long long)chunk);
    else add_word(&v, "plan.chunk=%s", tn_settings_text(m->st, "plan.chunk"));
    return add_value(a, &v);
}

static void make_recompute(const making *m, tn_tune_axis *a)
{
    const char *now = tn_settings_text(m->st, "plan.recompute");
    int chunks = 0;
    a->name = "plan.recompute";
    m->out->first.at[m->out->n] = add_recompute(m, a, "none", 0);
    (void)add_recompute(m, a, "layer", 0);
    if (tn_trainer_memory(m->s->trainer).frozen) (void)add_recompute(m, a, "trained", 0);
    m->out->start.at[m->out->n] = add_recompute(m, a, now, 0);
    if (!tn_model_reads_sequences(m->s->model)) return;
    for (int64_t c = m->s->length / 2; c >= LEAST_CHUNK && chunks < MOST_CHUNKS; c /= 2, chunks++)
        (void)add_recompute(m, a, "chunk", c);
}

/* --- threads, workers, precision ---------------------------------------------------------------------------------------------- */

static void make_threads(const making *m, tn_tune_axis *a)
{
    a->name = "threads";
    if (tn_trainer_device(m->s->trainer) != TN_CPU) return;
    for (int n = 1; n < m->o->cores; n *= 2) (void)add_number(a, "threads", n);
    m->out->first.at[m->out->n] = add_text(a, "threads", "auto");
    const int64_t now = tn_settings_int(m->st, "threads"); /* 0: auto */
    m->out->start.at[m->out->n] =
        add_text(a, "threads", now == m->o->cores ? "auto" : tn_settings_text(m->st, "threads"));
}

/* Text has as many threads that fill batches as there are workers; of other sources one is all there is. */
static void make_workers(const making *m, tn_tune_axis *a)
{
    const tn_source *source = &m->s->source;
    a->name = "loader.workers";
    if (!source->ctx || source->on_policy || (!source->text && !source->prefetch_depth)) return;
    for (int n = 0; n <= (source->text ? 4 : 1) && n <= m->o->cores; n = n ? 2 * n : 1)
        (void)add_number(a, "loader.workers", n);
    m->out->start.at[m->out->n] = m->out->first.at[m->out->n] =
        add_text(a, "loader.workers", tn_settings_text(m->st, "loader.workers"));
}

static void make_compute(const making *m, tn_tune_axis *a)
{
    const bool gpu = tn_trainer_device(m->s->trainer) != TN_CPU;
    const char *now = tn_settings_text(m->st, "compute");
    a->name = "compute";
    m->out->compute = m->out->n;
    if (!m->o->precision) return;
    if (strcmp(now, "auto") == 0) now = gpu ? "bf16" : "f32";
    m->out->start.at[m->out->n] = m->out->first.at[m->out->n] = add_text(a, "compute", now);
    (void)add_text(a, "compute", "f32");
    (void)add_text(a, "compute", "bf16");
    (void)add_text(a, "compute", gpu ? "tf32" : "bf16x3");
}

/* --- all of them --------------------------------------------------------------------------------------------------------------- */

/* What frees memory or fills cores at first: with little time the rest is not tried. */
static const struct {
    const char *name;
    void (*make)(const making *m, tn_tune_axis *a);
} makers[] = { { "plan.recompute", make_recompute },
               { "train.batch", make_rows },
               { "threads", make_threads },
               { "loader.workers", make_workers },
               { "compute", make_compute } };
enum { MAKERS = sizeof makers / sizeof *makers };

static bool is_listed(const char *list, const char *name)
{
    const size_t n = strlen(name);
    for (const char *p = list; p && *p; p += strcspn(p, ","), p += *p == ',')
        if (strcspn(p, ",") == n && strncmp(p, name, n) == 0) return true;
    return false;
}

static tn_status check_keep(const char *list)
{
    for (const char *p = list; p && *p; p += strcspn(p, ","), p += *p == ',') {
        const size_t n = strcspn(p, ",");
        size_t i = 0;
        while (i < MAKERS && (strlen(makers[i].name) != n || strncmp(p, makers[i].name, n) != 0)) i++;
        if (i == MAKERS)
            return tn_error(TN_USAGE,
                            "--keep=%.60s: name some of plan.recompute, train.batch, threads, loader.workers, compute",
                            list);
    }
    return TN_OK;
}

tn_status tn_tune_space_of(const tn_tune_space_options *o, tn_tune_space *out)
{
    const making m = { .o = o, .s = o->session, .st = o->session->settings, .out = out };
    TN_RETURN_IF(check_keep(o->keep));
    *out = (tn_tune_space){ .rows = -1, .compute = -1 };
    for (size_t i = 0; i < MAKERS; i++) {
        tn_tune_axis *a = &out->axis[out->n];
        const int rows = out->rows, compute = out->compute;
        *a = (tn_tune_axis){ .n = 0 };
        if (!is_listed(o->keep, makers[i].name)) makers[i].make(&m, a);
        if (a->n > 1) {
            out->n++;
            continue;
        }
        out->rows = rows;
        out->compute = compute;
        out->start.at[out->n] = out->first.at[out->n] = 0;
    }
    return TN_OK;
}

static bool has_word(const tn_tune_value *v, const char *word)
{
    for (int i = 0; i < v->n; i++)
        if (strcmp(v->word[i], word) == 0) return true;
    return false;
}

size_t tn_tune_words(const tn_tune_space *s, const tn_tune_point *p, const tn_tune_point *than,
                     const char *word[TN_TUNE_WORDS])
{
    size_t n = 0;
    for (int a = 0; a < s->n; a++) {
        const tn_tune_value *v = &s->axis[a].value[p->at[a]];
        for (int i = 0; i < v->n && n < TN_TUNE_WORDS; i++)
            if (!than || !has_word(&s->axis[a].value[than->at[a]], v->word[i])) word[n++] = v->word[i];
    }
    return n;
}

bool tn_tune_sets(const char *key)
{
    static const char *const keys[] = { "train.batch",    "train.accumulate", "plan.microbatches", "train.eval_batches",
                                        "plan.recompute", "plan.chunk",       "threads",           "loader.workers",
                                        "compute" };
    for (size_t i = 0; i < sizeof keys / sizeof *keys; i++)
        if (strcmp(key, keys[i]) == 0) return true;
    return false;
}
