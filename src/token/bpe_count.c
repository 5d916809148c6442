/* Each thread takes the next part of the text under a lock, copies it, and counts into a table of its own; in the end
 * the tables are added up. A long document is cut where no word can span (tn__cut_letters). Error texts belong to
 * threads, so the first failure is carried to the caller's. */
#include "token/bpe_count.h"

#include "base/alloc.h"
#include "token/tokenizer_impl.h"

#include <pthread.h>
#include <stdio.h>
#include <string.h>
#include <xxhash.h>

enum { PART_BYTES = 1 << 20, MAX_THREADS = 256 };

typedef struct shared {
    pthread_mutex_t lock; /* over all below */
    tn_text_source *source;
    void *user;
    const char *text; /* what is left of the current document */
    size_t left;
    bool ended;
    int64_t taken_bytes;
    tn_status failed;
    char why[1024];
    const tn_split_pattern *pattern;
    const tn_unicode *unicode;
} shared;

typedef struct worker {
    shared *all;
    const tn_bpe_options *reports; /* set for the caller's own thread */
    tn_text part, repaired;
    tn_words words;
    pthread_t thread;
    bool started;
} worker;

void tn_words_free(tn_words *w)
{
    tn_text_free(&w->text);
    tn_free(w->word);
    tn_free(w->slot);
    *w = (tn_words){ 0 };
}

static tn_status grow_slots(tn_words *w)
{
    const size_t more = w->slots ? 2 * w->slots : 1 << 14;
    uint32_t *slot = tn_alloc(more * sizeof *slot);
    if (!slot) return TN_MEMORY;
    tn_free(w->slot);
    w->slot = slot;
    w->slots = more;
    for (size_t k = 0; k < w->n; k++) {
        size_t i = XXH64(w->text.data + w->word[k].at, w->word[k].bytes, 0) & (more - 1);
        while (slot[i]) i = (i + 1) & (more - 1);
        slot[i] = (uint32_t)k + 1;
    }
    return TN_OK;
}

static tn_status words_add(tn_words *w, const char *bytes, size_t n, int64_t count)
{
    if (2 * (w->n + 1) > w->slots) TN_RETURN_IF(grow_slots(w));
    size_t i = XXH64(bytes, n, 0) & (w->slots - 1);
    for (; w->slot[i]; i = (i + 1) & (w->slots - 1)) {
        tn_outcome *x = w->word + w->slot[i] - 1;
        if (x->bytes == n && memcmp(w->text.data + x->at, bytes, n) == 0) return x->count += count, TN_OK;
    }
    if (w->n >= UINT32_MAX / 2 || n > UINT32_MAX)
        return tn_error(TN_USAGE, "too many different words to train on; use less text");
    if (w->n == w->capacity) {
        void *p = w->word;
        TN_RETURN_IF(tn_grow(&p, &w->capacity, w->n ? 2 * w->n : 4096, sizeof *w->word));
        w->word = p;
    }
    const uint64_t at = w->text.n;
    TN_RETURN_IF(tn_text_append(&w->text, bytes, n));
    w->word[w->n] = (tn_outcome){ at, (uint32_t)n, count };
    w->slot[i] = (uint32_t)++w->n;
    return TN_OK;
}

/* The next part into w->part; false at the end or after a failure. Called with the lock held. */
static tn_status take(worker *w, bool *more)
{
    shared *a = w->all;
    while (a->left == 0 && !a->ended) {
        TN_RETURN_IF(a->source(a->user, &a->text, &a->left));
        a->ended = a->text == NULL;
    }
    *more = !a->ended;
    if (a->ended) return TN_OK;
    size_t n = a->left;
    if (n > PART_BYTES) n = tn__cut_letters(a->text, PART_BYTES);
    if (n == 0) n = a->left;
    w->part.n = 0;
    TN_RETURN_IF(tn_text_append(&w->part, a->text, n));
    a->text += n;
    a->left -= n;
    a->taken_bytes += (int64_t)n;
    return TN_OK;
}

static tn_status count_part(worker *w)
{
    const tn_text *t = &w->part;
    if (tn_utf8_prefix(t->data, t->n) < t->n) {
        w->repaired.n = 0;
        TN_RETURN_IF(tn_utf8_repair(t->data, t->n, &w->repaired));
        t = &w->repaired;
    }
    const unsigned char *p = (const unsigned char *)t->data, *end = p + t->n;
    while (p < end) {
        const size_t n = w->all->pattern->scan(w->all->unicode, p, end);
        TN_RETURN_IF(words_add(&w->words, (const char *)p, n, 1));
        p += n;
    }
    return TN_OK;
}

static void note_failure(shared *a, tn_status s) /* with the lock held */
{
    if (a->failed != TN_OK) return;
    a->failed = s;
    snprintf(a->why, sizeof a->why, "%s", tn_error_text());
}

static void *work(void *arg)
{
    worker *w = arg;
    shared *a = w->all;
    for (bool more = true; more;) {
        int64_t taken = 0;
        pthread_mutex_lock(&a->lock);
        tn_status s = a->failed;
        if (s == TN_OK) s = take(w, &more);
        if (s != TN_OK) note_failure(a, s);
        taken = a->taken_bytes;
        pthread_mutex_unlock(&a->lock);
        if (s != TN_OK || !more) break;
        s = count_part(w);
        if (s == TN_OK && w->reports && w->reports->progress)
            s = w->reports->progress(w->reports->progress_user, "count", taken, 0);
        if (s == TN_OK) continue;
        pthread_mutex_lock(&a->lock);
        note_failure(a, s);
        pthread_mutex_unlock(&a->lock);
        break;
    }
    return NULL;
}

static tn_status add_up(worker *w, int n)
{
    for (int i = 1; i < n; i++) {
        const tn_words *x = &w[i].words;
        for (size_t k = 0; k < x->n; k++)
            TN_RETURN_IF(words_add(&w[0].words, x->text.data + x->word[k].at, x->word[k].bytes, x->word[k].count));
        tn_words_free(&w[i].words);
    }
    return TN_OK;
}

tn_status tn_words_count(tn_text_source *source, void *user, const tn_bpe_options *o, const tn_split_pattern *pattern,
                         tn_words *out)
{
    tn_status s = TN_OK;
    tn_unicode *unicode = NULL;
    const int n = o->threads < 1 ? 1 : o->threads > MAX_THREADS ? MAX_THREADS : o->threads;
    shared all = { .source = source, .user = user, .pattern = pattern };
    worker *w = tn_alloc((size_t)n * sizeof *w);
    if (!w) return TN_MEMORY;
    TN_TRY(tn_unicode_new(&unicode));
    all.unicode = unicode;
    pthread_mutex_init(&all.lock, NULL);
    for (int i = 0; i < n; i++) w[i].all = &all;
    w[0].reports = o;
    for (int i = 1; i < n; i++)
        w[i].started = pthread_create(&w[i].thread, NULL, work, &w[i]) == 0; /* fewer are enough */
    work(&w[0]);
    for (int i = 1; i < n; i++)
        if (w[i].started) pthread_join(w[i].thread, NULL);
    pthread_mutex_destroy(&all.lock);
    if (all.failed != TN_OK) TN_FAIL(all.failed, "%s", all.why);
    TN_TRY(add_up(w, n));
    *out = w[0].words;
    w[0].words = (tn_words){ 0 };
done:
    for (int i = 0; i < n; i++) {
        tn_text_free(&w[i].part);
        tn_text_free(&w[i].repaired);
        tn_words_free(&w[i].words);
    }
    tn_unicode_free(unicode);
    tn_free(w);
    return s;
}
