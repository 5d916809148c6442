/* Times are there, of what was asked for: how long they are is the machine's. */
#include "report/wire/latency.h"

#include "wire_run.h"

static tn_status stop_at(void *ctx)
{
    int *left = ctx;
    return (*left)-- > 0 ? TN_OK : tn_error(TN_INTERRUPTED, "enough");
}

static void times(void **state)
{
    (void)state;
    wire_run w;
    tn_wire_latency l;
    int64_t texts = 0;
    wire_run_open(&w, "slots=3 private=1 train.batch=7"); /* of 5 texts: two come again */
    assert_ok(tn_wire_latency_measure(&w.s, 6, 2, NULL, NULL, &l));
    assert_true(l.batch == 7 && l.tokens == 6 && l.repeats == 2 && l.readers == 2);
    assert_string_equal(l.reader, "ab");
    assert_true(l.encode_ms > 0);
    for (int k = 0; k < 2; k++) {
        assert_true(l.text[k].prefill_ms > 0 && l.text[k].decode_ms > 0);
        assert_true(l.message[k].prefill_ms > 0 && l.message[k].decode_ms > 0);
        /* Of a message 4 slots and the anchor stand before BOS and the question, of a text its bytes and a line break. */
        const double question = l.message[k].positions - 5, text = l.text[k].positions - 1 - question;
        assert_true(question > 2 && text > 10);
        texts += (int64_t)text;
    }
    assert_true(texts > 0 && l.text[0].positions == l.text[1].positions); /* both read bytes */
    wire_run_close(&w);
}

/* An answer of as many tokens as fit; an interrupt ends it. */
static void limits(void **state)
{
    (void)state;
    wire_run w;
    tn_wire_latency l;
    wire_run_open(&w, "slots=3");
    int left = 3;
    assert_fails(tn_wire_latency_measure(&w.s, 4, 3, stop_at, &left, &l), TN_INTERRUPTED, "enough");
    assert_ok(tn_wire_latency_measure(&w.s, 500, 1, NULL, NULL, &l));
    assert_true(l.tokens < 128 && l.tokens > 50);
    wire_run_close(&w);
}

void tn_tests_latency(tn_test_list *l)
{
    tn_test_add(l, times, NULL, "wire latency: of text and message");
    tn_test_add(l, limits, NULL, "wire latency: its limits");
}
