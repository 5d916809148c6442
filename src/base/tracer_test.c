/* The tracer: which steps, room that ends, several threads, the order and nesting of spans. */
#include "base/tracer.h"
#include "testlib.h"

#include <pthread.h>
#include <string.h>

static tn_tracer *open_one(int workers, int loaders, int64_t steps, int64_t warm_up, size_t events)
{
    tn_tracer *t = NULL;
    const tn_tracer_options o = {
        .workers = workers, .loaders = loaders, .steps = steps, .warm_up = warm_up, .events = events
    };
    assert_ok(tn_tracer_new(&o, &t));
    return t;
}

static void put(tn_tracer *t, const char *name, tn_event_kind kind, uint64_t begin, uint64_t end)
{
    tn_tracer_add(t, TN_TRACK_MAIN, &(tn_event){ .begin = begin, .end = end, .name = name, .kind = kind });
}

static void window(void **state)
{
    (void)state;
    tn_tracer *t = open_one(0, 0, 3, 2, 0);
    const tn_tracer_change expected[] = { TN_TRACER_SAME, TN_TRACER_SAME, TN_TRACER_BEGINS, TN_TRACER_SAME,
                                          TN_TRACER_SAME, TN_TRACER_ENDS, TN_TRACER_SAME };
    for (size_t i = 0; i < sizeof expected / sizeof *expected; i++) {
        assert_int_equal(tn_tracer_step(t), expected[i]);
        const uint64_t now = tn_tracer_clock(t);
        assert_true((now != 0) == (i >= 2 && i < 5));
        put(t, "step", TN_TRACED_STEP, now, 0);
    }
    const tn_event *e;
    assert_int_equal(tn_tracer_events(t, TN_TRACK_MAIN, &e), 3);
    assert_true(tn_tracer_traced(t) == 3 && tn_tracer_begun(t) <= e[0].begin && e[2].end <= tn_tracer_ended(t));
    assert_false(tn_tracer_stop(t));
    tn_tracer_restart(t, 0);
    assert_true(tn_tracer_events(t, TN_TRACK_MAIN, &e) == 0 && !tn_tracer_begun(t));
    assert_int_equal(tn_tracer_step(t), TN_TRACER_BEGINS);
    assert_true(tn_tracer_stop(t));
    tn_tracer_free(t);
    assert_int_equal(tn_tracer_step(NULL), TN_TRACER_SAME);
    assert_true(!tn_tracer_on(NULL) && tn_tracer_clock(NULL) == 0);
}

/* Ops beyond the room are counted; steps still have some. What began before tracing did is left out. */
static void room_ends(void **state)
{
    (void)state;
    tn_tracer *t = open_one(0, 0, 0, 0, 0); /* the least: 256 */
    const tn_event *e;
    size_t ops = 0;
    (void)tn_tracer_step(t);
    put(t, "early", TN_TRACED_OP, 0, 5);
    for (uint64_t i = 0; i < 300; i++) put(t, "op", TN_TRACED_OP, 10 * i + 1, 10 * i + 5);
    put(t, "step", TN_TRACED_STEP, 1, 4000);
    const size_t n = tn_tracer_events(t, TN_TRACK_MAIN, &e);
    for (size_t i = 0; i < n; i++) ops += e[i].kind == TN_TRACED_OP;
    assert_true(ops == 240 && n == 241);
    assert_int_equal(tn_tracer_dropped(t), 60);
    assert_string_equal(e[0].name, "step");
    for (int i = 0; i < 2000; i++) tn_tracer_count(t, TN_COUNTED_RESIDENT, i);
    const tn_counter *c;
    const size_t counters = tn_tracer_counters(t, &c);
    assert_true(counters > 0 && counters < 2000 && tn_tracer_dropped(t) == 60 + 2000 - counters);
    tn_tracer_free(t);
}

/* Spans are added when they end, inner ones first; of equal times the kind tells which holds the other. */
static void order(void **state)
{
    (void)state;
    tn_tracer *t = open_one(0, 0, 0, 0, 0);
    const char *const expected[] = { "step", "wait for data", "forward", "a", "b", "waits in b", "backward", "c" };
    const tn_event *e;
    (void)tn_tracer_step(t);
    put(t, "wait for data", TN_TRACED_WAIT, 10, 20);
    put(t, "a", TN_TRACED_OP, 20, 30);
    put(t, "waits in b", TN_TRACED_WAIT, 35, 40);
    put(t, "b", TN_TRACED_OP, 30, 40);
    put(t, "forward", TN_TRACED_PHASE, 20, 40);
    put(t, "c", TN_TRACED_OP, 40, 50);
    put(t, "backward", TN_TRACED_PHASE, 40, 50);
    put(t, "step", TN_TRACED_STEP, 10, 50);
    assert_int_equal(tn_tracer_events(t, TN_TRACK_MAIN, &e), 8);
    for (size_t i = 0; i < 8; i++) assert_string_equal(e[i].name, expected[i]);
    tn_tracer_free(t);
}

enum { EACH = 1000 };

static void *prepare(void *arg)
{
    tn_tracer *t = arg;
    for (int i = 0; i < EACH; i++) tn_tracer_add_batch(t, 0, tn_tracer_clock(t), i + 1);
    return NULL;
}

static void *compute(void *arg)
{
    tn_tracer *t = arg;
    for (int i = 0; i < EACH; i++) tn_tracer_add_pieces(t, 1, tn_tracer_clock(t), i % 2);
    return NULL;
}

/* Each thread has its track; a worker that got no piece has no span. */
static void threads(void **state)
{
    (void)state;
    tn_tracer *t = open_one(1, 1, 0, 0, EACH);
    pthread_t loader, worker;
    const tn_event *e;
    char name[TN_TRACK_NAME];
    (void)tn_tracer_step(t);
    tn_tracer_work_at(t, "linear", "layer0.ffn", true);
    assert_int_equal(pthread_create(&loader, NULL, prepare, t), 0);
    assert_int_equal(pthread_create(&worker, NULL, compute, t), 0);
    for (int i = 0; i < EACH / 2; i++) put(t, "op", TN_TRACED_OP, tn_tracer_clock(t), 0);
    pthread_join(loader, NULL);
    pthread_join(worker, NULL);
    assert_true(tn_tracer_stop(t));
    assert_true(tn_tracer_tracks(t) == 3 && tn_tracer_dropped(t) == 0);
    assert_int_equal(tn_tracer_events(t, 0, &e), EACH / 2);
    assert_int_equal(tn_tracer_events(t, 2, &e), EACH);
    for (int i = 0; i < EACH; i++) assert_true(e[i].number == i + 1 && e[i].begin <= e[i].end);
    assert_int_equal(tn_tracer_events(t, 1, &e), EACH / 2);
    assert_string_equal(e[0].name, "linear");
    assert_string_equal(e[0].where, "layer0.ffn");
    assert_true(e[0].backward && e[0].number == 1 && e[0].kind == TN_TRACED_PIECES);
    assert_string_equal(tn_tracer_track_name(t, 0, name), "main");
    assert_string_equal(tn_tracer_track_name(t, 1, name), "worker 1");
    assert_string_equal(tn_tracer_track_name(t, 2, name), "loader 1");
    tn_tracer_free(t);
}

static void resident(void **state)
{
    (void)state;
    tn_tracer *t = open_one(0, 0, 1, 0, 0);
    const tn_counter *c;
    tn_tracer_count_resident(t); /* before it begins: nothing */
    (void)tn_tracer_step(t);
    tn_tracer_count_resident(t);
    assert_int_equal(tn_tracer_counters(t, &c), 1);
    assert_true(c[0].kind == TN_COUNTED_RESIDENT && c[0].value > 1e5 && c[0].at >= tn_tracer_begun(t));
    tn_tracer_free(t);
}

void tn_tests_tracer(tn_test_list *l)
{
    tn_test_add(l, window, NULL, "tracer: steps behind warm-up");
    tn_test_add(l, room_ends, NULL, "tracer: room ends");
    tn_test_add(l, order, NULL, "tracer: order and nesting");
    tn_test_add(l, threads, NULL, "tracer: a track for each thread");
    tn_test_add(l, resident, NULL, "tracer: memory");
}
