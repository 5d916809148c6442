/* The loops of scan_lines.h against those of scan_loops.h: channels do not mix, so 16 channels, a line of the cache, get the
 * bits they get among 20, which are none. */
#include "backend/cpu/pool.h"
#include "base/alloc.h"
#include "base/rng.h"
#include "ops/scan/scan.h"
#include "ops/scan/scan_core.h"
#include "testlib.h"

#include <string.h>

enum { B = 2, T = 75, LINE = 16, RAGGED = 20, MOST = B * T * 2 * RAGGED };

/* One scan of K channels, the first 16 of which hold the same numbers whatever K is. */
typedef struct scan {
    int64_t K;
    float x[MOST], c[MOST], dc[MOST], dx[MOST];
    float rho[RAGGED], omega[RAGGED], gamma[RAGGED], drho[RAGGED], domega[RAGGED], dgamma[RAGGED];
    float state[B * 2 * RAGGED], final[B * 2 * RAGGED], dfinal[B * 2 * RAGGED], dstate[B * 2 * RAGGED];
    int32_t reset[B * T];
} scan;

typedef struct variant {
    bool gain, brief, reset, state;
    int64_t tokens;
} variant;

static void fill(float *p, int64_t rows, int64_t planes, int64_t K, uint64_t stream)
{
    for (int64_t r = 0; r < rows * planes; r++)
        for (int64_t k = 0; k < K; k++) p[r * K + k] = tn_rng_normal((tn_rng){ 5, stream }, (uint64_t)(r * RAGGED + k));
}

static tn_arg tensor(float *data, int64_t b, int64_t t, int64_t last)
{
    tn_arg a = { .data = data, .dtype = TN_F32, .dims = { .rank = 3, .dim = { b, t, last } } };
    a.stride[0] = t * last;
    a.stride[1] = last;
    a.stride[2] = 1;
    return a;
}

static tn_arg row(float *data, int64_t K)
{
    return (tn_arg){ .data = data, .dtype = TN_F32, .dims = { .rank = 1, .dim = { K } }, .stride = { 1 } };
}

static void run(scan *s, int64_t K, variant v)
{
    s->K = K;
    fill(s->x, B * v.tokens, 2, K, 1);
    fill(s->dc, B * v.tokens, 2, K, 2);
    fill(s->state, B, 2, K, 3);
    fill(s->dfinal, B, 2, K, 4);
    for (int64_t k = 0; k < K; k++) { /* exact, whether or not the compiler fuses the product and the sum */
        s->rho[k] = v.brief ? 0.25f + (float)k / 32 : 1023.0f / 1024 - (float)k / 1024;
        s->omega[k] = 0.125f + 0.171875f * (float)k;
        s->gamma[k] = 0.5f + (float)k / 16;
    }
    for (int64_t i = 0; i < B * v.tokens; i++)
        s->reset[i] = i == 7 || i == 33 || i == 34 || i == v.tokens || i == v.tokens + 70;
    const tn_scan_attr attr = { .chunk = TN_SCAN_CHUNK };
    tn_arg in[TN_SCAN_INPUTS] = { tensor(s->x, B, v.tokens, 2 * K), row(s->rho, K), row(s->omega, K) };
    tn_arg din[TN_SCAN_INPUTS] = { tensor(s->dx, B, v.tokens, 2 * K), row(s->drho, K), row(s->domega, K) };
    if (v.gain) in[TN_SCAN_GAMMA] = row(s->gamma, K), din[TN_SCAN_GAMMA] = row(s->dgamma, K);
    if (v.state) in[TN_SCAN_STATE].data = s->state, din[TN_SCAN_STATE].data = s->dstate;
    if (v.reset) in[TN_SCAN_RESET].data = s->reset;
    const tn_arg out[] = { tensor(s->c, B, v.tokens, 2 * K), { .data = s->final } };
    const tn_arg dout[] = { tensor(s->dc, B, v.tokens, 2 * K), { .data = s->dfinal } };
    const size_t bytes = tn_scan_cpu_work(B, v.tokens, K, attr.chunk);
    tn_call call = { .attr = &attr,
                     .n_in = TN_SCAN_INPUTS,
                     .n_out = 2,
                     .in = in,
                     .out = out,
                     .dout = dout,
                     .din = din,
                     .work_bytes = bytes };
    call.work = tn_alloc(bytes);
    assert_non_null(call.work);
    assert_ok(tn_pool_new(1, &call.pool));
    assert_ok(tn_scan_blocked_forward_cpu(&call));
    assert_ok(tn_scan_blocked_backward_cpu(&call));
    tn_pool_free(call.pool);
    tn_free(call.work);
}

/* The first 16 channels of `rows` rows of K. */
static void same(const char *what, const float *a, const scan *of_a, const float *b, const scan *of_b, int64_t rows)
{
    for (int64_t r = 0; r < rows; r++)
        if (memcmp(a + r * of_a->K, b + r * of_b->K, LINE * sizeof(float)) != 0)
            fail_msg("%s: other bits in row %lld", what, (long long)r);
}

static void check(variant v)
{
    scan *line = tn_alloc(sizeof *line), *ragged = tn_alloc(sizeof *ragged);
    assert_non_null(line);
    assert_non_null(ragged);
    memset(line, 0, sizeof *line);
    memset(ragged, 0, sizeof *ragged);
    run(line, LINE, v);
    run(ragged, RAGGED, v);
    same("c", line->c, line, ragged->c, ragged, B * v.tokens * 2);
    same("final", line->final, line, ragged->final, ragged, B * 2);
    same("dx", line->dx, line, ragged->dx, ragged, B * v.tokens * 2);
    same("dstate", line->dstate, line, ragged->dstate, ragged, v.state ? B * 2 : 0);
    same("drho", line->drho, line, ragged->drho, ragged, 1);
    same("domega", line->domega, line, ragged->domega, ragged, 1);
    same("dgamma", line->dgamma, line, ragged->dgamma, ragged, 1);
    tn_free(line);
    tn_free(ragged);
}

/* Every form, and runs of 1, 2, an odd and an even number of tokens, within a piece of 16 and beyond. */
static void same_bits(void **state)
{
    (void)state;
    static const int64_t tokens[] = { 1, 2, 3, 15, 16, 17, 18, 33, 48, T };
    for (int form = 0; form < 16; form++)
        for (size_t i = 0; i < sizeof tokens / sizeof *tokens; i++)
            check((variant){
                .gain = form & 1, .brief = form & 2, .reset = form & 4, .state = form & 8, .tokens = tokens[i] });
}

void tn_tests_scan_lines(tn_test_list *l)
{
    tn_test_add(l, same_bits, NULL, "scan lines: the bits of the general loops");
}
