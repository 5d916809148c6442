/* cuDNN where no GPU is needed: finding it, graphs it understands, portions of heads. */
#include "backend/cuda/cudnn_attention.h"

#include "backend/cuda/cudnn_sdpa.h"
#include "testlib.h"

#include <stdlib.h>
#include <string.h>

static void missing_file(void **state)
{
    (void)state;
    tn_cudnn lib;
    const char *before = getenv("TENON_CUDNN");
    char *kept = before ? strdup(before) : NULL;
    setenv("TENON_CUDNN", "/nowhere/libcudnn.so.9", 1);
    assert_true(tn_cudnn_asked_for());
    assert_fails(tn_cudnn_open(&lib), TN_USAGE, "/nowhere/libcudnn.so.9");
    if (kept) setenv("TENON_CUDNN", kept, 1);
    else unsetenv("TENON_CUDNN");
    free(kept);
}

/* Every operation is checked by cuDNN when it is finished; whether there is a kernel, only a GPU can tell. */
static void graphs_are_understood(void **state)
{
    (void)state;
    tn_cudnn lib;
    if (tn_cudnn_open(&lib) != TN_OK) skip();
    for (int i = 0; i < 8; i++) {
        int64_t id[TN_SDPA_SLOTS] = { 0 };
        const bool backward = i & 1;
        tn_dnn_graph g = { .lib = &lib };
        tn_sdpa_shape s = { .B = 2, .T = 192, .S = i & 2 ? 192 : 256, .H = 6, .KV = i & 4 ? 2 : 6, .D = 72, .causal = i & 2 ? 1 : 0,
                            .backward = backward, .has_lse = 1 };
        for (int k = 0; k < TN_SDPA_VIEWS; k++) s.step[k][0] = 256 * 6 * 72, s.step[k][1] = 6 * 72, s.step[k][2] = 72;
        tn_sdpa_compose(&g, &s, id);
        if (g.status != TN_OK && strstr(tn_error_text(), "SUBLIBRARY")) skip(); /* newer ones do not load without a driver */
        assert_ok(g.status);
        assert_true(g.n_ops > 8 && id[TN_SDPA_Q] && id[TN_SDPA_LSE] && (id[TN_SDPA_DQ] != 0) == backward);
        assert_int_equal(id[TN_SDPA_HIDDEN] != 0, s.causal);
        tn_dnn_graph_clear(&g);
    }
    tn_cudnn_close(&lib);
}

static void portions_fit(void **state)
{
    (void)state;
    const tn_dnn_size n = { 8, 1000, 1000, 12, 4, 64 };
    const size_t head = 2u * 1024 * 1024, group = 3 * head; /* gradients of scores, in whole tiles */
    assert_int_equal(tn_dnn_attention_work(&n, true, group), 0);
    const size_t one = tn_dnn_attention_work(&n, true, 2 * group), all = tn_dnn_attention_work(&n, true, (size_t)1 << 40);
    assert_true(one > group && one <= 2 * group);
    assert_true(all > 8 * 12 * head && all < 8 * 12 * head * 5 / 4);
    for (size_t most = group; most < 2 * all; most += group) assert_true(tn_dnn_attention_work(&n, true, most) <= most);
    assert_true(tn_dnn_attention_work(&n, false, 0) > 256);
}

void tn_tests_cudnn_attention(tn_test_list *l)
{
    tn_test_add(l, missing_file, NULL, "cudnn: a file that is not there is named");
    tn_test_add(l, graphs_are_understood, NULL, "cudnn: graphs of attention are understood");
    tn_test_add(l, portions_fit, NULL, "cudnn: portions of heads fit the work");
}
