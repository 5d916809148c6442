/* The file of a store, little-endian as the machine is:
 *
 *   "TNWIREST"  u32 version  u32 readers  u64 payload bytes  key (33)  payload hash (33)  6 bytes of 0
 *   i64 contexts of the splits (3), questions, bytes of contexts, kind
 *   per reader: i64 letter, bos, eos, anchor ids, context ids, asked ids
 *   payload: the arrays in the order of `sections`
 *
 * Sizes are checked against the file's before anything is allocated, the payload against its hash, offsets and ids before they are used. */
#include "tasks/wire/wire_store.h"

#include "base/alloc.h"
#include "base/fs.h"

#include <string.h>

enum { VERSION = 2, SECTIONS = 3 + 6 * TN_WIRE_READERS, COUNTS = 6, OF_READER = 6 };
static const char magic[8] = { 'T', 'N', 'W', 'I', 'R', 'E', 'S', 'T' };

typedef struct header {
    char magic[8];
    uint32_t version, readers;
    uint64_t payload;
    char key[TN_HASH_BYTES], hash[TN_HASH_BYTES];
    char unused[6];
    int64_t count[COUNTS];
    int64_t reader[TN_WIRE_READERS][OF_READER];
} header;

/* An array of the payload: where the store has its pointer, and what it holds. */
typedef struct section {
    size_t place;
    uint64_t items;
    size_t item;
} section;

static const void *data_of(const tn_wire_store *s, size_t place)
{
    const void *p;
    memcpy(&p, (const char *)s + place, sizeof p);
    return p;
}

static void set_data(tn_wire_store *s, size_t place, void *p) { memcpy((char *)s + place, &p, sizeof p); }

static size_t bytes_of(const section *x) { return (size_t)x->items * x->item; }

/* Of a header whose counts were checked. */
static size_t sections(const header *h, section out[SECTIONS])
{
    size_t n = 0;
    const uint64_t contexts = (uint64_t)(h->count[0] + h->count[1] + h->count[2]), questions = (uint64_t)h->count[3];
    out[n++] = (section){ offsetof(tn_wire_store, byte_at), contexts + 1, sizeof(int64_t) };
    out[n++] = (section){ offsetof(tn_wire_store, question_at), contexts + 1, sizeof(int64_t) };
    out[n++] = (section){ offsetof(tn_wire_store, bytes), (uint64_t)h->count[4], 1 };
    for (size_t r = 0; r < h->readers && r < TN_WIRE_READERS; r++) {
        const size_t at = offsetof(tn_wire_store, reader) + r * sizeof(tn_wire_ids);
        const int64_t *about = h->reader[r];
        out[n++] = (section){ at + offsetof(tn_wire_ids, context_at), contexts + 1, sizeof(int64_t) };
        out[n++] = (section){ at + offsetof(tn_wire_ids, asked_at), questions + 1, sizeof(int64_t) };
        out[n++] = (section){ at + offsetof(tn_wire_ids, answer), questions, sizeof(int32_t) };
        out[n++] = (section){ at + offsetof(tn_wire_ids, anchor), (uint64_t)about[3], sizeof(int32_t) };
        out[n++] = (section){ at + offsetof(tn_wire_ids, context), (uint64_t)about[4], sizeof(int32_t) };
        out[n++] = (section){ at + offsetof(tn_wire_ids, asked), (uint64_t)about[5], sizeof(int32_t) };
    }
    return n;
}

static void describe(const tn_wire_store *s, header *h)
{
    *h = (header){ .version = VERSION, .readers = (uint32_t)s->readers };
    memcpy(h->magic, magic, sizeof magic);
    memcpy(h->key, s->key, sizeof h->key);
    const int64_t count[COUNTS] = { s->count[0], s->count[1], s->count[2], s->questions, s->byte_at[s->contexts],
                                    s->kind };
    memcpy(h->count, count, sizeof count);
    for (size_t r = 0; r < s->readers && r < TN_WIRE_READERS; r++) {
        const tn_wire_ids *x = &s->reader[r];
        const int64_t about[OF_READER] = {
            x->letter, x->bos, x->eos, x->anchors, x->context_at[s->contexts], x->asked_at[s->questions]
        };
        memcpy(h->reader[r], about, sizeof about);
    }
}

tn_status tn__wire_store_save(const tn_wire_store *store, const char *path)
{
    tn_status s = TN_OK;
    header h;
    section list[SECTIONS];
    tn_hash *hash = NULL;
    tn_atomic_file f = { 0 };
    describe(store, &h);
    const size_t n = sections(&h, list);
    TN_TRY(tn_hash_begin(&hash));
    for (size_t i = 0; i < n; i++) h.payload += bytes_of(&list[i]);
    tn_hash_add(hash, &h, sizeof h); /* its own hash is still zeros */
    for (size_t i = 0; i < n; i++) {
        if (bytes_of(&list[i])) tn_hash_add(hash, data_of(store, list[i].place), bytes_of(&list[i]));
    }
    tn_hash_text(hash, h.hash);
    TN_TRY(tn_atomic_open(path, &f));
    TN_TRY(tn_atomic_write(&f, &h, sizeof h));
    for (size_t i = 0; i < n; i++)
        if (bytes_of(&list[i])) TN_TRY(tn_atomic_write(&f, data_of(store, list[i].place), bytes_of(&list[i])));
    TN_TRY(tn_atomic_finish(&f));
done:
    tn_atomic_abort(&f);
    tn_hash_free(hash);
    return s;
}

/* --- reading -------------------------------------------------------------------------------------------------------------------- */

static tn_status damaged(const char *path, const char *what)
{
    return tn_error(TN_BAD_FILE, "%.640s: %s: remove the file, it is made again", path, what);
}

/* Numbers that could not be: each alone is at most the file's size, so that their sums fit. */
static bool counts_fit(const header *h, uint64_t bytes)
{
    const int64_t most = bytes < (uint64_t)INT32_MAX * 1024 ? (int64_t)bytes : (int64_t)INT32_MAX * 1024;
    for (size_t i = 0; i + 1 < COUNTS; i++)
        if (h->count[i] < 0 || h->count[i] > most) return false;
    for (size_t r = 0; r < h->readers; r++)
        for (size_t i = 3; i < OF_READER; i++)
            if (h->reader[r][i] < 0 || h->reader[r][i] > most) return false;
    return true;
}

static tn_status check_header(const char *path, const header *h, size_t bytes, const char *key, size_t readers)
{
    section list[SECTIONS];
    uint64_t sum = 0;
    if (memcmp(h->magic, magic, sizeof magic) != 0) return damaged(path, "it is no file of tokens");
    if (h->version != VERSION) return damaged(path, "it is of another version");
    if (h->readers != readers || h->readers > TN_WIRE_READERS || h->key[TN_HASH_BYTES - 1] ||
        h->hash[TN_HASH_BYTES - 1])
        return damaged(path, "its header is damaged");
    if (strcmp(h->key, key) != 0) return damaged(path, "it has the tokens of other texts or models");
    if (!counts_fit(h, bytes)) return damaged(path, "its header has a count that is too large");
    const size_t n = sections(h, list);
    for (size_t i = 0; i < n; i++) sum += bytes_of(&list[i]);
    if (sum != h->payload || sum != bytes - sizeof *h) return damaged(path, "it was cut, or its counts are damaged");
    return TN_OK;
}

/* They begin at 0, ascend, and end at n. */
static bool offsets_fit(const int64_t *at, int64_t items, int64_t n)
{
    if (at[0] != 0 || at[items] != n) return false;
    for (int64_t i = 0; i < items; i++)
        if (at[i] > at[i + 1]) return false;
    return true;
}

static bool ids_fit(const int32_t *ids, int64_t n)
{
    for (int64_t i = 0; i < n; i++)
        if (ids[i] < 0) return false;
    return true;
}

static bool contents_fit(const tn_wire_store *s, const header *h)
{
    if (!offsets_fit(s->byte_at, s->contexts, h->count[4]) || !offsets_fit(s->question_at, s->contexts, s->questions))
        return false;
    for (size_t r = 0; r < s->readers; r++) {
        const tn_wire_ids *x = &s->reader[r];
        const int64_t *about = h->reader[r];
        if (!offsets_fit(x->context_at, s->contexts, about[4]) || !offsets_fit(x->asked_at, s->questions, about[5]) ||
            !ids_fit(x->context, about[4]) || !ids_fit(x->asked, about[5]) || !ids_fit(x->anchor, about[3]))
            return false;
        for (int64_t q = 0; q < s->questions; q++)
            if (x->answer[q] < 0 || x->answer[q] > x->asked_at[q + 1] - x->asked_at[q]) return false;
    }
    return true;
}

static void take_counts(const header *h, tn_wire_store *s)
{
    s->contexts = 0;
    for (int k = 0; k < TN_SPLITS; k++) {
        s->count[k] = h->count[k];
        s->first[k] = s->contexts;
        s->contexts += s->count[k];
    }
    s->questions = h->count[3];
    s->kind = (int)h->count[5];
    s->readers = h->readers;
    for (size_t r = 0; r < h->readers; r++) {
        const int64_t *about = h->reader[r];
        s->reader[r] = (tn_wire_ids){
            .letter = (char)about[0], .bos = (int32_t)about[1], .eos = (int32_t)about[2], .anchors = about[3]
        };
    }
}

tn_status tn__wire_store_load(const char *path, const char key[TN_HASH_BYTES], tn_wire_store *out)
{
    tn_status s = TN_OK;
    header h;
    section list[SECTIONS];
    char hex[TN_HASH_BYTES];
    tn_file f = { 0 };
    tn_hash *hash = NULL;
    uint64_t at = sizeof h;
    TN_TRY(tn_file_open(path, &f));
    if (f.bytes < sizeof h) TN_TRY(damaged(path, "it was cut"));
    TN_TRY(tn_file_read_at(&f, path, 0, &h, sizeof h));
    TN_TRY(check_header(path, &h, f.bytes, key, out->readers));
    take_counts(&h, out);
    TN_TRY(tn_hash_begin(&hash));
    header unhashed = h;
    memset(unhashed.hash, 0, sizeof unhashed.hash);
    tn_hash_add(hash, &unhashed, sizeof unhashed);
    const size_t n = sections(&h, list);
    for (size_t i = 0; i < n; i++) {
        const size_t bytes = bytes_of(&list[i]);
        void *p = tn_alloc(bytes + 1);
        if (!p) TN_TRY(TN_MEMORY);
        set_data(out, list[i].place, p);
        TN_TRY(tn_file_read_at(&f, path, at, p, bytes));
        tn_hash_add(hash, p, bytes);
        at += bytes;
    }
    tn_hash_text(hash, hex);
    if (strcmp(hex, h.hash) != 0) TN_TRY(damaged(path, "its contents are not what was written"));
    if (!contents_fit(out, &h)) TN_TRY(damaged(path, "its offsets or ids are damaged"));
done:
    tn_hash_free(hash);
    tn_file_close(&f);
    return s;
}
