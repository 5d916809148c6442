/* relax on the GPU: the solves of tn_loop with relax's map, each in one kernel (loop_run.h: tn_loop_fused).
 *
 * A cluster of CTAs has a tile of 16 samples and all weights, cut along f: a CTA keeps its rows of W1 and columns of W2 in
 * shared memory, as bf16 where operands are rounded, else as f32. An iteration of the map
 *
 *     x = LN2(u), u = h + a      by the CTA that owns the sample, a warp to a sample; sent to all CTAs of the cluster
 *     z = gelu(W1 x + b1)        each CTA its part of f
 *     part = W2 z                each CTA, (16,d)
 *     f = LN(u + sum part + b2)  by the owner, which adds the parts of the CTAs in their order
 *
 * takes two barriers of the cluster. The owner then nudges f where the phase asks for it, takes norms, decides and moves h. A
 * tile ends when all its samples are there. The adjoint phase is the same walk with W2^T, gelu'(.) and W1^T. The energy's map
 * has no norms, and W1^T for W2. */
#include "ops/act.cuh"
#include "ops/loop/loop_run.h"
#include "ops/relax/relax.h"
#include "ops/relax/relax_rows.cuh"

#include <cooperative_groups.h>

namespace cg = cooperative_groups;

enum { TILE = 16, MOST_CTAS = 8, MOST_CLASSES = 256, MOST_SHARED = 227 * 1024 };
enum { GAIN2, BIAS2, GAIN, BIAS, B2, VECTORS };

struct job {
    bool energy;
    tn_loop_phase_kind phase;
    int64_t rows;
    int d, f, classes, steps;
    int ctas, part; /* of a cluster; rows of W1 in each, a multiple of 16 */
    const int32_t *count;
    const float *rtol, *damping, *beta;
    float *x;                                                    /* (rows,d) */
    const float *a, *h, *w1, *b1, *w2, *vector[VECTORS], *scale; /* h: adjoint, where the Jacobian is taken */
    const float *g;                                              /* adjoint */
    const float *head_w, *head_b, *weights;                      /* nudged */
    const int32_t *labels;
    float sign;
    float *rest;       /* (rows,d) or NULL: what f leaves at the free state, taken off it */
    const float *move; /* or NULL: the limit of |f - h| as a part of how far the target lies from the free state */
    int32_t *taken;    /* (rows) or NULL; added to */
    float *residuals, *signal;
};

__host__ __device__ __forceinline__ int up(int n, int to) { return (n + to - 1) / to * to; }

/* Places in shared memory, in bytes; T is the type of operands. */
struct places {
    int w1, w2, x, z, part, state, inject, passing, normal2, normal, b1, vectors, slope, logits, own, gone, total;
    int w1_row, w2_row, x_row, z_row; /* elements of T */
};

template <int V, typename T>
__host__ __device__ __forceinline__ places places_of(const job &j)
{
    const int pad = 16 / (int)sizeof(T), dp = 32 * V, own = TILE / j.ctas;
    const bool adjoint = j.phase == TN_LOOP_PHASE_ADJOINT;
    places p;
    int at = 0;
    p.w1_row = up(j.d, 16) + pad, p.w2_row = p.z_row = j.part + pad, p.x_row = dp + pad;
    p.w1 = at, at += j.part * p.w1_row * (int)sizeof(T);
    p.w2 = at, at += up(j.d, 8) * p.w2_row * (int)sizeof(T);
    p.x = at, at += TILE * p.x_row * (int)sizeof(T);
    p.z = at, at += TILE * p.z_row * (int)sizeof(T);
    at = up(at + 64, 16); /* a fragment may be read past the end */
    p.part = at, at += TILE * (dp + 4) * 4;
    p.state = at, at += own * dp * 4;
    p.inject = at, at += own * dp * 4;
    p.passing = at, at += adjoint ? own * dp * 4 : 0;
    p.normal2 = at, at += adjoint ? own * dp * 4 : 0;
    p.normal = at, at += adjoint ? own * dp * 4 : 0;
    p.b1 = at, at += up(j.part, 4) * 4;
    p.vectors = at, at += VECTORS * dp * 4;
    p.slope = at, at += adjoint ? TILE * j.part * 4 : 0;
    p.logits = at, at += j.phase == TN_LOOP_PHASE_NUDGED ? own * up(j.classes, 4) * 4 : 0;
    p.own = at, at += TILE * 4 * 4;
    p.gone = at, at += TILE * 4;
    p.total = at;
    return p;
}

#if !defined(__CUDA_ARCH__) || __CUDA_ARCH__ >= 900

/* --- the kernel ------------------------------------------------------------------------------------------------------------ */

/* What the owner keeps of a sample besides vectors. */
struct own {
    float inverse2, inverse, noise;
    int32_t steps;
};

template <int V, typename T>
struct tile {
    const job &j;
    const places at;
    char *shared;
    cg::cluster_group cluster;
    int rank, mine; /* samples this CTA owns */
    int64_t first;

    __device__ tile(const job &j_, char *s)
        : j(j_), at(places_of<V, T>(j_)), shared(s), cluster(cg::this_cluster()), rank((int)cluster.block_rank()),
          mine(TILE / j_.ctas), first((int64_t)(blockIdx.x / j_.ctas) * TILE)
    {
    }
    __device__ __forceinline__ T *operand(int place) const { return (T *)(shared + place); }
    __device__ __forceinline__ float *floats(int place) const { return (float *)(shared + place); }
    __device__ __forceinline__ float *row(int place, int q) const { return floats(place) + q * 32 * V; }
    __device__ __forceinline__ numbers<V> vector(int which) const { return get<V>(row(at.vectors, which)); }
    __device__ __forceinline__ own *owned(int q) const { return (own *)(shared + at.own) + q; }
    __device__ __forceinline__ int *gone() const { return (int *)(shared + at.gone); }

    /* The weights of a walk: forward, or back through the map. */
    __device__ void load_weights(bool backward) const
    {
        const int d = j.d, f = j.f, from = rank * j.part,
                  there = f - from < j.part ? (f - from < 0 ? 0 : f - from) : j.part;
        const int k = up(d, 16), n = up(d, 8);
        if (backward && !j.energy) load_matrix(operand(at.w1), at.w1_row, j.part, k, j.w2 + from, 1, f, there, d);
        else load_matrix(operand(at.w1), at.w1_row, j.part, k, j.w1 + (int64_t)from * d, d, 1, there, d);
        if (!backward && !j.energy) load_matrix(operand(at.w2), at.w2_row, n, j.part, j.w2 + from, f, 1, d, there);
        else load_matrix(operand(at.w2), at.w2_row, n, j.part, j.w1 + (int64_t)from * d, 1, d, d, there);
    }

    __device__ void load_rest(int64_t count) const
    {
        const int dp = 32 * V;
        for (int i = threadIdx.x; i < j.part; i += THREADS)
            floats(at.b1)[i] = j.b1 && rank * j.part + i < j.f ? j.b1[rank * j.part + i] : 0.f;
        for (int i = threadIdx.x; i < VECTORS * dp; i += THREADS) {
            const int which = i / dp, k = i % dp;
            floats(at.vectors)[i] = k >= j.d                          ? 0.f
                                    : j.vector[which]                 ? j.vector[which][k]
                                    : which == GAIN || which == GAIN2 ? 1.f
                                                                      : 0.f;
        }
        for (int i = threadIdx.x; i < TILE * (dp + 4); i += THREADS) floats(at.part)[i] = 0;
        if (threadIdx.x < TILE) gone()[threadIdx.x] = first + threadIdx.x >= count;
    }

    __device__ __forceinline__ numbers<V> sum_of(const numbers<V> &a, const numbers<V> &b) const
    {
        numbers<V> r;
#pragma unroll
        for (int i = 0; i < V; i++) r.v[i] = a.v[i] + b.v[i];
        return r;
    }

    /* The operand of the first product to every CTA. */
    __device__ void send(int q, const numbers<V> &x) const
    {
        T *to = operand(at.x) + (rank * mine + q) * at.x_row + (threadIdx.x & 31) * V;
        T packed[V];
#pragma unroll
        for (int i = 0; i < V; i++) put_as(&packed[i], x.v[i]);
        for (int r = 0; r < j.ctas; r++) {
            T *there = cluster.map_shared_rank(to, r);
            if (sizeof(packed) == 8) *(uint2 *)there = *(const uint2 *)packed;
            else
#pragma unroll
                for (int i = 0; i < (int)sizeof(packed) / 16; i++) ((uint4 *)there)[i] = ((const uint4 *)packed)[i];
        }
    }

    /* From the state h of sample q. `remember`: keep what the adjoint walk needs. */
    __device__ void enter(int q, const numbers<V> &h, bool remember) const
    {
        if (j.energy) {
            send(q, h);
            return;
        }
        float inverse;
        const numbers<V> n = normalize(sum_of(h, get<V>(row(at.inject, q))), j.d, &inverse);
        if (remember) {
            set(row(at.normal2, q), n);
            owned(q)->inverse2 = inverse;
        }
        send(q, scaled(n, vector(GAIN2), vector(BIAS2)));
    }

    __device__ void enter_backward(int q, const numbers<V> &lambda) const
    {
        if (j.energy) {
            send(q, lambda);
            return;
        }
        const numbers<V> passing = back(lambda, vector(GAIN), get<V>(row(at.normal, q)), owned(q)->inverse, j.d);
        set(row(at.passing, q), passing);
        send(q, passing);
    }

    /* Both products. keep: the slopes too; backward: times the slopes instead of an activation. */
    __device__ void multiply(bool keep, bool backward) const
    {
        T *z = operand(at.z);
        float *slope = floats(at.slope), *parts = floats(at.part);
        const float *b1 = floats(at.b1);
        const bool energy = j.energy;
        const int z_row = at.z_row, length = j.part;
        product(operand(at.x), at.x_row, operand(at.w1), at.w1_row, j.part, up(j.d, 16), [=](int r, int n, float y) {
            if (backward) {
                put_as(&z[r * z_row + n], y * slope[r * length + n]);
                return;
            }
            y += b1[n];
            const float t = energy ? tanhf(y) : tn_d_act(TN_ACT_GELU_ERF, y);
            put_as(&z[r * z_row + n], t);
            if (keep) slope[r * length + n] = energy ? 1.f - t * t : tn_d_act_grad(TN_ACT_GELU_ERF, y);
        });
        __syncthreads();
        product(z, at.z_row, operand(at.w2), at.w2_row, up(j.d, 8), j.part,
                [=](int r, int n, float y) { parts[r * (32 * V + 4) + n] = y; });
    }

    /* The sum of all parts for sample q, in the order of the CTAs. */
    __device__ __forceinline__ numbers<V> gather(int q) const
    {
        const float *mine_part = floats(at.part) + (rank * mine + q) * (32 * V + 4) + (threadIdx.x & 31) * V;
        float4 got[MOST_CTAS][V / 4];
        numbers<V> s;
#pragma unroll
        for (int r = 0; r < MOST_CTAS; r++)
#pragma unroll
            for (int i = 0; i < V / 4; i++)
                got[r][i] =
                    r < j.ctas ? ((const float4 *)cluster.map_shared_rank(mine_part, r))[i] : make_float4(0, 0, 0, 0);
#pragma unroll
        for (int i = 0; i < V / 4; i++) *(float4 *)&s.v[4 * i] = got[0][i];
#pragma unroll
        for (int r = 1; r < MOST_CTAS; r++)
#pragma unroll
            for (int i = 0; i < V / 4; i++)
                s.v[4 * i] += got[r][i].x, s.v[4 * i + 1] += got[r][i].y, s.v[4 * i + 2] += got[r][i].z,
                    s.v[4 * i + 3] += got[r][i].w;
        return s;
    }

    /* f(h) of sample q after the products. */
    __device__ numbers<V> leave(int q, const numbers<V> &h, bool remember) const
    {
        const numbers<V> s = gather(q), a = get<V>(row(at.inject, q));
        if (j.energy) {
            numbers<V> r;
#pragma unroll
            for (int i = 0; i < V; i++) r.v[i] = fmaf(*j.scale, s.v[i], a.v[i]);
            return r;
        }
        float inverse;
        const numbers<V> n = normalize(sum_of(sum_of(h, a), sum_of(s, vector(B2))), j.d, &inverse);
        if (remember) {
            set(row(at.normal, q), n);
            owned(q)->inverse = inverse;
        }
        return scaled(n, vector(GAIN), vector(BIAS));
    }

    /* g + J^T lambda */
    __device__ numbers<V> leave_backward(int q) const
    {
        numbers<V> s = gather(q), g = get<V>(row(at.inject, q));
        if (j.energy) {
#pragma unroll
            for (int i = 0; i < V; i++) s.v[i] *= *j.scale;
            return sum_of(g, s);
        }
        const numbers<V> du = back(s, vector(GAIN2), get<V>(row(at.normal2, q)), owned(q)->inverse2, j.d);
        return sum_of(g, sum_of(get<V>(row(at.passing, q)), du));
    }

    /* f - eta dC/dh at f. A label that is no class gives NaN. */
    __device__ numbers<V> nudged(int q, const numbers<V> &f, float eta) const
    {
        const int64_t sample = first + rank * mine + q;
        const int32_t label = j.labels[sample];
        float *logits = floats(at.logits) + q * up(j.classes, 4), most = -INFINITY, sum = 0;
        numbers<V> r = f;
        if (label == -1) return r;
        for (int c = 0; c < j.classes; c++) {
            const float y = dot(f, get_row<V>(j.head_w + (int64_t)c * j.d, j.d)) + (j.head_b ? j.head_b[c] : 0.f);
            most = fmaxf(most, y);
            if ((threadIdx.x & 31) == 0) logits[c] = y;
        }
        __syncwarp();
        for (int c = 0; c < j.classes; c++) sum += expf(logits[c] - most);
        const bool known = label >= 0 && label < j.classes;
        const float factor = known ? -eta * (j.weights ? j.weights[sample] : 1.f) : NAN;
        for (int c = 0; c < j.classes; c++) {
            const float slope = factor * (expf(logits[c] - most) / sum - (c == label ? 1.f : 0.f));
            const numbers<V> w = get_row<V>(j.head_w + (int64_t)c * j.d, j.d);
#pragma unroll
            for (int i = 0; i < V; i++) r.v[i] = fmaf(slope, w.v[i], r.v[i]);
        }
        return r;
    }

    /* Moves h of sample q towards f, and says so to all once it is there. Returns the state. */
    __device__ numbers<V> move(int q, numbers<V> h, const numbers<V> &f, float rtol, float damping, int t) const
    {
        const int64_t sample = first + rank * mine + q;
        numbers<V> gap;
#pragma unroll
        for (int i = 0; i < V; i++) gap.v[i] = f.v[i] - h.v[i];
        float size = sqrtf(dot(f, f));
        if (j.move) {
            numbers<V> gone = get_row<V>(j.x + sample * j.d, j.d); /* the free state, until all is over */
            for (int i = 0; i < V; i++) gone.v[i] = f.v[i] - gone.v[i];
            size = fmaxf(sqrtf(dot(gone, gone)), 1e-3f * size);
        }
        const float r = sqrtf(dot(gap, gap)) / fmaxf(size, 1e-6f);
#pragma unroll
        for (int i = 0; i < V; i++) h.v[i] = (1 - damping) * h.v[i] + damping * f.v[i];
        set(row(at.state, q), h);
        const bool there = r < rtol; /* false for NaN */
        const int lane = threadIdx.x & 31;
        __syncwarp(); /* all lanes have read whether it was gone */
        if (there && lane < j.ctas) *cluster.map_shared_rank(&gone()[rank * mine + q], lane) = 1;
        if (lane == 0) {
            owned(q)->steps = t + 1;
            if (j.residuals && (there || t + 1 == j.steps)) j.residuals[sample] = r;
        }
        return h;
    }

    __device__ __forceinline__ bool all_gone() const
    {
        const int lane = threadIdx.x & 31;
        return __all_sync(0xffffffffu, lane >= TILE || gone()[lane]);
    }
};

#define EACH_OWN(q, k) for (int q = threadIdx.x >> 5; q < (k).mine; q += WARPS)

/* The Jacobian's parts at j.h into shared memory: one walk forward. */
template <int V, typename T>
__device__ void prepare_adjoint(const tile<V, T> &k, int64_t count)
{
    k.load_weights(false);
    k.cluster.sync(); /* all are there */
    EACH_OWN(q, k)
    {
        const int64_t sample = k.first + k.rank * k.mine + q;
        const float *h = sample < count ? k.j.h + sample * k.j.d : NULL,
                    *a = sample < count ? k.j.a + sample * k.j.d : NULL;
        set(k.row(k.at.inject, q), get_row<V>(a, k.j.d));
        __syncwarp();
        k.enter(q, get_row<V>(h, k.j.d), true);
    }
    k.cluster.sync();
    k.multiply(true, false);
    k.cluster.sync();
    EACH_OWN(q, k)
    {
        const int64_t sample = k.first + k.rank * k.mine + q;
        (void)k.leave(q, get_row<V>(sample < count ? k.j.h + sample * k.j.d : NULL, k.j.d), true);
    }
    k.cluster.sync(); /* parts and weights are written again */
}

template <int V, typename T>
__global__ void __launch_bounds__(THREADS) relax_tile(const __grid_constant__ job j)
{
    extern __shared__ __align__(16) char shared[];
    const tile<V, T> k(j, shared);
    const int64_t given = j.count ? *j.count : j.rows, count = given < 0 ? 0 : given < j.rows ? given : j.rows;
    const bool adjoint = j.phase == TN_LOOP_PHASE_ADJOINT, nudged = j.phase == TN_LOOP_PHASE_NUDGED;
    const float rtol = j.move ? *j.move : *j.rtol, damping = j.damping ? *j.damping : 1.f,
                eta = nudged ? j.sign * *j.beta : 0.f;
    if (k.first >= count) return; /* the whole cluster */
    k.load_rest(count);
    __syncthreads();
    if (adjoint) prepare_adjoint(k, count);
    k.load_weights(adjoint);
    k.cluster.sync(); /* all have zeroed their parts and marked who is gone */
    EACH_OWN(q, k)
    {
        const int64_t sample = k.first + k.rank * k.mine + q;
        const bool there = sample < count;
        const numbers<V> h = get_row<V>(there ? j.x + sample * j.d : NULL, j.d);
        set(k.row(k.at.state, q), h);
        set(k.row(k.at.inject, q), get_row<V>(there ? (adjoint ? j.g : j.a) + sample * j.d : NULL, j.d));
        if ((threadIdx.x & 31) == 0) k.owned(q)->steps = 0;
        __syncwarp();
        if (adjoint) k.enter_backward(q, h);
        else k.enter(q, h, false);
    }
    for (int t = 0;; t++) {
        k.cluster.sync(); /* operands, and who is gone */
        if (t == j.steps || k.all_gone()) break;
        k.multiply(false, adjoint);
        k.cluster.sync(); /* parts */
        EACH_OWN(q, k)
        {
            if (k.gone()[k.rank * k.mine + q]) continue;
            const numbers<V> h = get<V>(k.row(k.at.state, q));
            numbers<V> f = adjoint ? k.leave_backward(q) : k.leave(q, h, false);
            if (nudged && t == 0 && j.signal) {
                numbers<V> gap;
                for (int i = 0; i < V; i++) gap.v[i] = f.v[i] - h.v[i];
                const float noise = sqrtf(dot(gap, gap));
                if ((threadIdx.x & 31) == 0) k.owned(q)->noise = noise;
            }
            if (nudged && j.rest) { /* the lanes that write it read it */
                float *kept = j.rest + (k.first + k.rank * k.mine + q) * j.d;
                numbers<V> rest = f;
                for (int i = 0; i < V; i++) rest.v[i] -= h.v[i];
                if (t) rest = get_row<V>(kept, j.d);
                else set_row(kept, j.d, rest);
                for (int i = 0; i < V; i++) f.v[i] -= rest.v[i];
            }
            if (nudged) f = k.nudged(q, f, eta);
            const numbers<V> next = k.move(q, h, f, rtol, damping, t);
            __syncwarp();
            if (adjoint) k.enter_backward(q, next);
            else k.enter(q, next, false);
        }
    }
    EACH_OWN(q, k)
    {
        const int64_t sample = k.first + k.rank * k.mine + q;
        if (sample >= count) continue;
        const numbers<V> h = get<V>(k.row(k.at.state, q));
        if (nudged && j.signal) { /* x still has the free state */
            numbers<V> gap = get_row<V>(j.x + sample * j.d, j.d);
            for (int i = 0; i < V; i++) gap.v[i] = h.v[i] - gap.v[i];
            const float far = sqrtf(dot(gap, gap));
            if ((threadIdx.x & 31) == 0) j.signal[sample] = far / fmaxf(k.owned(q)->noise, 1e-30f);
        }
        set_row(j.x + sample * j.d, j.d, h);
        if ((threadIdx.x & 31) == 0 && j.taken) j.taken[sample] += k.owned(q)->steps;
    }
}

#else

template <int V, typename T>
__global__ void relax_tile(const __grid_constant__ job j)
{
}

#endif

/* --- launching ----------------------------------------------------------------------------------------------------------- */

/* CTAs of a cluster: as many as have 64 rows of W1 each, and more where memory asks for it. */
template <int V, typename T>
static bool cut(job *j)
{
    for (j->ctas = 1; j->ctas <= MOST_CTAS; j->ctas *= 2) {
        j->part = up((j->f + j->ctas - 1) / j->ctas, 16);
        if ((j->part <= 64 || j->ctas == MOST_CTAS) && places_of<V, T>(*j).total <= MOST_SHARED) return true;
    }
    return false;
}

template <int V, typename T>
static tn_status launch(const tn_call *c, const job *j)
{
    const int bytes = places_of<V, T>(*j).total;
    cudaLaunchConfig_t how = {};
    cudaLaunchAttribute cluster = {};
    cluster.id = cudaLaunchAttributeClusterDimension;
    cluster.val.clusterDim.x = (unsigned)j->ctas, cluster.val.clusterDim.y = cluster.val.clusterDim.z = 1;
    how.gridDim = dim3((unsigned)((j->rows + TILE - 1) / TILE) * (unsigned)j->ctas), how.blockDim = dim3(THREADS);
    how.dynamicSmemBytes = (size_t)bytes, how.stream = tn_cuda_stream(c), how.attrs = &cluster, how.numAttrs = 1;
    TN_RETURN_IF(tn_cuda_allow_shared((const void *)relax_tile<V, T>, bytes));
    TN_CUDA_TRY(cudaLaunchKernelEx(&how, relax_tile<V, T>, *j));
    return TN_OK;
}

static const float *floats(const tn_call *c, int i) { return (const float *)c->in[i].data; }

static job job_of(const tn_call *c, const tn_loop_body *b, const tn_loop_phase *p)
{
    const int map = loop_in_const(b), cost = loop_in_cost(b);
    const tn_type *a = &b->spec.consts[TN_RELAX_A], *w1 = &b->spec.consts[TN_RELAX_W1];
    job j = {};
    j.energy = b->spec.consts[TN_RELAX_W2].absent, j.phase = p->kind;
    j.rows = a->dims.dim[0], j.d = (int)a->dims.dim[1], j.f = (int)w1->dims.dim[0], j.steps = (int)b->steps;
    j.count = (const int32_t *)c->in[loop_in_count(b)].data;
    j.rtol = floats(c, loop_in_rtol(b)), j.damping = floats(c, loop_in_damping(b)), j.beta = floats(c, loop_in_beta(b));
    j.x = p->x, j.h = p->at, j.g = p->g, j.sign = p->sign, j.taken = p->steps, j.residuals = p->residuals,
    j.signal = p->signal;
    j.a = floats(c, map + TN_RELAX_A), j.w1 = floats(c, map + TN_RELAX_W1), j.b1 = floats(c, map + TN_RELAX_B1);
    j.w2 = floats(c, map + TN_RELAX_W2), j.scale = floats(c, map + TN_RELAX_SCALE);
    j.vector[GAIN2] = floats(c, map + TN_RELAX_GAIN2), j.vector[BIAS2] = floats(c, map + TN_RELAX_BIAS2);
    j.vector[GAIN] = floats(c, map + TN_RELAX_GAIN), j.vector[BIAS] = floats(c, map + TN_RELAX_BIAS);
    j.vector[B2] = floats(c, map + TN_RELAX_B2);
    if (p->kind != TN_LOOP_PHASE_NUDGED) return j;
    j.rest = p->rest, j.move = p->move;
    j.classes = (int)b->cost_spec.consts[0].dims.dim[0]; /* in the order of the op's inputs from head_w on */
    j.head_w = floats(c, cost), j.head_b = floats(c, cost + 1), j.weights = floats(c, cost + 3);
    j.labels = (const int32_t *)c->in[cost + 2].data;
    return j;
}

/* Sizes that fit into the shared memory of a cluster, on GPUs that have clusters. */
extern "C" tn_status tn_relax_phase_cuda(const tn_call *c, const tn_loop_body *b, const tn_loop_phase *p, bool *done)
{
    const tn_dims d = b->spec.consts[TN_RELAX_A].dims, f = b->spec.consts[TN_RELAX_W1].dims;
    const bool rounded = b->spec.options.round == TN_BF16;
    *done = false;
    if (tn_cuda_queue_of(c)->major < 9 || d.dim[1] > 256 || f.dim[0] > 1 << 16 || b->steps > 1 << 30) return TN_OK;
    job j = job_of(c, b, p);
    if (j.classes > MOST_CLASSES) return TN_OK;
    *done = true;
    if (!j.rows) return TN_OK;
    if (j.d <= 128 && rounded && cut<4, __nv_bfloat16>(&j)) return launch<4, __nv_bfloat16>(c, &j);
    if (j.d > 128 && rounded && cut<8, __nv_bfloat16>(&j)) return launch<8, __nv_bfloat16>(c, &j);
    if (j.d <= 128 && !rounded && cut<4, float>(&j)) return launch<4, float>(c, &j);
    if (j.d > 128 && !rounded && cut<8, float>(&j)) return launch<8, float>(c, &j);
    *done = false;
    return TN_OK;
}
