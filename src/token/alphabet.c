/* GPT-2's alphabet of bytes, and the trie of added tokens: what loaders and the encoder share. */
#include "token/tokenizer_impl.h"

#include "base/alloc.h"

/* Printable Latin-1 stands for itself; the other 68 bytes are U+0100 and up, in their order. */
static bool stands_for_itself(unsigned b) { return (b >= 33 && b <= 126) || (b >= 161 && b <= 172) || b >= 174; }

uint32_t tn__byte_char(unsigned byte)
{
    uint32_t code = 256;
    if (stands_for_itself(byte)) return byte;
    for (unsigned b = 0; b < byte; b++) code += !stands_for_itself(b);
    return code;
}

int tn__char_byte(uint32_t code)
{
    if (code < 256) return stands_for_itself(code) ? (int)code : -1;
    if (code >= 256 + 68) return -1;
    uint32_t at = 256;
    for (unsigned b = 0; b < 256; b++)
        if (!stands_for_itself(b) && at++ == code) return (int)b;
    return -1;
}

bool tn__bytes_from_alphabet(const char *text, size_t bytes, char *out, size_t *n)
{
    *n = 0;
    for (size_t i = 0, k; i < bytes; i += k) {
        const int b = tn__char_byte(tn_utf8_get((const unsigned char *)text + i, &k));
        if (b < 0) return false;
        out[(*n)++] = (char)b;
    }
    return true;
}

void tn__trie_free(tn_trie *x)
{
    tn_free(x->edge);
    tn_free(x->added);
    *x = (tn_trie){ 0 };
}

/* The slot of an edge, or the free one where it would go. */
static struct tn_trie_edge *edge_at(const tn_trie *x, uint32_t node, unsigned char byte)
{
    const uint32_t key = (node << 8 | byte) + 1;
    size_t i = tn_mix(key * 0x9e3779b97f4a7c15u) & (x->slots - 1);
    while (x->edge[i].node && x->edge[i].node != key) i = (i + 1) & (x->slots - 1);
    return x->edge + i;
}

static tn_status grow_edges(tn_trie *x)
{
    tn_trie old = *x;
    const size_t more = old.slots ? 2 * old.slots : 1024;
    struct tn_trie_edge *edge = tn_alloc(more * sizeof *edge);
    if (!edge) return TN_MEMORY;
    x->edge = edge;
    x->slots = more;
    for (size_t i = 0; i < old.slots; i++)
        if (old.edge[i].node)
            *edge_at(x, (old.edge[i].node - 1) >> 8, (unsigned char)(old.edge[i].node - 1)) = old.edge[i];
    tn_free(old.edge);
    return TN_OK;
}

static tn_status new_node(tn_trie *x, uint32_t *node)
{
    void *p = x->added;
    if (x->nodes >= TN_TRIE_NODES_MAX)
        return tn_error(TN_BAD_FILE, "the added tokens have more than %d KiB of text; the file is damaged",
                        TN_TRIE_NODES_MAX >> 10);
    if (x->nodes == x->node_capacity) {
        TN_RETURN_IF(tn_grow(&p, &x->node_capacity, x->nodes ? 2 * x->nodes : 256, sizeof *x->added));
        x->added = p;
    }
    *node = (uint32_t)x->nodes++;
    return TN_OK;
}

tn_status tn__trie_put(tn_trie *x, const char *text, size_t bytes, uint32_t index)
{
    uint32_t node = 0;
    if (x->nodes == 0) TN_RETURN_IF(new_node(x, &node));
    x->starts[(unsigned char)text[0]] = true;
    for (size_t i = 0; i < bytes; i++) {
        if (2 * (x->nodes + 1) > x->slots) TN_RETURN_IF(grow_edges(x));
        struct tn_trie_edge *e = edge_at(x, node, (unsigned char)text[i]);
        if (!e->node) {
            uint32_t to = 0;
            TN_RETURN_IF(new_node(x, &to));
            *e = (struct tn_trie_edge){ (node << 8 | (unsigned char)text[i]) + 1, to };
        }
        node = e->to;
    }
    if (!x->added[node]) x->added[node] = index + 1;
    return TN_OK;
}

int64_t tn__trie_match(const tn_trie *x, const char *p, size_t left, size_t *bytes)
{
    uint32_t node = 0;
    int64_t found = -1;
    for (size_t i = 0; i < left; i++) {
        const struct tn_trie_edge *e = edge_at(x, node, (unsigned char)p[i]);
        if (!e->node) break;
        node = e->to;
        if (x->added[node]) {
            found = (int64_t)x->added[node] - 1;
            *bytes = i + 1;
        }
    }
    return found;
}
