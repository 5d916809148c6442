/* Which keys a query sees: one interval per query, and within it the keys of the same document. Shared by the tiled
 * kernels and their plain twin. */
#ifndef TN_OPS_ATTENTION_MASK_H
#define TN_OPS_ATTENTION_MASK_H

#include "ops/attention/attention.h"

enum { TN_ATT_Q, TN_ATT_K, TN_ATT_V, TN_ATT_LENGTHS, TN_ATT_KV_LENGTH, TN_ATT_DOCUMENT, TN_ATT_INPUTS };

typedef struct tn_attention_mask {
    int64_t T, S;
    const int32_t *keys; /* valid keys, before lengths: of all, or (B) of each with keys_b 1; NULL: S */
    int64_t keys_b;
    int64_t window; /* 0 = none */
    bool causal;
    const int32_t *lengths;  /* (B) or NULL */
    const int32_t *document; /* (B,T) with these strides, or NULL */
    int64_t document_b, document_t;
} tn_attention_mask;

tn_status tn_attention_mask_make(const tn_call *c, tn_attention_mask *m);

/* The interval [*first, *end) of keys for query t of sequence b; both grow with t. */
static inline void tn_attention_range(const tn_attention_mask *m, int64_t b, int64_t t, int64_t *first, int64_t *end)
{
    const int64_t keys = m->keys ? m->keys[b * m->keys_b] : m->S, p = keys - m->T + t;
    int64_t lo = 0, hi = keys;
    if (m->lengths && m->lengths[b] < hi) hi = m->lengths[b];
    if (m->causal && p + 1 < hi) hi = p + 1;
    if (m->window && p + m->window < hi) hi = p + m->window;
    if (m->window && p - m->window + 1 > lo) lo = p - m->window + 1;
    *end = hi < 0 ? 0 : hi;
    *first = lo < *end ? lo : *end;
}

static inline bool tn_attention_same(const tn_attention_mask *m, int64_t b, int64_t t, int64_t s)
{
    const int32_t *d = m->document + b * m->document_b;
    return d[t * m->document_t] == d[s * m->document_t];
}

extern const tn_op tn_op_attention_plain;
tn_kernel tn_attention_forward_cpu, tn_attention_backward_cpu, tn_attention_plain_forward_cpu,
    tn_attention_plain_backward_cpu;
size_t tn_attention_work_cpu(const tn_sig *s, bool backward);
size_t tn_attention_plain_work_cpu(const tn_sig *s, bool backward);
tn_kernel tn_attention_forward_cuda, tn_attention_backward_cuda, tn_attention_plain_forward_cuda,
    tn_attention_plain_backward_cuda;
size_t tn_attention_work_cuda(const tn_sig *s, bool backward);
size_t tn_attention_plain_work_cuda(const tn_sig *s, bool backward);
/* Without cuDNN. */
tn_kernel tn_attention_forward_own_cuda;
size_t tn_attention_work_own_cuda(const tn_sig *s, bool backward);

#endif
