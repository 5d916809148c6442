/* The next character of a text from the task.length before it, one-hot as one token. The text is the file task.data, as it is
 * or packed, or else a sentence a hundred times. Characters are bytes; the classes are those that occur, in their order.
 * The splits lie one behind the other in the text. */
#include "base/alloc.h"
#include "io/stream.h"
#include "tasks/samples.h"

#include <string.h>

enum { BYTES_MAX = 1 << 30, REPEATS = 100, LENGTH_MAX = 4096, READ_BYTES = 1 << 20 };
static const char sentence[] = "the quick brown fox jumps over the lazy dog. ";

typedef struct text {
    unsigned char *bytes; /* (n) */
    size_t n, capacity;
} text;

static tn_status repeat_sentence(text *t)
{
    const size_t k = sizeof sentence - 1;
    t->bytes = tn_alloc(REPEATS * k);
    if (!t->bytes) return TN_MEMORY;
    for (; t->n < REPEATS * k; t->n += k) memcpy(t->bytes + t->n, sentence, k);
    return TN_OK;
}

/* At most `most` bytes of the file. */
static tn_status read_text(const char *path, size_t most, text *t)
{
    tn_status s = TN_OK;
    tn_stream *in = NULL;
    size_t got = 1;
    TN_TRY(tn_stream_open(path, &in));
    while (got && t->n < most) {
        const size_t want = most - t->n < READ_BYTES ? most - t->n : READ_BYTES;
        void *p = t->bytes;
        TN_TRY(tn_grow(&p, &t->capacity, t->n + want, 1));
        t->bytes = p;
        TN_TRY(tn_stream_read(in, t->bytes + t->n, want, &got));
        t->n += got;
    }
done:
    tn_stream_close(in);
    return s;
}

/* Class of each byte that occurs, in rank (256); how many there are. */
static int64_t rank_bytes(const text *t, int32_t *rank)
{
    int32_t classes = 0;
    bool present[256] = { false };
    for (size_t i = 0; i < t->n; i++) present[t->bytes[i]] = true;
    for (int b = 0; b < 256; b++) rank[b] = present[b] ? classes++ : -1;
    return classes;
}

static tn_status make_samples(const tn_settings *st, const text *t, int64_t length, tn_samples **out)
{
    tn_status s = TN_OK;
    tn_sample_set *b = NULL;
    int32_t rank[256];
    const int64_t classes = rank_bytes(t, rank), n = (int64_t)t->n - length;
    tn_samples shape = {
        .n = n, .tokens = 1, .features = length * classes, .labels = 1, .classes = classes, .scale = 1
    };
    if (n < 3 || classes < 2)
        return tn_error(
            TN_USAGE, "%.640s: %zu characters, %lld of them different, are too few to learn from with task.length=%lld",
            tn_settings_text(st, "task.data"), t->n, (long long)classes, (long long)length);
    TN_TRY(tn__samples_new(&shape, true, &b));
    for (int64_t i = 0; i < n; i++) {
        uint8_t *x = b->x_u8 + i * shape.features; /* (length, classes) */
        for (int64_t k = 0; k < length; k++) x[k * classes + rank[t->bytes[i + k]]] = 1;
        b->y[i] = rank[t->bytes[i + length]];
    }
    TN_TRY(tn__split_in_parts(st, b));
    *out = &b->set;
    b = NULL;
done:
    tn_samples_free(b ? &b->set : NULL);
    return s;
}

static tn_status open_char(const tn_settings *st, tn_samples **out)
{
    tn_status s = TN_OK;
    text t = { 0 };
    int64_t length;
    const char *path = tn_settings_text(st, "task.data");
    const size_t most = tn_settings_is_auto(st, "task.size") ? BYTES_MAX : (size_t)tn_settings_int(st, "task.size");
    TN_TRY(tn__task_width(st, "task.length", 1, LENGTH_MAX, &length));
    TN_TRY(*path ? read_text(path, most, &t) : repeat_sentence(&t));
    if (t.n > most) t.n = most;
    TN_TRY(make_samples(st, &t, length, out));
done:
    tn_free(t.bytes);
    return s;
}

const tn_task tn_task_char = { .name = "char",
                               .summary = "a text (task.data): the next character from task.length before it",
                               .open = open_char };
