/* B packed ahead, by the caller or by the product itself for all its rows, and A kept packed for the tiles beside it: the
 * same bits as without, for every micro-kernel, and no byte beyond what was asked for. */
#include "backend/cpu/gemm_problem.h"

enum { PLAIN, ROUNDED, HALF, SPLIT, WAYS };

/* C of g without anything packed ahead; the caller frees it. */
static float *plain_result(const problem *p, int threads)
{
    const size_t bytes = p->c_count * sizeof(float);
    float *c = tn_alloc(bytes + 1);
    tn_gemm g = p->g;
    g.packed_b = NULL;
    g.share_b = false;
    memcpy(p->c, p->start, bytes);
    run(threads, &g);
    memcpy(c, p->c, bytes);
    memcpy(p->c, p->start, bytes);
    return c;
}

static void check_packed(problem *p, int threads, const char *kernel)
{
    const size_t packed = tn_gemm_packed_bytes(&p->g), bytes = p->c_count * sizeof(float);
    unsigned char *room = tn_alloc(packed + 64);
    float *want = plain_result(p, 1);
    tn_pool *pool = NULL;
    memset(room, 0xff, packed + 64);
    assert_ok(tn_pool_new(threads, &pool));
    tn_gemm_pack_b(pool, &p->g, room);
    tn_pool_free(pool);
    for (int i = 0; i < 64; i++) assert_int_equal(room[packed + (size_t)i], 0xff);
    p->g.packed_b = room;
    run(threads, &p->g);
    if (memcmp(want, p->c, bytes) != 0)
        fail_msg("%s, packed ahead: other bits at m=%lld n=%lld k=%lld", kernel, (long long)p->g.m, (long long)p->g.n,
                 (long long)p->g.k);
    tn_free(want);
    tn_free(room);
}

static void packed_ahead(void **state)
{
    (void)state;
    static const int64_t shape[][3] = { { 5, 7, 9 },     { 1, 70, 300 },  { 33, 130, 257 }, { 70, 29, 600 },
                                        { 300, 65, 40 }, { 12, 1, 1 },    { 3, 0, 5 },      { 9, 5, 0 },
                                        { 4, 100, 50 },  { 260, 280, 31 } };
    const tn_gemm_ukernel *u;
    for (int n = 0; (u = tn__gemm_kernel_at(n)); n++)
        for (size_t i = 0; i < sizeof shape / sizeof *shape; i++)
            for (int way = 0; way < (u->type == TN_BF16 ? WAYS : SPLIT);
                 way++) { /* a bf16 kernel rounds to bf16 in any case */
                problem p = problem_new(shape[i][0], shape[i][1], shape[i][2], 1, (int)(i + (size_t)way) % 8, TN_F32,
                                        (tn_dtype)(i % 3));
                p.g.kernel = u;
                p.g.round = way == ROUNDED ? TN_BF16 : way == HALF ? TN_F16 : TN_F32;
                p.g.bf16x3 = way == SPLIT;
                p.g.accumulate = i & 1;
                check_packed(&p, 1 + (int)i % 3, u->name);
                problem_free(&p);
            }
}

/* Several products with one B: b_batch 0. */
static void packed_for_a_batch(void **state)
{
    (void)state;
    problem p = problem_new(20, 40, 300, 3, T_B, TN_F32, TN_F32);
    p.g.b_batch = 0;
    p.g.bias = p.bias;
    p.g.act = TN_GEMM_ACT_SILU;
    check_packed(&p, 2, "best");
    problem_free(&p);
}

/* More rows than a tile, and B in one part or in several (k = 5000: a tile of columns is more than may be shared). */
static void shared_by_all_rows(void **state)
{
    (void)state;
    static const int64_t shape[][3] = { { 300, 70, 40 }, { 521, 600, 300 }, { 600, 1100, 1100 }, { 300, 300, 5000 } };
    const tn_gemm_ukernel *u;
    for (int n = 0; (u = tn__gemm_kernel_at(n)); n++)
        for (int i = 0; i < (TN_SANITIZED ? 1 : 4); i++)
            for (int threads = 1; threads <= 3; threads += 2) {
                problem p = problem_new(shape[i][0], shape[i][1], shape[i][2], 1, i % 4, TN_F32, TN_F32);
                p.g.kernel = u;
                p.g.bias = p.bias;
                float *want = plain_result(&p, 2);
                const tn_gemm plain = p.g;
                p.g.share_b = true;
                assert_true(tn_gemm_work_bytes(&p.g, threads) <=
                            tn_gemm_work_bytes(&plain, threads) + tn_gemm_share_bytes(&p.g));
                run(threads, &p.g);
                assert_memory_equal(want, p.c, p.c_count * sizeof(float));
                tn_free(want);
                problem_free(&p);
            }
}

/* Small tiles, many side by side: rows of A are packed once for all of them, unless all of k takes too much. */
static void rows_kept(void **state)
{
    (void)state;
    static const int64_t shape[][4] = {
        { 70, 200, 300, 1 }, { 131, 150, 600, 2 }, { 3, 100, 70, 1 }, { 64, 129, 1, 3 }, { 40, 70, 0, 1 }
    };
    static const size_t keep[] = { 0, 100 << 10, 1 << 20 };
    const tn_gemm_ukernel *u;
    for (int n = 0; (u = tn__gemm_kernel_at(n)); n++)
        for (size_t i = 0; i < sizeof shape / sizeof *shape; i++)
            for (size_t q = 0; q < sizeof keep / sizeof *keep; q += TN_SANITIZED ? 2 : 1)
                for (int split = 0; split < (u->type == TN_BF16 ? 2 : 1); split++) {
                    problem p =
                        problem_new(shape[i][0], shape[i][1], shape[i][2], shape[i][3], (int)i % 4, TN_F32, TN_F32);
                    tn_gemm_ukernel small = *u;
                    small.tile_m = 2 * u->mr;
                    small.tile_n = 2 * u->nr;
                    small.keep_bytes = keep[q];
                    p.g.kernel = u;
                    p.g.bf16x3 = split;
                    float *want = plain_result(&p, 1);
                    p.g.kernel = &small;
                    run(1 + (int)(i + q) % 3, &p.g);
                    assert_memory_equal(want, p.c, p.c_count * sizeof(float));
                    tn_free(want);
                    problem_free(&p);
                }
}

void tn_tests_gemm_packed(tn_test_list *l)
{
    tn_test_add(l, rows_kept, NULL, "gemm packed: rows of A kept, for every kernel");
    tn_test_add(l, packed_ahead, NULL, "gemm packed: ahead, for every kernel");
    tn_test_add(l, packed_for_a_batch, NULL, "gemm packed: one B for a batch");
    tn_test_add(l, shared_by_all_rows, NULL, "gemm packed: once for all rows");
}
