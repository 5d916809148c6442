/* Attention through cuDNN: plans by shape, made once per machine.
 *
 * Making a plan compiles kernels, which takes seconds; cuDNN can write a plan as text and read it back in milliseconds, so
 * that text is kept beside the list of measured algorithms. Whether cuDNN or the caller's own kernel is faster is
 * measured at first sight of a shape and remembered too. */
#include "backend/cuda/cudnn_attention.h"

#include "backend/cuda/algorithms.h"
#include "backend/cuda/cudnn_sdpa.h"
#include "base/alloc.h"
#include "base/fs.h"

#include <float.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

enum { TABLE = 256, ROUNDS = 3, MOST_TEXT = 4 << 20, WITH_INFINITY = 91000 };

typedef struct planned {
    tn_sdpa_shape key;
    bool used;
    tn_dnn_desc plan; /* NULL: the caller's kernel is taken */
    struct about {
        int64_t workspace, id[TN_SDPA_SLOTS];
    } about;
} planned;

typedef struct choice {
    int32_t cudnn;
    float own_ms, cudnn_ms;
} choice;

struct tn_cuda_dnn {
    tn_cudnn lib;         /* library NULL: there is none */
    tn_dnn_handle handle; /* NULL until a plan is wanted: opening one takes a while */
    char gpu[80];
    cudaEvent_t begin, end;
    tn_algorithms *known;
    planned *table; /* (TABLE), open addressing */
    size_t n;
};

/* --- life --------------------------------------------------------------------------------------------------------------- */

static tn_status open_parts(tn_cuda_dnn *d)
{
    int device;
    struct cudaDeviceProp about;
    TN_CUDA_TRY(cudaGetDevice(&device));
    TN_CUDA_TRY(cudaGetDeviceProperties(&about, device));
    snprintf(d->gpu, sizeof d->gpu, "%.64s", about.name);
    TN_CUDA_TRY(cudaEventCreate(&d->begin));
    TN_CUDA_TRY(cudaEventCreate(&d->end));
    d->table = tn_alloc(sizeof *d->table * TABLE);
    if (!d->table) return TN_MEMORY;
    TN_RETURN_IF(tn_cudnn_open(&d->lib));
    d->known = tn_algorithms_open("attention", d->gpu, d->lib.GetVersion(), sizeof(tn_sdpa_shape), sizeof(choice));
    return TN_OK;
}

/* Once per queue; where there is no cuDNN, what is left of it says so. */
static tn_status open_dnn(tn_cuda_queue *q)
{
    if (q->dnn) return TN_OK;
    q->dnn = tn_alloc(sizeof *q->dnn);
    if (!q->dnn) return TN_MEMORY;
    const tn_status s = open_parts(q->dnn);
    return s == TN_OK || tn_cudnn_asked_for() || s == TN_MEMORY ? s : TN_OK;
}

static tn_status open_handle(tn_cuda_dnn *d, cudaStream_t stream)
{
    tn_dnn_handle handle = NULL;
    if (d->handle) return TN_OK;
    TN_DNN_TRY(&d->lib, Create(&handle));
    d->handle = handle;
    TN_DNN_TRY(&d->lib, SetStream(handle, stream));
    return TN_OK;
}

void tn_cuda_dnn_free(tn_cuda_dnn *d)
{
    if (!d) return;
    for (size_t i = 0; d->table && i < TABLE; i++)
        if (d->table[i].plan) d->lib.BackendDestroyDescriptor(d->table[i].plan);
    tn_free(d->table);
    tn_algorithms_close(d->known);
    if (d->begin) cudaEventDestroy(d->begin);
    if (d->end) cudaEventDestroy(d->end);
    if (d->handle) d->lib.Destroy(d->handle);
    tn_cudnn_close(&d->lib);
    tn_free(d);
}

bool tn_dnn_present(void)
{
    tn_cudnn lib;
    if (tn_cudnn_open(&lib) != TN_OK) return tn_cudnn_asked_for(); /* the run will say what is wrong */
    tn_cudnn_close(&lib);
    return true;
}

/* --- plans ------------------------------------------------------------------------------------------------------------- */

static uint64_t hash(const void *bytes, size_t n)
{
    uint64_t h = 14695981039346656037u;
    for (size_t i = 0; i < n; i++) h = (h ^ ((const unsigned char *)bytes)[i]) * 1099511628211u;
    return h;
}

static bool text_path(const tn_cuda_dnn *d, const tn_sdpa_shape *key, char *path)
{
    char name[64];
    snprintf(name, sizeof name, "attention-%016llx.plan",
             (unsigned long long)(hash(key, sizeof *key) ^ hash(d->gpu, strlen(d->gpu))));
    return tn_cache_path(name, path);
}

static void head_of(const tn_cuda_dnn *d, char head[160])
{
    snprintf(head, 160, "tenon attention plan 1 %zu %zu %.64s\n", d->lib.GetVersion(),
             sizeof(tn_sdpa_shape) + sizeof(struct about), d->gpu);
}

/* A plan from the text that follows the head, the shape and `about`. Anything wrong with it: false. */
static bool read_plan(tn_cuda_dnn *d, planned *p)
{
    char path[TN_PATH_BYTES], head[160], *text = NULL;
    size_t bytes = 0;
    tn_dnn_desc plan = NULL;
    if (!text_path(d, &p->key, path)) return false;
    head_of(d, head);
    const size_t n = strlen(head), fixed = n + sizeof p->key + sizeof p->about;
    if (tn_file_read_all(path, MOST_TEXT, &text, &bytes) != TN_OK) return false;
    bool ok = bytes > fixed && memcmp(text, head, n) == 0 && memcmp(text + n, &p->key, sizeof p->key) == 0;
    ok = ok && d->lib.BackendCreateDescriptor(TN_DNN_PLAN, &plan) == 0;
    ok = ok && d->lib.BackendSetAttribute(plan, TN_DNN_PLAN_HANDLE, TN_DNN_IS_HANDLE, 1, &d->handle) == 0;
    ok = ok && d->lib.BackendSetAttribute(plan, TN_DNN_PLAN_JSON, TN_DNN_IS_CHAR, (int64_t)(bytes - fixed),
                                          text + fixed) == 0;
    ok = ok && d->lib.BackendFinalize(plan) == 0;
    if (ok) {
        memcpy(&p->about, text + n + sizeof p->key, sizeof p->about);
        p->plan = plan;
    } else if (plan) d->lib.BackendDestroyDescriptor(plan);
    tn_free(text);
    return ok;
}

/* A disk that does not take it, or a plan that cannot be written, is no error. */
static void write_plan(const tn_cuda_dnn *d, const planned *p)
{
    char path[TN_PATH_BYTES], head[160];
    int64_t n = 0, got = 0;
    tn_atomic_file f;
    if (!text_path(d, &p->key, path)) return;
    if (d->lib.BackendGetAttribute(p->plan, TN_DNN_PLAN_JSON, TN_DNN_IS_CHAR, 0, &n, NULL) != 0 || n <= 0 ||
        n > MOST_TEXT / 2)
        return;
    char *text = tn_alloc((size_t)n);
    if (!text) return;
    head_of(d, head);
    if (d->lib.BackendGetAttribute(p->plan, TN_DNN_PLAN_JSON, TN_DNN_IS_CHAR, n, &got, text) == 0 &&
        tn_atomic_open(path, &f) == TN_OK) {
        if (tn_atomic_write(&f, head, strlen(head)) == TN_OK && tn_atomic_write(&f, &p->key, sizeof p->key) == TN_OK &&
            tn_atomic_write(&f, &p->about, sizeof p->about) == TN_OK && tn_atomic_write(&f, text, (size_t)got) == TN_OK)
            (void)tn_atomic_finish(&f);
        else tn_atomic_abort(&f);
    }
    tn_free(text);
}

static tn_status make_plan(tn_cuda_dnn *d, planned *p)
{
    if (read_plan(d, p)) return TN_OK;
    tn_dnn_graph *g = tn_alloc(sizeof *g);
    if (!g) return TN_MEMORY;
    *g = (tn_dnn_graph){ .lib = &d->lib, .handle = d->handle };
    tn_sdpa_compose(g, &p->key, p->about.id);
    const tn_status s = tn_dnn_plan_make(g, &p->plan, &p->about.workspace);
    tn_dnn_graph_clear(g);
    tn_free(g);
    if (s == TN_OK) write_plan(d, p);
    return s;
}

/* --- running ------------------------------------------------------------------------------------------------------------- */

static tn_status run_plan(tn_cuda_dnn *d, const planned *p, const tn_dnn_attention *a)
{
    float scale = a->scale, hidden = d->lib.GetVersion() < WITH_INFINITY ? -FLT_MAX : -INFINITY;
    void *const at[TN_SDPA_SLOTS] = { a->q.data, a->k.data, a->v.data, a->y.data, a->lse, &scale, &hidden };
    void *pointer[TN_SDPA_SLOTS];
    int64_t id[TN_SDPA_SLOTS];
    int n = 0;
    for (int i = 0; i < TN_SDPA_SLOTS; i++)
        if (p->about.id[i]) id[n] = p->about.id[i], pointer[n++] = at[i];
    return tn_dnn_run(&d->lib, d->handle, p->plan, n, id, pointer, a->work);
}

/* --- choosing ------------------------------------------------------------------------------------------------------------ */

/* Best of a few; what fails takes for ever. own NULL: cuDNN's. */
static float time_of(tn_cuda_dnn *d, const planned *p, const tn_dnn_attention *a, const tn_call *c, tn_kernel *own,
                     cudaStream_t stream)
{
    float best = 1e30f, ms;
    for (int r = 0; r <= ROUNDS; r++) {
        cudaEventRecord(d->begin, stream);
        if ((own ? own(c) : run_plan(d, p, a)) != TN_OK) return 1e30f;
        cudaEventRecord(d->end, stream);
        if (cudaEventSynchronize(d->end) != cudaSuccess || cudaEventElapsedTime(&ms, d->begin, d->end) != cudaSuccess)
            return 1e30f;
        if (r > 0 && ms < best) best = ms;
    }
    return best;
}

static void drop_plan(tn_cuda_dnn *d, planned *p)
{
    if (p->plan) d->lib.BackendDestroyDescriptor(p->plan);
    p->plan = NULL;
}

/* Leaves p without a plan where the caller's own kernel is to be taken. It is, unless cuDNN is clearly faster. */
static tn_status choose(tn_cuda_dnn *d, planned *p, const tn_dnn_attention *a, const tn_call *c, tn_kernel *own,
                        cudaStream_t stream)
{
    choice known = { 0 };
    const bool asked_for = tn_cudnn_asked_for(), seen = !asked_for && tn_algorithms_find(d->known, &p->key, &known);
    if (seen && !known.cudnn) return TN_OK;
    tn_status s = open_handle(d, stream);
    if (s == TN_OK) s = make_plan(d, p);
    if (s == TN_OK && p->about.workspace > TN_DNN_WORK) {
        s = tn_error(TN_INTERNAL, "cuDNN wants %lld bytes of work, there are %d", (long long)p->about.workspace,
                     (int)TN_DNN_WORK);
        drop_plan(d, p);
    }
    if (s != TN_OK) return asked_for ? s : TN_OK;
    if (asked_for || seen) return TN_OK;
    known.own_ms = time_of(d, p, a, c, own, stream);
    known.cudnn_ms = time_of(d, p, a, c, NULL, stream);
    known.cudnn = known.cudnn_ms < 0.97f * known.own_ms;
    tn_algorithms_add(d->known, &p->key, &known);
    if (!known.cudnn) drop_plan(d, p);
    return TN_OK;
}

static void shape_of(const tn_dnn_attention *a, tn_sdpa_shape *s)
{
    const tn_dnn_view *const view[TN_SDPA_VIEWS] = { &a->q, &a->k, &a->v, &a->y };
    memset(s, 0, sizeof *s);
    s->B = a->B, s->T = a->T, s->S = a->S, s->H = a->H, s->KV = a->KV, s->D = a->D;
    for (int i = 0; i < TN_SDPA_VIEWS; i++)
        s->step[i][0] = view[i]->b, s->step[i][1] = view[i]->n, s->step[i][2] = view[i]->h;
    s->causal = a->causal, s->has_lse = a->lse != NULL;
}

tn_status tn_dnn_attention_run(tn_cuda_queue *q, const tn_dnn_attention *a, const tn_call *c, tn_kernel *own,
                               bool *done)
{
    tn_sdpa_shape key;
    *done = false;
    if (q->shared && !tn_cudnn_asked_for()) return TN_OK;
    TN_RETURN_IF(open_dnn(q));
    tn_cuda_dnn *d = q->dnn;
    if (!d->lib.library) return TN_OK;
    shape_of(a, &key);
    size_t i = hash(&key, sizeof key) % TABLE;
    while (d->table[i].used && memcmp(&d->table[i].key, &key, sizeof key) != 0) i = (i + 1) % TABLE;
    planned *p = &d->table[i];
    if (!p->used) {
        if (d->n >= TABLE / 2) return TN_OK;
        *p = (planned){ .key = key, .used = true };
        d->n++;
        TN_RETURN_IF(choose(d, p, a, c, own, q->stream));
    }
    if (!p->plan) return TN_OK;
    TN_RETURN_IF(run_plan(d, p, a));
    *done = true;
    return TN_OK;
}
