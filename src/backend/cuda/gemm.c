/* Matrix products through cuBLASLt. A shape's descriptors and algorithm are made when it is first seen, and looked up
 * afterwards: a run makes one hash lookup and one call.
 *
 * cuBLASLt counts by columns, so c^T = b^T a^T is asked for: its m is our n, its A our b. */
#include "backend/cuda/gemm.h"

#include "backend/cuda/algorithms.h"
#include "backend/cuda/cublaslt.h"
#include "base/alloc.h"

#include <string.h>

enum { WORKSPACE = 64 << 20, CANDIDATES = 16, FINALISTS = 2, MOST_RUNS = 64, TABLE = 4096 };
enum { COLD_ROWS = 256, COLD_BYTES = 4 << 20 };

/* Of what is kept between runs. The number goes up when measuring changes: what was found before it is measured anew. */
static const char PURPOSE[] = "gemm-2";

/* A candidate is measured over runs that follow each other for so long: in a step the chip is hot and its clock is lower,
 * and what wins single runs on a cool one may be 15 % slower there. The finalists get twice as long once more. */
static const float BURST_MS = 4;
/* One whose single run is this much slower than the best so far gets no more of them. */
static const float HOPELESS = 1.5f;

/* What decides the descriptors and the algorithm: no pointers, but how they are aligned. Zeroed before it is filled, as
 * it is compared by its bytes. */
typedef struct shape {
    int64_t m, n, k, batch;
    int64_t lda, ldb, ldc, ldd, ldaux; /* of cuBLASLt's A, B, C, D */
    int64_t stride_a, stride_b, stride_c, stride_d;
    int32_t type, c_type, trans_a, trans_b, epilogue, has_bias, has_aux, adds, apart, tf32, align;
} shape;

typedef struct planned {
    shape key;
    bool used, none; /* none: cuBLASLt has no algorithm for it */
    cublasLtMatmulDesc_t desc;
    cublasLtMatrixLayout_t a, b, c, d;
    cublasLtMatmulAlgo_t algo;
} planned;

struct tn_cuda_gemms {
    tn_cublaslt lt;
    cublasLtHandle_t handle;
    void *workspace;
    /* (scratch_bytes) While candidates are measured: where they put what they add up to; what empties a large L2 cache. */
    void *scratch;
    size_t scratch_bytes, cache_bytes; /* cache: L2 */
    cudaEvent_t begin, end;
    tn_algorithms *known; /* from earlier runs */
    planned *table;       /* (TABLE), open addressing */
    size_t n;
    bool shared; /* nothing is measured, and nothing that was is looked up */
};

/* --- life ---------------------------------------------------------------------------------------------------------------- */

static tn_status open_parts(tn_cuda_gemms *g)
{
    TN_RETURN_IF(tn_cublaslt_open(&g->lt));
    TN_LT_TRY(g->lt.Create(&g->handle));
    TN_CUDA_TRY(cudaMalloc(&g->workspace, WORKSPACE));
    TN_CUDA_TRY(cudaEventCreate(&g->begin));
    TN_CUDA_TRY(cudaEventCreate(&g->end));
    g->table = tn_alloc(sizeof *g->table * TABLE);
    if (!g->table) return TN_MEMORY;
    int device;
    struct cudaDeviceProp about;
    TN_CUDA_TRY(cudaGetDevice(&device));
    TN_CUDA_TRY(cudaGetDeviceProperties(&about, device));
    g->cache_bytes = about.l2CacheSize > 0 ? (size_t)about.l2CacheSize : 0;
    g->known = tn_algorithms_open(PURPOSE, about.name, g->lt.GetVersion(), sizeof(shape), sizeof(cublasLtMatmulAlgo_t));
    return TN_OK;
}

tn_status tn_cuda_gemms_new(tn_cuda_gemms **out)
{
    tn_cuda_gemms *g = tn_alloc(sizeof *g);
    if (!g) return TN_MEMORY;
    const tn_status s = open_parts(g);
    if (s != TN_OK) {
        tn_cuda_gemms_free(g);
        return s;
    }
    *out = g;
    return TN_OK;
}

static void free_planned(tn_cuda_gemms *g, planned *p)
{
    if (p->desc) g->lt.MatmulDescDestroy(p->desc);
    if (p->a) g->lt.MatrixLayoutDestroy(p->a);
    if (p->b) g->lt.MatrixLayoutDestroy(p->b);
    if (p->c) g->lt.MatrixLayoutDestroy(p->c);
    if (p->d) g->lt.MatrixLayoutDestroy(p->d);
}

void tn_cuda_gemms_free(tn_cuda_gemms *g)
{
    if (!g) return;
    for (size_t i = 0; g->table && i < TABLE; i++)
        if (g->table[i].used) free_planned(g, &g->table[i]);
    tn_free(g->table);
    tn_algorithms_close(g->known);
    if (g->workspace) cudaFree(g->workspace);
    if (g->scratch) cudaFree(g->scratch);
    if (g->begin) cudaEventDestroy(g->begin);
    if (g->end) cudaEventDestroy(g->end);
    if (g->handle) g->lt.Destroy(g->handle);
    tn_cublaslt_close(&g->lt);
    tn_free(g);
}

void tn_cuda_gemms_share(tn_cuda_gemms *g) { g->shared = true; }

/* A queue that many models run in, one after the other, sees more shapes than there is room for. What is queued or recorded needs none of
 * this any more. */
static void forget_all(tn_cuda_gemms *g)
{
    for (size_t i = 0; i < TABLE; i++)
        if (g->table[i].used) free_planned(g, &g->table[i]);
    memset(g->table, 0, sizeof *g->table * TABLE);
    g->n = 0;
}

/* --- descriptors ---------------------------------------------------------------------------------------------------------- */

static cudaDataType_t data_type(tn_dtype t)
{
    return t == TN_BF16 ? CUDA_R_16BF : t == TN_F16 ? CUDA_R_16F : CUDA_R_32F;
}

static int32_t alignment(const void *p)
{
    const uintptr_t low = (uintptr_t)p & 255;
    return low ? (int32_t)(low & (~low + 1)) : 256;
}

static int32_t least(int32_t a, int32_t b) { return a < b ? a : b; }

static tn_status shape_of(const tn_cuda_gemm *g, shape *s)
{
    memset(s, 0, sizeof *s);
    /* our b (k,n): rows contiguous is A (n,k) as it lies; columns contiguous is A transposed */
    const bool b_rows = g->b_col == 1 && (g->b_row != 1 || g->n > 1),
               a_rows = g->a_col == 1 && (g->a_row != 1 || g->k > 1);
    if ((!b_rows && g->b_row != 1) || (!a_rows && g->a_row != 1))
        return tn_error(TN_INTERNAL, "a matrix whose rows and columns both have steps");
    s->m = g->n, s->n = g->m, s->k = g->k, s->batch = g->batch ? g->batch : 1;
    s->trans_a = !b_rows, s->trans_b = !a_rows;
    const int64_t a_least = b_rows ? g->n : g->k, b_least = a_rows ? g->k : g->m;
    s->lda = b_rows ? g->b_row : g->b_col, s->ldb = a_rows ? g->a_row : g->a_col;
    if (s->lda < a_least) s->lda = a_least; /* a step that is never taken */
    if (s->ldb < b_least) s->ldb = b_least;
    s->ldd = g->c_row < g->n ? g->n : g->c_row;
    s->apart = g->add && g->add != g->c;
    s->ldc = !s->apart ? s->ldd : g->add_row < g->n ? g->n : g->add_row;
    s->stride_a = g->b_batch, s->stride_b = g->a_batch, s->stride_d = g->c_batch,
    s->stride_c = s->apart ? g->add_batch : g->c_batch;
    s->type = g->type, s->c_type = g->c_type, s->epilogue = (int32_t)g->epilogue, s->has_bias = g->bias != NULL,
    s->has_aux = g->aux != NULL;
    s->ldaux = g->aux ? g->aux_row : 0;
    s->adds = g->beta != 0, s->tf32 = g->tf32;
    s->align =
        least(least(alignment(g->a), alignment(g->b)), least(alignment(g->c), s->apart ? alignment(g->add) : 256));
    return TN_OK;
}

static cublasLtEpilogue_t epilogue_of(const shape *s)
{
    switch ((tn_cuda_epilogue)s->epilogue) {
    case TN_CUDA_BIAS: return CUBLASLT_EPILOGUE_BIAS;
    case TN_CUDA_GELU:
        return s->has_bias ? (s->has_aux ? CUBLASLT_EPILOGUE_GELU_AUX_BIAS : CUBLASLT_EPILOGUE_GELU_BIAS)
                           : (s->has_aux ? CUBLASLT_EPILOGUE_GELU_AUX : CUBLASLT_EPILOGUE_GELU);
    case TN_CUDA_GELU_BACK: return CUBLASLT_EPILOGUE_DGELU;
    default: return CUBLASLT_EPILOGUE_DEFAULT;
    }
}

static tn_status make_layout(tn_cuda_gemms *g, cublasLtMatrixLayout_t *out, cudaDataType_t type, int64_t rows,
                             int64_t cols, int64_t ld, int64_t batch, int64_t stride)
{
    const int32_t count = (int32_t)batch;
    TN_LT_TRY(g->lt.MatrixLayoutCreate(out, type, (uint64_t)rows, (uint64_t)cols, ld));
    if (batch <= 1) return TN_OK;
    TN_LT_TRY(g->lt.MatrixLayoutSetAttribute(*out, CUBLASLT_MATRIX_LAYOUT_BATCH_COUNT, &count, sizeof count));
    TN_LT_TRY(
        g->lt.MatrixLayoutSetAttribute(*out, CUBLASLT_MATRIX_LAYOUT_STRIDED_BATCH_OFFSET, &stride, sizeof stride));
    return TN_OK;
}

static tn_status set(tn_cuda_gemms *g, planned *p, cublasLtMatmulDescAttributes_t what, const void *value, size_t bytes)
{
    TN_LT_TRY(g->lt.MatmulDescSetAttribute(p->desc, what, value, bytes));
    return TN_OK;
}

static tn_status describe(tn_cuda_gemms *g, planned *p)
{
    const shape *s = &p->key;
    const cublasComputeType_t compute =
        s->type == TN_F32 && s->tf32 ? CUBLAS_COMPUTE_32F_FAST_TF32 : CUBLAS_COMPUTE_32F;
    const cublasOperation_t ta = s->trans_a ? CUBLAS_OP_T : CUBLAS_OP_N, tb = s->trans_b ? CUBLAS_OP_T : CUBLAS_OP_N;
    const cublasLtEpilogue_t e = epilogue_of(s);
    const cudaDataType_t in = data_type((tn_dtype)s->type), out = data_type((tn_dtype)s->c_type);
    TN_LT_TRY(g->lt.MatmulDescCreate(&p->desc, compute, CUDA_R_32F));
    TN_RETURN_IF(set(g, p, CUBLASLT_MATMUL_DESC_TRANSA, &ta, sizeof ta));
    TN_RETURN_IF(set(g, p, CUBLASLT_MATMUL_DESC_TRANSB, &tb, sizeof tb));
    TN_RETURN_IF(set(g, p, CUBLASLT_MATMUL_DESC_EPILOGUE, &e, sizeof e));
    if (s->has_aux) TN_RETURN_IF(set(g, p, CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_LD, &s->ldaux, sizeof s->ldaux));
    TN_RETURN_IF(
        make_layout(g, &p->a, in, s->trans_a ? s->k : s->m, s->trans_a ? s->m : s->k, s->lda, s->batch, s->stride_a));
    TN_RETURN_IF(
        make_layout(g, &p->b, in, s->trans_b ? s->n : s->k, s->trans_b ? s->k : s->n, s->ldb, s->batch, s->stride_b));
    TN_RETURN_IF(make_layout(g, &p->c, out, s->m, s->n, s->ldc, s->batch, s->stride_c));
    TN_RETURN_IF(make_layout(g, &p->d, out, s->m, s->n, s->ldd, s->batch, s->stride_d));
    return TN_OK;
}

static tn_status point(tn_cuda_gemms *g, planned *p, const tn_cuda_gemm *m)
{
    if (m->bias) TN_RETURN_IF(set(g, p, CUBLASLT_MATMUL_DESC_BIAS_POINTER, &m->bias, sizeof m->bias));
    if (m->aux) TN_RETURN_IF(set(g, p, CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_POINTER, &m->aux, sizeof m->aux));
    return TN_OK;
}

/* --- choosing an algorithm --------------------------------------------------------------------------------------------------- */

static cublasStatus_t multiply(tn_cuda_gemms *g, const planned *p, const tn_cuda_gemm *m,
                               const cublasLtMatmulAlgo_t *algo, void *d, cudaStream_t stream)
{
    const void *c = p->key.apart ? m->add : d;
    return g->lt.Matmul(g->handle, p->desc, &m->alpha, m->b, p->a, m->a, p->b, &m->beta, c, p->c, d, p->d, algo,
                        g->workspace, WORKSPACE, stream);
}

/* Few rows of x and a matrix of its own size (decoding): between two of its uses so much else is read that nothing of it is in the L2 cache, where
 * runs that follow each other would have it. */
static bool is_read_cold(const shape *s)
{
    return s->batch == 1 && s->n <= COLD_ROWS && s->m * s->k * (s->type == TN_F32 ? 4 : 2) >= COLD_BYTES;
}

/* As many bytes as the L2 cache has are written, so that nothing else stays in it: of the workspace, or more. */
static bool is_larger(size_t cache_bytes) { return cache_bytes > WORKSPACE; }

static cudaError_t empty_cache(const tn_cuda_gemms *g, cudaStream_t stream)
{
    return is_larger(g->cache_bytes) ? cudaMemsetAsync(g->scratch, 0, g->cache_bytes, stream)
                                     : cudaMemsetAsync(g->workspace, 0, WORKSPACE, stream);
}

/* Mean time of n runs, ms, before each of which the L2 cache is emptied. */
static float time_cold_runs(tn_cuda_gemms *g, const planned *p, const tn_cuda_gemm *m, const cublasLtMatmulAlgo_t *algo,
                            void *d, int n, cudaStream_t stream)
{
    float all = 0;
    for (int i = 0; i < n; i++) {
        float ms;
        if (empty_cache(g, stream) != cudaSuccess) return 1e30f;
        cudaEventRecord(g->begin, stream);
        if (multiply(g, p, m, algo, d, stream) != CUBLAS_STATUS_SUCCESS) return 1e30f;
        cudaEventRecord(g->end, stream);
        if (cudaEventSynchronize(g->end) != cudaSuccess || cudaEventElapsedTime(&ms, g->begin, g->end) != cudaSuccess)
            return 1e30f;
        all += ms;
    }
    return all / (float)n;
}

/* Mean time of n runs, ms; 1e30 where one fails. */
static float time_runs(tn_cuda_gemms *g, const planned *p, const tn_cuda_gemm *m, const cublasLtMatmulAlgo_t *algo,
                       void *d, int n, cudaStream_t stream)
{
    float ms;
    if (is_read_cold(&p->key)) return time_cold_runs(g, p, m, algo, d, n, stream);
    cudaEventRecord(g->begin, stream);
    for (int i = 0; i < n; i++)
        if (multiply(g, p, m, algo, d, stream) != CUBLAS_STATUS_SUCCESS) return 1e30f;
    cudaEventRecord(g->end, stream);
    if (cudaEventSynchronize(g->end) != cudaSuccess || cudaEventElapsedTime(&ms, g->begin, g->end) != cudaSuccess)
        return 1e30f;
    return ms / (float)n;
}

/* `best`: of the candidates before it. */
static float time_of(tn_cuda_gemms *g, const planned *p, const tn_cuda_gemm *m, const cublasLtMatmulAlgo_t *algo,
                     void *d, float burst_ms, float best, cudaStream_t stream)
{
    const float first = time_runs(g, p, m, algo, d, 1, stream); /* loads the kernel */
    if (first >= 1e30f) return first;
    const float once = time_runs(g, p, m, algo, d, 1, stream);
    if (once > HOPELESS * best) return once;
    const int n = once * MOST_RUNS > burst_ms ? (int)(burst_ms / once) + 1 : MOST_RUNS;
    return time_runs(g, p, m, algo, d, n, stream);
}

static int fastest(const float *ms, int n)
{
    int best = 0;
    for (int i = 1; i < n; i++)
        if (ms[i] < ms[best]) best = i;
    return best;
}

/* The fastest of n candidates. */
static int measure(tn_cuda_gemms *g, const planned *p, const tn_cuda_gemm *m,
                   const cublasLtMatmulHeuristicResult_t *found, int n, void *d, cudaStream_t stream)
{
    float ms[CANDIDATES], best_ms = 1e30f;
    for (int i = 0; i < n; i++) {
        ms[i] = time_of(g, p, m, &found[i].algo, d, BURST_MS, best_ms, stream);
        if (ms[i] < best_ms) best_ms = ms[i];
    }
    int best = fastest(ms, n);
    best_ms = 1e30f;
    for (int k = 0; k < FINALISTS && k < n; k++) {
        const int i = fastest(ms, n);
        const float again = time_of(g, p, m, &found[i].algo, d, 2 * BURST_MS, 1e30f, stream);
        if (again < best_ms) best = i, best_ms = again;
        ms[i] = 1e30f;
    }
    return best;
}

/* Sums that are added to must not be added to while candidates are measured: those go elsewhere. */
static bool adds_in_place(const shape *s) { return s->adds && !s->apart; }

static size_t sums_bytes(const shape *s)
{
    return ((size_t)s->ldd * (size_t)s->n + (size_t)s->stride_d * (size_t)(s->batch - 1)) *
           (s->c_type == TN_F32 ? 4 : 2);
}

/* What measuring p needs. */
static tn_status make_scratch(tn_cuda_gemms *g, const planned *p)
{
    const size_t sums = adds_in_place(&p->key) ? sums_bytes(&p->key) : 0,
                 cache = is_read_cold(&p->key) && is_larger(g->cache_bytes) ? g->cache_bytes : 0,
                 bytes = sums > cache ? sums : cache;
    if (bytes <= g->scratch_bytes) return TN_OK;
    if (g->scratch) TN_CUDA_TRY(cudaFree(g->scratch));
    g->scratch = NULL;
    g->scratch_bytes = 0;
    TN_CUDA_TRY(cudaMalloc(&g->scratch, bytes));
    g->scratch_bytes = bytes;
    return TN_OK;
}

/* *n = 0: there is none. */
static tn_status ask(tn_cuda_gemms *g, const planned *p, cublasLtMatmulHeuristicResult_t *found, int *n)
{
    cublasLtMatmulPreference_t preference = NULL;
    const size_t workspace = WORKSPACE;
    const uint32_t align = (uint32_t)p->key.align;
    TN_LT_TRY(g->lt.MatmulPreferenceCreate(&preference));
    g->lt.MatmulPreferenceSetAttribute(preference, CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES, &workspace,
                                       sizeof workspace);
    g->lt.MatmulPreferenceSetAttribute(preference, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES, &align, sizeof align);
    g->lt.MatmulPreferenceSetAttribute(preference, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_B_BYTES, &align, sizeof align);
    g->lt.MatmulPreferenceSetAttribute(preference, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_C_BYTES, &align, sizeof align);
    g->lt.MatmulPreferenceSetAttribute(preference, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_D_BYTES, &align, sizeof align);
    const cublasStatus_t e =
        g->lt.MatmulAlgoGetHeuristic(g->handle, p->desc, p->a, p->b, p->c, p->d, preference, CANDIDATES, found, n);
    g->lt.MatmulPreferenceDestroy(preference);
    if (e != CUBLAS_STATUS_SUCCESS) *n = 0;
    return TN_OK;
}

/* The algorithm of an earlier run, if cuBLASLt still takes it. */
static bool recall(tn_cuda_gemms *g, planned *p)
{
    cublasLtMatmulHeuristicResult_t about;
    return tn_algorithms_find(g->known, &p->key, &p->algo) &&
           g->lt.MatmulAlgoCheck(g->handle, p->desc, p->a, p->b, p->c, p->d, &p->algo, &about) ==
               CUBLAS_STATUS_SUCCESS &&
           about.workspaceSize <= WORKSPACE;
}

static tn_status choose(tn_cuda_gemms *g, planned *p, const tn_cuda_gemm *m, cudaStream_t stream)
{
    if (!g->shared && recall(g, p)) return TN_OK;
    cublasLtMatmulHeuristicResult_t found[CANDIDATES];
    int n = 0, best = 0;
    TN_RETURN_IF(ask(g, p, found, &n));
    if (n == 0) {
        p->none = true;
        return TN_OK;
    }
    const double work = 2.0 * (double)p->key.m * (double)p->key.n * (double)p->key.k * (double)p->key.batch;
    if (!g->shared && work > 1e8 && n > 1) { /* below that a launch costs more than any of them */
        /* without memory for it the first one has to do: cuBLASLt thinks it the best */
        if (make_scratch(g, p) == TN_OK)
            best = measure(g, p, m, found, n, adds_in_place(&p->key) ? g->scratch : m->c, stream);
    }
    p->algo = found[best].algo;
    if (!g->shared && work > 1e8) tn_algorithms_add(g->known, &p->key, &p->algo);
    return TN_OK;
}

/* --- running ------------------------------------------------------------------------------------------------------------------- */

static uint64_t hash(const shape *s)
{
    uint64_t h = 14695981039346656037u;
    for (size_t i = 0; i < sizeof *s; i++) h = (h ^ ((const unsigned char *)s)[i]) * 1099511628211u;
    return h;
}

static tn_status find(tn_cuda_gemms *g, const shape *key, const tn_cuda_gemm *m, cudaStream_t stream, planned **out)
{
    size_t i = hash(key) % TABLE;
    while (g->table[i].used && memcmp(&g->table[i].key, key, sizeof *key) != 0) i = (i + 1) % TABLE;
    if (!g->table[i].used && g->n >= TABLE / 2) {
        forget_all(g);
        i = hash(key) % TABLE;
    }
    planned *p = &g->table[i];
    *out = p;
    if (p->used) return TN_OK;
    *p = (planned){ .key = *key };
    tn_status s = describe(g, p);
    if (s == TN_OK) s = point(g, p, m);
    if (s == TN_OK) s = choose(g, p, m, stream);
    if (s != TN_OK) {
        free_planned(g, p);
        *p = (planned){ 0 };
        return s;
    }
    p->used = true;
    g->n++;
    return TN_OK;
}

bool tn_cuda_gemm_exists(tn_cuda_queue *q, const tn_cuda_gemm *m)
{
    shape key;
    planned *p;
    return shape_of(m, &key) == TN_OK && find(q->gemms, &key, m, q->stream, &p) == TN_OK && !p->none;
}

tn_status tn_cuda_gemm_run(tn_cuda_queue *q, const tn_cuda_gemm *m)
{
    shape key;
    planned *p;
    if (m->m == 0 || m->n == 0) return TN_OK;
    TN_RETURN_IF(shape_of(m, &key));
    TN_RETURN_IF(find(q->gemms, &key, m, q->stream, &p));
    if (p->none)
        return tn_error(TN_INTERNAL, "cuBLASLt has no algorithm for %lld x %lld x %lld", (long long)m->m,
                        (long long)m->n, (long long)m->k);
    TN_RETURN_IF(point(q->gemms, p, m));
    TN_LT_TRY(multiply(q->gemms, p, m, &p->algo, m->c, q->stream));
    return TN_OK;
}
