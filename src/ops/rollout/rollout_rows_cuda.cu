/* rollout on the GPU: the flows at the start, the end of a step. place_rows: a block a sample knows from the counts of all samples
 * who goes on and where its rows of the next step begin; it writes landings, survivors, then children, in the order of slots. */
#include "ops/rollout/rollout_cuda.cuh"

#include <cmath>

using namespace tn_rollout;

enum { THREADS = 256, PLACE = 1024, WARPS = PLACE / 32 };

/* --- the start ----------------------------------------------------------------------------------------------------------- */

__device__ __forceinline__ float coordinate(int32_t i, int32_t n) { return 2.f * (float)i / (float)(n - 1) - 1.f; }

__device__ __forceinline__ int32_t samples(const net &m)
{
    const int32_t n = m.count ? *m.count : m.B;
    return n < 0 ? 0 : n < m.B ? n : m.B;
}

/* Slot i of the batch: nothing has landed; its row of step 0. */
__device__ void begin_slot(const net &m, int32_t i, int32_t valid)
{
    const int32_t b = i / m.N, own = i - b * m.N;
    const bool here = b < valid && own < m.S;
    m.u[i] = m.v[i] = m.d[i] = 0.f;
    m.plane[i] = m.age[i] = m.landed[i] = 0;
    for (int k = 0; k < m.E; k++) m.e[(int64_t)i * m.E + k] = 0.f;
    m.born[i] = 0, m.origin[i] = own;
    if (!here && m.a.compact) return;
    const int32_t row = m.a.compact ? b * m.S + own : i;
    float *place = places_of(m, 0) + (int64_t)row * m.P;
    place[0] = here ? coordinate(own % m.a.width, m.a.width) : 0.f;
    place[1] = here ? coordinate(own / m.a.width, m.a.height) : 0.f;
    place[2] = m.a.start;
    for (int k = 0; k < m.E; k++) place[3 + k] = here ? at(m.e0, ((int64_t)b * m.S + own) * m.E + k) : 0.f;
    slots_of(m, 0)[row] = i;
    from_of(m, 0)[row] = row;
    bits_of(m, 0)[row] = here ? 0 : TN_ROLLOUT_OFF;
    for (int k = 0; m.paths && here && k < m.P; k++) m.paths[(int64_t)i * m.P + k] = place[k];
}

static __global__ void __launch_bounds__(THREADS) begin_flows(TN_GRID net m)
{
    const int64_t first = (int64_t)blockIdx.x * THREADS + threadIdx.x, step = (int64_t)gridDim.x * THREADS;
    const int32_t valid = samples(m);
    for (int64_t i = first; i < m.C; i += step) begin_slot(m, (int32_t)i, valid);
    for (int64_t i = first; i <= m.B; i += step)
        live_of(m, 0)[i] = m.a.compact ? (i < valid ? (int32_t)i : valid) * m.S : valid ? (int32_t)i * m.N : 0;
    for (int64_t i = first; i < (int64_t)m.T * m.B; i += step) m.leaving[i] = 0;
    for (int64_t b = first; b < m.B; b += step) {
        const int32_t n = b < valid ? m.S : 0;
        m.sum[b] = { n, 0, 0, n, m.a.s_min <= 0 && m.a.stop != TN_ROLLOUT_NEVER ? 0 : -1, 0, 0, 0 };
        for (int k = 0; k < TN_ROLLOUT_TALLIES; k++)
            m.counts[b * TN_ROLLOUT_TALLIES + k] = k == TN_ROLLOUT_ASKED ? n : 0;
    }
}

static __global__ void __launch_bounds__(THREADS) clear_paths(float *paths, int64_t n)
{
    for (int64_t i = (int64_t)blockIdx.x * THREADS + threadIdx.x; i < n; i += (int64_t)gridDim.x * THREADS)
        paths[i] = NAN;
}

tn_status tn_rollout::begin_rows(const tn_call *c, const net &m)
{
    const int64_t n = (int64_t)(m.T + 1) * m.C * m.P;
    if (m.paths) clear_paths<<<tn_blocks(c, n, THREADS), THREADS, 0, tn_cuda_stream(c)>>>(m.paths, n);
    begin_flows<<<tn_blocks(c, m.C, THREADS), THREADS, 0, tn_cuda_stream(c)>>>(m);
    TN_CUDA_LAUNCHED();
    return TN_OK;
}

/* --- rows of the next step ----------------------------------------------------------------------------------------------- */

/* After step t: what a sample has come to, before it is known whether it goes on. */
__device__ __forceinline__ tally counted(const net &m, int t, int b)
{
    tally s = m.sum[(t & 1) * m.B + b];
    if (s.active == 0) return s;
    const unsigned long long x = m.leaving[(int64_t)t * m.B + b];
    const int32_t left = (int32_t)(x & 0xffffffffu), kids = (int32_t)(x >> 32), room = m.N - (s.asked - s.refused);
    const int32_t granted = kids < room ? kids : room;
    s.taken = t + 1, s.rows += s.active;
    s.asked += kids, s.refused += kids - granted, s.exited += left, s.active += granted - left;
    return s;
}

/* The rules at the top of step s; true: stop. last and stale are moved on. */
__device__ __forceinline__ bool stops(const net &m, int s, tally *w, int64_t done, int64_t created, int64_t active)
{
    if (active == 0) return true;
    if (m.a.stop == TN_ROLLOUT_NEVER || s < m.a.s_min) return false;
    if ((double)done >= (double)m.a.threshold * (double)created) return true;
    w->stale = done > w->last ? 0 : w->stale + 1;
    w->last = (int32_t)done;
    return w->stale >= m.a.patience;
}

/* Over a block; every thread gets the sum. */
__device__ int32_t block_total(int32_t x, int32_t *shared /* (WARPS) */)
{
    int32_t total = 0;
    x = __reduce_add_sync(0xffffffffu, x);
    __syncthreads();
    if ((threadIdx.x & 31) == 0) shared[threadIdx.x >> 5] = x;
    __syncthreads();
    for (int w = 0; w < WARPS; w++) total += shared[w];
    return total;
}

/* The sum of all threads before this one; *total: of all. */
__device__ int32_t block_before(int32_t x, int32_t *shared, int32_t *total)
{
    const int lane = threadIdx.x & 31, warp = threadIdx.x >> 5;
    int32_t to_here = x, before = 0;
    for (int k = 1; k < 32; k *= 2) {
        const int32_t other = __shfl_up_sync(0xffffffffu, to_here, k);
        if (lane >= k) to_here += other;
    }
    __syncthreads();
    if (lane == 31) shared[warp] = to_here;
    __syncthreads();
    *total = 0;
    for (int w = 0; w < WARPS; w++) {
        if (w < warp) before += shared[w];
        *total += shared[w];
    }
    return before + to_here - x;
}

/* Where a sample's next rows go. */
struct room {
    tally sum;
    bool goes;
    int32_t first, slot;        /* row of its first survivor; slot of its first child, b N + .. */
    int32_t survivors, granted; /* rows that stay; children that get a slot */
};

/* All threads of a sample's block. first[B] of the next step is written by the first block. */
__device__ room make_room(const net &m, int t, int b, int32_t *shared)
{
    int32_t done = 0, created = 0, active = 0, before = 0, all = 0;
    for (int k = threadIdx.x; k < m.B; k += PLACE) {
        const tally s = counted(m, t, k);
        done += s.exited, created += s.asked - s.refused, active += s.active;
    }
    done = block_total(done, shared), created = block_total(created, shared), active = block_total(active, shared);
    for (int k = threadIdx.x; k < m.B; k += PLACE) {
        tally s = counted(m, t, k);
        const bool over = m.a.stop == TN_ROLLOUT_SAMPLE ? stops(m, t + 1, &s, s.exited, s.asked - s.refused, s.active)
                                                        : stops(m, t + 1, &s, done, created, active);
        const int32_t n = over || t + 1 == m.T ? 0 : s.active;
        all += n;
        if (k < b) before += n;
    }
    all = block_total(all, shared), before = block_total(before, shared);
    room r;
    const tally old = m.sum[(t & 1) * m.B + b];
    r.sum = counted(m, t, b);
    const bool over = m.a.stop == TN_ROLLOUT_SAMPLE
                          ? stops(m, t + 1, &r.sum, r.sum.exited, r.sum.asked - r.sum.refused, r.sum.active)
                          : stops(m, t + 1, &r.sum, done, created, active);
    r.goes = !over && t + 1 < m.T && r.sum.active > 0;
    r.first = before;
    r.slot = b * m.N + old.asked - old.refused;
    r.granted = (r.sum.asked - r.sum.refused) - (old.asked - old.refused);
    r.survivors = old.active - (r.sum.exited - old.exited);
    if (threadIdx.x == 0) {
        live_of(m, t + 1)[b] = m.a.compact ? before : all ? b * m.N : 0;
        if (b == m.B - 1) live_of(m, t + 1)[m.B] = m.a.compact ? all : all ? m.C : 0;
    }
    return r;
}

__device__ void land(const net &m, int t, int32_t slot, const float *p, const float *e, int32_t age, bool projected)
{
    const float low = fabsf(p[2] + 1.f), high = fabsf(p[2] - 1.f);
    const bool up = projected ? high < low : p[2] > 0.f;
    m.u[slot] = p[0], m.v[slot] = p[1], m.d[slot] = projected ? fminf(low, high) : 0.f;
    m.plane[slot] = up, m.age[slot] = age, m.landed[slot] = projected ? 2 : 1;
    for (int k = 0; k < m.E; k++) m.e[(int64_t)slot * m.E + k] = e[k];
}

__device__ void note_path(const net &m, int t, int32_t slot, const float *p, const float *e)
{
    if (!m.paths) return;
    float *to = m.paths + ((int64_t)t * m.C + slot) * m.P;
    for (int k = 0; k < 3; k++) to[k] = p[k];
    for (int k = 0; k < m.E; k++) to[3 + k] = e[k];
}

__device__ void put_row(const net &m, int t, int32_t row, int32_t slot, int32_t from, const float *p, const float *e)
{
    float *to = places_of(m, t) + (int64_t)row * m.P;
    for (int k = 0; k < 3; k++) to[k] = p[k];
    for (int k = 0; k < m.E; k++) to[3 + k] = e[k];
    slots_of(m, t)[row] = slot;
    from_of(m, t)[row] = from;
    bits_of(m, t)[row] = 0;
}

/* compact=off: the row of a slot without a flow. Its place stays finite. */
__device__ void put_dead(const net &m, int t, int32_t slot, const float *place)
{
    if (t == m.T) return;
    put_row(m, t, slot, slot, slot, place, place + 3);
    bits_of(m, t)[slot] = TN_ROLLOUT_OFF;
}

/* Row i after step t: `stays` survivors and `kids` children asked for are before it in its sample. */
__device__ void finish_row(const net &m, int t, const room &r, int32_t i, int32_t stays, int32_t kids)
{
    int32_t *bits = bits_of(m, t) + i;
    const int32_t slot = slots_of(m, t)[i], asked = *bits >> TN_ROLLOUT_CHILDREN;
    const float *before = places_of(m, t) + (int64_t)i * m.P, *p = m.after + (int64_t)i * m.P, *e = p + 3;
    const bool left = *bits & TN_ROLLOUT_LEFT;
    int32_t granted = r.granted - kids;
    granted = granted < 0 ? 0 : granted < asked ? granted : asked;
    note_path(m, t + 1, slot, p, e);
    if (left || !r.goes) land(m, t, slot, p, e, t + 1 - m.born[slot], !left);
    else put_row(m, t + 1, m.a.compact ? r.first + stays : slot, slot, i, p, e);
    if (!m.a.compact && (left || !r.goes)) put_dead(m, t + 1, slot, p);
    for (int k = 0; k < granted; k++) {
        const int32_t child = r.slot + kids + k;
        m.born[child] = t + 1, m.origin[child] = m.origin[slot];
        note_path(m, t + 1, child, before, e);
        if (!r.goes) land(m, t, child, before, e, 0, true);
        else put_row(m, t + 1, m.a.compact ? r.first + r.survivors + kids + k : child, child, i, before, e);
    }
    *bits = (*bits & ((1 << TN_ROLLOUT_CHILDREN) - 1)) | granted << TN_ROLLOUT_CHILDREN |
            (left || r.goes ? 0 : TN_ROLLOUT_LAST | (m.plane[slot] ? TN_ROLLOUT_UPPER : 0));
}

static __global__ void __launch_bounds__(PLACE, 1) place_rows(TN_GRID net m, int t)
{
    __shared__ int32_t shared[WARPS];
    const int32_t b = (int32_t)blockIdx.x;
    const room r = make_room(m, t, b, shared);
    const int32_t lo = live_of(m, t)[b], hi = live_of(m, t)[b + 1];
    int32_t stays = 0, kids = 0, n_stays, n_kids;
    for (int32_t base = lo; base < hi; base += PLACE) {
        const int32_t i = base + (int32_t)threadIdx.x, bits = i < hi ? bits_of(m, t)[i] : TN_ROLLOUT_OFF;
        const bool here = !(bits & TN_ROLLOUT_OFF);
        const int32_t own_stays = block_before(here && !(bits & TN_ROLLOUT_LEFT), shared, &n_stays);
        const int32_t own_kids = block_before(here ? bits >> TN_ROLLOUT_CHILDREN : 0, shared, &n_kids);
        if (here) finish_row(m, t, r, i, stays + own_stays, kids + own_kids);
        /* a slot that a child gets in this step is written by its parent, after everyone has looked at its old row */
        else if (i < hi && !(slots_of(m, t)[i] >= r.slot && slots_of(m, t)[i] < r.slot + r.granted && r.goes))
            put_dead(m, t + 1, slots_of(m, t)[i], places_of(m, t) + (int64_t)i * m.P);
        stays += n_stays, kids += n_kids;
    }
    if (threadIdx.x) return;
    tally s = r.sum;
    int32_t *counts = m.counts + (int64_t)b * TN_ROLLOUT_TALLIES;
    counts[TN_ROLLOUT_ASKED] = s.asked, counts[TN_ROLLOUT_EXITED] = s.exited;
    counts[TN_ROLLOUT_REFUSED] = s.refused, counts[TN_ROLLOUT_TAKEN] = s.taken, counts[TN_ROLLOUT_FLOW_STEPS] = s.rows;
    if (!r.goes && s.active) counts[TN_ROLLOUT_PROJECTED] = s.active, s.active = 0;
    m.sum[((t + 1) & 1) * m.B + b] = s;
}

tn_status tn_rollout::move_rows(const tn_call *c, const net &m, const cell &s)
{
    TN_RETURN_IF(move_flows(c, m, s));
    place_rows<<<(unsigned)m.B, PLACE, 0, tn_cuda_stream(c)>>>(m, s.t);
    TN_CUDA_LAUNCHED();
    return m.F ? deposit_field(c, m, s.t) : TN_OK;
}
