/* Every micro-kernel this machine runs, fp32 and bf16, against the plain loop in double, and the promises each must keep
 * about its bits: threads, rows, strides and the reading of B in place do not show. What a machine does not have is not
 * tested on it: build/unit gemm_kernels names the kernels it went through. TENON_BENCH=1 prints speeds. */
#include "backend/cpu/gemm_problem.h"

#include <stdlib.h>
#include <time.h>

/* fp32 kernels run without rounding and with either, bf16 ones round to bf16 in any case. */
static bool next_form(const tn_gemm_ukernel **u, tn_dtype *round, int *index)
{
    for (;; ++*index) {
        *u = tn__gemm_kernel_at(*index / 3);
        *round = (tn_dtype)(*index % 3);
        if (!*u) return false;
        if ((*u)->type == TN_BF16 && *round != TN_BF16) continue;
        ++*index;
        return true;
    }
}

static void names(void **state)
{
    (void)state;
    const tn_gemm_ukernel *u;
    bool fp32 = false;
    for (int i = 0; (u = tn__gemm_kernel_at(i)); i++) {
        print_message("kernel: %s\n", u->name);
        assert_true(u->mr <= TN_GEMM_MR_MAX && u->nr % 4 == 0 && u->run[u->mr]);
        assert_true(u->tile_m >= 8 * u->mr && u->tile_n >= 4 * u->nr);
        fp32 = fp32 || u == tn__gemm_kernel_best();
    }
    assert_true(fp32 && tn__gemm_kernel_best()->type == TN_F32);
    assert_true(!tn__gemm_kernel_bf16() || tn__gemm_kernel_bf16()->type == TN_BF16);
}

static void shapes(void **state)
{
    (void)state;
    static const int64_t sizes[] = { 1, 2, 3, 4, 5, 7, 8, 9, 11, 12, 13, 16, 17, 24, 25, 31, 32, 33, 50, 65, 97 };
    enum { SIZES = sizeof sizes / sizeof *sizes };
    const tn_rng r = { 7, 5 };
    const tn_gemm_ukernel *u;
    tn_dtype round;
    for (int form = 0; next_form(&u, &round, &form);)
        for (uint64_t i = 0; i < (TN_SANITIZED ? 40 : 120); i++) {
            const int64_t m = sizes[tn_rng_below(r, 16 * i, SIZES)], n = sizes[tn_rng_below(r, 16 * i + 1, SIZES)];
            const int64_t k = sizes[tn_rng_below(r, 16 * i + 2, SIZES)],
                          batch = 1 + (int64_t)tn_rng_below(r, 16 * i + 3, 3);
            problem p = problem_new(m, n, k, batch, (int)tn_rng_below(r, 16 * i + 4, 8),
                                    (tn_dtype)tn_rng_below(r, 16 * i + 5, 3), (tn_dtype)tn_rng_below(r, 16 * i + 6, 3));
            p.g.kernel = u;
            p.g.round = round;
            p.g.accumulate = tn_rng_below(r, 16 * i + 7, 2);
            if (tn_rng_below(r, 16 * i + 8, 2)) p.g.bias = p.bias;
            if (tn_rng_below(r, 16 * i + 9, 2)) p.g.pre = p.pre;
            if (tn_rng_below(r, 16 * i + 10, 2)) p.g.residual = p.residual;
            p.g.act = (tn_gemm_act)tn_rng_below(r, 16 * i + 11, TN_GEMM_ACTS);
            run(1 + (int)(i % 3), &p.g);
            check(&p);
            problem_free(&p);
        }
}

/* Across the blocks of k and the tiles of m and n (512 at most), as few numbers as that needs. */
static void edges(void **state)
{
    (void)state;
    static const int64_t shape[][3] = { { 3, 5, 255 },  { 8, 130, 256 }, { 33, 35, 257 }, { 17, 25, 600 },
                                        { 300, 9, 20 }, { 9, 530, 20 },  { 530, 40, 3 },  { 1, 150, 515 } };
    const tn_gemm_ukernel *u;
    tn_dtype round;
    for (int form = 0; next_form(&u, &round, &form);)
        for (size_t i = 0; i < sizeof shape / sizeof *shape; i++)
            for (int layout = 0; layout < 4; layout += TN_SANITIZED ? 3 : 1) {
                problem p = problem_new(shape[i][0], shape[i][1], shape[i][2], 1, layout, TN_F32, TN_F32);
                p.g.kernel = u;
                p.g.round = round;
                run(2, &p.g);
                check(&p);
                problem_free(&p);
            }
}

/* Strides no packer has a short way for: every second column, rows backwards, a column shared by all. */
static void odd_strides(void **state)
{
    (void)state;
    const tn_gemm_ukernel *u;
    tn_dtype round;
    for (int form = 0; next_form(&u, &round, &form);)
        for (int way = 0; way < 3; way++) {
            problem p = problem_new(14, 37, 70, 1, 0, TN_F32, TN_F32),
                    wide = problem_new(90, 90, 90, 2, 0, TN_F32, TN_F32);
            p.g.kernel = u;
            p.g.round = round;
            p.g.a = (float *)wide.a + (way == 1 ? 89 * 90 : 0);
            p.g.b = (float *)wide.b + (way == 1 ? 89 * 90 : 0);
            p.g.a_row = p.g.b_row = way == 1 ? -90 : 90;
            p.g.a_col = way == 2 ? 0 : 1;
            p.g.b_col = way == 0 ? 2 : way == 1 ? 1 : 0;
            run(1, &p.g);
            check(&p);
            problem_free(&p);
            problem_free(&wide);
        }
}

static void run_into(float *c, int threads, const tn_gemm *g)
{
    tn_gemm h = *g;
    h.c = c;
    run(threads, &h);
}

static void threads_do_not_matter(void **state)
{
    (void)state;
    const tn_gemm_ukernel *u;
    tn_dtype round;
    for (int form = 0; next_form(&u, &round, &form);)
        for (int layout = 0; layout < 4; layout++) {
            problem p = problem_new(layout ? 200 : 3, 333, 300, 1, layout, TN_F32, TN_F32);
            p.g.kernel = u;
            p.g.round = round;
            run_into(p.c, 1, &p.g);
            for (int threads = 2; threads <= (TN_SANITIZED ? 3 : 4); threads++) {
                run_into(p.residual, threads, &p.g);
                assert_memory_equal(p.c, p.residual, p.c_count * sizeof(float));
            }
            problem_free(&p);
        }
}

/* Few rows, read in place, few columns, or the numbers laid out otherwise: parts of the whole product bit for bit. */
static void parts_of_the_whole(void **state)
{
    (void)state;
    enum { M = 41, N = 150, K = 301 }; /* k ends in the middle of a line, and of a pair of bf16 */
    static float c[M * N];
    const tn_gemm_ukernel *u;
    tn_dtype round;
    for (int form = 0; next_form(&u, &round, &form);)
        for (int way = 0; way < 4; way++) {
            const tn_dtype type = way & 2 ? TN_BF16 : TN_F32;
            problem p = problem_new(M, N, K, 1, way & 1 ? T_B : 0, type, type);
            p.g.kernel = u;
            p.g.round = round;
            run(1, &p.g);
            for (int64_t m = 1; m <= 9; m++) {
                tn_gemm g = p.g;
                const int64_t i = 3 * m, n = m % 2 ? N : N - 7 * m;
                g.m = m;
                g.n = n;
                g.a = (const char *)p.a + i * g.a_row * (int64_t)tn_dtype_bytes(type);
                run_into(c, 1, &g);
                for (int64_t q = 0; q < m; q++)
                    if (memcmp(c + q * g.c_row, p.c + (i + q) * N, (size_t)n * sizeof(float)) != 0)
                        fail_msg("%s, way %d: %d rows have other bits", u->name, way, (int)m);
            }
            problem_free(&p);
        }
}

/* B (k,n) and its transpose as (n,k), A likewise: the same numbers, the same bits. */
static void strides_do_not_matter(void **state)
{
    (void)state;
    enum { M = 30, N = 70, K = 290 };
    const tn_gemm_ukernel *u;
    tn_dtype round;
    for (int form = 0; next_form(&u, &round, &form);)
        for (int m = 1; m <= M; m += 29) {
            problem p = problem_new(m, N, K, 1, 0, TN_F32, TN_F32),
                    q = problem_new(m, N, K, 1, T_A | T_B, TN_F32, TN_F32);
            float *a = q.a, *b = q.b;
            for (int64_t i = 0; i < m; i++)
                for (int64_t k = 0; k < K; k++) a[k * m + i] = ((float *)p.a)[i * K + k];
            for (int64_t j = 0; j < N; j++)
                for (int64_t k = 0; k < K; k++) b[j * K + k] = ((float *)p.b)[k * N + j];
            p.g.kernel = q.g.kernel = u;
            p.g.round = q.g.round = round;
            run(1, &p.g);
            run(1, &q.g);
            assert_memory_equal(p.c, q.c, p.c_count * sizeof(float));
            problem_free(&p);
            problem_free(&q);
        }
}

/* Whichever kernel splits, and the way the machine does it when asked: as near as fp32. */
static void split(void **state)
{
    (void)state;
    const tn_gemm_ukernel *u = NULL;
    for (int i = 0; i == 0 || (u = tn__gemm_kernel_at(i - 1)); i++) {
        if (u && u->type != TN_BF16) continue;
        for (int layout = 0; layout < 8; layout++) {
            problem p = problem_new(1 + 11 * layout, 45, 40 * layout + 270, 1 + layout % 2, layout, TN_F32,
                                    layout == 5 ? TN_F16 : TN_F32);
            p.g.kernel = u;
            p.g.bf16x3 = true;
            p.g.bias = p.bias;
            run(2, &p.g);
            check(&p);
            problem_free(&p);
        }
    }
}

/* The plain twin: portable_only is the portable kernel bit for bit, and the machine's choice is near it. */
static void plain_twin(void **state)
{
    (void)state;
    for (int way = 0; way < 4; way++) {
        problem p = problem_new(37, 61, 300, 2, T_B, TN_F32, TN_F32),
                q = problem_new(37, 61, 300, 2, T_B, TN_F32, TN_F32);
        p.g.round = q.g.round = way == 1 ? TN_BF16 : way == 3 ? TN_F16 : TN_F32;
        p.g.bf16x3 = q.g.bf16x3 = way == 2;
        run(2, &p.g);
        check(&p);
        q.g.portable_only = true;
        run(2, &q.g);
        check(&q);
        q.g.portable_only = false;
        q.g.kernel = &tn__gemm_portable;
        run_into(q.residual, 1, &q.g);
        assert_memory_equal(q.c, q.residual, q.c_count * sizeof(float));
        const tn_gemm_ukernel *bf16 = tn__gemm_kernel_bf16();
        q.g.kernel = way == 1 && bf16 ? bf16 : way == 2 && bf16 && bf16->split_pays ? bf16 : tn__gemm_kernel_best();
        run_into(q.residual, 1, &q.g);
        assert_memory_equal(p.c, q.residual, q.c_count * sizeof(float));
        problem_free(&p);
        problem_free(&q);
    }
}

/* One number of a panel by the definition. */
static uint16_t packed_number(const tn_gemm_source *s, int64_t i, int64_t p)
{
    float x = (float)operand(s->data, s->type, TN_F32, i * s->outer + p * s->inner);
    for (int part = 0; part < s->part; part++) {
        const float rounded = tn_bf16_to_f32(tn_f32_to_bf16(x));
        x = isfinite(rounded) ? x - rounded : 0.0f;
    }
    return tn_f32_to_bf16(x);
}

static void check_packer(tn_gemm_packer *pack, tn_gemm_panel to, tn_gemm_source src, int64_t valid, int64_t k)
{
    enum { MOST = 96 * 96 };
    static uint16_t out[MOST + 1];
    const int64_t panels = (valid + to.width - 1) / to.width, count = panels * to.width * to.k;
    assert_true(count <= MOST);
    memset(out, 0xab, sizeof out);
    pack(out, to, src, valid, k);
    assert_int_equal(out[count], 0xabab);
    for (int64_t i = 0; i < panels * to.width; i++)
        for (int64_t p = 0; p < to.k; p++) {
            const int64_t in = i % to.width, at = ((p / to.depth) * to.width + in) * to.depth + p % to.depth;
            const uint16_t got = out[(i - in) * to.k + at], want = i < valid && p < k ? packed_number(&src, i, p) : 0;
            if (got != want && !((got | want) == 0x8000 && (got & want) == 0)) /* either zero */
                fail_msg("width %d depth %d part %d type %d strides %d,%d: (%d,%d) is %04x instead of %04x", to.width,
                         to.depth, src.part, (int)src.type, (int)src.outer, (int)src.inner, (int)i, (int)p, got, want);
        }
}

/* The packers of this machine's bf16 kernels at their own panels, and the general one at all of them. */
static void packers(void **state)
{
    (void)state;
    static const tn_gemm_panel panels[] = { { 8, 4, 72 },   { 12, 4, 72 }, { 2, 4, 72 },  { 32, 2, 96 },
                                            { 12, 32, 96 }, { 1, 32, 96 }, { 32, 32, 96 } };
    static const int64_t strides[][2] = { { 80, 1 }, { 1, 50 }, { 3, 150 } };
    for (int type = 0; type < 3; type++) {
        void *data = random_numbers((tn_dtype)type, 96 * 150 + 41 * 80, 9);
        if (type == TN_F32) { /* infinite, NaN, and what rounding to bf16 makes infinite */
            ((float *)data)[5] = INFINITY;
            ((float *)data)[161] = 3.4e38f;
            ((float *)data)[80] = -INFINITY;
        }
        for (size_t i = 0; i < sizeof panels / sizeof *panels; i++)
            for (int way = 0; way < 3 * 3 * 2; way++) {
                const tn_gemm_source s = { data,    (tn_dtype)type, strides[way % 3][0], strides[way % 3][1],
                                           TN_BF16, way / 3 % 3 };
                const int64_t k = way & 1 ? panels[i].k : panels[i].k - 3, valid = way >= 9 ? panels[i].width : 41;
                check_packer(tn__gemm_pack_bf16, panels[i], s, valid, k);
                const tn_gemm_ukernel *u;
                for (int n = 0; (u = tn__gemm_kernel_at(n)); n++)
                    if (u->type == TN_BF16 && ((u->nr == panels[i].width && u->b_depth == panels[i].depth) ||
                                               (u->a_depth == panels[i].depth && u->mr >= panels[i].width)))
                        check_packer(u->pack, panels[i], s, valid, k);
            }
        tn_free(data);
    }
}

/* fp32 panels: those of every kernel are the portable ones, bit for bit. */
static void packers_f32(void **state)
{
    (void)state;
    enum { K = 96, COLUMNS = 41, STEP = 100 };
    static float out[2][64 * 2 * K];
    for (int type = 0; type < 3; type++) {
        void *data = random_numbers((tn_dtype)type, (K + 1) * STEP, 10);
        const tn_gemm_ukernel *u;
        for (int n = 0; (u = tn__gemm_kernel_at(n)); n++) {
            if (u->type != TN_F32) continue;
            for (int64_t k = K - 35; k <= K; k += 5)
                for (int way = 0; way < 4; way++) {
                    const int width = way & 1 ? u->mr : u->nr;
                    const tn_gemm_source s = {
                        data, (tn_dtype)type, way & 2 ? 1 : STEP, way & 2 ? STEP : 1, TN_F32, 0
                    };
                    const int64_t valid = width < COLUMNS ? COLUMNS : width, panels = (valid + width - 1) / width;
                    const size_t bytes = sizeof(float) * (size_t)(panels * width * k);
                    if (valid > COLUMNS || bytes > sizeof out[0]) continue;
                    memset(out, 0xab, sizeof out);
                    tn__gemm_pack(out[0], width, s, valid, k);
                    u->pack_f32(out[1], width, s, valid, k);
                    assert_memory_equal(out[0], out[1], bytes);
                }
        }
        tn_free(data);
    }
}

static void not_finite(void **state)
{
    (void)state;
    const tn_gemm_ukernel *u;
    tn_dtype round;
    for (int form = 0; next_form(&u, &round, &form);) {
        problem p = problem_new(10, 45, 300, 1, T_B, TN_F32, TN_F32);
        p.g.kernel = u;
        p.g.round = round;
        ((float *)p.a)[4 * 300 + 299] = NAN;
        ((float *)p.a)[7 * 300 + 5] = INFINITY;
        ((float *)p.b)[44 * 300 + 7] = -INFINITY;
        run(1, &p.g);
        for (int i = 0; i < 10; i++)
            for (int j = 0; j < 45; j++) {
                const float c = p.c[i * 45 + j];
                if (i == 4) assert_true(isnan(c));
                else assert_true(i == 7 || j == 44 ? !isfinite(c) : isfinite(c));
                if (i != 4 && i != 7 && j == 44) assert_true(isinf(c)); /* the padding is no 0 times infinity */
            }
        problem_free(&p);
    }
}

static double now_s(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

static void speed_of(const tn_gemm_ukernel *u, int64_t m, int64_t n, int64_t k, int layout, tn_dtype round, bool split3)
{
    problem p = problem_new(m, n, k, 1, layout, TN_F32, TN_F32);
    p.g.kernel = u;
    p.g.round = round;
    p.g.bf16x3 = split3;
    tn_pool *pool = NULL;
    assert_ok(tn_pool_new(1, &pool));
    void *work = tn_alloc(tn_gemm_work_bytes(&p.g, 1));
    double best = 1e9;
    for (const double end = now_s() + 0.2; now_s() < end;) {
        const double start = now_s();
        tn_gemm_run(pool, &p.g, work);
        best = fmin(best, now_s() - start);
    }
    print_message("%-18s%s %4lld x %4lld x %4lld %s%s: %8.2f GFLOP/s\n", u->name, split3 ? " x3" : "   ", (long long)m,
                  (long long)n, (long long)k, layout & T_A ? "T" : "N", layout & T_B ? "T" : "N",
                  2e-9 * (double)(m * n * k) / best);
    tn_free(work);
    tn_pool_free(pool);
    problem_free(&p);
}

static void speed(void **state)
{
    (void)state;
    if (!getenv("TENON_BENCH")) skip();
    const tn_gemm_ukernel *u;
    for (int i = 0; (u = tn__gemm_kernel_at(i)); i++) {
        const bool bf16 = u->type == TN_BF16;
        const tn_dtype round = bf16 ? TN_BF16 : TN_F32;
        for (int layout = 0; layout < 3; layout++) speed_of(u, 1024, 1024, 1024, layout, round, false);
        speed_of(u, 256, 3072, 768, T_B, round, false);
        for (int64_t m = 1; m <= 8; m *= 2) speed_of(u, m, 1024, 1024, T_B, round, false);
        speed_of(u, 1, 1024, 1024, 0, round, false);
        if (bf16) speed_of(u, 1024, 1024, 1024, T_B, TN_F32, true);
    }
}

/* Whether a tile's sums live in C or aside does not show: rows of C far apart are not summed in place. */
static void sums_in_c(void **state)
{
    (void)state;
    enum { FAR = 20011 };
    static const int64_t depths[] = { 20, 256, 300 }, widths[] = { 4, 8, 24, 36, 40, 64, 256 };
    const tn_gemm_ukernel *u;
    tn_dtype round;
    for (int form = 0; next_form(&u, &round, &form);)
        for (int64_t i = 0; i < 3 * 7 * 4; i += TN_SANITIZED ? 5 : 2) { /* neither shares a factor with the lists */
            const int64_t m = 16 + 8 * (i % 3), n = widths[i / 3 % 7];
            problem p = problem_new(m, n, depths[i % 3], 1, GAP, TN_F32, TN_F32);
            p.g.kernel = u;
            p.g.round = round;
            p.g.accumulate = i / 21 % 2;
            if (i / 42) p.g.bias = p.bias;
            tn_gemm far = p.g;
            far.c_row = FAR;
            far.c = tn_alloc(sizeof(float) * (size_t)(m * FAR));
            assert_non_null(far.c);
            for (int64_t r = 0; r < m; r++)
                memcpy(far.c + r * FAR, p.c + r * p.g.c_row, sizeof(float) * (size_t)p.g.c_row);
            run(1, &p.g);
            run(1, &far);
            check(&p);
            for (int64_t r = 0; r < m; r++)
                assert_memory_equal(far.c + r * FAR, p.c + r * p.g.c_row, sizeof(float) * (size_t)p.g.c_row);
            tn_free(far.c);
            problem_free(&p);
        }
}

void tn_tests_gemm_kernels(tn_test_list *l)
{
    tn_test_add(l, names, NULL, "gemm_kernels: names");
    tn_test_add(l, shapes, NULL, "gemm_kernels: random shapes, types and epilogues");
    tn_test_add(l, edges, NULL, "gemm_kernels: across blocks and tiles");
    tn_test_add(l, odd_strides, NULL, "gemm_kernels: odd strides");
    tn_test_add(l, threads_do_not_matter, NULL, "gemm_kernels: one thread = many");
    tn_test_add(l, parts_of_the_whole, NULL, "gemm_kernels: a part has the bits of the whole");
    tn_test_add(l, strides_do_not_matter, NULL, "gemm_kernels: strides do not show");
    tn_test_add(l, sums_in_c, NULL, "gemm_kernels: sums in C or aside");
    tn_test_add(l, split, NULL, "gemm_kernels: bf16x3 is as near as fp32");
    tn_test_add(l, plain_twin, NULL, "gemm_kernels: portable_only is the plain twin");
    tn_test_add(l, packers, NULL, "gemm_kernels: bf16 packers");
    tn_test_add(l, packers_f32, NULL, "gemm_kernels: fp32 packers");
    tn_test_add(l, not_finite, NULL, "gemm_kernels: NaN and infinity");
    tn_test_add(l, speed, NULL, "gemm_kernels: bench speed");
}
