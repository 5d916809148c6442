/* The recurrence of scan_core.h where lambda and gain are per channel and channels fill whole lines of the cache: a run
 * of tokens of one document in one loop, with the same operations in the same order as scan_loops.h, so the same bits.
 *
 * Its loops store whole lines and nothing else. A core that sees only these sends results to memory without reading what
 * was there first; one store of a few bytes between them, a spilled register or a field of a struct, and it goes back
 * to reading (Neoverse-N1, a forward scan: 23 GB/s, with one such store every 16 tokens 13). After any change look for
 * stores to the stack in the loops' assembly, and at the rows "scan long" of `tenon bench ops`. */
#ifndef TN_OPS_SCAN_LINES_H
#define TN_OPS_SCAN_LINES_H

#include "ops/scan/scan_loops.h"

enum { TN_SCAN_LINE = 4 * TN_SCAN_GROUP }; /* channels: 64 bytes */

/* n tokens forward; s goes through all of them. x and c: the first token. */
void tn_scan_lines_forward(tn_scan_numbers *s, const tn_scan_coef *q, int64_t width, int64_t n, tn_scan_planes x,
                           tn_scan_planes c);

/* Whether tn_scan_lines_reverse has a loop of this form. */
static inline bool tn_scan_lines_reversible(tn_scan_reverse_form is)
{
    return is.dx && is.m && !is.add && is.gain == is.e;
}

/* n tokens backward, likewise; what `r` holds belongs to the first token. */
void tn_scan_lines_reverse(tn_scan_numbers *g, const tn_scan_coef *q, int64_t width, int64_t n,
                           const tn_scan_reverse *r, tn_scan_sums *sums, tn_scan_reverse_form is);

#endif
