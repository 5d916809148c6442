/* Printing data sets, for people and as JSON Lines. Text out of files is quoted: control bytes never reach a terminal. */
#include "cli/data/data_view.h"

#include "cli/view.h"

#include <string.h>

void tn_lengths_add(tn_lengths *h, uint64_t length)
{
    int i = 0;
    while (i < 63 && length >> (i + 1)) i++;
    h->bucket[i]++;
    if (h->n == 0 || length < h->least) h->least = length;
    if (length > h->most) h->most = length;
    h->n++;
    h->sum += length;
}

tn_status tn_data_emit(tn_cli *c, const char *name, uint64_t value, const char *unit)
{
    if (!c->json) return TN_OK;
    return tn_cli_emit(c, json_pack("{s:s, s:I, s:s}", "name", name, "value", (json_int_t)value, "unit", unit));
}

tn_status tn_data_emit_text(tn_cli *c, const char *name, const char *text)
{
    if (!c->json) return TN_OK;
    return tn_cli_emit(c, json_pack("{s:s, s:s}", "name", name, "value", text));
}

tn_status tn_lengths_print(tn_cli *c, const tn_lengths *h, const char *unit)
{
    static const char bar[] = "########################################";
    uint64_t most = 0;
    if (h->n == 0) return TN_OK;
    for (int i = 0; i < 64; i++) most = h->bucket[i] > most ? h->bucket[i] : most;
    if (!c->json)
        fprintf(c->out, "document lengths: %llu to %llu %s, mean %.1f\n", (unsigned long long)h->least,
                (unsigned long long)h->most, unit, (double)h->sum / (double)h->n);
    TN_RETURN_IF(tn_data_emit(c, "length_least", h->least, unit));
    TN_RETURN_IF(tn_data_emit(c, "length_most", h->most, unit));
    for (int i = 0; i < 64; i++) {
        char name[32];
        const uint64_t low = (uint64_t)1 << i;
        if (h->bucket[i] == 0) continue;
        snprintf(name, sizeof name, "length_from_%llu", (unsigned long long)(i ? low : 0));
        TN_RETURN_IF(tn_data_emit(c, name, h->bucket[i], "documents"));
        if (c->json) continue;
        const int columns = (int)((double)h->bucket[i] / (double)most * 40 + 0.999);
        fprintf(c->out, "  %10llu..  %8llu  %.*s\n", (unsigned long long)(i ? low : 0),
                (unsigned long long)h->bucket[i], columns, bar);
    }
    return TN_OK;
}

static tn_status print_split(tn_cli *c, const tn_dataset *d, tn_data_split k)
{
    char a[16], b[16], t[16], name[40];
    const bool arrays = tn_dataset_about(d)->kind == TN_SHARD_ARRAYS;
    const tn_dataset_counts n = tn_dataset_count(d, k);
    if (n.documents == 0) return TN_OK;
    if (!c->json && arrays)
        fprintf(c->out, "%-6s %s samples\n", tn_data_split_names[k], tn_count_text((double)n.documents, a));
    else if (!c->json) {
        fprintf(c->out, "%-6s %s documents, %s tokens", tn_data_split_names[k], tn_count_text((double)n.documents, a),
                tn_count_text((double)n.tokens, b));
        if (n.text_bytes)
            fprintf(c->out, ", %sB of text (%.3f bytes per token)", tn_count_text((double)n.text_bytes, t),
                    (double)n.text_bytes / (double)n.tokens);
        fputc('\n', c->out);
    }
    snprintf(name, sizeof name, "%s_%s", tn_data_split_names[k], arrays ? "samples" : "documents");
    TN_RETURN_IF(tn_data_emit(c, name, n.documents, arrays ? "samples" : "documents"));
    if (arrays) return TN_OK;
    snprintf(name, sizeof name, "%s_tokens", tn_data_split_names[k]);
    TN_RETURN_IF(tn_data_emit(c, name, n.tokens, "tokens"));
    snprintf(name, sizeof name, "%s_text", tn_data_split_names[k]);
    return tn_data_emit(c, name, n.text_bytes, "bytes");
}

tn_status tn_data_print(tn_cli *c, const char *path, const tn_dataset *d)
{
    const tn_dataset_info *i = tn_dataset_about(d);
    const bool arrays = i->kind == TN_SHARD_ARRAYS;
    if (!c->json) {
        fprintf(c->out, "%s: %s", path,
                i->is_raw ? "raw text, byte tokens"
                : arrays  ? "prepared arrays"
                          : "prepared tokens");
        if (arrays) {
            fprintf(c->out, ", samples of");
            for (int r = 0; r < i->rank; r++) fprintf(c->out, "%s%lld", r ? "x" : " ", (long long)i->dims[r]);
            fprintf(c->out, "%s %s, %lld classes\n", i->rank ? "" : " 1", tn_item_name(i->item), (long long)i->classes);
        } else {
            const char *name = strrchr(i->tokenizer, '/') ? strrchr(i->tokenizer, '/') + 1 : i->tokenizer;
            fprintf(c->out, ", vocabulary %lld (%s), %s%s\n", (long long)i->vocab, *name ? name : "unknown tokenizer",
                    tn_item_name(i->item), i->eot >= 0 ? ", documents begin with an end-of-text token" : "");
        }
    }
    TN_RETURN_IF(tn_data_emit_text(c, "kind", arrays ? "arrays" : "tokens"));
    TN_RETURN_IF(tn_data_emit(c, arrays ? "classes" : "vocab", (uint64_t)(arrays ? i->classes : i->vocab),
                              arrays ? "classes" : "tokens"));
    if (arrays) TN_RETURN_IF(tn_data_emit(c, "sample", (uint64_t)i->sample, "numbers"));
    for (int k = 0; k < TN_SPLITS; k++) TN_RETURN_IF(print_split(c, d, (tn_data_split)k));
    return TN_OK;
}
