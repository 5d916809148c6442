/* The store: named tensors and their buckets. Data pointers stay valid as long as the store lives. */
#include "plan/store.h"

#include "backend/backend.h"
#include "base/rng.h"

#include <stdio.h>
#include <string.h>

enum { PAD = 16 }; /* elements: tensors of a bucket start on 64-byte boundaries */

typedef struct entry {
    tn_entry e;
    void *owned;   /* data that is not in a bucket */
    uint64_t hash; /* of the name: most comparisons end here */
} entry;

struct tn_store {
    const tn_backend *backend;
    tn_device device;
    uint64_t seed;
    tn_arena names;
    entry **entry; /* pointers, so that tn_entry addresses stay */
    size_t n, capacity;
    tn_bucket *bucket;
    size_t n_buckets, cap_buckets;
    int moments;
    bool loads_weights;
    struct attached {
        void *queue;
        int bounds;
    } * attached;
    size_t n_attached, cap_attached;
};

tn_status tn_store_new(tn_device device, uint64_t seed, tn_store **out)
{
    const tn_backend *b = tn_backend_get(device);
    if (!b) return TN_USAGE;
    tn_store *s = tn_alloc(sizeof *s);
    if (!s) return TN_MEMORY;
    *s = (tn_store){ .backend = b, .device = device, .seed = seed };
    *out = s;
    return TN_OK;
}

void tn_store_free(tn_store *s)
{
    if (!s) return;
    for (size_t i = 0; i < s->n; i++) {
        s->backend->free(s->entry[i]->owned);
        tn_free(s->entry[i]);
    }
    for (size_t i = 0; i < s->n_buckets; i++) {
        s->backend->free(s->bucket[i].param);
        s->backend->free(s->bucket[i].grad);
        s->backend->free(s->bucket[i].m);
        s->backend->free(s->bucket[i].v);
    }
    tn_free(s->entry);
    tn_free(s->bucket);
    tn_free(s->attached);
    tn_arena_free(&s->names);
    tn_free(s);
}

/* --- queues ------------------------------------------------------------------------------------------------------------- */

tn_status tn__store_attach(tn_store *s, void *queue)
{
    for (size_t i = 0; i < s->n_attached; i++)
        if (s->attached[i].queue == queue) {
            s->attached[i].bounds++;
            return TN_OK;
        }
    TN_RETURN_IF(tn_grow((void **)&s->attached, &s->cap_attached, s->n_attached + 1, sizeof *s->attached));
    s->attached[s->n_attached++] = (struct attached){ queue, 1 };
    return TN_OK;
}

void tn__store_detach(tn_store *s, void *queue)
{
    for (size_t i = 0; i < s->n_attached; i++) {
        if (s->attached[i].queue != queue || --s->attached[i].bounds) continue;
        s->attached[i] = s->attached[--s->n_attached];
        return;
    }
}

static tn_status wait_for_all(const tn_store *s)
{
    for (size_t i = 0; i < s->n_attached; i++) TN_RETURN_IF(s->backend->wait(s->attached[i].queue));
    return TN_OK;
}

/* --- initial values ----------------------------------------------------------------------------------------------------- */

/* What is drawn on the host travels in pieces through one buffer: a model of 16 GB takes no more of the host than that. */
enum { PIECE = 1 << 25 }; /* bytes */

typedef struct drawing {
    tn_pool *pool;
    void *piece; /* PIECE bytes, from the first tensor that needs them on */
} drawing;

static tn_status upload_parts(tn_store *s, drawing *d, const tn_entry *e, const tn_init *init, tn_rng r)
{
    const int64_t n = tn_dims_count(e->dims), item = (int64_t)tn_dtype_bytes(e->dtype), most = PIECE / item;
    if (!d->piece && !(d->piece = tn_alloc(PIECE))) return TN_MEMORY;
    for (int64_t at = 0, many; at < n; at += many) {
        many = n - at < most ? n - at : most;
        tn_initial_part(d->pool, d->piece, e->dtype, at, many, init, r);
        TN_RETURN_IF(s->backend->upload(NULL, (char *)e->data + at * item, d->piece, (size_t)(many * item)));
    }
    return TN_OK;
}

/* A model's own function sees its whole tensor, in f32. */
static tn_status upload_whole(tn_store *s, const tn_entry *e, const tn_init *init, tn_rng r)
{
    const int64_t n = tn_dims_count(e->dims);
    const size_t bytes = (size_t)n * tn_dtype_bytes(e->dtype);
    const bool converts = e->dtype != TN_F32;
    float *x = tn_alloc(sizeof *x * (size_t)n + (converts ? bytes : 0) + 64);
    if (!x) return TN_MEMORY;
    tn_initial_whole(x, e->dims, init, r);
    if (converts) tn_convert(x + n, e->dtype, x, TN_F32, n);
    const tn_status st = s->backend->upload(NULL, e->data, converts ? x + n : x, bytes);
    tn_free(x);
    return st;
}

static tn_status initialise(tn_store *s, drawing *d, const tn_entry *e, const tn_init *init)
{
    const tn_rng r = { .seed = s->seed, .stream = tn_rng_stream(e->name) };
    const bool here = s->backend == &tn_backend_cpu, own = init->kind == TN_INIT_CALL;
    if (!tn_dtype_is_float(e->dtype) || (init->kind == TN_INIT_CONSTANT && init->a == 0.f)) return TN_OK;
    if (own && !(here && e->dtype == TN_F32)) return upload_whole(s, e, init, r);
    if (!here) return upload_parts(s, d, e, init, r);
    if (own) tn_initial_whole(e->data, e->dims, init, r);
    else tn_initial_part(d->pool, e->data, e->dtype, 0, tn_dims_count(e->dims), init, r);
    return TN_OK;
}

static bool is_loaded(const tn_store *s, const tn_entry *e) { return s->loads_weights && e->weight; }

/* The entries from `first` on. Drawing 10^8 numbers takes seconds: as many threads as the graph is for share it, where there
 * is enough to share. */
static tn_status initialise_all(tn_store *s, const tn_graph *g, size_t first)
{
    enum { WORTH_THREADS = 1 << 18 };
    tn_status st = TN_OK;
    drawing d = { 0 };
    int64_t numbers = 0;
    for (size_t i = first; i < s->n; i++)
        if (!is_loaded(s, &s->entry[i]->e)) numbers += tn_dims_count(s->entry[i]->e.dims);
    if (numbers >= WORTH_THREADS && g->options.threads > 1) st = tn_pool_new(g->options.threads, &d.pool);
    for (size_t i = first; i < s->n && st == TN_OK; i++) {
        tn_entry *e = &s->entry[i]->e;
        if (!is_loaded(s, e)) st = initialise(s, &d, e, &g->tensor[tn_graph_find(g, e->name)].init);
    }
    tn_pool_free(d.pool);
    tn_free(d.piece);
    return st;
}

/* --- adopting ------------------------------------------------------------------------------------------------------------ */

static bool belongs(tn_role r)
{
    return r == TN_ROLE_PARAM || r == TN_ROLE_FROZEN || r == TN_ROLE_STATE || r == TN_ROLE_CACHE || r == TN_ROLE_DATA;
}

static tn_status check_same(const tn_entry *e, const tn_gtensor *t)
{
    char a[128], b[128];
    const bool role = e->role == t->role || (e->role == TN_ROLE_PARAM && t->role == TN_ROLE_FROZEN);
    if (role && e->dtype == t->dtype && tn_dims_equal(e->dims, t->dims)) return TN_OK;
    return tn_error(
        TN_USAGE,
        "tensor %s is %s%s %s in the store and %s %s in this model: start a new run or change the settings back",
        e->name, e->role == TN_ROLE_FROZEN ? "frozen " : "", tn_dtype_name(e->dtype),
        tn_dims_text(e->dims, a, sizeof a), tn_dtype_name(t->dtype), tn_dims_text(t->dims, b, sizeof b));
}

static tn_status add_entry(tn_store *s, const tn_gtensor *t, tn_entry **out)
{
    TN_RETURN_IF(tn_grow((void **)&s->entry, &s->capacity, s->n + 1, sizeof *s->entry));
    entry *e = tn_alloc(sizeof *e);
    if (!e) return TN_MEMORY;
    e->e = (tn_entry){ .name = tn_arena_strdup(&s->names, t->name),
                       .role = t->role,
                       .dtype = t->dtype,
                       .dims = t->dims,
                       .weight = t->weight,
                       .trained = t->trained,
                       .lr = t->options.lr > 0 ? t->options.lr : 1.f,
                       .decay = t->options.decay || (t->dims.rank >= 2 && !t->options.no_decay) };
    if (!e->e.name) {
        tn_free(e);
        return TN_MEMORY;
    }
    e->hash = tn_rng_stream(t->name);
    if (t->role != TN_ROLE_PARAM) {
        e->owned = e->e.data = s->backend->alloc((size_t)tn_gtensor_count(t) * tn_dtype_bytes(t->dtype) + 64);
        if (!e->owned) {
            tn_free(e);
            return TN_MEMORY;
        }
    }
    s->entry[s->n++] = e;
    *out = &e->e;
    return TN_OK;
}

/* Elements of a bucket that a parameter takes; one without elements still has a place. */
static int64_t padded(tn_dims dims)
{
    const int64_t n = tn_dims_count(dims);
    return ((n > 0 ? n : 1) + PAD - 1) / PAD * PAD;
}

/* Gives the new parameters [first, n) one bucket. */
static tn_status add_bucket(tn_store *s, size_t first)
{
    int64_t count = 0;
    for (size_t i = first; i < s->n; i++)
        if (s->entry[i]->e.role == TN_ROLE_PARAM) count += padded(s->entry[i]->e.dims);
    if (!count) return TN_OK;
    TN_RETURN_IF(tn_grow((void **)&s->bucket, &s->cap_buckets, s->n_buckets + 1, sizeof *s->bucket));
    tn_bucket *b = &s->bucket[s->n_buckets];
    *b = (tn_bucket){ .count = count };
    b->param = s->backend->alloc(sizeof *b->param * (size_t)count);
    b->grad = s->backend->alloc(sizeof *b->grad * (size_t)count);
    s->n_buckets++;
    if (!b->param || !b->grad) return TN_MEMORY;
    int64_t at = 0;
    for (size_t i = first; i < s->n; i++) {
        tn_entry *e = &s->entry[i]->e;
        if (e->role != TN_ROLE_PARAM) continue;
        e->bucket = (int)s->n_buckets - 1;
        e->offset = at;
        e->data = b->param + at;
        e->grad = b->grad + at;
        at += padded(e->dims);
    }
    return tn_store_moments(s, s->moments);
}

static void drop_entries(tn_store *s, size_t first, size_t first_bucket)
{
    for (size_t i = first; i < s->n; i++) {
        s->backend->free(s->entry[i]->owned);
        tn_free(s->entry[i]);
    }
    s->n = first;
    for (size_t i = first_bucket; i < s->n_buckets; i++) {
        s->backend->free(s->bucket[i].param);
        s->backend->free(s->bucket[i].grad);
        s->backend->free(s->bucket[i].m);
        s->backend->free(s->bucket[i].v);
    }
    s->n_buckets = first_bucket;
}

tn_status tn_store_adopt(tn_store *s, const tn_graph *g)
{
    const size_t n0 = s->n, buckets0 = s->n_buckets;
    tn_status st = tn_graph_status(g);
    for (size_t i = 1; i < g->n_tensors && st == TN_OK; i++) {
        const tn_gtensor *t = &g->tensor[i];
        if (!belongs(t->role) || t->base != (int32_t)i) continue;
        const tn_entry *old = tn_store_find(s, t->name);
        tn_entry *e;
        st = old ? check_same(old, t) : add_entry(s, t, &e);
    }
    if (st == TN_OK) st = add_bucket(s, n0);
    if (st == TN_OK) st = initialise_all(s, g, n0);
    if (st != TN_OK) drop_entries(s, n0, buckets0);
    return st;
}

void tn_store_loads_weights(tn_store *s) { s->loads_weights = true; }

void tn_store_drop_caches(tn_store *s)
{
    size_t kept = 0;
    for (size_t i = 0; i < s->n; i++) {
        entry *e = s->entry[i];
        if (e->e.role != TN_ROLE_CACHE) {
            s->entry[kept++] = e;
            continue;
        }
        s->backend->free(e->owned);
        tn_free(e);
    }
    s->n = kept;
}

/* --- looking -------------------------------------------------------------------------------------------------------------- */

size_t tn_store_count(const tn_store *s) { return s->n; }

const tn_entry *tn_store_at(const tn_store *s, size_t i) { return &s->entry[i]->e; }

const tn_entry *tn_store_find(const tn_store *s, const char *name)
{
    const uint64_t hash = tn_rng_stream(name);
    for (size_t i = 0; i < s->n; i++)
        if (s->entry[i]->hash == hash && strcmp(s->entry[i]->e.name, name) == 0) return &s->entry[i]->e;
    return NULL;
}

int tn_store_buckets(const tn_store *s) { return (int)s->n_buckets; }

const tn_bucket *tn_store_bucket(const tn_store *s, int i) { return &s->bucket[i]; }

tn_status tn_store_moments(tn_store *s, int how_many)
{
    for (size_t i = 0; i < s->n_buckets; i++) {
        tn_bucket *b = &s->bucket[i];
        if (how_many > 0 && !b->m && !(b->m = s->backend->alloc(sizeof *b->m * (size_t)b->count))) return TN_MEMORY;
        if (how_many > 1 && !b->v && !(b->v = s->backend->alloc(sizeof *b->v * (size_t)b->count))) return TN_MEMORY;
    }
    s->moments = how_many > s->moments ? how_many : s->moments;
    return TN_OK;
}

void tn_store_zero_grad(tn_store *s)
{
    (void)wait_for_all(s);
    for (size_t i = 0; i < s->n_buckets; i++)
        (void)s->backend->zero(NULL, s->bucket[i].grad, sizeof(float) * (size_t)s->bucket[i].count);
}

/* --- the host's hands on it ------------------------------------------------------------------------------------------------ */

tn_device tn_store_device(const tn_store *s) { return s->device; }

void tn_host_copy_free(tn_host_copy *h)
{
    tn_free(h->memory);
    *h = (tn_host_copy){ 0 };
}

const void *tn_store_read(const tn_store *s, const void *data, size_t bytes, tn_host_copy *h)
{
    if (s->backend->host_memory) return data;
    if (bytes > h->bytes || !h->memory) {
        tn_host_copy_free(h);
        h->memory = tn_alloc(bytes + 64);
        if (!h->memory) return NULL;
        h->bytes = bytes;
    }
    return wait_for_all(s) == TN_OK && s->backend->download(NULL, h->memory, data, bytes) == TN_OK ? h->memory : NULL;
}

tn_status tn_store_write(const tn_store *s, void *data, const void *host, size_t bytes)
{
    TN_RETURN_IF(wait_for_all(s));
    return s->backend->upload(NULL, data, host, bytes);
}

tn_status tn_store_put(const tn_store *s, const tn_entry *e, int64_t first, int64_t n, const void *numbers,
                       tn_dtype from)
{
    enum { CHUNK = 64 << 10 }; /* numbers */
    const size_t item = tn_dtype_bytes(e->dtype), source = tn_dtype_bytes(from);
    unsigned char *to = (unsigned char *)e->data + (size_t)first * item, *made = NULL;
    tn_status st = TN_OK;
    if (e->dtype == from) return tn_store_write(s, to, numbers, (size_t)n * item);
    if (s->backend->host_memory) {
        tn_convert(to, e->dtype, numbers, from, n);
        return TN_OK;
    }
    if (!(made = tn_alloc(CHUNK * item))) return TN_MEMORY;
    for (int64_t at = 0; at < n && st == TN_OK; at += CHUNK) {
        const int64_t k = n - at < CHUNK ? n - at : CHUNK;
        tn_convert(made, e->dtype, (const unsigned char *)numbers + (size_t)at * source, from, k);
        st = tn_store_write(s, to + (size_t)at * item, made, (size_t)k * item);
    }
    tn_free(made);
    return st;
}

tn_status tn_store_clear(const tn_store *s, void *data, size_t bytes)
{
    TN_RETURN_IF(wait_for_all(s));
    return s->backend->zero(NULL, data, bytes);
}

void *tn_store_flat(const tn_store *s, const char *name, int64_t count)
{
    unsigned i;
    char what[16];
    if (!s || sscanf(name, "bucket%u.%15s", &i, what) != 2 || i >= s->n_buckets || s->bucket[i].count != count)
        return NULL;
    const tn_bucket *b = &s->bucket[i];
    if (strcmp(what, "param") == 0) return b->param;
    if (strcmp(what, "grad") == 0) return b->grad;
    if (strcmp(what, "m") == 0) return b->m;
    if (strcmp(what, "v") == 0) return b->v;
    return NULL;
}
