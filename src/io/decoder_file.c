/* The table of tensors, and what all formats share once their tensors are found. */
#include "io/decoder_file.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* --- the table --------------------------------------------------------------------------------------------------------- */

typedef enum size { NONE, DIM, Q, KV, FFN, HEAD, VOCAB, SIZES } size;
typedef enum when { ALWAYS, BIAS, QK_NORM, UNTIED } when;

typedef struct row {
    const char *ours, *from[TN_NAMES][TN_PIECES];
    size rows[TN_PIECES], columns;
    when when;
} row;

static const row first_rows[] = {
    { "embed", { { "token_embd.weight" }, { "model.embed_tokens.weight" } }, { VOCAB }, DIM, ALWAYS },
};
static const row layer_rows[] = {
    { "norm1.w", { { "attn_norm.weight" }, { "input_layernorm.weight" } }, { DIM }, NONE, ALWAYS },
    { "attn.b_qkv",
      { { "attn_q.bias", "attn_k.bias", "attn_v.bias" },
        { "self_attn.q_proj.bias", "self_attn.k_proj.bias", "self_attn.v_proj.bias" } },
      { Q, KV, KV },
      NONE,
      BIAS },
    { "attn.w_qkv",
      { { "attn_q.weight", "attn_k.weight", "attn_v.weight" },
        { "self_attn.q_proj.weight", "self_attn.k_proj.weight", "self_attn.v_proj.weight" } },
      { Q, KV, KV },
      DIM,
      ALWAYS },
    { "attn.norm_q.w", { { "attn_q_norm.weight" }, { "self_attn.q_norm.weight" } }, { HEAD }, NONE, QK_NORM },
    { "attn.norm_k.w", { { "attn_k_norm.weight" }, { "self_attn.k_norm.weight" } }, { HEAD }, NONE, QK_NORM },
    { "attn.w_out", { { "attn_output.weight" }, { "self_attn.o_proj.weight" } }, { DIM }, Q, ALWAYS },
    { "norm2.w", { { "ffn_norm.weight" }, { "post_attention_layernorm.weight" } }, { DIM }, NONE, ALWAYS },
    { "ffn.w1",
      { { "ffn_gate.weight", "ffn_up.weight" }, { "mlp.gate_proj.weight", "mlp.up_proj.weight" } },
      { FFN, FFN },
      DIM,
      ALWAYS },
    { "ffn.w2", { { "ffn_down.weight" }, { "mlp.down_proj.weight" } }, { DIM }, FFN, ALWAYS },
};
static const row last_rows[] = {
    { "head", { { "output.weight" }, { "lm_head.weight" } }, { VOCAB }, DIM, UNTIED },
    { "norm_f.w", { { "output_norm.weight" }, { "model.norm.weight" } }, { DIM }, NONE, ALWAYS },
};
enum { LAYER_ROWS = sizeof layer_rows / sizeof *layer_rows, LAST_ROWS = sizeof last_rows / sizeof *last_rows };

static bool applies(when w, const tn_decoder_config *c)
{
    return w == ALWAYS || (w == BIAS && c->bias) || (w == QK_NORM && c->qk_norm) || (w == UNTIED && !c->tied);
}

typedef struct visitor {
    const tn_decoder_config *c;
    tn_decoder_names names;
    tn_decoder_visit *visit;
    void *ctx;
    int64_t size[SIZES];
} visitor;

static tn_status visit_row(const visitor *v, const row *r, int64_t layer)
{
    tn_decoder_tensor t = { .columns = v->size[r->columns] };
    if (!applies(r->when, v->c)) return TN_OK;
    size_t at = 0;
    char prefix[48] = "";
    if (layer >= 0) {
        at = (size_t)snprintf(t.name, sizeof t.name, "layer%lld.", (long long)layer);
        snprintf(prefix, sizeof prefix, v->names == TN_NAMES_GGUF ? "blk.%lld." : "model.layers.%lld.",
                 (long long)layer);
    }
    snprintf(t.name + at, sizeof t.name - at, "%s", r->ours);
    for (; t.n < TN_PIECES && r->from[v->names][t.n]; t.n++) {
        snprintf(t.piece[t.n], sizeof t.piece[t.n], "%s%s", prefix, r->from[v->names][t.n]);
        t.rows[t.n] = v->size[r->rows[t.n]];
    }
    return v->visit(v->ctx, &t);
}

tn_status tn_decoder_each(const tn_decoder_config *c, tn_decoder_names names, tn_decoder_visit *visit, void *ctx)
{
    const visitor v = { c,
                        names,
                        visit,
                        ctx,
                        { [DIM] = c->dim,
                          [Q] = c->heads * c->head_dim,
                          [KV] = c->kv_heads * c->head_dim,
                          [FFN] = c->ffn,
                          [HEAD] = c->head_dim,
                          [VOCAB] = c->vocab } };
    TN_RETURN_IF(visit_row(&v, &first_rows[0], -1));
    for (int64_t l = 0; l < c->layers; l++)
        for (size_t i = 0; i < LAYER_ROWS; i++) TN_RETURN_IF(visit_row(&v, &layer_rows[i], l));
    for (size_t i = 0; i < LAST_ROWS; i++) TN_RETURN_IF(visit_row(&v, &last_rows[i], -1));
    return TN_OK;
}

/* --- settings ---------------------------------------------------------------------------------------------------------- */

tn_short_number tn_short_number_of(double x)
{
    tn_short_number r;
    if (x == floor(x) && fabs(x) < 1e9) {
        snprintf(r.text, sizeof r.text, "%.0f", x);
        return r;
    }
    for (int digits = 1; digits <= 9; digits++) {
        snprintf(r.text, sizeof r.text, "%.*g", digits, x);
        if (strtof(r.text, NULL) == (float)x) break;
    }
    return r;
}

static void add_setting(tn_decoder_file *f, const char *key, const char *value)
{
    const size_t n = strlen(f->settings);
    snprintf(f->settings + n, sizeof f->settings - n, " %s=%s", key, value);
}

/* Those that are not as they are by default. */
static void add_others(tn_decoder_file *f)
{
    static const char *const names[] = { "", "llama3", "linear", "yarn" };
    const tn_decoder_config *c = &f->config;
    if (c->head_dim * c->heads != c->dim) add_setting(f, "head_dim", tn_short_number_of((double)c->head_dim).text);
    if (c->qk_norm) add_setting(f, "qk_norm", "true");
    if (c->scaling == TN_SCALED_NONE) return;
    if (c->scaling != TN_SCALED_LLAMA3) add_setting(f, "rope_scaling", names[c->scaling]);
    add_setting(f, "rope_stretch", tn_short_number_of(c->stretch).text);
    if (c->scaling != TN_SCALED_LINEAR)
        add_setting(f, "rope_stretch_context", tn_short_number_of(c->stretch_context).text);
    if (c->scaling != TN_SCALED_YARN) return;
    add_setting(f, "rope_beta_fast", tn_short_number_of(c->beta_fast).text);
    add_setting(f, "rope_beta_slow", tn_short_number_of(c->beta_slow).text);
    add_setting(f, "rope_attention_factor", tn_short_number_of(c->attention_factor).text);
}

static void write_settings(tn_decoder_file *f)
{
    const tn_decoder_config *c = &f->config;
    snprintf(f->settings, sizeof f->settings,
             "shape=llama dim=%lld layers=%lld heads=%lld kv_heads=%lld ffn=%lld vocab=%lld tied=%s qkv_bias=%s "
             "norm_eps=%s rope_base=%s rope_pairs=%s train.context=%lld",
             (long long)c->dim, (long long)c->layers, (long long)c->heads, (long long)c->kv_heads, (long long)c->ffn,
             (long long)c->vocab, c->tied ? "true" : "false", c->bias ? "true" : "false",
             tn_short_number_of(c->eps).text, tn_short_number_of(c->base).text, c->interleaved ? "interleaved" : "half",
             (long long)c->context);
    add_others(f);
    f->meta[0] = (tn_text_pair){ "format", "tenon-model 1" };
    f->meta[1] = (tn_text_pair){ "model", "gpt" };
    f->meta[2] = (tn_text_pair){ "settings", f->settings };
}

/* --- tensors ----------------------------------------------------------------------------------------------------------- */

typedef struct lister {
    tn_decoder_file *f;
    tn_decoder_find *find;
    void *ctx;
} lister;

static tn_status list_one(void *ctx, const tn_decoder_tensor *d)
{
    const lister *l = ctx;
    tn_decoder_file *f = l->f;
    tn_file_tensor *t = &f->tensor[f->n];
    tn_file_piece *piece = f->piece[f->n];
    int64_t sum = 0;
    for (int i = 0; i < d->n; i++) {
        const tn_dims dims = d->columns ? tn_shape(d->rows[i], d->columns) : tn_shape(d->rows[i]);
        TN_RETURN_IF(l->find(l->ctx, d->piece[i], dims, &piece[i]));
        const tn_dtype type = piece[i].type->dtype;
        t->dtype = type == TN_DTYPES || (i && type != t->dtype) ? TN_F32 : type;
        sum += d->rows[i];
    }
    t->name = tn_arena_strdup(&f->arena, d->name);
    if (!t->name) return tn_error(TN_MEMORY, "out of memory");
    t->dims = d->columns ? tn_shape(sum, d->columns) : tn_shape(sum);
    t->bytes = (size_t)tn_dims_count(t->dims) * tn_dtype_bytes(t->dtype);
    f->n++;
    return TN_OK;
}

tn_status tn_decoder_file_list(tn_decoder_file *f, tn_decoder_names names, tn_decoder_find *find, void *ctx)
{
    const size_t most = (size_t)f->config.layers * LAYER_ROWS + 1 + LAST_ROWS;
    f->tensor = tn_alloc(most * sizeof *f->tensor);
    f->piece = tn_alloc(most * sizeof *f->piece);
    if (!f->tensor || !f->piece) return TN_MEMORY;
    TN_RETURN_IF(tn_decoder_each(&f->config, names, list_one, &(lister){ f, find, ctx }));
    write_settings(f);
    return TN_OK;
}

void tn_decoder_file_close(tn_decoder_file *f)
{
    if (!f) return;
    if (f->close) f->close(f->ctx);
    tn_free(f->tensor);
    tn_free(f->piece);
    tn_arena_free(&f->arena);
    tn_free(f);
}

const tn_file_tensor *tn_decoder_file_find(const tn_decoder_file *f, const char *name)
{
    for (size_t i = 0; i < f->n; i++) /* a few thousand at most */
        if (strcmp(f->tensor[i].name, name) == 0) return &f->tensor[i];
    return NULL;
}

void tn_decoder_file_read(const tn_decoder_file *f, const tn_file_tensor *t, int64_t first, int64_t n, float *dst)
{
    const tn_file_piece *p = f->piece[t - f->tensor];
    for (int i = 0; i < TN_PIECES && p[i].type && n > 0; i++) {
        if (first >= p[i].count) {
            first -= p[i].count;
            continue;
        }
        const int64_t k = p[i].count - first < n ? p[i].count - first : n;
        tn_gguf_decode(p[i].type, p[i].data, first, k, dst);
        dst += k;
        n -= k;
        first = 0;
    }
}

int tn_decoder_file_pieces(const tn_decoder_file *f, const tn_file_tensor *t, tn_file_piece out[TN_PIECES])
{
    const tn_file_piece *p = f->piece[t - f->tensor];
    int n = 0;
    for (; n < TN_PIECES && p[n].type; n++) out[n] = p[n];
    return n;
}
