/* The matrix product against a plain loop in double: shapes, strides, types, epilogues, and the promises about bits
 * (threads, rows, fp32 micro-kernels); gemm_kernels_test.c goes through the micro-kernels. TENON_BENCH=1 prints speeds. */
#include "backend/cpu/gemm_problem.h"
#include "backend/cpu/vmath.h"

#include <float.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

static void random_shapes(void **state)
{
    (void)state;
    static const int64_t sizes[] = { 0, 1, 2, 3, 4, 5, 7, 8, 9, 12, 13, 16, 24, 25, 31, 48, 50, 65, 100 };
    enum { SIZES = sizeof sizes / sizeof *sizes };
    const tn_rng r = { 5, 5 };
    for (uint64_t i = 0; i < 400; i++) {
        const int64_t m = sizes[tn_rng_below(r, 8 * i, SIZES)], n = sizes[tn_rng_below(r, 8 * i + 1, SIZES)];
        const int64_t k = sizes[tn_rng_below(r, 8 * i + 2, SIZES)], batch = (int64_t)tn_rng_below(r, 8 * i + 3, 4);
        problem p = problem_new(m, n, k, batch, (int)tn_rng_below(r, 8 * i + 4, 8), TN_F32, TN_F32);
        p.g.accumulate = tn_rng_below(r, 8 * i + 5, 2);
        run(1 + (int)(i % 3), &p.g);
        check(&p);
        problem_free(&p);
    }
}

static void long_shapes(void **state)
{
    (void)state;
    /* Across the blocks of k (255 .. 257, 600) and the tiles of m and n (256). */
    static const int64_t shape[][3] = { { 3, 5, 255 },  { 8, 12, 256 }, { 9, 13, 257 }, { 17, 25, 600 },
                                        { 300, 9, 20 }, { 9, 300, 20 }, { 259, 270, 5 } };
    for (size_t i = 0; i < sizeof shape / sizeof *shape; i++)
        for (int layout = 0; layout < 8; layout++) {
            problem p = problem_new(shape[i][0], shape[i][1], shape[i][2], 1, layout, TN_F32, TN_F32);
            run(2, &p.g);
            check(&p);
            problem_free(&p);
        }
}

static void types(void **state)
{
    (void)state;
    for (int i = 0; i < 9; i++)
        for (int layout = 0; layout < 8; layout++)
            for (int round = 0; round < 3; round++) {
                problem p = problem_new(11, 29, 37, 2, layout, (tn_dtype)(i % 3), (tn_dtype)(i / 3));
                p.g.round = (tn_dtype)round;
                run(2, &p.g);
                check(&p);
                problem_free(&p);
            }
}

/* Every 16-bit pattern, and every kind of fp32, through both the vector and the scalar path of the packing. */
static void conversions(void **state)
{
    (void)state;
    enum { N = 1 << 16 };
    uint16_t *half = tn_alloc(N * sizeof *half);
    float *single = tn_alloc(N * sizeof *single), *packed = tn_alloc(N * sizeof *packed);
    for (uint32_t i = 0; i < N; i++) {
        const uint32_t u = i << 16 | (i * 40503u & 0xffff);
        half[i] = (uint16_t)i;
        memcpy(&single[i], &u, 4);
    }
    for (int form = 0; form < 18; form++) {
        const tn_dtype type = (tn_dtype)(form / 3 % 3), round = (tn_dtype)(form % 3);
        const bool scalar = form >= 9;
        const void *data = type == TN_F32 ? (const void *)single : half;
        const tn_gemm_source src = { data, type, scalar ? 3 : 1, 4, round, 0 };
        /* width 4, k = N/4: with outer 1 numbers lie in order; with outer 3, width 1, every fourth is taken */
        const int64_t k = N / 4;
        tn__gemm_pack(packed, scalar ? 1 : 4, src, scalar ? 1 : 4, k);
        for (int64_t i = 0; i < (scalar ? k : N); i++) {
            const float want = (float)operand(data, type, round, scalar ? 4 * i : i);
            if (isnan(want) ? !isnan(packed[i]) : memcmp(&want, &packed[i], 4) != 0)
                fail_msg("form %d, number %lld: %a instead of %a", form, (long long)i, (double)packed[i], (double)want);
        }
    }
    tn_free(half);
    tn_free(single);
    tn_free(packed);
}

/* Half precision against an oracle that rounds first: small whole numbers times powers of two make every sum exact, so
 * that any difference is one of rounding; and the ends of its range. */
static void half_precision(void **state)
{
    (void)state;
    enum { M = 7, N = 29, K = 40 };
    const float ends[][2] = { { 65519.f, 65504.f },           { 65520.f, INFINITY },      { -65520.f, -INFINITY },
                              { 0x1.8p-24f, 0x1p-23f },       { 0x1p-25f, 0.f },          { 0x1.8p-25f, 0x1p-24f },
                              { 0x1.ff8p-15f, 0x1.ff8p-15f }, { 0x1.ffcp-15f, 0x1p-14f }, { 2049.f, 2048.f } };
    for (int layout = 0; layout < 4; layout++)
        for (int64_t m = 1; m <= M; m += 3) { /* in place, and packed */
            problem p = problem_new(m, N, K, 1, layout, TN_F32, TN_F32);
            for (int64_t i = 0; i < m * K; i++)
                ((float *)p.a)[i] = (float)((i * 37) % 4099 - 2000); /* beyond 2048: odd ones round */
            for (int64_t i = 0; i < K * N; i++) ((float *)p.b)[i] = (float)((i * 53) % 31 - 15);
            p.g.round = TN_F16;
            run(1, &p.g);
            for (int64_t i = 0; i < m; i++)
                for (int64_t j = 0; j < N; j++) {
                    double want = 0;
                    for (int64_t q = 0; q < K; q++)
                        want += operand(p.a, TN_F32, TN_F16, i * p.g.a_row + q * p.g.a_col) *
                                operand(p.b, TN_F32, TN_F16, q * p.g.b_row + j * p.g.b_col);
                    assert_true((double)p.c[i * p.g.c_row + j] == want);
                }
            problem_free(&p);
        }
    for (size_t i = 0; i < sizeof ends / sizeof *ends; i++) {
        problem p = problem_new(1, 4, 1, 1, 0, TN_F32, TN_F32);
        *(float *)p.a = ends[i][0];
        for (int j = 0; j < 4; j++) ((float *)p.b)[j] = 1;
        p.g.round = TN_F16;
        run(1, &p.g);
        assert_true(p.c[0] == ends[i][1] && tn_v_round_f16(ends[i][0]) == ends[i][1]);
        problem_free(&p);
    }
}

static void epilogues(void **state)
{
    (void)state;
    for (int act = 0; act < TN_GEMM_ACTS; act++)
        for (int parts = 0; parts < 16; parts++) {
            problem p = problem_new(13, 27, act == 2 ? 0 : 300, 2, parts & 1 ? GAP : 0, TN_F32, TN_F32);
            p.g.act = (tn_gemm_act)act;
            p.g.alpha = 0.1f;
            if (parts & 1) p.g.bias = p.bias;
            if (parts & 2) p.g.pre = p.pre;
            if (parts & 4) p.g.residual = p.residual;
            p.g.accumulate = parts & 8;
            run(2, &p.g);
            check(&p);
            problem_free(&p);
        }
}

static void residual_in_place(void **state)
{
    (void)state;
    problem p = problem_new(40, 50, 700, 1, 0, TN_F32, TN_F32), q = problem_new(40, 50, 700, 1, 0, TN_F32, TN_F32);
    memcpy(p.residual, p.start, p.c_count * sizeof(float));
    p.g.residual = p.residual;
    q.g.residual = q.c;
    run(1, &p.g);
    run(2, &q.g);
    assert_memory_equal(p.c, q.c, p.c_count * sizeof(float));
    problem_free(&p);
    problem_free(&q);
}

static void threads_do_not_matter(void **state)
{
    (void)state;
    static const int64_t shape[][3] = { { 1, 700, 300 }, { 130, 90, 513 }, { 1, 523, 64 }, { 300, 20, 100 } };
    for (size_t i = 0; i < sizeof shape / sizeof *shape; i++) {
        problem p = problem_new(shape[i][0], shape[i][1], shape[i][2], 1, (int)i, TN_F32, TN_F32);
        const size_t bytes = p.c_count * sizeof(float);
        float *one = tn_alloc(bytes);
        p.g.bias = p.bias;
        p.g.act = TN_GEMM_ACT_GELU_TANH;
        p.g.alpha = 0.3f;
        run(1, &p.g);
        memcpy(one, p.c, bytes);
        for (int threads = 2; threads <= 7; threads++) {
            run(threads, &p.g);
            assert_memory_equal(one, p.c, bytes);
        }
        tn_free(one);
        problem_free(&p);
    }
}

/* What a triangle leaves out is not seen in the bits of what is wanted. */
static void triangles(void **state)
{
    (void)state;
    static const tn_gemm_part part[] = { TN_GEMM_C_LOWER, TN_GEMM_A_LOWER, TN_GEMM_A_UPPER };
    static const int64_t sizes[] = { 5, 64, 301 };
    for (size_t n = 0; n < 9; n++) {
        const int64_t N = sizes[n / 3];
        problem p = problem_new(N, N, N, 1, n & 1 ? T_A : T_B, TN_F32, TN_F32);
        float *a = p.a, *whole = tn_alloc(p.c_count * sizeof(float));
        for (int64_t i = 0; i < N; i++)
            for (int64_t q = 0; q < N; q++)
                if ((part[n % 3] == TN_GEMM_A_LOWER && q > i) || (part[n % 3] == TN_GEMM_A_UPPER && q < i))
                    a[i * p.g.a_row + q * p.g.a_col] = 0;
        run(1, &p.g);
        memcpy(whole, p.c, p.c_count * sizeof(float));
        p.g.part = part[n % 3];
        run(2, &p.g);
        for (int64_t i = 0; i < N; i++)
            assert_memory_equal(whole + i * N, p.c + i * N,
                                sizeof(float) * (size_t)(part[n % 3] == TN_GEMM_C_LOWER ? i + 1 : N));
        tn_free(whole);
        problem_free(&p);
    }
}

/* Row i alone has the bits it has among others, whatever else is in the batch and however A is stored. */
static void rows_stand_alone(void **state)
{
    (void)state;
    enum { M = 100, N = 77 };
    for (int layout = 0; layout < 4; layout++) {
        problem p = problem_new(M, N, 533, 1, layout, TN_F32, TN_BF16);
        p.g.bias = p.bias;
        p.g.act = TN_GEMM_ACT_SILU;
        run(2, &p.g);
        for (int64_t m = 1; m <= 9; m++)
            for (int64_t i = 0; i + m <= M; i += 31) {
                float few[9 * N] = { 0 };
                tn_gemm g = p.g;
                g.m = m;
                g.a = (const float *)p.a + i * g.a_row;
                g.c = few;
                run(1, &g);
                assert_memory_equal(few, p.c + i * N, (size_t)(m * N) * sizeof(float));
            }
        problem_free(&p);
    }
}

/* The definition of the order, one element at a time: blocks of KC, each one chain of FMAs from 0. Every micro-kernel
 * of this machine keeps it, where the compiler has an FMA for the portable one. */
static void order_of_the_sum(void **state)
{
    (void)state;
    const tn_gemm_ukernel *u;
    for (int n = 0; (u = tn__gemm_kernel_at(n)); n++) {
        if (u->type != TN_F32) continue;
#if !defined(__ARM_FEATURE_FMA) && !defined(__FMA__)
        if (n == 0) continue;
#endif
        problem p = problem_new(21, 53, 2 * TN_GEMM_KC + 41, 1, T_B, TN_F32, TN_F32);
        const float *a = p.a, *b = p.b;
        p.g.kernel = u;
        run(2, &p.g);
        for (int64_t i = 0; i < p.g.m; i++)
            for (int64_t j = 0; j < p.g.n; j++) {
                float total = 0;
                for (int64_t p0 = 0; p0 < p.g.k; p0 += TN_GEMM_KC) {
                    float sum = 0;
                    for (int64_t q = p0; q < p.g.k && q < p0 + TN_GEMM_KC; q++)
                        sum = fmaf(a[i * p.g.k + q], b[j * p.g.k + q], sum);
                    total += sum;
                }
                if (memcmp(&total, &p.c[i * p.g.n + j], 4) != 0)
                    fail_msg("%s: another order at (%d,%d)", u->name, (int)i, (int)j);
            }
        problem_free(&p);
    }
}

static void not_finite(void **state)
{
    (void)state;
    problem p = problem_new(10, 15, 300, 1, 0, TN_F32, TN_F32);
    float *a = p.a, *b = p.b;
    a[4 * 300 + 299] = NAN;
    a[7 * 300] = INFINITY;
    for (int j = 0; j < 15; j++) b[j] = j == 14 ? 0.0f : -fabsf(b[j]) - 1;
    b[200 * 15 + 3] = NAN;
    run(1, &p.g);
    for (int i = 0; i < 10; i++)
        for (int j = 0; j < 15; j++) {
            const float c = p.c[i * 15 + j];
            if (i == 4 || j == 3 || (i == 7 && j == 14)) assert_true(isnan(c)); /* inf * 0 too */
            else if (i == 7) assert_true(isinf(c) && c < 0);
            else assert_true(isfinite(c));
        }
    p.g.act = TN_GEMM_ACT_RELU;
    run(1, &p.g);
    assert_true(isnan(p.c[4 * 15]) && p.c[7 * 15] == 0.0f);
    problem_free(&p);
}

static double now_s(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

static void speed(void **state)
{
    (void)state;
    if (!getenv("TENON_BENCH")) skip();
    static const struct {
        int64_t m, n, k;
        int layout, threads;
        tn_dtype type;
    } rows[] = {
        { 512, 512, 512, 0, 1, TN_F32 },    { 512, 512, 512, T_A, 1, TN_F32 }, { 512, 512, 512, T_B, 1, TN_F32 },
        { 512, 512, 512, T_B, 1, TN_BF16 }, { 512, 512, 512, T_B, 2, TN_F32 }, { 64, 64, 64, 0, 1, TN_F32 },
        { 128, 512, 4096, T_A, 1, TN_F32 }, { 8, 1024, 1024, T_B, 1, TN_F32 }, { 1, 1024, 1024, T_B, 1, TN_F32 },
        { 1, 1024, 1024, 0, 1, TN_F32 },
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        problem p = problem_new(rows[i].m, rows[i].n, rows[i].k, 1, rows[i].layout, rows[i].type, rows[i].type);
        tn_pool *pool = NULL;
        assert_ok(tn_pool_new(rows[i].threads, &pool));
        void *work = tn_alloc(tn_gemm_work_bytes(&p.g, rows[i].threads));
        double best = 1e9;
        for (const double end = now_s() + 0.2; now_s() < end;) {
            const double start = now_s();
            tn_gemm_run(pool, &p.g, work);
            best = fmin(best, now_s() - start);
        }
        print_message("%4lld x %4lld x %4lld %s%s %-4s %d thread(s): %6.2f GFLOP/s\n", (long long)p.g.m,
                      (long long)p.g.n, (long long)p.g.k, rows[i].layout & T_A ? "T" : "N",
                      rows[i].layout & T_B ? "T" : "N", tn_dtype_name(rows[i].type), rows[i].threads,
                      2e-9 * (double)(p.g.m * p.g.n * p.g.k) / best);
        tn_free(work);
        tn_pool_free(pool);
        problem_free(&p);
    }
}

static void workspace_bound(void **state)
{
    (void)state;
    for (int64_t m = 1; m <= 600; m += 7)
        for (int64_t n = 1; n <= 600; n += 13)
            for (int threads = 1; threads <= 4; threads++) {
                const tn_gemm g = { .m = m, .n = n, .k = 64, .batch = 3 };
                assert_true(tn_gemm_work_bytes(&g, threads) <= tn_gemm_work_most(m, n, 4));
                assert_true(tn_gemm_work_bytes(&g, threads) <= tn_gemm_work_most(m + 50, n + 50, 4));
            }
}

void tn_tests_gemm(tn_test_list *l)
{
    tn_test_add(l, random_shapes, NULL, "gemm: random shapes and layouts");
    tn_test_add(l, long_shapes, NULL, "gemm: across blocks and tiles");
    tn_test_add(l, types, NULL, "gemm: operand types and rounding");
    tn_test_add(l, conversions, NULL, "gemm: conversions are exact");
    tn_test_add(l, half_precision, NULL, "gemm: half precision, sums exact and the ends of its range");
    tn_test_add(l, epilogues, NULL, "gemm: epilogues");
    tn_test_add(l, residual_in_place, NULL, "gemm: residual in place");
    tn_test_add(l, threads_do_not_matter, NULL, "gemm: one thread = many");
    tn_test_add(l, rows_stand_alone, NULL, "gemm: a row does not depend on m");
    tn_test_add(l, triangles, NULL, "gemm: triangles");
    tn_test_add(l, order_of_the_sum, NULL, "gemm: order of the sum");
    tn_test_add(l, not_finite, NULL, "gemm: NaN and infinity");
    tn_test_add(l, workspace_bound, NULL, "gemm: workspace for at most these sizes");
    tn_test_add(l, speed, NULL, "gemm: bench speed");
}
