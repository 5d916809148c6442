/* Which kernel a finished program needs: code for all kinds of steps, or the short code of PLAIN ones; and how its
 * weights are streamed through shared memory. */
#include "plan/decode/decode.h"

#include "ops/gate/gate.h"
#include "ops/linear/linear.h"
#include "ops/norm/norm.h"

/* Places for the weights that a warp has under way: large enough for all that it makes of a product at once. Where that would leave less than
 * TN_DECODE_PLACES of them, PLAIN programs cut rows: two pieces are a place, and memory is read all the time. */
static void cut_into_places(tn_decode_program *p, bool plain)
{
    enum { TWO_ROWS = 4096 /* bytes, where two rows are better than one */, MORE = TN_DECODE_PLACES + 1 };
    const int room = p->stage_bytes / TN_DECODE_BACK / 16 * 16;
    int most = room / TN_DECODE_PLACES;
    for (int j = 0; j < p->staged_n; j++) {
        const tn_decode_step *s = &p->step[p->staged[j]];
        const int row = s->k * (int)tn_dtype_bytes((tn_dtype)s->in_type[1]),
                  at_once = s->flags & TN_DECODE_PAIRED || 2 * row <= TWO_ROWS ? 2 * row : row;
        if (at_once > most && (at_once <= room || plain)) most = at_once;
    }
    p->piece_bytes = plain && most > room / TN_DECODE_PLACES ? TN_DECODE_PIECE : 0;
    p->place_bytes = p->piece_bytes ? 2 * p->piece_bytes : most / 16 * 16;
    p->places = room / p->place_bytes < MORE ? room / p->place_bytes : MORE;
}

/* Inputs of norm and readout that are read two by two. */
static bool lies_in_pairs(const tn_decode_step *s)
{
    for (int k = 0; k < TN_DECODE_IN; k++)
        if (s->in[k] && (s->in_slot[k] >= 0 ? s->in_slot[k] % 2 != 0 : (uintptr_t)s->in[k] % 8 != 0)) return false;
    return true;
}

static bool is_plain_product(const tn_decode_step *s)
{
    const bool joined = s->flags & TN_DECODE_JOINED;
    if (s->in_type[1] != TN_BF16 || !s->out[0] || s->in[3] || !(s->flags & TN_DECODE_STAGED)) return false;
    return joined ? !s->in[2] && !s->kind
                  : s->kind == TN_ACT_NONE || s->kind == TN_ACT_SILU || s->kind == TN_ACT_SIGMOID;
}

/* joined: to the product before it. */
static bool is_plain(const tn_decode_step *s, bool joined)
{
    switch (s->op) {
    case TN_DECODE_LINEAR: return is_plain_product(s);
    case TN_DECODE_NORM: return s->kind == TN_NORM_RMS && !s->in[3] && lies_in_pairs(s);
    case TN_DECODE_READOUT: return s->kind != TN_GATE_GELU && lies_in_pairs(s);
    case TN_DECODE_CONV: return joined;
    case TN_DECODE_GATE: return joined && s->kind != TN_GATE_GELU;
    case TN_DECODE_SEEN: return s->in_type[1] == TN_BF16;
    default: return s->op != TN_DECODE_UNARY && s->op != TN_DECODE_BINARY;
    }
}

void tn_decode_finish(tn_decode_program *p)
{
    int longest = 1; /* that is summed over */
    bool plain = true;
    p->sees = false;
    for (int i = 0; i < p->n; i++) {
        const tn_decode_step *s = &p->step[i];
        plain = plain && is_plain(s, i && s[-1].flags & TN_DECODE_JOINED && s[-1].op == TN_DECODE_LINEAR);
        p->sees = p->sees || s->op == TN_DECODE_SEEN || s->op == TN_DECODE_ROPE || s->op == TN_DECODE_PUT;
        if ((s->op == TN_DECODE_NORM || s->op == TN_DECODE_READOUT) && s->n > longest) longest = s->n;
    }
    p->pairs = 1; /* ... 2 or 4 */
    while (p->pairs * 2 * TN_DECODE_FRONT < longest) p->pairs *= 2;
    if (!plain || p->pairs > TN_DECODE_PAIRS) p->pairs = 0;
    cut_into_places(p, p->pairs > 0);
    if (p->piece_bytes) p->pairs = TN_DECODE_PAIRS; /* the code that knows of pieces */
    p->sets = p->pairs == 1 ? 2 : 1;
}
