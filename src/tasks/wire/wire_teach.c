/* The file of a lesson, little-endian as the machine is:
 *
 *   "TNTEACH1"  u64 payload bytes  key (33)  7 bytes of 0
 *   payload: by question, by reader: ids (n,top) i32, logits (n,top) f32, lse (n) f32, states (n,states)
 *   hash (33) of all before it
 *
 * Who has the key knows every size. The hash at the end is compared when the file is opened; later reads check what would be used
 * as an index. */
#include "tasks/wire/wire_teach.h"

#include "base/alloc.h"
#include "base/fs.h"

#include <stdio.h>
#include <string.h>

enum { FLUSH = 1 << 20 };
static const char magic[8] = { 'T', 'N', 'T', 'E', 'A', 'C', 'H', '1' };

typedef struct header {
    char magic[8];
    uint64_t payload;
    char key[TN_HASH_BYTES], unused[7];
} header;

struct tn_wire_teach_writer {
    const tn_wire_lesson *lesson;
    tn_atomic_file file;
    tn_hash *hash;
    int64_t question; /* the next one, */
    size_t reader;    /* and whose numbers of it */
    unsigned char *buffer;
    size_t bytes, capacity;
};

struct tn_wire_teach {
    const tn_wire_lesson *lesson;
    tn_file file;
    char path[TN_PATH_BYTES];
    int64_t first;
    uint64_t *at; /* (questions, readers): where the numbers begin in the file */
};

/* --- sizes ---------------------------------------------------------------------------------------------------------------------- */

int64_t tn_wire_lesson_tokens(const tn_wire_lesson *l, size_t k, int64_t q, int64_t *first)
{
    const tn_wire_ids *x = &l->store->reader[l->taught[k].reader];
    const int64_t asked = x->asked_at[q + 1] - x->asked_at[q];
    if (first) *first = 1 + x->answer[q];
    return asked - x->answer[q] + 1; /* and the end */
}

int64_t tn_wire_lesson_questions(const tn_wire_lesson *l, int64_t *first)
{
    const tn_wire_store *s = l->store;
    const int64_t from = s->first[TN_TRAIN];
    *first = s->question_at[from];
    return s->question_at[from + s->count[TN_TRAIN]] - *first;
}

/* Of one token. */
static uint64_t token_bytes(const tn_wire_lesson *l, size_t k)
{
    const tn_wire_taught *t = &l->taught[k];
    const uint64_t kept = t->top ? (uint64_t)t->top * (sizeof(int32_t) + sizeof(float)) + sizeof(float) : 0;
    return kept + (uint64_t)t->states * tn_dtype_bytes(l->type);
}

static uint64_t record_bytes(const tn_wire_lesson *l, size_t k, int64_t q)
{
    return (uint64_t)tn_wire_lesson_tokens(l, k, q, NULL) * token_bytes(l, k);
}

static uint64_t payload_bytes(const tn_wire_lesson *l)
{
    uint64_t sum = 0;
    int64_t first;
    const int64_t n = tn_wire_lesson_questions(l, &first);
    for (int64_t q = first; q < first + n; q++)
        for (size_t k = 0; k < l->readers; k++) sum += record_bytes(l, k, q);
    return sum;
}

uint64_t tn_wire_teach_bytes(const tn_wire_lesson *l) { return sizeof(header) + payload_bytes(l) + TN_HASH_BYTES; }

tn_status tn_wire_lesson_key(tn_wire_lesson *l, const char *const *about)
{
    tn_hash *h;
    TN_RETURN_IF(tn_hash_begin(&h));
    tn_hash_add(h, magic, sizeof magic);
    tn_hash_add(h, l->store->key, sizeof l->store->key);
    for (size_t k = 0; k < l->readers; k++) {
        const tn_wire_taught *t = &l->taught[k];
        const int64_t numbers[] = { l->store->reader[t->reader].letter, t->top, t->vocab, t->states, (int64_t)l->type };
        tn_hash_add(h, numbers, sizeof numbers);
        tn_hash_add(h, about[k], strlen(about[k]) + 1);
    }
    tn_hash_text(h, l->key);
    tn_hash_free(h);
    return TN_OK;
}

static header header_of(const tn_wire_lesson *l)
{
    header h = { .payload = payload_bytes(l) };
    memcpy(h.magic, magic, sizeof magic);
    memcpy(h.key, l->key, sizeof h.key);
    return h;
}

/* --- writing -------------------------------------------------------------------------------------------------------------------- */

static tn_status flush(tn_wire_teach_writer *w)
{
    if (!w->bytes) return TN_OK;
    tn_hash_add(w->hash, w->buffer, w->bytes);
    TN_RETURN_IF(tn_atomic_write(&w->file, w->buffer, w->bytes));
    w->bytes = 0;
    return TN_OK;
}

tn_status tn_wire_teach_begin(const tn_wire_lesson *l, const char *path, tn_wire_teach_writer **out)
{
    tn_status s = TN_OK;
    tn_wire_teach_writer *w = tn_alloc(sizeof *w);
    if (!w) return TN_MEMORY;
    const header h = header_of(l);
    *w = (tn_wire_teach_writer){ .lesson = l };
    (void)tn_wire_lesson_questions(l, &w->question);
    TN_TRY(tn_hash_begin(&w->hash));
    TN_TRY(tn_atomic_open(path, &w->file));
    tn_hash_add(w->hash, &h, sizeof h);
    TN_TRY(tn_atomic_write(&w->file, &h, sizeof h));
    *out = w;
    w = NULL;
done:
    tn_wire_teach_abort(w);
    return s;
}

static void put(tn_wire_teach_writer *w, const void *from, tn_dtype to, int64_t n)
{
    tn_convert(w->buffer + w->bytes, to, from, to == TN_I32 ? TN_I32 : TN_F32, n);
    w->bytes += (size_t)n * tn_dtype_bytes(to);
}

/* tn_convert writes numbers where they lie: a record of halves begins at any even byte, which is enough for them. */
tn_status tn_wire_teach_add(tn_wire_teach_writer *w, const tn_wire_numbers *x)
{
    const tn_wire_lesson *l = w->lesson;
    const tn_wire_taught *t = &l->taught[w->reader];
    const int64_t n = tn_wire_lesson_tokens(l, w->reader, w->question, NULL);
    const size_t need = w->bytes + (size_t)record_bytes(l, w->reader, w->question) + 1;
    void *p = w->buffer;
    if (need > w->capacity) TN_RETURN_IF(tn_grow(&p, &w->capacity, need + FLUSH, 1));
    w->buffer = p;
    if (t->top) {
        put(w, x->ids, TN_I32, n * t->top);
        put(w, x->logits, TN_F32, n * t->top);
        put(w, x->lse, TN_F32, n);
    }
    if (t->states) put(w, x->states, l->type, n * t->states);
    w->reader = (w->reader + 1) % l->readers;
    w->question += w->reader == 0;
    return w->bytes < FLUSH ? TN_OK : flush(w);
}

tn_status tn_wire_teach_finish(tn_wire_teach_writer *w)
{
    char hex[TN_HASH_BYTES];
    int64_t first;
    const int64_t n = tn_wire_lesson_questions(w->lesson, &first);
    if (w->question != first + n || w->reader) return tn_error(TN_INTERNAL, "a lesson ends before its last question");
    TN_RETURN_IF(flush(w));
    tn_hash_text(w->hash, hex);
    TN_RETURN_IF(tn_atomic_write(&w->file, hex, sizeof hex));
    return tn_atomic_finish(&w->file);
}

void tn_wire_teach_abort(tn_wire_teach_writer *w)
{
    if (!w) return;
    tn_atomic_abort(&w->file);
    tn_hash_free(w->hash);
    tn_free(w->buffer);
    tn_free(w);
}

/* --- reading -------------------------------------------------------------------------------------------------------------------- */

static tn_status damaged(const char *path, const char *what)
{
    return tn_error(TN_BAD_FILE, "%.640s: %s: remove the file, it is made again", path, what);
}

/* The whole file against the hash at its end. */
static tn_status check_hash(const tn_file *f, const char *path)
{
    tn_status s = TN_OK;
    tn_hash *h = NULL;
    char hex[TN_HASH_BYTES], kept[TN_HASH_BYTES];
    const uint64_t end = f->bytes - sizeof kept;
    unsigned char *part = tn_alloc(FLUSH);
    if (!part) return TN_MEMORY;
    TN_TRY(tn_hash_begin(&h));
    for (uint64_t at = 0; at < end; at += FLUSH) {
        const size_t n = end - at < FLUSH ? (size_t)(end - at) : FLUSH;
        TN_TRY(tn_file_read_at(f, path, at, part, n));
        tn_hash_add(h, part, n);
    }
    tn_hash_text(h, hex);
    TN_TRY(tn_file_read_at(f, path, end, kept, sizeof kept));
    if (memcmp(hex, kept, sizeof hex) != 0) TN_TRY(damaged(path, "its contents are not what was written"));
done:
    tn_hash_free(h);
    tn_free(part);
    return s;
}

static tn_status check_file(const tn_wire_lesson *l, const tn_file *f, const char *path)
{
    header h;
    const header want = header_of(l);
    if (f->bytes < sizeof h + TN_HASH_BYTES) return damaged(path, "it was cut");
    TN_RETURN_IF(tn_file_read_at(f, path, 0, &h, sizeof h));
    if (memcmp(h.magic, want.magic, sizeof h.magic) != 0) return damaged(path, "it is no file of a teacher");
    if (memcmp(h.key, want.key, sizeof h.key) != 0)
        return damaged(path, "it has the answers of other readers, texts or settings");
    if (h.payload != want.payload) return damaged(path, "its header is damaged");
    if (f->bytes != sizeof h + want.payload + TN_HASH_BYTES) return damaged(path, "it was cut, or something was added");
    return check_hash(f, path);
}

static tn_status find_records(tn_wire_teach *t)
{
    const tn_wire_lesson *l = t->lesson;
    size_t count;
    uint64_t at = sizeof(header);
    const int64_t n = tn_wire_lesson_questions(l, &t->first);
    if (!tn_mul_ok((size_t)n, l->readers * sizeof *t->at, &count)) return tn_error(TN_MEMORY, "too many questions");
    t->at = tn_alloc(count + 1);
    if (!t->at) return TN_MEMORY;
    for (int64_t q = 0; q < n; q++)
        for (size_t k = 0; k < l->readers; k++) {
            t->at[(size_t)q * l->readers + k] = at;
            at += record_bytes(l, k, t->first + q);
        }
    return TN_OK;
}

tn_status tn_wire_teach_open(const tn_wire_lesson *l, const char *path, tn_wire_teach **out)
{
    tn_status s = TN_OK;
    tn_wire_teach *t = tn_alloc(sizeof *t);
    if (!t) return TN_MEMORY;
    *t = (tn_wire_teach){ .lesson = l };
    snprintf(t->path, sizeof t->path, "%s", path);
    TN_TRY(tn_file_open(path, &t->file));
    TN_TRY(check_file(l, &t->file, path));
    TN_TRY(find_records(t));
    *out = t;
    t = NULL;
done:
    tn_wire_teach_close(t);
    return s;
}

void tn_wire_teach_close(tn_wire_teach *t)
{
    if (!t) return;
    tn_file_close(&t->file);
    tn_free(t->at);
    tn_free(t);
}

/* n numbers of a type from *at on, as f32. */
static tn_status read_states(const tn_wire_teach *t, uint64_t at, int64_t n, float *to)
{
    enum { PART = 2048 };
    uint16_t part[PART];
    if (t->lesson->type == TN_F32) return tn_file_read_at(&t->file, t->path, at, to, (size_t)n * sizeof *to);
    for (int64_t i = 0; i < n; i += PART) {
        const int64_t count = n - i < PART ? n - i : PART;
        TN_RETURN_IF(tn_file_read_at(&t->file, t->path, at + (uint64_t)i * sizeof *part, part,
                                     (size_t)count * sizeof *part));
        tn_convert(to + i, TN_F32, part, t->lesson->type, count);
    }
    return TN_OK;
}

tn_status tn_wire_teach_read(const tn_wire_teach *t, size_t k, int64_t q, const tn_wire_numbers *to)
{
    const tn_wire_lesson *l = t->lesson;
    const tn_wire_taught *x = &l->taught[k];
    const int64_t n = tn_wire_lesson_tokens(l, k, q, NULL), top = n * x->top;
    const size_t each = sizeof(int32_t);
    uint64_t at = t->at[(size_t)(q - t->first) * l->readers + k];
    if (to->ids) TN_RETURN_IF(tn_file_read_at(&t->file, t->path, at, to->ids, (size_t)top * each));
    for (int64_t i = 0; to->ids && i < top; i++)
        if (to->ids[i] < 0 || to->ids[i] >= x->vocab) return damaged(t->path, "it was changed after it was opened");
    at += (uint64_t)top * each;
    if (to->logits) TN_RETURN_IF(tn_file_read_at(&t->file, t->path, at, to->logits, (size_t)top * each));
    at += (uint64_t)top * each;
    if (to->lse) TN_RETURN_IF(tn_file_read_at(&t->file, t->path, at, to->lse, (size_t)n * each));
    at += x->top ? (uint64_t)n * each : 0;
    return to->states ? read_states(t, at, n * x->states, to->states) : TN_OK;
}
