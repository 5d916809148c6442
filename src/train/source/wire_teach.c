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
enum { MOST_ASKED = 64 }; /* questions of a row: a model takes no more */
static const double NOTE_S = 5; /* between two lines about how far it is */
static const char STEP[] = "teach";

typedef struct letter {
    const char *shape, *hash, *top, *states; /* its settings, and numbers that its inputs have as sizes */
    tn_input_row rows[KINDS];
} letter;

/* clang-format off */
#define LETTER(X) { X ".shape", X ".hash", X ".top", X ".states", {                                \
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

/* The sizes of a reader, from its shape as settings of gpt. */
static tn_status sizes_of(const tn_settings *st, const letter *x, int64_t *vocab, int64_t *dim, int64_t *layers)
{
    tn_status s = TN_OK;
    tn_settings *shape = NULL;
    tn_arena arena = { 0 };
    const char *const *words;
    const tn_model *gpt = tn_model_named("gpt");
    TN_TRY(tn_settings_new(&shape));
    TN_TRY(tn_settings_add(shape, gpt->settings, gpt->n_settings, gpt->name));
    TN_TRY(tn_words_split(&arena, tn_settings_text(st, x->shape), &words));
    for (; *words; words++) {
        char key[128];
        snprintf(key, sizeof key, "%.*s", (int)strcspn(*words, "="), *words);
        if (has(shape, key) && strchr(*words, '='))
            TN_TRY(tn_settings_set(shape, key, strchr(*words, '=') + 1, "%s", x->shape));
    }
    *vocab = tn_settings_int(shape, "vocab");
    *dim = tn_settings_int(shape, "dim");
    *layers = tn_settings_int(shape, "layers");
    if (*vocab < 1) TN_FAIL(TN_USAGE, "%s names no vocab: leave it empty, and it is filled from the file", x->shape);
done:
    tn_settings_free(shape);
    tn_arena_free(&arena);
    return s;
}

static int64_t smaller(int64_t a, int64_t b) { return a < b ? a : b; }

static tn_status add_reader(const tn_settings *st, size_t reader, tn_wire_teacher *t)
{
    tn_wire_lesson *l = &t->lesson;
    const size_t k = l->readers;
    int64_t vocab, dim, layers;
    l->taught[k].reader = reader;
    const letter *x = letter_of(l, k);
    TN_RETURN_IF(sizes_of(st, x, &vocab, &dim, &layers));
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

tn_status tn_wire_teacher_open(const tn_source_open *o, const tn_wire_store *store, tn_wire_teacher *out)
{
    *out = (tn_wire_teacher){ .lesson = { .store = store } };
    if (!wanted(o)) return TN_OK;
    const char *only = has(o->settings, "readers") ? tn_settings_text(o->settings, "readers") : "";
    for (size_t r = 0; r < store->readers; r++)
        if (!*only || strchr(only, store->reader[r].letter)) TN_RETURN_IF(add_reader(o->settings, r, out));
    return TN_OK;
}

void tn_wire_teacher_close(tn_wire_teacher *t)
{
    tn_wire_teach_close(t->file);
    t->file = NULL;
}

/* --- making the file -------------------------------------------------------------------------------------------------------- */

typedef struct making {
    const tn_wire_teacher *t;
    const tn_wire_asking *ask;
    const tn_source_prepare *how;
    tn_wire_teach_writer *to;
    tn_feed feed;
    tn_feed_map map;
    const void *out[TN_WIRE_READERS][KINDS]; /* of the step */
    int64_t context, asked; /* next: the context, of all, and how many of its questions were asked */
    int64_t done, all;      /* questions */
    double begun, noted;
} making;

/* One row of a batch: these questions of this context. */
typedef struct unit {
    int64_t context, from, n;
} unit;

static bool next_unit(making *m, unit *u)
{
    const tn_wire_store *s = m->t->lesson.store;
    const int64_t end = s->first[TN_TRAIN] + s->count[TN_TRAIN];
    for (; m->context < end; m->context++, m->asked = 0) {
        const int64_t left = s->question_at[m->context + 1] - s->question_at[m->context] - m->asked;
        if (left <= 0) continue;
        *u = (unit){ m->context, m->asked, smaller(smaller(left, MOST_ASKED), m->ask->questions) };
        m->asked += u->n;
        return true;
    }
    return false;
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
    for (int64_t i = 0; i < n; i++)
        if ((said.lse && !isfinite(said.lse[i])) || (said.states && !isfinite(said.states[i * x->states])))
            return tn_error(TN_BAD_FILE,
                            "reader %c says NaN to question %lld of the training texts: check %c.model, or use "
                            "compute=f32",
                            l->store->reader[x->reader].letter, (long long)q, l->store->reader[x->reader].letter);
    return tn_wire_teach_add(m->to, &said);
}

/* "teacher: 40 % of 12000 questions, 35 s left" */
static void tell(making *m)
{
    char text[160];
    const double now = tn_clock_s(), part = (double)m->done / (double)(m->all ? m->all : 1);
    if (!m->how->note || now - m->noted < NOTE_S) return;
    m->noted = now;
    snprintf(text, sizeof text, "teacher: %.0f %% of %lld questions, %.0f s left", 100 * part, (long long)m->all,
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
    TN_RETURN_IF(find_outputs(m));
    for (int64_t b = 0; b < rows; b++)
        for (int64_t i = 0; i < u[b].n; i++, m->done++) {
            const int64_t q = m->t->lesson.store->question_at[u[b].context] + u[b].from + i;
            for (size_t k = 0; k < m->t->lesson.readers; k++)
                TN_RETURN_IF(keep_answer(m, k, q, b * m->ask->questions + i));
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
    return tn_wire_teach_finish(m->to);
}

static void tell_size(const making *m, const char *path)
{
    char text[TN_PATH_BYTES + 160];
    if (!m->how->note) return;
    snprintf(text, sizeof text, "teacher: readers answer %lld questions once, kept in %s (%.1f MB)", (long long)m->all,
             path, (double)tn_wire_teach_bytes(&m->t->lesson) / 1e6);
    m->how->note(m->how->ctx, text);
}

static tn_status make_file(const tn_wire_teacher *t, const tn_wire_asking *a, const tn_source_prepare *how,
                           const char *path)
{
    tn_status s = TN_OK;
    int64_t first;
    making m = { .t = t, .ask = a, .how = how, .feed = tn_trainer_feed(how->trainer), .begun = tn_clock_s() };
    unit *u = tn_alloc((size_t)m.feed.batch * sizeof *u);
    if (!u) return TN_MEMORY;
    m.map = tn_feed_map_of(tn_trainer_inputs(how->trainer), a->rows, a->n_rows);
    m.context = t->lesson.store->first[TN_TRAIN];
    m.all = tn_wire_lesson_questions(&t->lesson, &first);
    m.noted = m.begun;
    tell_size(&m, path);
    TN_TRY(tn_wire_teach_begin(&t->lesson, path, &m.to));
    TN_TRY(make_all(&m, u));
done:
    tn_wire_teach_abort(m.to);
    tn_free(u);
    return s;
}

/* --- taking it ---------------------------------------------------------------------------------------------------------------- */

/* All that a reader's answers depend on besides the texts. */
static tn_status find_key(tn_wire_teacher *t, const tn_source_prepare *how)
{
    const tn_settings *st = how->settings;
    char hex[TN_WIRE_READERS][TN_HASH_BYTES], rest[64];
    const char *about[TN_WIRE_READERS];
    snprintf(rest, sizeof rest, "%.9g", tn_settings_float(st, "loss.kd_temperature"));
    for (size_t k = 0; k < t->lesson.readers; k++) {
        const letter *x = letter_of(&t->lesson, k);
        const char *const words[] = { tn_settings_text(st, x->hash), tn_settings_text(st, x->shape), rest,
                                      tn_settings_text(st, "compute") };
        tn_hash *h;
        TN_RETURN_IF(tn_hash_begin(&h));
        for (size_t i = 0; i < sizeof words / sizeof *words; i++) tn_hash_add(h, words[i], strlen(words[i]) + 1);
        tn_hash_text(h, hex[k]);
        tn_hash_free(h);
        about[k] = hex[k];
    }
    t->lesson.type = tn_trainer_graph_options(how->trainer)->activation == TN_BF16 ? TN_BF16 : TN_F32;
    return tn_wire_lesson_key(&t->lesson, about);
}

tn_status tn_wire_teacher_prepare(tn_wire_teacher *t, const tn_wire_asking *a, const tn_source_prepare *how)
{
    const char *folder = tn_settings_text(how->settings, "task.cache");
    char name[64], path[TN_PATH_BYTES];
    struct stat st;
    tn_wire_teacher_close(t);
    if (!folder[0]) folder = how->dir;
    if (!folder)
        return tn_error(TN_USAGE, "loss.teacher=cached has no place for its file: set task.cache=FOLDER, or "
                                  "loss.teacher=live");
    TN_RETURN_IF(find_key(t, how));
    TN_RETURN_IF(tn_dir_make(folder));
    snprintf(name, sizeof name, "teach-%s.bin", t->lesson.key);
    TN_RETURN_IF(tn_path_join(folder, name, path, sizeof path));
    if (stat(path, &st) != 0) {
        if (errno != ENOENT) return tn_fs_error(TN_BAD_FILE, errno, "open", path);
        TN_RETURN_IF(make_file(t, a, how, path));
    }
    return tn_wire_teach_open(&t->lesson, path, &t->file);
}

/* --- rows ----------------------------------------------------------------------------------------------------------------------- */

/* Whoever looks at a batch before anything is kept (checks, benchmarks) sees a teacher that knows nothing. */
static void put_unknown(const tn_wire_taught *x, const tn_wire_numbers *to, int64_t n)
{
    for (int64_t i = 0; to->ids && i < n * x->top; i++) to->ids[i] = (int32_t)(i % x->top);
    for (int64_t i = 0; to->lse && i < n; i++) to->lse[i] = logf((float)x->vocab);
}

static bool read_reader(const tn_wire_teacher *t, size_t k, int64_t context, const int32_t *picked, int64_t n,
                        int64_t questions, void *const *at)
{
    const tn_wire_lesson *l = &t->lesson;
    const tn_wire_taught *x = &l->taught[k];
    const int64_t length = l->store->reader[x->reader].length, rows = questions * length;
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

bool tn_wire_teacher_read(const tn_wire_teacher *t, int64_t context, const int32_t *picked, int64_t n,
                          int64_t questions, void *const *at)
{
    for (size_t k = 0; k < t->lesson.readers; k++)
        if (!read_reader(t, k, context, picked, n, questions, at)) return false;
    if (t->file || !t->lesson.readers) return true;
    (void)tn_error(TN_INTERNAL, "nobody has prepared the teacher (loss.teacher=cached): use loss.teacher=live");
    return false;
}
