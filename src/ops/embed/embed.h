/* embed: rows of a table by number.      y = tn_embed(g, tokens, table)      y[..., :] = table[tokens[...], :]
 *
 *     tokens i32, any shape; its live extent passes on      table (V,d) f32, bf16 or f16      y (tokens' shape, d)
 *
 * A token outside [0, V) is an error that names it. Gradient: the table's; rows of equal tokens are added up in the
 * order of the tokens whatever the threads, and when the gradient is added to what is there only rows that occur are
 * touched. */
#ifndef TN_OPS_EMBED_H
#define TN_OPS_EMBED_H

#include <tenon/op.h>

extern const tn_op tn_op_embed;

#define tn_embed(g, tokens, table) tn_embed_((g), __FILE__, __LINE__, (tokens), (table))
tn_ref tn_embed_(tn_graph *g, const char *file, int line, tn_ref tokens, tn_ref table);

#endif
