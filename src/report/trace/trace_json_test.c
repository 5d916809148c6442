/* A trace file of made-up spans: JSON, names, tracks of streams, and the busy share that tn_trace_sum has. */
#include "report/trace/trace_json.h"
#include "report/trace/trace.h"
#include "testlib.h"

#include <jansson.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

/* Text of a trace of a tracer and spans that begin `at` nanoseconds behind its begin. */
static json_t *written(tn_tracer *t, const char *title, const tn_span *spans, size_t n)
{
    char *text = NULL;
    size_t bytes;
    json_error_t err;
    FILE *f = open_memstream(&text, &bytes);
    assert_non_null(f);
    assert_ok(tn_trace_write(&(tn_trace_file){ title, t, spans, n }, f));
    fclose(f);
    json_t *root = json_loadb(text, bytes, JSON_REJECT_DUPLICATES, &err);
    if (!root) fail_msg("%s at %d: %.200s", err.text, err.line, text + (err.position > 100 ? err.position - 100 : 0));
    free(text);
    return root;
}

static tn_tracer *begun(uint64_t *start)
{
    tn_tracer *t = NULL;
    assert_ok(tn_tracer_new(&(tn_tracer_options){ .workers = 1, .steps = 1 }, &t));
    (void)tn_tracer_step(t);
    *start = tn_tracer_begun(t);
    return t;
}

/* The i-th event of this phase and name. */
static const json_t *event(const json_t *root, const char *phase, const char *name, size_t i)
{
    size_t k;
    json_t *e;
    json_array_foreach(json_object_get(root, "traceEvents"), k, e)
    {
        if (strcmp(json_string_value(json_object_get(e, "ph")), phase) == 0 &&
            strcmp(json_string_value(json_object_get(e, "name")), name) == 0 && i-- == 0)
            return e;
    }
    return NULL;
}

static double number(const json_t *e, const char *key) { return json_number_value(json_object_get(e, key)); }

static const char *arg(const json_t *e, const char *key)
{
    return json_string_value(json_object_get(json_object_get(e, "args"), key));
}

static void names_are_escaped(void **state)
{
    (void)state;
    uint64_t start;
    tn_tracer *t = begun(&start);
    tn_tracer_add(t, TN_TRACK_MAIN,
                  &(tn_event){ .begin = start + 1234567,
                               .end = start + 1235568,
                               .name = "a\"b\\c\n",
                               .where = "<l\xc3\xa4yer>\xff",
                               .flops = 1e15,
                               .bytes = 4096,
                               .kind = TN_TRACED_OP,
                               .backward = true });
    tn_tracer_stop(t);
    json_t *root = written(t, "run \"<\\/\x01", NULL, 0);
    const json_t *e = event(root, "X", "a\"b\\c\n", 0);
    assert_non_null(e);
    assert_float_equal(number(e, "ts"), 1234.567, 1e-9);
    assert_float_equal(number(e, "dur"), 1.001, 1e-9);
    assert_string_equal(arg(e, "region"), "<l\xc3\xa4yer>\xef\xbf\xbd");
    assert_string_equal(arg(e, "pass"), "backward");
    assert_true(number(json_object_get(e, "args"), "flop") == 1e15);
    assert_string_equal(arg(event(root, "M", "process_name", 0), "name"), "run \"<\\/\x01");
    assert_string_equal(arg(event(root, "M", "thread_name", 1), "name"), "worker 1");
    json_decref(root);
    tn_tracer_free(t);
}

/* Cores computing: ops of the main thread but for their waits, and pieces of the worker, of two cores. */
static void cores(void **state)
{
    (void)state;
    uint64_t start;
    tn_tracer *t = begun(&start);
    const uint64_t ms = 1000000;
    tn_tracer_add(t, 0,
                  &(tn_event){ .begin = start + 30 * ms, .end = start + 40 * ms, .name = "w", .kind = TN_TRACED_WAIT });
    tn_tracer_add(t, 0, &(tn_event){ .begin = start, .end = start + 60 * ms, .name = "op", .kind = TN_TRACED_OP });
    tn_tracer_add(t, 1, &(tn_event){ .begin = start, .end = start + 30 * ms, .name = "op", .kind = TN_TRACED_PIECES });
    tn_tracer_stop_at(t, start + 100 * ms);
    json_t *root = written(t, "t", NULL, 0);
    const json_t *first = event(root, "C", "cores computing", 0), *second = event(root, "C", "cores computing", 1);
    assert_float_equal(number(json_object_get(first, "args"), "percent"), 70, 1e-3);  /* 40 + 30 of 100 ms */
    assert_float_equal(number(json_object_get(second, "args"), "percent"), 10, 1e-3); /* 10 of 100 ms */
    json_decref(root);
    tn_tracer_free(t);
}

static void device(void **state)
{
    (void)state;
    uint64_t s;
    tn_tracer *t = begun(&s);
    tn_span spans[] = {
        { .begin = s + 1000,
          .end = s + 9000,
          .kind = TN_SPAN_KERNEL,
          .name = "_Z4gemmv",
          .stream = 7,
          .correlation = 1 },
        { .begin = s + 5000, .end = s + 12000, .kind = TN_SPAN_KERNEL, .name = "norm", .stream = 7 }, /* overlaps */
        { .begin = s + 20000, .end = s + 25000, .kind = TN_SPAN_COPY, .stream = 8, .bytes = 64 },
        { .begin = s + 500, .end = s + 900, .kind = TN_SPAN_CALL, .name = "cudaGraphLaunch", .correlation = 1 },
        { .begin = s + 26000, .end = s + 30000, .kind = TN_SPAN_CALL, .name = "cudaStreamSynchronize" },
        { .begin = s + 26500, .end = s + 29000, .kind = TN_SPAN_WAIT },
        { .begin = s - 50, .end = s + 2, .kind = TN_SPAN_KERNEL, .name = "early", .stream = 7 },
    };
    const size_t n = sizeof spans / sizeof *spans;
    tn_tracer_stop_at(t, s + 40000);
    tn_trace_sort(spans, n);
    const tn_trace sum = tn_trace_sum(spans, n);
    json_t *root = written(t, "t", spans, n);
    const json_t *gemm = event(root, "X", "gemm", 0), *norm = event(root, "X", "norm", 0),
                 *copy = event(root, "X", "Memcpy", 0), *call = event(root, "X", "cudaGraphLaunch", 0),
                 *sync = event(root, "X", "cudaStreamSynchronize", 0),
                 *wait = event(root, "X", "wait for the device", 0);
    assert_true(gemm && norm && copy && call && sync && wait && !event(root, "X", "early", 0));
    assert_string_equal(json_string_value(json_object_get(gemm, "cat")), "kernel");
    assert_string_equal(json_string_value(json_object_get(call, "cat")), "cuda_runtime");
    assert_true(number(gemm, "tid") != number(norm, "tid")); /* of one stream: they overlap */
    assert_true(number(sync, "tid") == number(wait, "tid")); /* one within the other */
    assert_true(number(json_object_get(gemm, "args"), "stream") == 7 &&
                number(json_object_get(norm, "args"), "stream") == 7);
    assert_true(number(json_object_get(gemm, "args"), "correlation") ==
                number(json_object_get(call, "args"), "correlation"));
    assert_true(number(json_object_get(copy, "args"), "bytes") == 64);
    /* 40 us in one bin: the counter is what tn_trace_sum says, without what was before. */
    const double percent = number(json_object_get(event(root, "C", "GPU computing", 0), "args"), "percent");
    assert_float_equal(percent, 100 * (sum.busy_s - 50e-9) / 40e-6, 1e-2);
    json_decref(root);
    tn_tracer_free(t);
}

void tn_tests_trace_json(tn_test_list *l)
{
    tn_test_add(l, names_are_escaped, NULL, "trace_json: names and numbers");
    tn_test_add(l, cores, NULL, "trace_json: cores computing");
    tn_test_add(l, device, NULL, "trace_json: streams and calls");
}
