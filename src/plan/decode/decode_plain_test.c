/* What a finished program asks of the kernel. */
#include "ops/gate/gate.h"
#include "ops/linear/linear.h"
#include "ops/norm/norm.h"
#include "plan/decode/decode.h"
#include "testlib.h"

#include <stdlib.h>

static _Alignas(16) float somewhere[4]; /* what addresses of inputs and outputs name; nothing is read */

static tn_decode_step step_of(tn_decode_op op, int n, int k)
{
    tn_decode_step s = { .op = (uint8_t)op, .n = n, .k = k, .in = { somewhere }, .out = { somewhere } };
    for (int i = 0; i < TN_DECODE_IN; i++) s.in_slot[i] = -1;
    return s;
}

static tn_decode_step product(int n, int k)
{
    tn_decode_step s = step_of(TN_DECODE_LINEAR, n, k);
    s.flags = TN_DECODE_SHARED | TN_DECODE_STAGED;
    s.in[1] = somewhere;
    s.in_type[1] = TN_BF16;
    return s;
}

static tn_decode_step with(tn_decode_step s, int input, int kind, int flags)
{
    if (input) s.in[input] = somewhere;
    s.kind = (uint8_t)kind;
    s.flags |= (uint8_t)flags;
    return s;
}

static tn_decode_step wide(tn_decode_step s)
{
    s.in_type[1] = TN_F32;
    return s;
}

static tn_decode_step unstaged(tn_decode_step s)
{
    s.flags = 0;
    return s;
}

static tn_decode_step odd(tn_decode_step s)
{
    s.in_slot[0] = 3;
    return s;
}

/* One program of these steps, finished. */
static tn_decode_program *finished(const tn_decode_step *step, int n)
{
    tn_decode_program *p = calloc(1, sizeof *p);
    assert_non_null(p);
    p->stage_bytes = 128 << 10;
    for (p->n = 0; p->n < n; p->n++) {
        p->step[p->n] = step[p->n];
        if (step[p->n].flags & TN_DECODE_STAGED) p->staged[p->staged_n++] = (uint8_t)p->n;
    }
    tn_decode_finish(p);
    return p;
}

static void asks(tn_decode_step s, int pairs, bool sees)
{
    tn_decode_program *p = finished(&s, 1);
    assert_true(p->pairs == pairs && p->sees == sees && p->sets == (pairs == 1 ? 2 : 1));
    free(p);
}

static void knows_plain_steps(void **state)
{
    (void)state;
    const tn_decode_step norm = step_of(TN_DECODE_NORM, 512, 0), seen = step_of(TN_DECODE_SEEN, 8, 64);
    asks(product(512, 512), 1, false);
    asks(with(product(512, 512), 2, TN_ACT_SIGMOID, 0), 1, false); /* the gates of a TEN */
    asks(with(product(512, 512), 2, TN_ACT_SILU, 0), 1, false);
    asks(with(product(512, 512), 2, TN_ACT_GELU, 0), 0, false);
    asks(with(product(512, 512), 3, 0, 0), 0, false);
    asks(with(product(512, 512), 2, 0, TN_DECODE_JOINED), 0, false);
    asks(wide(product(512, 512)), 0, false);
    asks(unstaged(product(8, 512)), 0, false);
    asks(norm, 1, false);
    asks(odd(norm), 0, false);
    asks(with(norm, 3, 0, 0), 0, false);
    asks(with(norm, 0, TN_NORM_LAYER, 0), 0, false);
    asks(step_of(TN_DECODE_NORM, 514, 0), 2, false);
    asks(step_of(TN_DECODE_NORM, 1024, 0), 2, false);
    asks(step_of(TN_DECODE_NORM, 1026, 0), 4, false);
    asks(step_of(TN_DECODE_NORM, 2048, 0), 4, false);
    asks(step_of(TN_DECODE_NORM, 2050, 0), 0, false);
    asks(with(step_of(TN_DECODE_READOUT, 512, 64), 0, TN_GATE_SIGMOID, 0), 1, false);
    asks(with(step_of(TN_DECODE_READOUT, 512, 64), 0, TN_GATE_GELU, 0), 0, false);
    asks(step_of(TN_DECODE_UNARY, 8, 0), 0, false);
    asks(step_of(TN_DECODE_CONV, 512, 4), 0, false); /* not joined to a product */
    asks(step_of(TN_DECODE_ROPE, 8, 64), 1, true);
    asks(wide(seen), 0, true);
    const tn_decode_step joined[] = { with(product(1024, 512), 0, 0, TN_DECODE_JOINED),
                                      step_of(TN_DECODE_CONV, 512, 4) };
    tn_decode_program *p = finished(joined, 2);
    assert_int_equal(p->pairs, 1);
    free(p);
}

/* Two rows of what is short, one of what is not, the two of a pair; and at least one place. Plain programs cut rows that would
 * leave fewer places. */
static void cuts_places(void **state)
{
    (void)state;
    static const struct {
        int k, flags, bytes, places, piece;
        bool whole; /* f32: not plain */
    } row[] = { { 512, 0, 5456, 3, 0, false },
                { 1024, TN_DECODE_PAIRED, 5456, 3, 0, false },
                { 2736, 0, 4096, 4, 2048, false },
                { 8192, 0, 4096, 4, 2048, false },
                { 2048, TN_DECODE_PAIRED, 4096, 4, 2048, false },
                { 8192, TN_DECODE_PAIRED, 4096, 4, 2048, false },
                { 256, 0, 5456, 3, 0, true },
                { 1368, 0, 5472, 2, 0, true },
                { 1368, TN_DECODE_PAIRED, 10944, 1, 0, true },
                { 4096, 0, 16384, 1, 0, true },
                { 8192, 0, 5456, 3, 0, true } /* read where it lies */ };
    for (size_t i = 0; i < sizeof row / sizeof *row; i++) {
        const tn_decode_step s = with(product(4096, row[i].k), 0, 0, row[i].flags), whole = wide(s);
        tn_decode_program *p = finished(row[i].whole ? &whole : &s, 1);
        assert_int_equal(p->place_bytes, row[i].bytes);
        assert_int_equal(p->places, row[i].places);
        assert_int_equal(p->piece_bytes, row[i].piece);
        assert_int_equal(p->pairs, row[i].whole ? 0 : row[i].piece ? TN_DECODE_PAIRS : 1);
        assert_true(p->place_bytes % 16 == 0 && TN_DECODE_BACK * p->places * p->place_bytes <= p->stage_bytes);
        free(p);
    }
}

void tn_tests_decode_plain(tn_test_list *l)
{
    tn_test_add(l, knows_plain_steps, NULL, "decode kernel: which steps are plain");
    tn_test_add(l, cuts_places, NULL, "decode kernel: places for weights");
}
