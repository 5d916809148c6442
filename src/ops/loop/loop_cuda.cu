/* loop on the GPU: what loop_run.c asks of a device, and the solves. The host never learns how far a solve has come: every
 * iteration is queued, and the device decides what it does. A block has a sample: it takes the norms, decides whether the
 * sample is there, moves it and counts; the last block of an iteration looks at all of them. Once a phase is done its
 * iterations leave everything as it is. Converged samples keep their rows (no compaction), so that the body computes
 * them in vain, and what it computes is not read. */
#include "ops/anderson.cuh"
#include "ops/loop/loop_run.h"

enum { DONE, TAKEN, BLOCKS, LARGEST, STATES }; /* loop_work.progress; LARGEST has the bits of a float */
enum { THREADS = 256, STEP_THREADS = 1024, FEW_PAIRS = 8 };

/* What a phase works on; scalars are read by the device. */
struct phase {
    int64_t rows, width;
    const int32_t *count; /* NULL: all rows */
    const float *rtol, *tol, *damping, *beta;
    float *x, *f;        /* (rows,width) */
    const float *extra;  /* (rows,width) or NULL: the target is f + factor extra */
    int nudge;           /* 0: factor 1; else -beta times this */
    bool proxy;          /* ... over the count */
    float *rest;         /* (rows,width) or NULL: what f leaves at the first state, taken off it */
    const float *origin; /* (rows,width) or NULL: what a move is measured from */
    const float *move;   /* instead of rtol where there is an origin */
    bool accelerate;
    int32_t *live, *gone, *progress;
    uint8_t *there;
    float *residual;
    double *moved;
    int32_t *steps;   /* (rows), counted up, or NULL */
    float *residuals; /* (rows) or NULL */
    tn_anderson anderson;
    int32_t most; /* iterations */
    bool repeats; /* the recording goes on as long as the number behind handle says */
    unsigned long long handle;
};

__device__ __forceinline__ int64_t count_of(const int32_t *count, int64_t rows)
{
    const int64_t n = count ? *count : rows;
    return n < 0 ? 0 : n < rows ? n : rows;
}

__device__ __forceinline__ float number(const float *p, float none) { return p ? *p : none; }

__device__ __forceinline__ void go_on(const phase &p, bool yes)
{
#if CUDART_VERSION >= 12040
    if (p.repeats) cudaGraphSetConditional(p.handle, yes);
#endif
}

/* --- kernels ------------------------------------------------------------------------------------------------------------ */

static __global__ void begin_phase(const __grid_constant__ phase p)
{
    const int64_t count = count_of(p.count, p.rows);
    for (int64_t i = blockIdx.x * (int64_t)blockDim.x + threadIdx.x; i < p.rows; i += (int64_t)gridDim.x * blockDim.x) {
        p.gone[i] = i >= count;
        if (p.accelerate) p.anderson.kept[i] = p.anderson.newest[i] = 0;
    }
    if (blockIdx.x || threadIdx.x) return;
    *p.live = (int32_t)count;
    p.progress[DONE] = count == 0;
    p.progress[TAKEN] = p.progress[BLOCKS] = p.progress[LARGEST] = 0;
    go_on(p, count > 0 && p.most > 0);
}

/* f less what it leaves at the first state. gridDim.x = rows */
static __global__ void take_rest_off(const __grid_constant__ phase p, bool first)
{
    if (blockIdx.x >= count_of(p.count, p.rows)) return;
    TN_D_EACH(i, p.width)
    {
        const int64_t k = blockIdx.x * p.width + i;
        if (first) p.rest[k] = p.f[k] - p.x[k];
        p.f[k] -= p.rest[k];
    }
}

/* How far the target lies from where the sample began; where that is next to nothing, a thousandth of its size. */
static __device__ double moved_by(const phase &p, int64_t s, double size)
{
    __shared__ double sums[33];
    double gone = 0;
    TN_D_EACH(i, p.width)
    {
        const double d = (double)p.f[s * p.width + i] - (double)p.origin[s * p.width + i];
        gone += d * d;
    }
    return fmax(sqrt(tn_d_block_sum(gone, sums)), 1e-3 * size);
}

template <int M>
static __device__ void step_sample(const phase &p, int64_t s, tn_d_solving<M> *q)
{
    const float damping = number(p.damping, 1), limit = p.origin ? *p.move : number(p.rtol, 0);
    const float over = p.proxy ? (float)count_of(p.count, p.rows) : 1;
    const int64_t ring = s * p.anderson.memory * p.width;
    tn_d_step t = { p.width, p.x + s * p.width, p.f + s * p.width };
    if (p.extra) t.extra = p.extra + s * p.width, t.factor = p.nudge ? -((float)p.nudge * *p.beta / over) : 1;
    if (p.accelerate) t.rs = p.anderson.r + ring, t.fs = p.anderson.f + ring, t.kept = p.anderson.kept[s];
    tn_d_measure(t, q);
    const double size = sqrt(q->sum[TN_D_SIZE]);
    const float r = (float)(sqrt(q->sum[TN_D_DISTANCE]) / fmax(p.origin ? moved_by(p, s, size) : size, 1e-6));
    const bool there = r < limit; /* false for NaN */
    double moved = p.accelerate && !there ? tn_d_anderson(p.anderson, s, t, damping, q)
                                          : tn_d_move(t, TN_D_DAMPED, damping, 0, 0, false, q);
    if (p.tol) {
        tn_d_totals<1>(&moved, q);
        moved = q->sum[0];
    }
    if (threadIdx.x) return;
    p.there[s] = there;
    p.residual[s] = r;
    p.moved[s] = moved;
    if (p.steps) p.steps[s]++;
    if (p.residuals) p.residuals[s] = r;
}

/* All samples have taken their step: those that are there leave; is it over? */
template <int M>
static __device__ void end_step(const phase &p, tn_d_solving<M> *q)
{
    __shared__ float most[33];
    const int64_t count = count_of(p.count, p.rows);
    enum { MOVED, LEFT, UNKNOWN, SUMS };
    double v[SUMS] = { 0 };
    float largest = 0;
    TN_D_EACH(s, count)
    {
        if (p.gone[s]) continue;
        const bool there = __ldcg(&p.there[s]);
        const float r = __ldcg(&p.residual[s]);
        v[MOVED] += p.tol ? __ldcg(&p.moved[s]) : 0;
        v[LEFT] += !there;
        v[UNKNOWN] += isnan(r);
        largest = fmaxf(largest, r);
        if (there && !p.tol) p.gone[s] = 1;
    }
    tn_d_totals<(int)SUMS>(v, q);
    largest = tn_d_block_max(largest, most);
    if (threadIdx.x) return;
    p.progress[DONE] = p.tol ? sqrt(q->sum[MOVED]) < (double)*p.tol : q->sum[LEFT] == 0;
    p.progress[TAKEN]++;
    p.progress[BLOCKS] = 0;
    go_on(p, !p.progress[DONE] && p.progress[TAKEN] < p.most);
    p.progress[LARGEST] = __float_as_int(q->sum[UNKNOWN] > 0 ? NAN : largest);
}

/* gridDim.x = rows */
template <int M>
static __global__ void __launch_bounds__(STEP_THREADS) step_samples(const __grid_constant__ phase p)
{
    __shared__ tn_d_solving<M> q;
    __shared__ bool last;
    const bool done = p.progress[DONE], on = !p.gone[blockIdx.x];
    __syncthreads(); /* all have read them: the last block changes them */
    if (done) return;
    if (on) step_sample(p, blockIdx.x, &q);
    if (threadIdx.x == 0) {
        __threadfence();
        last = atomicAdd((unsigned *)&p.progress[BLOCKS], 1u) == gridDim.x - 1;
        __threadfence();
    }
    __syncthreads();
    if (last) end_step(p, &q);
}

static __global__ void put_numbers(const int32_t *progress, int32_t taken, int32_t *iterations, float *residual)
{
    if (iterations) *iterations = progress ? progress[TAKEN] : taken;
    if (residual) *residual = progress ? __int_as_float(progress[LARGEST]) : 0.f;
}

static __global__ void set_count(const int32_t *count, int64_t rows, int32_t *live)
{
    *live = (int32_t)count_of(count, rows);
}

static __global__ void set_one(float *one) { *one = 1; }

static __global__ void clear_rows(const int32_t *count, int64_t rows, int64_t width, float *x)
{
    for (int64_t i = blockIdx.x * (int64_t)blockDim.x + threadIdx.x + count_of(count, rows) * width; i < rows * width;
         i += (int64_t)gridDim.x * blockDim.x)
        x[i] = 0;
}

static __global__ void add_numbers(float *to, const float *from, int64_t n)
{
    for (int64_t i = blockIdx.x * (int64_t)blockDim.x + threadIdx.x; i < n; i += (int64_t)gridDim.x * blockDim.x)
        to[i] += from[i];
}

/* out[k] = |x - h| of valid rows; then divided by the previous value, where `ratio`. gridDim.x = rows */
static __global__ void distances(const int32_t *count, int64_t rows, int64_t width, const float *x, const float *h,
                                 float *out, bool ratio)
{
    __shared__ double sums[33];
    double sum = 0;
    if (blockIdx.x >= count_of(count, rows)) return;
    TN_D_EACH(i, width)
    {
        const double d = (double)x[blockIdx.x * width + i] - (double)h[blockIdx.x * width + i];
        sum += d * d;
    }
    const float d = (float)sqrt(tn_d_block_sum(sum, sums));
    if (threadIdx.x == 0) out[blockIdx.x] = ratio ? d / fmaxf(out[blockIdx.x], 1e-30f) : d;
}

/* lambda from the free and the nudged states; rows that are not there become 0. A beta that is not above 0 gives NaN. */
struct estimate {
    const int32_t *count;
    int64_t rows, width;
    const float *beta, *free_state, *h;
    float *lambda, weight;
    bool mean, proxy, centred;
};

static __global__ void estimate_lambda(const __grid_constant__ estimate e)
{
    const int64_t count = count_of(e.count, e.rows), n = count * e.width;
    const float samples = (float)(count ? count : 1), weight = e.mean ? 1 / samples : e.weight,
                beta = *e.beta > 0 ? *e.beta : NAN;
    const float factor = e.proxy     ? 2 / (beta * samples * (float)e.width)
                         : e.centred ? weight / (2 * beta)
                                     : weight / beta;
    for (int64_t i = blockIdx.x * (int64_t)blockDim.x + threadIdx.x; i < e.rows * e.width;
         i += (int64_t)gridDim.x * blockDim.x) {
        const float gap = i >= n      ? 0
                          : e.proxy   ? e.lambda[i] - e.h[i]
                          : e.centred ? e.h[i] - e.lambda[i]
                                      : e.free_state[i] - e.h[i];
        e.lambda[i] = i >= n ? 0 : gap * factor;
    }
}

/* d = what of g reaches f in step t; or, after the body, to = its gradient plus the rest. A step that a sample did not take
 * passes its g on. */
static __global__ void back_step(const float *damping, const int32_t *steps, int32_t t, const float *g, float *d,
                                 float *to, int64_t width, int64_t n)
{
    const float part = number(damping, 1);
    for (int64_t i = blockIdx.x * (int64_t)blockDim.x + threadIdx.x; i < n; i += (int64_t)gridDim.x * blockDim.x) {
        const bool took = t < steps[i / width];
        if (d) d[i] = took ? part * g[i] : 0;
        else if (!took) to[i] = g[i];
        else if (part != 1) to[i] += (1 - part) * g[i];
    }
}

/* --- small calls ---------------------------------------------------------------------------------------------------------- */

static int64_t rows_of(const tn_loop_body *b) { return b->spec.state[0].dims.dim[0]; }
static int64_t all_of(const tn_loop_body *b) { return tn_dims_count(b->spec.state[0].dims); }
static int64_t width_of(const tn_loop_body *b) { return rows_of(b) ? all_of(b) / rows_of(b) : 0; }
static const float *scalar(const tn_call *c, int i) { return (const float *)c->in[i].data; }
static const int32_t *count_at(const tn_call *c, const tn_loop_body *b)
{
    return (const int32_t *)c->in[loop_in_count(b)].data;
}

static unsigned threads_for(int64_t width)
{
    return width <= 64 ? 64 : width <= 128 ? 128 : width <= 2048 ? THREADS : STEP_THREADS;
}

static tn_status copy(const tn_call *c, void *to, const void *from, size_t bytes)
{
    if (bytes) TN_CUDA_TRY(cudaMemcpyAsync(to, from, bytes, cudaMemcpyDeviceToDevice, tn_cuda_stream(c)));
    return TN_OK;
}

static tn_status zero(const tn_call *c, void *to, size_t bytes)
{
    if (bytes) TN_CUDA_TRY(cudaMemsetAsync(to, 0, bytes, tn_cuda_stream(c)));
    return TN_OK;
}

static tn_status add(const tn_call *c, float *to, const float *from, int64_t n)
{
    if (!n) return TN_OK;
    add_numbers<<<tn_blocks(c, n, THREADS), THREADS, 0, tn_cuda_stream(c)>>>(to, from, n);
    TN_CUDA_LAUNCHED();
    return TN_OK;
}

static tn_status put(const tn_call *c, const tn_loop_body *b, const int32_t *progress, int64_t taken)
{
    const tn_arg *n = &c->out[loop_out_iterations(b)], *r = n + 1;
    if (!n->data && !r->data) return TN_OK;
    put_numbers<<<1, 1, 0, tn_cuda_stream(c)>>>(progress, (int32_t)taken, (int32_t *)n->data, (float *)r->data);
    TN_CUDA_LAUNCHED();
    return TN_OK;
}

static tn_status put_taken(const tn_call *c, const tn_loop_body *b, int64_t taken) { return put(c, b, NULL, taken); }

static tn_status set_live(const tn_call *c, const tn_loop_body *b, loop_work *w)
{
    set_count<<<1, 1, 0, tn_cuda_stream(c)>>>(count_at(c, b), rows_of(b), w->live);
    TN_CUDA_LAUNCHED();
    return TN_OK;
}

static tn_status clear_behind(const tn_call *c, const tn_loop_body *b, float *x)
{
    if (!all_of(b) || !count_at(c, b)) return TN_OK;
    clear_rows<<<tn_blocks(c, all_of(b), THREADS), THREADS, 0, tn_cuda_stream(c)>>>(count_at(c, b), rows_of(b),
                                                                                    width_of(b), x);
    TN_CUDA_LAUNCHED();
    return TN_OK;
}

static int64_t taken(const tn_call *c, const tn_loop_body *b)
{
    (void)c;
    return b->steps;
}

static tn_status back(const tn_call *c, const tn_loop_body *b, loop_work *w, int64_t t, float *d)
{
    const int64_t n = all_of(b);
    if (!n) return TN_OK;
    back_step<<<tn_blocks(c, n, THREADS), THREADS, 0, tn_cuda_stream(c)>>>(
        scalar(c, loop_in_damping(b)), (const int32_t *)c->out[loop_out_sample(b, LOOP_FREE_STEPS)].data, (int32_t)t,
        (const float *)(void *)w->state[0], d, (float *)(void *)w->spare[0], width_of(b), n);
    TN_CUDA_LAUNCHED();
    return TN_OK;
}

static tn_status reaches(const tn_call *c, const tn_loop_body *b, loop_work *w, int64_t t, char **, char **d)
{
    *d = (char *)w->lambda;
    return back(c, b, w, t, w->lambda);
}

static tn_status passes_by(const tn_call *c, const tn_loop_body *b, loop_work *w, int64_t t)
{
    return back(c, b, w, t, NULL);
}

/* --- phases ---------------------------------------------------------------------------------------------------------------- */

/* A phase whose states start as they are in x, and end there. */
static tn_status begin(const tn_call *c, const tn_loop_body *b, loop_work *w, float *x, phase *p)
{
    *p = phase();
    p->rows = rows_of(b), p->width = width_of(b), p->count = count_at(c, b), p->x = x;
    p->rtol = scalar(c, loop_in_rtol(b)), p->tol = scalar(c, loop_in_tol(b));
    p->damping = scalar(c, loop_in_damping(b)), p->beta = scalar(c, loop_in_beta(b));
    p->accelerate = b->solver == TN_SOLVE_ANDERSON;
    p->live = w->live, p->gone = w->sample, p->progress = w->progress, p->there = w->there;
    p->residual = w->residual, p->moved = w->moved, p->anderson = w->anderson, p->most = (int32_t)b->steps;
    if (b->repeats && b->grad != TN_LOOP_BPTT && b->steps > 2 && p->rows)
        TN_RETURN_IF(tn_cuda_repeat_make(tn_cuda_queue_of(c), &p->handle, &p->repeats));
    begin_phase<<<tn_blocks(c, p->rows, THREADS), THREADS, 0, tn_cuda_stream(c)>>>(*p);
    TN_CUDA_LAUNCHED();
    return TN_OK;
}

static tn_status step(const tn_call *c, const phase *p)
{
    if (!p->rows) return TN_OK;
    const unsigned blocks = (unsigned)p->rows, threads = threads_for(p->width);
    if (!p->accelerate) step_samples<1><<<blocks, threads, 0, tn_cuda_stream(c)>>>(*p);
    else if (p->anderson.memory <= FEW_PAIRS) step_samples<FEW_PAIRS><<<blocks, threads, 0, tn_cuda_stream(c)>>>(*p);
    else step_samples<TN_ANDERSON_MOST><<<blocks, threads, 0, tn_cuda_stream(c)>>>(*p);
    TN_CUDA_LAUNCHED();
    return TN_OK;
}

/* All iterations, `once` each: one by one, or, in a recording, the second as often as it takes. */
template <typename Once>
static tn_status iterate(const tn_call *c, const tn_loop_body *b, const phase *p, Once once)
{
    if (!p->repeats) {
        for (int64_t t = 0; t < b->steps; t++) TN_RETURN_IF(once(t));
        return TN_OK;
    }
    TN_RETURN_IF(once(0));
    TN_RETURN_IF(tn_cuda_repeat_begin(tn_cuda_queue_of(c), p->handle));
    const tn_status s = once(1), ended = tn_cuda_repeat_end(tn_cuda_queue_of(c));
    return s != TN_OK ? s : ended;
}

static void set_consts(const tn_call *c, const loop_work *w, loop_runner *r, const tn_body_spec *s, int first)
{
    loop_set(r, r->entry->live, w->live);
    for (int i = 0; i < s->n_consts; i++) loop_set(r, r->entry->consts[i], c->in[first + i].data);
}

/* The node's numbers of each sample, all 0. */
static tn_status counters(const tn_call *c, const tn_loop_body *b, int which, void **out)
{
    *out = c->out[loop_out_sample(b, which)].data;
    return *out ? zero(c, *out, (size_t)rows_of(b) * sizeof(int32_t)) : TN_OK;
}

/* By the kernel made for this body, where it has one that takes this phase. */
static tn_status whole(const tn_call *c, const tn_loop_body *b, const tn_loop_phase *p, bool *done)
{
    *done = false;
    if (!b->fused || !scalar(c, loop_in_rtol(b)) || b->grad == TN_LOOP_BPTT || b->solver != TN_SOLVE_PICARD || b->proxy)
        return TN_OK;
    return b->fused(c, b, p, done);
}

static tn_status solve(const tn_call *c, const tn_loop_body *b, loop_work *w)
{
    const size_t bytes = loop_type_bytes(&b->spec.state[0]);
    float *h = (float *)(void *)w->state[0];
    char *history = b->grad == TN_LOOP_BPTT ? (char *)c->out[loop_out_history(b)].data : NULL;
    void *numbers[LOOP_PER_SAMPLE];
    phase p;
    bool done = false;
    for (int i = 0; i < LOOP_PER_SAMPLE; i++) TN_RETURN_IF(counters(c, b, i, &numbers[i]));
    tn_loop_phase f = { TN_LOOP_PHASE_FREE, h };
    f.steps = (int32_t *)numbers[LOOP_FREE_STEPS], f.residuals = (float *)numbers[LOOP_RESIDUALS];
    const tn_arg *all = &c->out[loop_out_iterations(b)];
    if (!all[0].data && !all[1].data) TN_RETURN_IF(whole(c, b, &f, &done));
    if (done) return TN_OK;
    TN_RETURN_IF(begin(c, b, w, h, &p));
    p.steps = (int32_t *)numbers[LOOP_FREE_STEPS], p.residuals = (float *)numbers[LOOP_RESIDUALS];
    loop_set(&w->forward, b->forward.state[0], h);
    set_consts(c, w, &w->forward, &b->spec, loop_in_const(b));
    loop_bind(c, &w->forward);
    p.f = (float *)loop_result(&w->forward, "next", 0);
    TN_RETURN_IF(iterate(c, b, &p, [&](int64_t t) -> tn_status {
        if (history) TN_RETURN_IF(copy(c, history + (size_t)t * bytes, h, bytes));
        TN_RETURN_IF(loop_run(&w->forward));
        return step(c, &p);
    }));
    return put(c, b, w->progress, 0);
}

static tn_status adjoint(const tn_call *c, const tn_loop_body *b, loop_work *w, const float *g)
{
    loop_runner *r = &w->vjp_state;
    void *steps;
    phase p;
    bool done;
    TN_RETURN_IF(copy(c, w->lambda, g, loop_type_bytes(&b->spec.state[0])));
    TN_RETURN_IF(counters(c, b, LOOP_ADJOINT_STEPS, &steps));
    tn_loop_phase f = { TN_LOOP_PHASE_ADJOINT, w->lambda, (const float *)c->out[0].data, g };
    f.steps = (int32_t *)steps;
    TN_RETURN_IF(whole(c, b, &f, &done));
    if (done) return TN_OK;
    TN_RETURN_IF(begin(c, b, w, w->lambda, &p));
    p.steps = (int32_t *)steps, p.f = (float *)(void *)w->spare[0], p.extra = g;
    set_consts(c, w, r, &b->spec, loop_in_const(b));
    loop_set(r, b->vjp_state.state[0], c->out[0].data);
    loop_set(r, b->vjp_state.dnext[0], p.x);
    loop_set(r, b->vjp_state.dstate[0], p.f);
    loop_bind(c, r);
    return iterate(c, b, &p, [&](int64_t) -> tn_status {
        TN_RETURN_IF(loop_run(r));
        return step(c, &p);
    });
}

static tn_status measure(const tn_call *c, const phase *p, const float *x, float *out, bool ratio)
{
    if (!out || !p->rows) return TN_OK;
    distances<<<(unsigned)p->rows, threads_for(p->width), 0, tn_cuda_stream(c)>>>(p->count, p->rows, p->width, x,
                                                                                  (const float *)c->out[0].data, out,
                                                                                  ratio);
    TN_CUDA_LAUNCHED();
    return TN_OK;
}

/* The nudged equilibrium from the free one, into w->state[0]. `signal` (rows) and `first` (the first evaluation, f(h*)) where
 * they are asked for. */
static tn_status nudge(const tn_call *c, const tn_loop_body *b, loop_work *w, int sign, float *signal, float *first)
{
    const size_t bytes = loop_type_bytes(&b->spec.state[0]);
    phase p;
    bool done;
    TN_RETURN_IF(copy(c, w->state[0], c->out[0].data, bytes));
    tn_loop_phase f = { TN_LOOP_PHASE_NUDGED, (float *)(void *)w->state[0] };
    f.rest = b->at_rest ? (float *)(void *)w->moving[LOOP_REST] : NULL, f.move = scalar(c, loop_in_move(b));
    f.sign = (float)sign, f.signal = signal, f.steps = (int32_t *)c->out[loop_out_sample(b, LOOP_NUDGED_STEPS)].data;
    TN_RETURN_IF(whole(c, b, &f, &done));
    if (done) return TN_OK;
    TN_RETURN_IF(begin(c, b, w, f.x, &p));
    p.steps = f.steps;
    p.extra = w->force, p.nudge = sign, p.proxy = b->proxy;
    p.rest = f.rest, p.move = f.move, p.origin = f.move ? (const float *)c->out[0].data : NULL;
    loop_set(&w->forward, b->forward.state[0], p.x);
    set_consts(c, w, &w->forward, &b->spec, loop_in_const(b));
    loop_bind(c, &w->forward);
    p.f = (float *)loop_result(&w->forward, "next", 0);
    set_one<<<1, 1, 0, tn_cuda_stream(c)>>>(w->one);
    TN_CUDA_LAUNCHED();
    loop_set(&w->cost, b->cost.state[0], p.f);
    loop_set(&w->cost, b->cost.dy[0], w->one);
    loop_set(&w->cost, b->cost.dstate[0], w->force);
    set_consts(c, w, &w->cost, &b->cost_spec, loop_in_cost(b));
    loop_bind(c, &w->cost);
    TN_RETURN_IF(iterate(c, b, &p, [&](int64_t t) -> tn_status {
        TN_RETURN_IF(loop_run(&w->forward));
        if (!t) TN_RETURN_IF(measure(c, &p, p.f, signal, false));
        if (!t && first) TN_RETURN_IF(copy(c, first, p.f, bytes));
        if (p.rest && p.rows) {
            take_rest_off<<<(unsigned)p.rows, threads_for(p.width), 0, tn_cuda_stream(c)>>>(p, !t);
            TN_CUDA_LAUNCHED();
        }
        TN_RETURN_IF(loop_run(&w->cost));
        return step(c, &p);
    }));
    return measure(c, &p, p.x, signal, true);
}

static tn_status propagate(const tn_call *c, const tn_loop_body *b, loop_work *w)
{
    void *signal, *steps;
    TN_RETURN_IF(counters(c, b, LOOP_SIGNAL, &signal));
    TN_RETURN_IF(counters(c, b, LOOP_NUDGED_STEPS, &steps));
    TN_RETURN_IF(nudge(c, b, w, 1, (float *)signal, b->proxy ? w->lambda : NULL));
    if (b->centred) {
        TN_RETURN_IF(copy(c, w->lambda, w->state[0], loop_type_bytes(&b->spec.state[0])));
        TN_RETURN_IF(nudge(c, b, w, -1, NULL, NULL));
    }
    if (!all_of(b)) return TN_OK;
    estimate e = {};
    e.count = count_at(c, b), e.rows = rows_of(b), e.width = width_of(b), e.beta = scalar(c, loop_in_beta(b));
    e.free_state = (const float *)c->out[0].data, e.h = (const float *)(void *)w->state[0], e.lambda = w->lambda;
    e.weight = b->weight, e.mean = b->mean, e.proxy = b->proxy, e.centred = b->centred;
    estimate_lambda<<<tn_blocks(c, all_of(b), THREADS), THREADS, 0, tn_cuda_stream(c)>>>(e);
    TN_CUDA_LAUNCHED();
    return TN_OK;
}

/* --- the kernels ------------------------------------------------------------------------------------------------------------ */

static const loop_device gpu = { copy,     zero,         add,   put_taken, solve,     adjoint, propagate,
                                 set_live, clear_behind, taken, reaches,   passes_by, NULL,    NULL };

extern "C" tn_status tn_loop_forward_cuda(const tn_call *c) { return tn_loop_run_forward(&gpu, c); }

extern "C" tn_status tn_loop_backward_cuda(const tn_call *c) { return tn_loop_run_backward(&gpu, c); }
