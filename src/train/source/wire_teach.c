/* Makes and serves what is kept of a teacher. Nothing here runs in a training step but tn_wire_teacher_read. */
#include "train/source/wire_teach.h"

#include "base/alloc.h"
#include "base/clock.h"
#include "base/fs.h"
#include "train/source/records.h"

#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>

enum { IDS, LOGITS, LSE, STATES, KINDS };
enum { MOST_ASKED = 64 };       /* questions of a row: a model takes no more */
static const double NOTE_S = 5; /* between two lines about how far it is */
static const char STEP[] = "teach";

typedef struct letter {
    const char *shape, *top, *states; /* a setting, and numbers that its inputs have as sizes */
    tn_input_row rows[KINDS];
} letter;

/* clang-format off */
#define LETTER(X) { X ".shape", X ".top", X ".states", {                                \
    [IDS] = { X ".teach_ids", TN_I32, .dims = { TN_B, "questions", X ".length", X ".top" } },        \
    [LOGITS] = { X ".teach_logits", TN_F32, .dims = { TN_B, "questions", X ".length", X ".top" } },  \
    [LSE] = { X ".teach_lse", TN_F32, .dims = { TN_B, "questions", X ".length" } },                  \
    [STATES] = { X ".teach_states", TN_F32, .dims = { TN_B, "questions", X ".length", X ".states" } } } }
/* clang-format on */

static const letter letters[TN_WIRE_READERS] = { LETTER("a"), LETTER("b"), LETTER("c"), LETTER("d") };

static const letter *letter_of(const tn_wire_lesson *l, size_t k)
{
    return &letters[l->store->reader[l->taught[k].reader].letter - 'a'];
}

/* --- what is asked for ------------------------------------------------------------------------------------------------------ */

static bool has(const tn_settings *st, const char *key) { return tn_settings_find(st, key) < tn_settings_count(st); }

static bool wanted(const tn_source_open *o)
{
    const tn_settings *st = o->settings;
    if (!o->trains || !has(st, "loss.teacher") || strcmp(tn_settings_text(st, "loss.teacher"), "cached") != 0)
        return false;
    return tn_settings_float(st, "loss.kd") != 0 || tn_settings_float(st, "loss.state") != 0;
}

static int64_t smaller(int64_t a, int64_t b) { return a < b ? a : b; }

static tn_status add_reader(const tn_settings *st, size_t reader, tn_wire_teacher *t)
{
    tn_wire_lesson *l = &t->lesson;
    const size_t k = l->readers;
    int64_t vocab, dim, layers;
    l->taught[k].reader = reader;
    const letter *x = letter_of(l, k);
    TN_RETURN_IF(tn_wire_model_sizes(st, x->shape, &vocab, &dim, &layers));
    l->taught[k].vocab = vocab;
    if (tn_settings_float(st, "loss.kd") != 0) l->taught[k].top = smaller(tn_settings_int(st, "loss.kd_top"), vocab);
    if (tn_settings_float(st, "loss.state") != 0)
        l->taught[k].states = dim * smaller(tn_settings_int(st, "loss.states"), layers);
    const int64_t size[KINDS] = { l->taught[k].top, l->taught[k].top, l->taught[k].top, l->taught[k].states };
    for (int i = 0; i < KINDS; i++) {
        t->row[k][i] = size[i] ? (int)t->n_rows : -1;
        if (size[i]) t->rows[t->n_rows++] = x->rows[i];
    }
    if (l->taught[k].top) t->numbers[t->n_numbers++] = (tn_source_number){ x->top, (double)l->taught[k].top };
    if (l->taught[k].states) t->numbers[t->n_numbers++] = (tn_source_number){ x->states, (double)l->taught[k].states };
    l->readers++;
    return TN_OK;
}

/* Its tokens are those of the sender's text. */
static void add_features(tn_wire_teacher *t)
{
    static const tn_input_row row = { "features", TN_F32, .dims = { TN_B, "features.tokens", "features.width" } };
    const tn_wire_features *f = &t->features;
    t->features_row = f->width ? (int)t->n_rows : -1;
    if (!f->width) return;
    t->rows[t->n_rows++] = row;
    t->numbers[t->n_numbers++] = (tn_source_number){ row.dims[1], (double)tn_wire_features_tokens(f) };
    t->numbers[t->n_numbers++] = (tn_source_number){ row.dims[2], (double)f->width };
}

tn_status tn_wire_teacher_open(const tn_source_open *o, const tn_wire_store *store, tn_wire_teacher *out)
{
    *out = (tn_wire_teacher){ .lesson = { .store = store } };
    TN_RETURN_IF(tn_wire_features_open(o, store, &out->features));
    add_features(out);
    if (!wanted(o)) return TN_OK;
    const char *only = has(o->settings, "readers") ? tn_settings_text(o->settings, "readers") : "";
    for (size_t r = 0; r < store->readers; r++)
        if (!*only || strchr(only, store->reader[r].letter)) TN_RETURN_IF(add_reader(o->settings, r, out));
    return TN_OK;
}

void tn_wire_teacher_close(tn_wire_teacher *t)
{
    tn_wire_features_close(&t->features);
    tn_wire_teach_close(t->file);
    t->file = NULL;
    t->ready = false;
}

/* --- making the files -------------------------------------------------------------------------------------------------------- */

typedef struct making {
    tn_wire_teacher *t;
    const tn_wire_asking *ask;
    const tn_source_prepare *how;
    tn_wire_teach_writer *to; /* NULL: the lesson is there, or none is asked for */
    bool sends;               /* features are made */
    tn_feed feed;
    tn_feed_map map;
    const void *out[TN_WIRE_READERS][KINDS]; /* of the step */
    int64_t context, asked;                  /* next: the context, of all, and how many of its questions were asked */
    bool begun_context;                      /* it had a row */
    int64_t done, all;                       /* contexts */
    double held;                             /* probability that the kept logits have, summed over tokens */
    int64_t tokens;
    double begun, noted;
} making;

/* One row of a batch: these questions of this context. */
typedef struct unit {
    int64_t context, from, n;
    bool first; /* of the context */
} unit;

static bool next_unit(making *m, unit *u)
{
    const tn_wire_store *s = m->t->lesson.store;
    const int64_t end = s->first[TN_TRAIN] + s->count[TN_TRAIN];
    for (; m->context < end; m->context++, m->asked = 0, m->begun_context = false) {
        const bool asks = m->to || (m->sends && m->t->features.asked_at);
        const int64_t left = asks ? s->question_at[m->context + 1] - s->question_at[m->context] - m->asked : 0;
        if (left <= 0 && (m->begun_context || !m->sends)) continue;
        *u = (unit){ m->context, m->asked, smaller(smaller(left, MOST_ASKED), m->ask->questions), !m->begun_context };
        m->asked += u->n;
        m->begun_context = true;
        return true;
    }
    return false;
}

static bool all_finite(const float *x, int64_t n)
{
    for (int64_t i = 0; i < n; i++)
        if (!isfinite(x[i])) return false;
    return true;
}

/* What the sender gives for the context in row b, with the question that it sees. */
static tn_status keep_features(making *m, int64_t context, int64_t question, int64_t b)
{
    tn_wire_features *f = &m->t->features;
    const int64_t each = tn_wire_features_tokens(f) * f->width;
    int64_t count;
    tn_dtype type = TN_F32;
    const float *x = tn_trainer_step_output(m->how->trainer, STEP, "features", &type, &count);
    if (!x || type != TN_F32 || count != m->feed.batch * each)
        return tn_error(TN_INTERNAL, "step %s: features has another shape", STEP);
    if (!all_finite(x + b * each, each))
        return tn_error(TN_BAD_FILE,
                        "the sender's states of training text %lld are not finite: check its model, or use "
                        "compute=f32",
                        (long long)context);
    return tn_wire_features_add(f, context, question, x + b * each);
}

static tn_status find_outputs(making *m)
{
    const tn_wire_lesson *l = &m->t->lesson;
    for (size_t k = 0; k < l->readers; k++)
        for (int i = 0; i < KINDS; i++) {
            const tn_wire_taught *x = &l->taught[k];
            const int64_t each = i == LSE ? 1 : i == STATES ? x->states : x->top;
            const tn_dtype wants = i == IDS ? TN_I32 : TN_F32;
            const int64_t rows = m->feed.batch * m->ask->questions * (l->store->reader[x->reader].length - 1);
            int64_t count;
            tn_dtype type = TN_F32;
            if (m->t->row[k][i] < 0) continue;
            const char *name = letter_of(l, k)->rows[i].name;
            m->out[k][i] = tn_trainer_step_output(m->how->trainer, STEP, name, &type, &count);
            if (!m->out[k][i] || type != wants || count != rows * each)
                return tn_error(TN_INTERNAL, "step %s: %s has another shape", STEP, name);
        }
    return TN_OK;
}

/* Logits are kept minus the largest, and so is lse: exp(l / t - lse) is a token's probability. */
static void count_held(making *m, const tn_wire_taught *x, const tn_wire_numbers *said, int64_t n)
{
    const double t = tn_settings_float(m->how->settings, "loss.kd_temperature");
    for (int64_t i = 0; said->lse && i < n * x->top; i++)
        m->held += exp((double)said->logits[i] / t - (double)said->lse[i / x->top]);
    m->tokens += said->lse ? n : 0;
}

/* What the reader says to question q, which is number `row` of the batch. */
static tn_status keep_answer(making *m, size_t k, int64_t q, int64_t row)
{
    const tn_wire_lesson *l = &m->t->lesson;
    const tn_wire_taught *x = &l->taught[k];
    const int64_t length = l->store->reader[x->reader].length;
    int64_t first;
    const int64_t n = tn_wire_lesson_tokens(l, k, q, &first), at = row * (length - 1) + first - 1;
    const void *const *out = m->out[k];
    tn_wire_numbers said = { 0 };
    if (x->top) {
        said.ids = (int32_t *)(uintptr_t)out[IDS] + at * x->top;
        said.logits = (float *)(uintptr_t)out[LOGITS] + at * x->top;
        said.lse = (float *)(uintptr_t)out[LSE] + at;
    }
    if (x->states) said.states = (float *)(uintptr_t)out[STATES] + at * x->states;
    if ((said.lse && !all_finite(said.lse, n)) || (said.states && !all_finite(said.states, n * x->states)))
        return tn_error(TN_BAD_FILE,
                        "reader %c says NaN to question %lld of the training texts: check %c.model, or use compute=f32",
                        l->store->reader[x->reader].letter, (long long)q, l->store->reader[x->reader].letter);
    count_held(m, x, &said, n);
    return tn_wire_teach_add(m->to, &said);
}

/* "teacher: 40 % of 12000 texts, 35 s left" */
static void tell(making *m)
{
    char text[160];
    const double now = tn_clock_s(), part = (double)m->done / (double)(m->all ? m->all : 1);
    if (!m->how->note || now - m->noted < NOTE_S) return;
    m->noted = now;
    snprintf(text, sizeof text, "teacher: %.0f %% of %lld texts, %.0f s left", 100 * part, (long long)m->all,
             part > 0 ? (now - m->begun) / part * (1 - part) : 0);
    m->how->note(m->how->ctx, text);
}

static tn_status make_batch(making *m, const unit *u, int64_t rows)
{
    int32_t picked[MOST_ASKED];
    void *at[TN_INPUTS_MAX];
    for (int64_t b = 0; b < rows; b++) {
        for (int64_t i = 0; i < u[b].n; i++) picked[i] = (int32_t)(u[b].from + i);
        tn_records_row(&m->map, &m->feed, b, m->ask->n_rows, at);
        m->ask->put(m->ask->source, u[b].context, picked, u[b].n, at);
    }
    tn_feed_end(&m->feed, rows);
    TN_RETURN_IF(tn_trainer_run_step(m->how->trainer, STEP));
    if (m->to) TN_RETURN_IF(find_outputs(m));
    for (int64_t b = 0; b < rows; b++) {
        m->done += u[b].first;
        const int64_t first = m->t->lesson.store->question_at[u[b].context] + u[b].from;
        if (m->sends && (u[b].first || m->t->features.asked_at)) TN_RETURN_IF(keep_features(m, u[b].context, first, b));
        for (int64_t i = 0; i < u[b].n && m->to; i++) {
            const int64_t q = first + i;
            for (size_t k = 0; k < m->t->lesson.readers; k++)
                TN_RETURN_IF(keep_answer(m, k, q, b * m->ask->questions + i));
        }
    }
    return TN_OK;
}

static tn_status make_all(making *m, unit *u)
{
    bool more = true;
    while (more) {
        int64_t rows = 0;
        while (rows < m->feed.batch && (more = next_unit(m, &u[rows]))) rows++;
        if (!rows) break;
        if (m->how->interrupted && m->how->interrupted(m->how->ctx))
            return tn_error(TN_INTERRUPTED, "interrupted before the first step: rerun this command");
        TN_RETURN_IF(make_batch(m, u, rows));
        tell(m);
    }
    if (m->sends) TN_RETURN_IF(tn_wire_features_finish(&m->t->features));
    return m->to ? tn_wire_teach_finish(m->to) : TN_OK;
}

static void tell_size(const tn_source_prepare *how, const char *what, int64_t n, const char *path, uint64_t bytes)
{
    char text[TN_PATH_BYTES + 160];
    if (!how->note) return;
    snprintf(text, sizeof text, "teacher: %s %lld, kept in %s (%.1f MB)", what, (long long)n, path,
             (double)bytes / 1e6);
    how->note(how->ctx, text);
}

/* What is not held is one bucket: where that is much, the divergence is a smaller one. */
static void tell_held(const making *m)
{
    char text[160];
    if (!m->tokens || !m->how->note) return;
    const double part = m->held / (double)m->tokens;
    snprintf(text, sizeof text, "teacher: the kept tokens hold %.2f %% of what it says%s", 100 * part,
             part < 0.99 ? "; more with a larger loss.kd_top, or a smaller loss.kd_temperature" : "");
    m->how->note(m->how->ctx, text);
}

/* lesson: the path of its file where that is missing, or NULL; sends: the features are. */
static tn_status make_files(tn_wire_teacher *t, const tn_wire_asking *a, const tn_source_prepare *how,
                            const char *lesson, bool sends)
{
    tn_status s = TN_OK;
    int64_t first;
    const tn_wire_store *store = t->lesson.store;
    making m = { .t = t, .ask = a, .how = how, .feed = tn_trainer_feed(how->trainer), .sends = sends };
    unit *u = tn_alloc((size_t)m.feed.batch * sizeof *u);
    if (!u) return TN_MEMORY;
    m.map = tn_feed_map_of(tn_trainer_inputs(how->trainer), a->rows, a->n_rows);
    m.context = store->first[TN_TRAIN];
    m.all = store->count[TN_TRAIN];
    m.begun = m.noted = tn_clock_s();
    if (sends) {
        const bool asks = t->features.asked_at != NULL;
        tell_size(how,
                  asks ? "the sender's states of texts with questions, once:" : "the sender's states of texts, once:",
                  tn_wire_features_count(&t->features), t->features.path, tn_wire_features_bytes(&t->features));
        TN_TRY(tn_wire_features_begin(&t->features));
    }
    if (lesson) {
        tell_size(how, "the readers' answers to questions, once:", tn_wire_lesson_questions(&t->lesson, &first), lesson,
                  tn_wire_teach_bytes(&t->lesson));
        TN_TRY(tn_wire_teach_begin(&t->lesson, lesson, &m.to));
    }
    TN_TRY(make_all(&m, u));
    tell_held(&m);
done:
    tn_wire_teach_abort(m.to);
    tn_wire_features_close(&t->features);
    tn_free(u);
    return s;
}

/* --- taking them ---------------------------------------------------------------------------------------------------------------- */

/* Key and path of the lesson for the weights that are loaded now. */
static tn_status find_lesson(tn_wire_teacher *t, const tn_settings *st, tn_dtype type, const char *folder,
                             char path[TN_PATH_BYTES], bool *missing)
{
    char hex[TN_WIRE_READERS][TN_HASH_BYTES], more[64], name[64];
    const char *about[TN_WIRE_READERS];
    struct stat info;
    snprintf(more, sizeof more, "%.9g", tn_settings_float(st, "loss.kd_temperature"));
    for (size_t k = 0; k < t->lesson.readers; k++) {
        about[k] = hex[k];
        TN_RETURN_IF(tn_wire_model_key(st, letter_of(&t->lesson, k)->shape[0], more, hex[k]));
    }
    t->lesson.type = type;
    TN_RETURN_IF(tn_wire_lesson_key(&t->lesson, about));
    snprintf(name, sizeof name, "teach-%s.bin", t->lesson.key);
    TN_RETURN_IF(tn_path_join(folder, name, path, TN_PATH_BYTES));
    *missing = stat(path, &info) != 0;
    return *missing && errno != ENOENT ? tn_fs_error(TN_BAD_FILE, errno, "open", path) : TN_OK;
}

tn_status tn_wire_teacher_prepare(tn_wire_teacher *t, const tn_wire_asking *a, const tn_source_prepare *how)
{
    const tn_settings *st = how->settings;
    const tn_dtype type = tn_trainer_graph_options(how->trainer)->activation == TN_BF16 ? TN_BF16 : TN_F32;
    const char *folder = tn_settings_text(st, "task.cache");
    const bool asks = t->lesson.readers, sends = t->features.width;
    bool no_lesson = false, no_features = false;
    char path[TN_PATH_BYTES];
    tn_wire_teacher_close(t);
    if (!folder[0]) folder = how->dir;
    if (!folder)
        return tn_error(TN_USAGE, "what is cached (loss.teacher, sender_features) has no place: set "
                                  "task.cache=FOLDER, or both to live");
    TN_RETURN_IF(tn_dir_make(folder));
    if (asks) TN_RETURN_IF(find_lesson(t, st, type, folder, path, &no_lesson));
    if (sends) TN_RETURN_IF(tn_wire_features_find(&t->features, st, type, folder, &no_features));
    if (no_lesson || no_features) TN_RETURN_IF(make_files(t, a, how, no_lesson ? path : NULL, no_features));
    if (asks) TN_RETURN_IF(tn_wire_teach_open(&t->lesson, path, &t->file));
    if (sends) TN_RETURN_IF(tn_wire_features_take(&t->features));
    t->ready = true;
    return TN_OK;
}

/* --- rows ----------------------------------------------------------------------------------------------------------------------- */

/* Whoever looks at a batch before anything is kept (checks, benchmarks) sees a teacher that knows nothing. */
static void put_unknown(const tn_wire_taught *x, const tn_wire_numbers *to, int64_t n)
{
    for (int64_t i = 0; to->ids && i < n * x->top; i++) to->ids[i] = (int32_t)(i % x->top);
    for (int64_t i = 0; to->lse && i < n; i++) to->lse[i] = logf((float)x->vocab);
}

void tn_wire_teacher_unknown(const tn_wire_teacher *t, int64_t questions, void *const *at)
{
    for (size_t k = 0; k < t->lesson.readers; k++) {
        const tn_wire_taught *x = &t->lesson.taught[k];
        const int64_t rows = questions * t->lesson.store->reader[x->reader].length;
        const int *row = t->row[k];
        const tn_wire_numbers to = { .ids = row[IDS] < 0 ? NULL : at[row[IDS]],
                                     .lse = row[LSE] < 0 ? NULL : at[row[LSE]] };
        if (row[LOGITS] >= 0 && at[row[LOGITS]]) memset(at[row[LOGITS]], 0, (size_t)(rows * x->top) * sizeof(float));
        if (row[STATES] >= 0 && at[row[STATES]]) memset(at[row[STATES]], 0, (size_t)(rows * x->states) * sizeof(float));
        put_unknown(x, &to, rows);
    }
}

static bool read_reader(const tn_wire_teacher *t, size_t k, int64_t context, const int32_t *picked, int64_t n,
                        const tn_wire_sizes *size, void *const *at)
{
    const tn_wire_lesson *l = &t->lesson;
    const tn_wire_taught *x = &l->taught[k];
    const int64_t length = size->length[x->reader], rows = size->questions * length;
    int32_t *to[KINDS]; /* all numbers have four bytes */
    const int64_t each[KINDS] = { x->top, x->top, 1, x->states };
    for (int i = 0; i < KINDS; i++) {
        to[i] = t->row[k][i] < 0 ? NULL : at[t->row[k][i]];
        if (to[i]) memset(to[i], 0, (size_t)(rows * each[i]) * sizeof **to);
    }
    for (int64_t i = 0; i < n; i++) {
        const int64_t q = l->store->question_at[context] + picked[i];
        int64_t first;
        const int64_t count = tn_wire_lesson_tokens(l, k, q, &first), place = i * length + first;
        const tn_wire_numbers said = { .ids = to[IDS] ? to[IDS] + place * x->top : NULL,
                                       .logits = to[LOGITS] ? (float *)to[LOGITS] + place * x->top : NULL,
                                       .lse = to[LSE] ? (float *)to[LSE] + place : NULL,
                                       .states = to[STATES] ? (float *)to[STATES] + place * x->states : NULL };
        if (!t->file) put_unknown(x, &said, count);
        else if (tn_wire_teach_read(t->file, k, q, &said) != TN_OK) return false;
    }
    return true;
}

static bool read_features(const tn_wire_teacher *t, int64_t context, int64_t question, const tn_wire_sizes *size,
                          float *to)
{
    const tn_wire_features *f = &t->features;
    const int64_t tokens = f->asked_at ? size->sent : size->text[f->sender];
    if (!to) return true;
    if (t->ready) return tn_wire_features_read(f, context, question, tokens, to) == TN_OK;
    memset(to, 0, (size_t)(tokens * f->width) * sizeof *to);
    return true;
}

bool tn_wire_teacher_read(const tn_wire_teacher *t, int64_t context, const int32_t *picked, int64_t n,
                          const tn_wire_sizes *size, void *const *at)
{
    if (!t->n_rows) return true;
    for (size_t k = 0; k < t->lesson.readers; k++)
        if (!read_reader(t, k, context, picked, n, size, at)) return false;
    const int64_t question = tn_wire_seen_question(t->lesson.store, context, picked, n);
    if (t->features_row >= 0 && !read_features(t, context, question, size, at[t->features_row])) return false;
    if (t->ready) return true;
    (void)tn_error(TN_INTERNAL, "nobody has prepared what is cached: use loss.teacher=live, sender_features=live");
    return false;
}
