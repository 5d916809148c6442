/* Vocabulary tables: open addressing at half load at most. A file made to collide (long probes) is refused rather than
 * served slowly. */
#include "token/vocab.h"

#include "base/alloc.h"
#include "token/unicode.h"

#include <string.h>

enum { MAX_PROBES = 4096 };

static const uint64_t base = 0x9ddfea08eb382d69u; /* of the polynomial that hashes bytes */

void tn_vocab_free(tn_vocab *v)
{
    tn_text_free(&v->text);
    tn_free(v->piece);
    tn_free(v->slot);
    tn_free(v->pair);
    tn_free(v->pair_slot);
    *v = (tn_vocab){ 0 };
}

/* A polynomial, so that the hash of a part follows from the hashes of prefixes (tn_vocab_pairs_from_pieces). */
static uint64_t hash_bytes(const char *p, size_t n)
{
    uint64_t h = 0;
    for (size_t i = 0; i < n; i++) h = h * base + (unsigned char)p[i] + 1;
    return h;
}

static size_t first_slot(const tn_vocab *v, uint64_t hash) { return (tn_mix(hash) ^ hash >> 47) & (v->slots - 1); }

static int32_t find_hashed(const tn_vocab *v, uint64_t hash, const char *bytes, size_t n)
{
    if (v->slots == 0 || n > v->longest) return -1;
    for (size_t i = first_slot(v, hash); v->slot[i]; i = (i + 1) & (v->slots - 1)) {
        const tn_piece p = v->piece[v->slot[i] - 1];
        if (p.bytes == n && memcmp(v->text.data + p.at, bytes, n) == 0) return (int32_t)(v->slot[i] - 1);
    }
    return -1;
}

int32_t tn_vocab_find(const tn_vocab *v, const char *bytes, size_t n)
{
    return n > v->longest ? -1 : find_hashed(v, hash_bytes(bytes, n), bytes, n);
}

static tn_status insert(tn_vocab *v, uint32_t id)
{
    const tn_piece p = v->piece[id];
    size_t i = first_slot(v, hash_bytes(v->text.data + p.at, p.bytes)), probes = 0;
    for (; v->slot[i]; i = (i + 1) & (v->slots - 1))
        if (++probes > MAX_PROBES)
            return tn_error(TN_BAD_FILE, "tokens collide as no real vocabulary does; download the file again");
    v->slot[i] = id + 1;
    return TN_OK;
}

static tn_status grow_slots(tn_vocab *v)
{
    uint32_t *old = v->slot;
    const size_t n = v->slots, more = n ? 2 * n : 1024;
    uint32_t *slot = tn_alloc(more * sizeof *slot);
    if (!slot) return TN_MEMORY;
    v->slot = slot;
    v->slots = more;
    tn_status s = TN_OK;
    for (size_t i = 0; i < n && s == TN_OK; i++)
        if (old[i]) s = insert(v, old[i] - 1);
    tn_free(old);
    return s;
}

/* Whether so many bytes more stay in what the tables may take. */
static tn_status check_size(const tn_vocab *v, size_t more)
{
    const size_t bytes = v->text.n + v->n * sizeof *v->piece + v->slots * sizeof *v->slot +
                         v->n_pairs * sizeof *v->pair + v->pair_slots * sizeof *v->pair_slot;
    if (!v->most_bytes || bytes + more <= v->most_bytes) return TN_OK;
    return tn_error(
        TN_BAD_FILE,
        "%zu tokens and %zu merges are more than a real vocabulary of its size has; download the file again", v->n,
        v->n_pairs);
}

tn_status tn_vocab_put(tn_vocab *v, int64_t id, const char *bytes, size_t n, bool findable)
{
    void *p = v->piece;
    if (id < 0 || id >= TN_VOCAB_MAX)
        return tn_error(TN_BAD_FILE, "token id %lld is outside 0..%d; the file is damaged or too large", (long long)id,
                        TN_VOCAB_MAX - 1);
    if (n == 0) return tn_error(TN_BAD_FILE, "token %lld is empty; the file is damaged", (long long)id);
    if (n > TN_PIECE_MAX_BYTES)
        return tn_error(TN_BAD_FILE, "token %lld has %zu bytes; at most %d are read", (long long)id, n,
                        TN_PIECE_MAX_BYTES);
    if ((size_t)id < v->n && v->piece[id].bytes)
        return tn_error(TN_BAD_FILE, "id %lld is used twice; the file is damaged", (long long)id);
    if (findable && tn_vocab_find(v, bytes, n) >= 0)
        return tn_error(TN_BAD_FILE, "tokens %d and %lld have the same bytes; the file is damaged",
                        tn_vocab_find(v, bytes, n), (long long)id);
    if (v->text.n + n > UINT32_MAX) return tn_error(TN_BAD_FILE, "the tokens have more than 4 GiB in all");
    const bool full = 2 * (v->filled + 1) > v->slots;
    const size_t gap = (size_t)id < v->n ? 0 : ((size_t)id - v->n) * sizeof *v->piece;
    TN_RETURN_IF(check_size(v, n + gap + (full ? v->slots * sizeof *v->slot : 0)));
    if ((size_t)id >= v->piece_capacity) {
        TN_RETURN_IF(tn_grow(&p, &v->piece_capacity, (size_t)id + (size_t)id / 2 + 1024, sizeof *v->piece));
        v->piece = p;
    }
    if (full) TN_RETURN_IF(grow_slots(v));
    const uint32_t place = (uint32_t)v->text.n;
    TN_RETURN_IF(tn_text_append(&v->text, bytes, n));
    v->piece[id] = (tn_piece){ place, (uint32_t)n };
    if ((size_t)id >= v->n) v->n = (size_t)id + 1;
    if (!findable) return TN_OK;
    if (n > v->longest) v->longest = (uint32_t)n;
    v->filled++;
    return insert(v, (uint32_t)id);
}

static tn_status place_pair(tn_vocab *v, size_t index)
{
    const tn_pair p = v->pair[index];
    const uint64_t hash = tn_mix((uint64_t)p.left << 32 | p.right);
    size_t i = hash & (v->pair_slots - 1), probes = 0;
    for (; v->pair_slot[i]; i = (i + 1) & (v->pair_slots - 1))
        if (++probes > MAX_PROBES)
            return tn_error(TN_BAD_FILE, "merges collide as no real vocabulary's do; download the file again");
    v->pair_slot[i] = (uint32_t)(hash >> 56) << 24 | ((uint32_t)index + 1);
    return TN_OK;
}

/* The old slots go first: all that is in them is in the list of pairs. */
static tn_status grow_pairs(tn_vocab *v)
{
    const size_t more = v->pair_slots ? 2 * v->pair_slots : 2048;
    tn_free(v->pair_slot);
    v->pair_slots = 0;
    if (!(v->pair_slot = tn_alloc(more * sizeof *v->pair_slot))) return TN_MEMORY;
    v->pair_slots = more;
    for (size_t i = 0; i < v->n_pairs; i++) TN_RETURN_IF(place_pair(v, i));
    return TN_OK;
}

tn_status tn_vocab_pair_put(tn_vocab *v, int32_t left, int32_t right, uint32_t rank, int32_t id)
{
    void *list = v->pair;
    const tn_pair *old = tn_vocab_pair(v, (uint32_t)left, (uint32_t)right);
    if (old) {
        v->pair[old - v->pair].rank = rank;
        v->pair[old - v->pair].id = id;
        return TN_OK;
    }
    const bool full = 2 * (v->n_pairs + 1) > v->pair_slots;
    if (v->n_pairs >= TN_PAIRS_MAX)
        return tn_error(TN_BAD_FILE, "more than %d merges; the file is damaged", TN_PAIRS_MAX);
    TN_RETURN_IF(check_size(v, sizeof *v->pair + (full ? v->pair_slots * sizeof *v->pair_slot : 0)));
    TN_RETURN_IF(tn_grow(&list, &v->pair_capacity, v->n_pairs + 1, sizeof *v->pair));
    v->pair = list;
    if (full) TN_RETURN_IF(grow_pairs(v));
    v->pair[v->n_pairs] = (tn_pair){ (uint32_t)left, (uint32_t)right, rank, id };
    return place_pair(v, v->n_pairs++);
}

tn_status tn_vocab_pairs_from_pieces(tn_vocab *v, const uint32_t *rank)
{
    uint64_t prefix[TN_PIECE_MAX_BYTES + 1] = { 0 }, power[TN_PIECE_MAX_BYTES + 1] = { 1 };
    for (size_t i = 0; i < TN_PIECE_MAX_BYTES; i++) power[i + 1] = power[i] * base;
    for (size_t id = 0; id < v->n; id++) {
        const size_t n = v->piece[id].bytes;
        const char *b = v->text.data + v->piece[id].at;
        if (n < 2 || (rank && rank[id] == UINT32_MAX)) continue;
        if (tn_vocab_find(v, b, n) != (int32_t)id) continue; /* special tokens are never made by merging */
        for (size_t i = 0; i < n; i++) prefix[i + 1] = prefix[i] * base + (unsigned char)b[i] + 1;
        for (size_t cut = 1; cut < n; cut++) {
            const int32_t left = find_hashed(v, prefix[cut], b, cut);
            if (left < 0) continue;
            const int32_t right = find_hashed(v, prefix[n] - prefix[cut] * power[n - cut], b + cut, n - cut);
            if (right >= 0)
                TN_RETURN_IF(tn_vocab_pair_put(v, left, right, rank ? rank[id] : (uint32_t)id, (int32_t)id));
        }
    }
    return TN_OK;
}
