/* Reads llama2.c checkpoints. The header is bounded before sizes are multiplied, and the file must have exactly the
 * size it implies. */
#include "io/llama2c.h"

#include "base/fs.h"
#include "io/safetensors.h"

#include <stdio.h>
#include <string.h>

enum { HEADER = 7 * 4, MOST_PARTS = 3 };

/* Where the tensors lie, in floats after the header. */
typedef struct layout {
    int64_t embed, norm1, q, k, v, out, norm2, w1, w2, w3, norm_f, head, end;
} layout;

static layout layout_of(const tn_llama2c *h)
{
    const int64_t d = h->dim, L = h->layers, D = d / h->heads, kv = h->kv_heads * D, f = h->ffn;
    layout o = { .embed = 0 };
    o.norm1 = h->vocab * d;
    o.q = o.norm1 + L * d;
    o.k = o.q + L * d * d;
    o.v = o.k + L * kv * d;
    o.out = o.v + L * kv * d;
    o.norm2 = o.out + L * d * d;
    o.w1 = o.norm2 + L * d;
    o.w2 = o.w1 + L * f * d;
    o.w3 = o.w2 + L * d * f;
    o.norm_f = o.w3 + L * f * d;
    o.head = o.norm_f + d + h->context * (D / 2) * 2;
    o.end = o.head + (h->tied ? 0 : h->vocab * d);
    return o;
}

/* --- header ------------------------------------------------------------------------------------------------------- */

static tn_status check_range(const char *path, const char *name, int64_t x, int64_t most)
{
    if (x >= 1 && x <= most) return TN_OK;
    return tn_error(TN_BAD_FILE,
                    "%s: its header says %s is %lld, outside 1 to %lld: not a llama2.c checkpoint of the first format",
                    path, name, (long long)x, (long long)most);
}

static tn_status check_header(const char *path, const tn_llama2c *h, size_t bytes)
{
    TN_RETURN_IF(check_range(path, "dim", h->dim, 65536));
    TN_RETURN_IF(check_range(path, "the inner width", h->ffn, 1000000));
    TN_RETURN_IF(check_range(path, "the number of layers", h->layers, 1024));
    TN_RETURN_IF(check_range(path, "the number of heads", h->heads, 1024));
    TN_RETURN_IF(check_range(path, "the number of key heads", h->kv_heads, h->heads));
    TN_RETURN_IF(check_range(path, "the vocabulary", h->vocab, 10000000));
    TN_RETURN_IF(check_range(path, "the context", h->context, 1000000000));
    if (h->dim % h->heads || h->dim / h->heads % 2 || h->heads % h->kv_heads)
        return tn_error(TN_BAD_FILE,
                        "%s: %lld numbers cannot be %lld heads on %lld key heads: not a llama2.c checkpoint", path,
                        (long long)h->dim, (long long)h->heads, (long long)h->kv_heads);
    const int64_t want = HEADER + 4 * layout_of(h).end;
    if ((uint64_t)want != bytes)
        return tn_error(TN_BAD_FILE,
                        "%s is %zu bytes, its header promises %lld: it was cut short, or has another format", path,
                        bytes, (long long)want);
    return TN_OK;
}

static tn_status read_header(const char *path, const tn_map *m, tn_llama2c *out)
{
    int32_t x[7];
    if (m->bytes < HEADER)
        return tn_error(TN_BAD_FILE, "%s is %zu bytes: too short for a llama2.c checkpoint", path, m->bytes);
    memcpy(x, m->data, sizeof x);
    const tn_llama2c h = { .dim = x[0],
                           .ffn = x[1],
                           .layers = x[2],
                           .heads = x[3],
                           .kv_heads = x[4],
                           .vocab = x[5] < 0 ? -(int64_t)x[5] : x[5],
                           .context = x[6],
                           .tied = x[5] > 0 };
    TN_RETURN_IF(check_header(path, &h, m->bytes));
    *out = h;
    return TN_OK;
}

tn_status tn_llama2c_read(const char *path, tn_llama2c *out)
{
    tn_map m = { 0 };
    TN_RETURN_IF(tn_file_map(path, &m));
    const tn_status s = read_header(path, &m, out);
    tn_file_unmap(&m);
    return s;
}

const char *tn_llama2c_settings(const tn_llama2c *h, char *buf, size_t bytes)
{
    snprintf(buf, bytes,
             "shape=llama dim=%lld layers=%lld heads=%lld kv_heads=%lld ffn=%lld vocab=%lld tied=%s norm_eps=1e-5 "
             "rope_base=10000 rope_pairs=interleaved train.context=%lld",
             (long long)h->dim, (long long)h->layers, (long long)h->heads, (long long)h->kv_heads, (long long)h->ffn,
             (long long)h->vocab, h->tied ? "true" : "false", (long long)h->context);
    return buf;
}

/* --- tensors ------------------------------------------------------------------------------------------------------ */

/* One tensor of ours: pieces of the file one after another. */
typedef struct piece {
    int64_t at, count; /* floats */
} piece;

typedef struct target {
    tn_safetensors_writer *w;
    const unsigned char *data; /* after the header */
    bool put;                  /* the second pass: numbers; the first declares */
} target;

static tn_status give(const target *t, const char *name, tn_dims dims, const piece *pieces)
{
    if (!t->put) return tn_safetensors_writer_declare(t->w, name, TN_F32, dims);
    for (int i = 0; i < MOST_PARTS && pieces[i].count; i++) {
        const unsigned char *from = t->data + 4 * pieces[i].at;
        const size_t bytes = 4 * (size_t)pieces[i].count;
        TN_RETURN_IF(tn_safetensors_writer_put(t->w, name, from, bytes));
        tn_give_back(from, bytes);
    }
    return TN_OK;
}

static tn_status give_layer(const target *t, const tn_llama2c *h, const layout *o, int64_t l)
{
    const int64_t d = h->dim, f = h->ffn, kv = h->kv_heads * (d / h->heads), dd = d * d, kd = kv * d, fd = f * d;
    const struct {
        const char *name;
        tn_dims dims;
        piece from[MOST_PARTS];
    } rows[] = {
        { "norm1.w", tn_shape(d), { { o->norm1 + l * d, d } } },
        { "attn.w_qkv",
          tn_shape(d + 2 * kv, d),
          { { o->q + l * dd, dd }, { o->k + l * kd, kd }, { o->v + l * kd, kd } } },
        { "attn.w_out", tn_shape(d, d), { { o->out + l * dd, dd } } },
        { "norm2.w", tn_shape(d), { { o->norm2 + l * d, d } } },
        { "ffn.w1", tn_shape(2 * f, d), { { o->w1 + l * fd, fd }, { o->w3 + l * fd, fd } } },
        { "ffn.w2", tn_shape(d, f), { { o->w2 + l * fd, fd } } },
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        char name[64];
        snprintf(name, sizeof name, "layer%lld.%s", (long long)l, rows[i].name);
        TN_RETURN_IF(give(t, name, rows[i].dims, rows[i].from));
    }
    return TN_OK;
}

static tn_status give_all(const target *t, const tn_llama2c *h)
{
    const layout o = layout_of(h);
    const int64_t d = h->dim, table = h->vocab * d;
    TN_RETURN_IF(give(t, "embed", tn_shape(h->vocab, d), (const piece[MOST_PARTS]){ { o.embed, table } }));
    for (int64_t l = 0; l < h->layers; l++) TN_RETURN_IF(give_layer(t, h, &o, l));
    TN_RETURN_IF(give(t, "norm_f.w", tn_shape(d), (const piece[MOST_PARTS]){ { o.norm_f, d } }));
    if (h->tied) return TN_OK;
    return give(t, "head", tn_shape(h->vocab, d), (const piece[MOST_PARTS]){ { o.head, table } });
}

/* Into a file, or where `to` is NULL into a sink. */
static tn_status convert(const char *from, const char *to, tn_sink into)
{
    tn_status s = TN_OK;
    tn_map m = { 0 };
    tn_llama2c h;
    target t = { 0 };
    char settings[512];
    TN_TRY(tn_file_map(from, &m));
    TN_TRY(read_header(from, &m, &h));
    const tn_text_pair meta[] = { { "format", "tenon-model 1" },
                                  { "model", "gpt" },
                                  { "settings", tn_llama2c_settings(&h, settings, sizeof settings) } };
    const size_t n = sizeof meta / sizeof *meta;
    TN_TRY(to ? tn_safetensors_writer_begin(to, meta, n, &t.w)
              : tn_safetensors_writer_begin_into(into, from, meta, n, &t.w));
    t.data = m.data + HEADER;
    TN_TRY(give_all(&t, &h));
    t.put = true;
    TN_TRY(give_all(&t, &h));
    s = tn_safetensors_writer_finish(t.w);
    t.w = NULL;
done:
    tn_safetensors_writer_abort(t.w);
    tn_file_unmap(&m);
    return s;
}

tn_status tn_llama2c_convert(const char *from, const char *to) { return convert(from, to, (tn_sink){ 0 }); }

tn_status tn_llama2c_convert_into(const char *from, tn_sink into) { return convert(from, NULL, into); }
