/* cuDNN where no GPU is needed: finding it, and graphs it understands. */
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
    for (int i = 0; i < 4; i++) {
        int64_t id[TN_SDPA_SLOTS] = { 0 };
        tn_dnn_graph g = { .lib = &lib };
        tn_sdpa_shape s = { .B = 2,
                            .T = 192,
                            .S = i & 1 ? 192 : 256,
                            .H = 6,
                            .KV = i & 2 ? 2 : 6,
                            .D = 72,
                            .causal = i & 1,
                            .has_lse = 1 };
        for (int k = 0; k < TN_SDPA_VIEWS; k++) s.step[k][0] = 256 * 6 * 72, s.step[k][1] = 6 * 72, s.step[k][2] = 72;
        tn_sdpa_compose(&g, &s, id);
        if (g.status != TN_OK && strstr(tn_error_text(), "SUBLIBRARY"))
            skip(); /* newer ones do not load without a driver */
        assert_ok(g.status);
        assert_true(g.n_ops > 8 && id[TN_SDPA_Q] && id[TN_SDPA_LSE]);
        assert_int_equal(id[TN_SDPA_HIDDEN] != 0, s.causal);
        tn_dnn_graph_clear(&g);
    }
    tn_cudnn_close(&lib);
}

void tn_tests_cudnn_attention(tn_test_list *l)
{
    tn_test_add(l, missing_file, NULL, "cudnn: a file that is not there is named");
    tn_test_add(l, graphs_are_understood, NULL, "cudnn: graphs of attention are understood");
}
