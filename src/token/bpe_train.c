/* Training byte-level BPE: words with their counts, then merges of the most frequent pair. A pair's count is kept up to
 * date as words change; a heap holds candidates whose counts may have fallen since, which is found out when they come
 * up.
 *
 * The steps follow BpeTrainer of the `tokenizers` library in all that decides the result: of equal counts the smaller
 * pair of ids wins; a merge whose text is a token already reuses that token, and pairs that thereby grow again come up
 * with the words that are new to them; a pair that is merged twice ranks by its last time. */
#include "token/bpe_count.h"
#include "token/tokenizer_impl.h"

#include "base/alloc.h"
#include "base/text.h"

#include <string.h>

/* Words in which a candidate pair is merged. */
typedef struct candidate {
    int64_t count;
    uint32_t left, right;
    uint32_t *words; /* (n), owned */
    size_t n;
} candidate;

typedef struct counted_pair {
    uint64_t key; /* left << 32 | right, plus 1; 0: free */
    int64_t count;
    uint32_t places; /* 1 + index of the newest place of this step; 0: none */
    uint32_t n_places;
} counted_pair;

typedef struct place { /* a word a pair grew in, chained by pair */
    uint32_t word, next;
} place;

typedef struct merge_row {
    uint32_t left, right;
    int32_t id;
} merge_row;

typedef struct trainer {
    const tn_bpe_options *o;
    tn_tokenizer *t;
    tn_words words;
    int32_t *symbol;    /* symbols of all words; word i's are at word[i].at, its bytes field counts them */
    counted_pair *pair; /* (slots) */
    size_t slots, n_pairs;
    candidate *heap;
    size_t heap_n, heap_capacity;
    place *place; /* of this step */
    size_t n_places, place_capacity;
    size_t *touched; /* slots of pairs that grew in this step */
    size_t n_touched, touched_capacity;
    merge_row *merge;
    size_t n_merges, merge_capacity;
} trainer;

static void trainer_free(trainer *r)
{
    for (size_t i = 0; i < r->heap_n; i++) tn_free(r->heap[i].words);
    tn_words_free(&r->words);
    tn_free(r->symbol);
    tn_free(r->pair);
    tn_free(r->heap);
    tn_free(r->place);
    tn_free(r->touched);
    tn_free(r->merge);
    tn_tokenizer_free(r->t);
}

/* One more item at the end of a growable array. */
static tn_status reserve(void **p, size_t *capacity, size_t n, size_t item)
{
    return n < *capacity ? TN_OK : tn_grow(p, capacity, n ? 2 * n : 1024, item);
}

/* --- the heap: most frequent first, then the smaller pair --------------------------------------------------------- */

static bool comes_before(const candidate *a, const candidate *b)
{
    if (a->count != b->count) return a->count > b->count;
    return a->left != b->left ? a->left < b->left : a->right < b->right;
}

static tn_status heap_push(trainer *r, candidate c)
{
    void *p = r->heap;
    TN_RETURN_IF(reserve(&p, &r->heap_capacity, r->heap_n, sizeof *r->heap));
    r->heap = p;
    size_t i = r->heap_n++;
    for (; i > 0 && comes_before(&c, &r->heap[(i - 1) / 2]); i = (i - 1) / 2) r->heap[i] = r->heap[(i - 1) / 2];
    r->heap[i] = c;
    return TN_OK;
}

static candidate heap_pop(trainer *r)
{
    const candidate top = r->heap[0], last = r->heap[--r->heap_n];
    size_t i = 0;
    for (size_t child; (child = 2 * i + 1) < r->heap_n; i = child) {
        if (child + 1 < r->heap_n && comes_before(&r->heap[child + 1], &r->heap[child])) child++;
        if (!comes_before(&r->heap[child], &last)) break;
        r->heap[i] = r->heap[child];
    }
    r->heap[i] = last;
    return top;
}

/* --- counts of pairs ---------------------------------------------------------------------------------------------- */

static size_t pair_slot(const trainer *r, uint64_t key)
{
    size_t i = tn_mix(key) & (r->slots - 1);
    while (r->pair[i].key && r->pair[i].key != key + 1) i = (i + 1) & (r->slots - 1);
    return i;
}

/* Slots move here, so it runs between steps only: a step is given room before it starts. */
static tn_status pairs_reserve(trainer *r, size_t more)
{
    counted_pair *old = r->pair;
    const size_t n = r->slots;
    size_t slots = n ? n : 1 << 16;
    while (slots < 2 * (r->n_pairs + more)) slots *= 2;
    if (slots == n) return TN_OK;
    counted_pair *pair = tn_alloc(slots * sizeof *pair);
    if (!pair) return TN_MEMORY;
    r->pair = pair;
    r->slots = slots;
    for (size_t i = 0; i < n; i++)
        if (old[i].key) r->pair[pair_slot(r, old[i].key - 1)] = old[i];
    tn_free(old);
    return TN_OK;
}

/* count more of the pair (left, right) in a word; where it grows, the word is remembered. */
static tn_status change(trainer *r, int32_t left, int32_t right, int64_t count, uint32_t word)
{
    const uint64_t key = (uint64_t)(uint32_t)left << 32 | (uint32_t)right;
    const size_t i = pair_slot(r, key);
    counted_pair *x = r->pair + i;
    void *p = r->touched, *q = r->place;
    if (!x->key) {
        x->key = key + 1;
        r->n_pairs++;
    }
    x->count += count;
    if (count < 0 || (x->places && r->place[x->places - 1].word == word)) return TN_OK;
    TN_RETURN_IF(reserve(&q, &r->place_capacity, r->n_places, sizeof *r->place));
    r->place = q;
    if (!x->places) {
        TN_RETURN_IF(reserve(&p, &r->touched_capacity, r->n_touched, sizeof *r->touched));
        r->touched = p;
        r->touched[r->n_touched++] = i;
    }
    r->place[r->n_places++] = (place){ word, x->places };
    x->places = (uint32_t)r->n_places;
    x->n_places++;
    return TN_OK;
}

/* The pairs that grew in this step become candidates with the words they grew in. */
static tn_status queue_touched(trainer *r)
{
    for (size_t k = 0; k < r->n_touched; k++) {
        counted_pair *x = r->pair + r->touched[k];
        candidate c = { .count = x->count, .left = (uint32_t)((x->key - 1) >> 32), .right = (uint32_t)(x->key - 1) };
        if (x->count > 0) {
            c.words = tn_alloc(x->n_places * sizeof *c.words);
            if (!c.words) return TN_MEMORY;
            for (uint32_t i = x->places; i; i = r->place[i - 1].next) c.words[c.n++] = r->place[i - 1].word;
            const tn_status s = heap_push(r, c);
            if (s != TN_OK) return tn_free(c.words), s;
        }
        x->places = x->n_places = 0;
    }
    r->n_touched = r->n_places = 0;
    return TN_OK;
}

/* --- merging ------------------------------------------------------------------------------------------------------ */

/* Merges a pair in one word and counts what that changes, in the reference's order. */
static tn_status merge_word(trainer *r, const candidate *c, int32_t id, uint32_t word)
{
    tn_outcome *w = r->words.word + word;
    int32_t *s = r->symbol + w->at;
    const int32_t a = (int32_t)c->left, b = (int32_t)c->right;
    uint32_t n = 0; /* symbols kept */
    for (uint32_t i = 0; i < w->bytes; i++) {
        if (s[i] != a || i + 1 == w->bytes || s[i + 1] != b) {
            s[n++] = s[i];
            continue;
        }
        if (n > 0) {
            TN_RETURN_IF(change(r, s[n - 1], a, -w->count, word));
            TN_RETURN_IF(change(r, s[n - 1], id, w->count, word));
        }
        s[n++] = id;
        i++;
        if (i + 1 < w->bytes) {
            TN_RETURN_IF(change(r, b, s[i + 1], -w->count, word));
            TN_RETURN_IF(change(r, id, s[i + 1], w->count, word));
        }
    }
    w->bytes = n;
    return TN_OK;
}

/* The token of a merge's text, made where there is none; -1: too long to be one. */
static tn_status token_of(trainer *r, const candidate *c, int32_t *id)
{
    tn_vocab *v = &r->t->vocab;
    char text[2 * TN_PIECE_MAX_BYTES];
    const tn_piece a = v->piece[c->left], b = v->piece[c->right];
    const size_t n = a.bytes + b.bytes;
    *id = -1;
    if (n > TN_PIECE_MAX_BYTES) return TN_OK;
    memcpy(text, v->text.data + a.at, a.bytes);
    memcpy(text + a.bytes, v->text.data + b.at, b.bytes);
    *id = tn_vocab_find(v, text, n);
    if (*id >= 0) return TN_OK;
    *id = (int32_t)v->n;
    return tn_vocab_put(v, *id, text, n, true);
}

static tn_status merge_step(trainer *r, const candidate *c)
{
    int32_t id;
    size_t symbols = 0;
    void *p = r->merge;
    TN_RETURN_IF(token_of(r, c, &id));
    if (id < 0) return TN_OK;
    TN_RETURN_IF(reserve(&p, &r->merge_capacity, r->n_merges, sizeof *r->merge));
    r->merge = p;
    r->merge[r->n_merges++] = (merge_row){ c->left, c->right, id };
    for (size_t i = 0; i < c->n; i++) symbols += r->words.word[c->words[i]].bytes;
    TN_RETURN_IF(pairs_reserve(r, symbols < 2 * r->t->vocab.n ? 2 * symbols
                                                              : 4 * r->t->vocab.n)); /* new pairs have id on a side */
    for (size_t i = 0; i < c->n; i++) TN_RETURN_IF(merge_word(r, c, id, c->words[i]));
    return queue_touched(r);
}

static tn_status merge_all(trainer *r)
{
    const size_t vocab = (size_t)r->o->vocab;
    const int64_t least = r->o->min_count > 1 ? r->o->min_count : 1;
    tn_status s = TN_OK;
    while (r->heap_n && r->t->vocab.n < vocab && s == TN_OK) {
        candidate c = heap_pop(r);
        const int64_t now = r->pair[pair_slot(r, (uint64_t)c.left << 32 | c.right)].count;
        if (c.count != now && now >= least) {
            c.count = now;
            s = heap_push(r, c);
            if (s == TN_OK) continue;
        }
        if (s == TN_OK && now >= least) s = merge_step(r, &c);
        tn_free(c.words);
        if (s == TN_OK && r->o->progress && r->n_merges % 64 == 0)
            s = r->o->progress(r->o->progress_user, "merge", (int64_t)r->t->vocab.n, r->o->vocab);
    }
    return s;
}

/* --- before and after --------------------------------------------------------------------------------------------- */

static tn_status check_options(const tn_bpe_options *o, int n_specials)
{
    if (o->pattern && !tn_split_named(o->pattern))
        return tn_error(TN_USAGE, "unknown split pattern \"%.40s\"; choose gpt2, cl100k, llama3, qwen2 or o200k",
                        o->pattern);
    if (o->vocab < 256 + n_specials || o->vocab > TN_VOCAB_MAX)
        return tn_error(TN_USAGE,
                        "a vocabulary of %lld is outside %d..%d (256 bytes and %d special tokens are always in it)",
                        (long long)o->vocab, 256 + n_specials, TN_VOCAB_MAX, n_specials);
    return TN_OK;
}

/* Special tokens, then the bytes in the order of their characters in GPT-2's alphabet. */
static tn_status start_vocab(trainer *r, const char *const *specials, int n)
{
    tn_tokenizer *t = r->t;
    for (int i = 0; i < n; i++) {
        if (!tn_utf8_valid(specials[i]) || tn_tokenizer_find(t, specials[i]) >= 0)
            return tn_error(TN_USAGE, "special token %d is not UTF-8 or given twice; change the list", i);
        TN_RETURN_IF(tn__tokenizer_add(t, (tn_added){ .id = i, .special = true }, specials[i], strlen(specials[i])));
    }
    for (uint32_t code = 0; code < 512; code++) {
        const int b = tn__char_byte(code);
        if (b >= 0) TN_RETURN_IF(tn_vocab_put(&t->vocab, (int64_t)t->vocab.n, (const char *)&t->byte_text[b], 1, true));
    }
    for (int b = 0; b < 256; b++) t->byte_id[b] = tn_vocab_find(&t->vocab, (const char *)&t->byte_text[b], 1);
    return TN_OK;
}

static tn_status start_words(trainer *r)
{
    tn_words *w = &r->words;
    r->symbol = tn_alloc((w->text.n + 1) * sizeof *r->symbol);
    if (!r->symbol) return TN_MEMORY;
    for (size_t i = 0; i < w->text.n; i++) r->symbol[i] = r->t->byte_id[(unsigned char)w->text.data[i]];
    TN_RETURN_IF(pairs_reserve(r, 256 * 256));
    for (size_t k = 0; k < w->n; k++)
        for (uint32_t i = 0; i + 1 < w->word[k].bytes; i++) {
            const int32_t *s = r->symbol + w->word[k].at + i;
            TN_RETURN_IF(change(r, s[0], s[1], w->word[k].count, (uint32_t)k));
        }
    tn_text_free(&w->text);
    return queue_touched(r);
}

/* Merges into the vocabulary. A pair that was merged twice keeps its last place, and ranks have no holes. */
static tn_status keep_merges(trainer *r)
{
    tn_vocab *v = &r->t->vocab;
    uint32_t rank = 0;
    for (size_t i = 0; i < r->n_merges; i++)
        TN_RETURN_IF(
            tn_vocab_pair_put(v, (int32_t)r->merge[i].left, (int32_t)r->merge[i].right, (uint32_t)i, r->merge[i].id));
    for (size_t i = 0; i < r->n_merges; i++) {
        const merge_row m = r->merge[i];
        if (tn_vocab_pair(v, m.left, m.right)->rank == i)
            TN_RETURN_IF(tn_vocab_pair_put(v, (int32_t)m.left, (int32_t)m.right, rank++, m.id));
    }
    return TN_OK;
}

tn_status tn_bpe_train(tn_text_source *source, void *user, const tn_bpe_options *options, tn_tokenizer **out)
{
    static const char *const end_of_text[] = { "<|endoftext|>" };
    tn_status s = TN_OK;
    trainer r = { .o = options };
    const char *const *specials = options->specials ? options->specials : end_of_text;
    const int n = options->specials ? options->n_specials : 1;
    const char *pattern = options->pattern ? options->pattern : "gpt2";
    TN_TRY(check_options(options, n));
    TN_TRY(tn__tokenizer_new(TN_KIND_BPE, &r.t));
    TN_TRY(start_vocab(&r, specials, n));
    TN_TRY(tn__tokenizer_split(r.t, tn_split_named(pattern), NULL, false));
    TN_TRY(tn_words_count(source, user, options, tn_split_named(pattern), &r.words));
    TN_TRY(start_words(&r));
    TN_TRY(merge_all(&r));
    TN_TRY(keep_merges(&r));
    TN_TRY(tn__tokenizer_finish(r.t));
    *out = r.t;
    r.t = NULL;
done:
    trainer_free(&r);
    return s;
}
