/* Texts with questions as records, for models that read a text through a latent: bytes for the encoder, and for each reader (a frozen
 * language model, by its letter) the tokens of questions and answers, of the context, and of both behind each other.
 *
 * X.labels[i] is X.tokens[i] or -1: nobody shifts here. Nothing but X.tokens, X.labels and the end of X.told depends on an answer. With
 * encoder_sees=both the encoder's bytes go on with the question, and a sender has rows of its own for both: sent, sent_length. */
#include "base/alloc.h"
#include "tasks/wire/wire_store.h"
#include "train/source/records.h"
#include "train/source/task_setup.h"
#include "train/source/wire_made.h"
#include "train/source/wire_shapes.h"
#include "train/source/wire_teach.h"

#include <stdio.h>
#include <string.h>
#include <sys/stat.h>

enum { BYTES, LENGTHS, SAMPLE, KIND, COUNT, SHARED };
enum { SENT, SENT_LENGTH, OF_SENT };
enum { MORE = TN_TEACHER_ROWS + OF_SENT /* behind the readers': what is kept, and what is sent */ };
enum { TOKENS, LABELS, TEXT, TEXT_LABELS, TEXT_LENGTH, TOLD, TOLD_DOCUMENT, OF_READER };
enum { ROWS = SHARED + TN_WIRE_READERS * OF_READER + MORE, QUESTIONS_MOST = 4096 };

static const tn_input_row shared_rows[SHARED] = {
    { "bytes", TN_I32, { TN_B, "bytes" }, .below = "256" },
    { "lengths", TN_I32, .dims = { TN_B }, .below = "bytes+1" },
    { "sample", TN_I32, .dims = { TN_B } },
    { "kind", TN_I32, .dims = { TN_B }, .below = "3" },
    { "count", TN_I32, { "1" }, .valid_rows = true },
};

static const tn_input_row sent_rows[OF_SENT] = {
    { "sent", TN_I32, .dims = { TN_B, "sent" } },
    { "sent_length", TN_I32, .dims = { TN_B }, .below = "sent+1" },
};

/* clang-format off */
#define READER(X) {                                                                \
    { X ".tokens", TN_I32, .dims = { TN_B, "questions", X ".length" } },                   \
    { X ".labels", TN_I32, .dims = { TN_B, "questions", X ".length" }, .pad = -1 },        \
    { X ".text", TN_I32, .dims = { TN_B, X ".text" } },                                    \
    { X ".text_labels", TN_I32, .dims = { TN_B, X ".text" }, .pad = -1 },                  \
    { X ".text_length", TN_I32, .dims = { TN_B }, .below = X ".text+1" },          \
    { X ".told", TN_I32, .dims = { TN_B, "questions", X ".told" } },                       \
    { X ".told_document", TN_I32, .dims = { TN_B, "questions", X ".told" }, .below = "2" } }
/* clang-format on */

typedef struct letter {
    const char *model, *tokenizer, *hash, *shape; /* its settings */
    const char *ids, *length, *before, *text, *told;
    tn_input_row rows[OF_READER];
} letter;

static const letter letters[TN_WIRE_READERS] = {
    { "a.model", "a.tokenizer", "a.tokenizer_hash", "a.shape", "a.ids", "a.length", "a.before", "a.text", "a.told",
      READER("a") },
    { "b.model", "b.tokenizer", "b.tokenizer_hash", "b.shape", "b.ids", "b.length", "b.before", "b.text", "b.told",
      READER("b") },
    { "c.model", "c.tokenizer", "c.tokenizer_hash", "c.shape", "c.ids", "c.length", "c.before", "c.text", "c.told",
      READER("c") },
    { "d.model", "d.tokenizer", "d.tokenizer_hash", "d.shape", "d.ids", "d.length", "d.before", "d.text", "d.told",
      READER("d") },
};

typedef struct wire {
    tn_wire_texts *texts;
    tn_wire_store *store;
    tn_tokenizer *tokenizer[TN_WIRE_READERS];
    tn_wire_reader reader[TN_WIRE_READERS];
    const letter *letter[TN_WIRE_READERS];
    size_t readers;
    tn_wire_made made[TN_WIRE_READERS]; /* instead of a store: rows are made up */
    tn_wire_store made_of;              /* letters and lengths of these readers, and nothing else */
    int64_t made_bytes;                 /* of a text; 0: there is a store */
    int64_t questions;                  /* of a row */
    uint64_t seed;
    tn_wire_teacher teacher;
    tn_wire_shapes shapes;   /* of a store */
    tn_input_row rows[ROWS]; /* shared ones, readers', the teacher's, sent */
    size_t n_rows;
    int sent; /* the first of its rows, or -1 */
    tn_source_number numbers[4 + 5 * TN_WIRE_READERS + TN_TEACHER_NUMBERS];
    size_t n_numbers;
} wire;

/* --- rows ----------------------------------------------------------------------------------------------------------------------- */

static void fill(int32_t *x, int64_t n, int32_t value)
{
    for (int64_t i = 0; i < n; i++) x[i] = value;
}

/* Tokens (length) of a question and what is to be said of them. */
static void put_asked(const tn_wire_sequence *q, int64_t length, int32_t *tokens, int32_t *labels)
{
    const size_t n = tn_wire_length(q);
    int32_t *at = tokens ? tokens : labels;
    fill(at, length, 0);
    tn_wire_lay(q, at);
    if (!labels) return;
    if (labels != at) memcpy(labels, at, (size_t)length * sizeof *labels);
    fill(labels, (int64_t)tn_wire_answer(q), -1);
    fill(labels + n, length - (int64_t)n, -1);
}

/* The context as text before a question whose place in the row depends on the context alone: it ends where all questions end. */
static void put_told(const tn_wire_sequence *q, int64_t length, int64_t told, int32_t *tokens, int32_t *document)
{
    const int64_t first = told - (length - 1) - (int64_t)(1 + q->contexts + q->anchors);
    if (tokens) {
        fill(tokens, told, 0);
        tn_wire_lay(q, tokens + first);
    }
    if (document) {
        fill(document, first, 0);
        fill(document + first, told - first, 1);
    }
}

/* A question that the context does not have. */
static void put_none(int64_t length, int64_t told, int64_t k, int32_t *const at[OF_READER])
{
    if (at[TOKENS]) fill(at[TOKENS] + k * length, length, 0);
    if (at[LABELS]) fill(at[LABELS] + k * length, length, -1);
    if (at[TOLD]) fill(at[TOLD] + k * told, told, 0);
    if (at[TOLD_DOCUMENT]) fill(at[TOLD_DOCUMENT] + k * told, told, 0);
}

/* One context with n of its questions, into rows of these sizes. */
typedef struct asking {
    int64_t context;
    const int32_t *picked;
    int64_t n;
    const tn_wire_sizes *size;
} asking;

static void put_question(const wire *w, size_t r, const asking *a, int64_t k, int32_t *const at[OF_READER])
{
    const int64_t length = a->size->length[r], told = a->size->told[r],
                  question = w->store->question_at[a->context] + a->picked[k];
    if (at[TOKENS] || at[LABELS]) {
        const tn_wire_sequence q = tn_wire_store_sequence(w->store, r, a->context, question, false);
        put_asked(&q, length, at[TOKENS] ? at[TOKENS] + k * length : NULL, at[LABELS] ? at[LABELS] + k * length : NULL);
    }
    if (at[TOLD] || at[TOLD_DOCUMENT]) {
        const tn_wire_sequence q = tn_wire_store_sequence(w->store, r, a->context, question, true);
        put_told(&q, length, told, at[TOLD] ? at[TOLD] + k * told : NULL,
                 at[TOLD_DOCUMENT] ? at[TOLD_DOCUMENT] + k * told : NULL);
    }
}

static void put_reader(const wire *w, size_t r, const asking *a, void *const *inputs)
{
    int32_t *at[OF_READER];
    for (int i = 0; i < OF_READER; i++) at[i] = inputs[SHARED + (int)r * OF_READER + i];
    tn_wire_sequence own = tn_wire_store_sequence(w->store, r, a->context, -1, true);
    own.asked = own.context, own.askeds = own.contexts, own.contexts = 0; /* the same ids, all of them to be said */
    if (at[TEXT] || at[TEXT_LABELS]) put_asked(&own, a->size->text[r], at[TEXT], at[TEXT_LABELS]);
    if (at[TEXT_LENGTH]) *at[TEXT_LENGTH] = (int32_t)tn_wire_length(&own);
    for (int64_t k = 0; k < a->size->questions; k++)
        if (k < a->n) put_question(w, r, a, k, at);
        else put_none(a->size->length[r], a->size->told[r], k, at);
}

static void put_encoder(const wire *w, const asking *a, void *const *at)
{
    const tn_wire_store *s = w->store;
    const int64_t question = tn_wire_seen_question(s, a->context, a->picked, a->n),
                  n = tn_wire_seen_bytes(s, a->context, question, at[BYTES]);
    if (at[BYTES]) fill((int32_t *)at[BYTES] + n, a->size->bytes - n, 0);
    if (at[LENGTHS]) *(int32_t *)at[LENGTHS] = (int32_t)n;
    if (w->sent < 0) return;
    int32_t *sent = at[w->sent + SENT], *length = at[w->sent + SENT_LENGTH];
    const int64_t tokens = tn_wire_seen_ids(s, a->context, question, sent);
    if (sent) fill(sent + tokens, a->size->sent - tokens, 0);
    if (length) *length = (int32_t)tokens;
}

static int64_t read_wire(const void *data, int split, int64_t i, int64_t step, int shape, void *const *at)
{
    const wire *w = data;
    const tn_wire_store *s = w->store;
    const int64_t context = s->first[split] + i;
    int32_t picked[QUESTIONS_MOST];
    const int64_t n = tn_wire_pick(w->seed, split == TN_TRAIN ? step : -1, split, i,
                                   s->question_at[context + 1] - s->question_at[context], w->questions, picked);
    const asking a = { context, picked, n, &w->shapes.size[shape] };
    put_encoder(w, &a, at);
    if (at[SAMPLE]) *(int32_t *)at[SAMPLE] = split == TN_TRAIN ? (int32_t)i : 0;
    if (at[KIND]) *(int32_t *)at[KIND] = s->kind;
    for (size_t r = 0; r < w->readers; r++) put_reader(w, r, &a, at);
    const bool taught = split != TN_TRAIN || tn_wire_teacher_read(&w->teacher, context, picked, n, a.size,
                                                                  at + SHARED + w->readers * OF_READER);
    return taught ? 1 : -1;
}

static int fit_wire(const void *data, const int32_t *rows, int64_t n, int64_t epoch, int after)
{
    const wire *w = data;
    return tn_wire_shapes_fit(&w->shapes, rows, n, epoch, after);
}

/* Rows for the teacher and the sender, which nobody learns from. */
static void put_asking(const void *data, int64_t context, const int32_t *picked, int64_t n, void *const *at)
{
    const wire *w = data;
    const asking a = { context, picked, n, &w->shapes.size[0] };
    if (w->sent >= 0) put_encoder(w, &a, at);
    for (size_t r = 0; r < w->readers; r++) put_reader(w, r, &a, at);
}

static tn_status prepare_wire(void *data, const tn_source_prepare *how)
{
    wire *w = data;
    const tn_wire_asking ask = {
        .source = w, .put = put_asking, .rows = w->rows, .n_rows = w->n_rows, .questions = w->questions
    };
    return tn_wire_teacher_prepare(&w->teacher, &ask, how);
}

/* --- rows that are made up --------------------------------------------------------------------------------------------------------- */

static int64_t read_made(const void *data, int split, int64_t i, int64_t step, int shape, void *const *at)
{
    const wire *w = data;
    const uint64_t seed = (uint64_t)split << 32 | (w->seed & 0xffffffff);
    const tn_rng r = { seed, tn_rng_stream("wire.made.bytes") };
    (void)step, (void)shape;
    for (int64_t k = 0; at[BYTES] && k < w->made_bytes; k++)
        ((int32_t *)at[BYTES])[k] = (int32_t)('a' + tn_rng_below(r, (uint64_t)(i << 24 | k), 26));
    if (at[LENGTHS]) *(int32_t *)at[LENGTHS] = (int32_t)w->made_bytes;
    if (at[SAMPLE]) *(int32_t *)at[SAMPLE] = split == TN_TRAIN ? (int32_t)i : 0;
    if (at[KIND]) *(int32_t *)at[KIND] = w->texts->kind;
    for (size_t x = 0; x < w->readers; x++) {
        const tn_wire_made *m = &w->made[x];
        int32_t *to[OF_READER];
        for (int k = 0; k < OF_READER; k++) to[k] = at[SHARED + (int)x * OF_READER + k];
        tn_wire_made_text(m, seed, i, to[TEXT], to[TEXT_LABELS]);
        if (to[TEXT_LENGTH]) *to[TEXT_LENGTH] = (int32_t)m->text;
        for (int64_t k = 0; k < w->questions; k++)
            tn_wire_made_question(m, seed, i, k, to[TOKENS] ? to[TOKENS] + k * m->length : NULL,
                                  to[LABELS] ? to[LABELS] + k * m->length : NULL,
                                  to[TOLD] ? to[TOLD] + k * m->told : NULL,
                                  to[TOLD_DOCUMENT] ? to[TOLD_DOCUMENT] + k * m->told : NULL);
    }
    if (split == TN_TRAIN) tn_wire_teacher_unknown(&w->teacher, w->questions, at + SHARED + w->readers * OF_READER);
    return 1;
}

/* --- about them ----------------------------------------------------------------------------------------------------------------- */

/* The key of the tokens, how many are asked, and what the encoder sees of them. */
static tn_status hash_wire(const void *data, char hash[TN_HASH_BYTES])
{
    const wire *w = data;
    char text[2 * TN_HASH_BYTES];
    const int n = snprintf(text, sizeof text, "%s %lld%s", w->store ? w->store->key : w->texts->hash,
                           (long long)w->questions, w->store && w->store->seen ? " both" : "");
    tn_hash_memory(text, (size_t)n, hash);
    return TN_OK;
}

static void about(const void *data, const tn_record_batches *b, FILE *f)
{
    const wire *w = data;
    const tn_wire_store *s = w->store;
    if (!s) {
        fprintf(f, "task    %s, rows are made up: %lld contexts of %lld bytes%s\n", w->texts->task,
                (long long)w->texts->count[TN_TRAIN], (long long)w->made_bytes,
                w->teacher.n_rows ? "; the cached teacher knows nothing: for measuring alone" : "");
        return;
    }
    fprintf(f, "task    %s, %lld contexts, %lld valid, %lld test, of at most %lld bytes, %lld questions; %s",
            w->texts->task, (long long)s->count[TN_TRAIN], (long long)s->count[TN_VALID], (long long)s->count[TN_TEST],
            (long long)s->most_bytes, (long long)s->questions, w->texts->about);
    if (w->texts->cut) fprintf(f, "; %lld contexts were cut at task.length", (long long)w->texts->cut);
    if (w->texts->left_out)
        fprintf(f, "; %lld questions left out whose answer is not in the context", (long long)w->texts->left_out);
    if (s->seen) fprintf(f, "; the encoder sees the question too");
    fprintf(f, "\nrows    at most, in tokens:");
    for (size_t r = 0; r < w->readers; r++) {
        const tn_wire_ids *x = &s->reader[r];
        fprintf(f, "%s %c %lld, the text %lld", r ? ";" : "", x->letter, (long long)x->length, (long long)x->text);
    }
    fprintf(f, "\n");
    tn_wire_shapes_about(&w->shapes, b, f);
}

static double padding_of(const void *data, const tn_record_batches *b)
{
    return tn_wire_shapes_padding(&((const wire *)data)->shapes, b);
}

static size_t bytes_of(const void *data)
{
    const wire *w = data;
    return w->store ? tn_wire_store_bytes(w->store) : 0;
}

static void close_wire(void *data)
{
    wire *w = data;
    if (!w) return;
    tn_wire_teacher_close(&w->teacher);
    tn_wire_features_free(&w->teacher.features);
    tn_wire_store_free(w->store);
    tn_wire_texts_free(w->texts);
    for (size_t r = 0; r < TN_WIRE_READERS; r++) tn_tokenizer_free(w->tokenizer[r]);
    tn_free(w);
}

/* --- opening -------------------------------------------------------------------------------------------------------------------- */

/* A setting that a model need not have. */
static const char *text_of(const tn_settings *st, const char *key)
{
    return tn_settings_find(st, key) < tn_settings_count(st) ? tn_settings_text(st, key) : "";
}

/* A run knows its tokenizers: one that gives other tokens would make sense of nothing, in silence. */
static tn_status check_tokens(tn_settings *st, const letter *x, const tn_tokenizer *t)
{
    char hash[TN_WIRE_TOKENIZER_HASH];
    const char *was = text_of(st, x->hash);
    TN_RETURN_IF(tn_wire_tokenizer_check(t, x->model[0], tn_settings_text(st, x->model), was, hash));
    if (was[0] || tn_settings_find(st, x->hash) == tn_settings_count(st)) return TN_OK;
    return tn_settings_set(st, x->hash, hash, "%s", x->model);
}

/* Where the model is no longer: its weights are in the run's checkpoints, its tokenizer is not. */
static tn_status tell_moved(const tn_source_open *o, const letter *x, tn_status s)
{
    struct stat info;
    const char *path = tn_settings_text(o->settings, x->model);
    if (!text_of(o->settings, x->hash)[0] || stat(path, &info) == 0) return s;
    return tn_error(s, "%.300s is not there, and the reader's tokenizer is read from it: if it was moved, add %s=PATH",
                    path, x->model);
}

static tn_status open_reader(const tn_source_open *o, const letter *x, tn_tokenizer **out, tn_wire_reader *r)
{
    const char *model = tn_settings_text(o->settings, x->model);
    tn_status s = o->tokenizer(o->user, model, text_of(o->settings, x->tokenizer), out, &r->bos, &r->eos);
    if (s != TN_OK) s = tell_moved(o, x, s);
    if (s == TN_USAGE && strstr(tn_error_text(), "tokenizer=FILE")) { /* the key of other verbs */
        char why[1024];
        snprintf(why, sizeof why, "%s", tn_error_text());
        s = tn_error(s, "%s (here %s=FILE)", why, x->tokenizer);
    }
    if (s == TN_OK) s = check_tokens(o->settings, x, *out);
    if (s != TN_OK) tn_error_prefix("%s", x->model);
    return s;
}

static tn_status open_readers(const tn_source_open *o, wire *w)
{
    if (!o->tokenizer) return tn_error(TN_INTERNAL, "nobody said how the tokenizers of readers are opened");
    for (size_t k = 0; k < TN_WIRE_READERS; k++) {
        const size_t r = w->readers;
        tn_wire_reader *x = &w->reader[r];
        if (!text_of(o->settings, letters[k].model)[0]) continue;
        TN_RETURN_IF(open_reader(o, &letters[k], &w->tokenizer[r], x));
        x->letter = letters[k].model[0];
        x->tokenizer = w->tokenizer[r];
        w->letter[r] = &letters[k];
        w->readers++;
    }
    if (w->readers) return TN_OK;
    return tn_error(TN_USAGE,
                    "no language model reads the texts: name one with a.model=RUN (a run, a file or a folder)");
}

static void list_rows(wire *w)
{
    memcpy(w->rows, shared_rows, sizeof shared_rows);
    w->n_rows = SHARED;
    for (size_t r = 0; r < w->readers; r++, w->n_rows += OF_READER)
        memcpy(w->rows + w->n_rows, w->letter[r]->rows, sizeof w->letter[r]->rows);
    memcpy(w->rows + w->n_rows, w->teacher.rows, w->teacher.n_rows * sizeof *w->rows);
    w->n_rows += w->teacher.n_rows;
    w->sent = w->store && tn_wire_sends_asked(w->store) ? (int)w->n_rows : -1;
    for (int i = 0; w->sent >= 0 && i < OF_SENT; i++) w->rows[w->n_rows++] = sent_rows[i];
}

static void list_numbers(wire *w)
{
    const tn_wire_store *s = w->store;
    size_t n = 0;
    w->numbers[n++] = (tn_source_number){ "bytes", (double)s->most_bytes };
    w->numbers[n++] = (tn_source_number){ "questions", (double)w->questions };
    w->numbers[n++] = (tn_source_number){ "contexts", (double)s->count[TN_TRAIN] };
    for (size_t r = 0; r < w->readers; r++) {
        w->numbers[n++] = (tn_source_number){ w->letter[r]->ids, (double)tn_tokenizer_vocab(w->tokenizer[r]) };
        w->numbers[n++] = (tn_source_number){ w->letter[r]->length, (double)s->reader[r].length };
        w->numbers[n++] = (tn_source_number){ w->letter[r]->before, (double)s->reader[r].before };
        w->numbers[n++] = (tn_source_number){ w->letter[r]->text, (double)s->reader[r].text };
        w->numbers[n++] = (tn_source_number){ w->letter[r]->told, (double)s->reader[r].told };
    }
    if (w->sent >= 0) w->numbers[n++] = (tn_source_number){ "sent", (double)s->seen->most_ids };
    for (size_t i = 0; i < w->teacher.n_numbers; i++) w->numbers[n++] = w->teacher.numbers[i];
    w->n_numbers = n;
}

/* Rows are cut by it, so that a smaller one would leave answers out. */
static tn_status check_before(const tn_settings *st, const wire *w)
{
    for (size_t r = 0; r < w->readers; r++) {
        const char *key = w->letter[r]->before;
        const long long has = (long long)w->store->reader[r].before;
        if (tn_inputs_setting(st, key) && !tn_settings_is_auto(st, key) && tn_settings_int(st, key) < has)
            return tn_error(TN_USAGE, "%s=%s: a question has %lld tokens with BOS: use %s=%lld, or auto", key,
                            tn_settings_text(st, key), has, key, has);
    }
    return TN_OK;
}

static tn_status made_size(const tn_settings *st, const char *key, int64_t least, int64_t *out)
{
    *out = tn_inputs_setting(st, key) ? tn_settings_int(st, key) : 0;
    if (*out >= least && *out < 1 << 24) return TN_OK;
    return tn_error(TN_USAGE, "rows of readers without a file are made up: set %s, to %lld or more", key,
                    (long long)least);
}

/* Readers that have a shape and no file. *any: there are such, and no others. */
static tn_status open_made(const tn_source_open *o, wire *w, bool *any)
{
    const tn_settings *st = o->settings;
    *any = strcmp(tn_settings_text(st, "task.name"), "letters") == 0;
    for (size_t k = 0; k < TN_WIRE_READERS; k++) *any &= !text_of(st, letters[k].model)[0];
    for (size_t k = 0; *any && k < TN_WIRE_READERS; k++) {
        tn_wire_made *m = &w->made[w->readers];
        if (!text_of(st, letters[k].shape)[0]) continue;
        TN_RETURN_IF(made_size(st, letters[k].ids, TN_WIRE_MADE_LEAST, &m->ids));
        TN_RETURN_IF(made_size(st, letters[k].before, 1, &m->before));
        TN_RETURN_IF(made_size(st, letters[k].length, m->before + 2, &m->length));
        TN_RETURN_IF(made_size(st, letters[k].text, 3, &m->text));
        TN_RETURN_IF(made_size(st, letters[k].told, m->length + 1, &m->told));
        w->made_of.reader[w->readers].letter = letters[k].model[0];
        w->made_of.reader[w->readers].length = m->length;
        w->letter[w->readers++] = &letters[k];
        w->made_of.readers = w->readers;
    }
    *any &= w->readers > 0;
    if (!*any) return TN_OK;
    TN_RETURN_IF(made_size(st, "bytes", 1, &w->made_bytes));
    return made_size(st, "questions", 1, &w->questions);
}

static tn_status fit_made(tn_settings *st, wire *w)
{
    list_rows(w);
    w->numbers[w->n_numbers++] = (tn_source_number){ "bytes", (double)w->made_bytes };
    w->numbers[w->n_numbers++] = (tn_source_number){ "questions", (double)w->questions };
    w->numbers[w->n_numbers++] = (tn_source_number){ "contexts", (double)w->texts->count[TN_TRAIN] };
    for (size_t r = 0; r < w->readers; r++) {
        const tn_source_number own[] = { { w->letter[r]->ids, (double)w->made[r].ids },
                                         { w->letter[r]->length, (double)w->made[r].length },
                                         { w->letter[r]->before, (double)w->made[r].before },
                                         { w->letter[r]->text, (double)w->made[r].text },
                                         { w->letter[r]->told, (double)w->made[r].told } };
        for (size_t k = 0; k < sizeof own / sizeof *own; k++) w->numbers[w->n_numbers++] = own[k];
    }
    for (size_t i = 0; i < w->teacher.n_numbers; i++) w->numbers[w->n_numbers++] = w->teacher.numbers[i];
    return tn_task_fit_texts(st, w->numbers, w->n_numbers, w->texts->count);
}

/* Where the encoder sees questions. One message then serves one question. */
static tn_status check_sees(const tn_settings *st, const wire *w)
{
    const char *encoder = text_of(st, "encoder");
    if (!w->store) return tn_error(TN_USAGE, "encoder_sees=both: rows are made up: use encoder_sees=context");
    if (w->store->kind != TN_WIRE_QA)
        return tn_error(TN_USAGE, "encoder_sees=both: task=%s asks no questions: use encoder_sees=context",
                        w->texts->task);
    if (strcmp(encoder, "free") == 0 || strcmp(encoder, "constant") == 0)
        return tn_error(TN_USAGE, "encoder_sees=both: encoder=%s sees nothing: use encoder_sees=context", encoder);
    if (w->questions == 1) return TN_OK;
    return tn_error(TN_USAGE,
                    "encoder_sees=both: a message is for one question, and a text has %lld here: set "
                    "task.questions=1",
                    (long long)w->questions);
}

static tn_status see_questions(const tn_settings *st, wire *w)
{
    const tn_wire_reader *sender = NULL;
    if (!tn_wire_sees_question(st)) return TN_OK;
    TN_RETURN_IF(check_sees(st, w));
    for (size_t r = 0; r < w->readers && strcmp(text_of(st, "encoder"), "sender") == 0; r++)
        if (w->reader[r].letter == text_of(st, "sender")[0]) sender = &w->reader[r];
    return tn_wire_store_see(w->store, w->texts, sender);
}

static tn_status open_wire(const tn_source_open *o, wire *w)
{
    const tn_task *task = tn_task_named(tn_settings_text(o->settings, "task.name"));
    const int64_t asked = tn_settings_int(o->settings, "task.questions");
    bool made;
    w->seed = (uint64_t)tn_settings_int(o->settings, "seed");
    TN_RETURN_IF(open_made(o, w, &made));
    if (made) {
        TN_RETURN_IF(task->texts(o->settings, &w->texts));
        if (strcmp(text_of(o->settings, "sender_features"), "cached") == 0)
            return tn_error(TN_USAGE,
                            "rows are made up, and nothing is kept of their sender: use sender_features=live");
        if (tn_wire_sees_question(o->settings)) return check_sees(o->settings, w);
        TN_RETURN_IF(tn_wire_teacher_open(o, &w->made_of, &w->teacher));
        return fit_made(o->settings, w);
    }
    TN_RETURN_IF(open_readers(o, w));
    TN_RETURN_IF(task->texts(o->settings, &w->texts));
    TN_RETURN_IF(
        tn_wire_store_open(w->texts, w->reader, w->readers, tn_settings_text(o->settings, "task.cache"), &w->store));
    const int64_t most = w->store->most_questions;
    w->questions = asked && asked < most ? asked : most;
    if (w->questions > QUESTIONS_MOST)
        return tn_error(TN_USAGE, "a context has %lld questions: set task.questions to %d or less", (long long)most,
                        QUESTIONS_MOST);
    TN_RETURN_IF(see_questions(o->settings, w));
    TN_RETURN_IF(check_before(o->settings, w));
    TN_RETURN_IF(tn_wire_teacher_open(o, w->store, &w->teacher));
    const int sender = w->teacher.features.width ? (int)w->teacher.features.sender : -1;
    TN_RETURN_IF(tn_wire_shapes_open(o, w->store, w->questions, sender, &w->shapes));
    list_rows(w);
    list_numbers(w);
    return tn_task_fit_texts(o->settings, w->numbers, w->n_numbers, w->store->count);
}

bool tn_source_takes_wire(const tn_source_open *o)
{
    const tn_task *task = tn_task_named(tn_settings_text(o->settings, "task.name"));
    return task && task->texts; /* that the model reads them was checked */
}

tn_status tn_source_open_wire(const tn_source_open *o, tn_source *out)
{
    wire *w = tn_alloc(sizeof *w);
    if (!w) return TN_MEMORY;
    const tn_status s = open_wire(o, w);
    if (s != TN_OK) {
        close_wire(w);
        return s;
    }
    const int64_t *count = w->store ? w->store->count : w->texts->count;
    const tn_record_set records = { .kind = "task",
                                    .noun = "context",
                                    .rows = w->rows,
                                    .n_rows = w->n_rows,
                                    .count = { count[0], count[1], count[2] },
                                    .labels = (double)count[TN_TRAIN],
                                    .numbers = w->numbers,
                                    .n_numbers = w->n_numbers,
                                    .data = w,
                                    .shapes = { w->shapes.input, w->shapes.n, fit_wire },
                                    .read = w->store ? read_wire : read_made,
                                    .hash = hash_wire,
                                    .about = about,
                                    .padding = w->store ? padding_of : NULL,
                                    .bytes = bytes_of,
                                    .prepare = w->store && w->teacher.n_rows ? prepare_wire : NULL,
                                    .prepares = w->store && w->teacher.n_rows ? "teach" : NULL,
                                    .close = close_wire,
                                    .seed = w->seed };
    TN_RETURN_IF(tn_source_records_make(&records, out));
    out->prefetch_depth = 2;
    if (w->store && w->store->kind != TN_WIRE_AE) out->verb = "wire eval"; /* which asks questions */
    return TN_OK;
}
