/* Runs that follow one another without the host (tn_bound_chain): the same numbers as when the host feeds each run. */
#include "plan/plan_internal.h"
#include "world.h"

#include <tenon/ops.h>

enum { V = 23, D = 6, B = 3, RUNS = 21 };

/* next = argmax of W (table[tokens] + table[step]): both inputs decide. */
static tn_bound *add_walk(tn_world *w)
{
    tn_graph *g = tn_world_graph(&(tn_graph_options){ .threads = 1 });
    const tn_ref tokens = tn_input(g, "tokens", tn_shape(B, 1), TN_I32),
                 step = tn_input(g, "step", tn_shape(B, 1), TN_I32);
    const tn_ref table = tn_param(g, "table", tn_shape(V, D), tn_normal(1)),
                 W = tn_param(g, "W", tn_shape(V, D), tn_normal(1));
    const tn_ref h = tn_add(g, tn_embed(g, tokens, table), tn_embed(g, step, table));
    tn_output(g, "next", tn_argmax(g, tn_linear(g, h, W)));
    return tn_world_add(w, g, &(tn_compile_options){ .threads = 1 });
}

static void begin(tn_bound *b)
{
    int32_t *tokens = tn_bound_data(b, "tokens"), *step = tn_bound_data(b, "step");
    for (int i = 0; i < B; i++) tokens[i] = 5 * i + 1, step[i] = 1;
}

/* What the host finds when it feeds every run itself. */
static void by_hand(tn_bound *b, int32_t (*found)[B])
{
    int32_t *tokens = tn_bound_data(b, "tokens"), *step = tn_bound_data(b, "step");
    begin(b);
    for (int r = 0; r < RUNS; r++) {
        assert_ok(tn_run(b));
        memcpy(found[r], tn_bound_data(b, "next"), sizeof found[r]);
        for (int i = 0; i < B; i++) tokens[i] = found[r][i], step[i]++;
    }
}

static void follow_one_another(void **state)
{
    (void)state;
    tn_world w = tn_world_open(1, 1);
    tn_bound *b = add_walk(&w);
    int32_t found[RUNS][B], log[1 + RUNS * B];
    const tn_chain chain = { .input = "tokens",
                             .output = "next",
                             .counter = { "not there", "not there", "not there", "not there", "step" },
                             .step = 1,
                             .log = log };
    by_hand(b, found);
    for (int again = 0; again < 2; again++) { /* the second begins anew, and is timed */
        tn_bound_timers(b, again);
        memset(log, 0x7f, sizeof log);
        begin(b);
        assert_ok(tn_bound_chain(b, &chain));
        assert_ok(tn_run(b));
        assert_ok(tn_run_chain(b, RUNS - 1));
        assert_ok(tn_bound_chain(b, NULL));
        assert_int_equal(log[0], RUNS);
        assert_memory_equal(log + 1, found, sizeof found);
        assert_int_equal(((int32_t *)tn_bound_data(b, "step"))[B - 1], 1 + RUNS);
    }
    begin(b);
    assert_ok(tn_run(b)); /* no longer: nothing is put aside */
    assert_int_equal(log[0], RUNS);
    assert_memory_equal(tn_bound_data(b, "next"), found[0], sizeof found[0]);
    tn_world_close(&w);
}

/* Counters that stay, and names that the plan has not. */
static void of_other_names(void **state)
{
    (void)state;
    tn_world w = tn_world_open(1, 1);
    tn_bound *b = add_walk(&w);
    int32_t log[1 + RUNS * B];
    begin(b);
    assert_ok(tn_bound_chain(
        b, &(tn_chain){ .input = "tokens", .output = "next", .counter = { "step" }, .step = 0, .log = log }));
    assert_ok(tn_run_chain(b, 4));
    assert_true(log[0] == 4 && ((int32_t *)tn_bound_data(b, "step"))[0] == 1);
    assert_ok(tn_bound_chain(b, &(tn_chain){ .input = "letters", .output = "next", .log = log }));
    assert_int_equal(tn_run(b), TN_INTERNAL);
    assert_ok(tn_bound_chain(b, &(tn_chain){ .input = "tokens", .output = "last", .log = log }));
    assert_int_equal(tn_run(b), TN_INTERNAL);
    tn_world_close(&w);
}

void tn_tests_chain(tn_test_list *l)
{
    tn_test_add(l, follow_one_another, NULL, "chain: runs follow one another");
    tn_test_add(l, of_other_names, NULL, "chain: counters that stay, names that are not there");
}
