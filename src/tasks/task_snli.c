/* SNLI: pairs of sentences where the second follows from the first (snli_lines.h). The tokenizer is trained on the training sentences, those
 * of other labels too. */
#include "base/alloc.h"
#include "tasks/pairs.h"
#include "tasks/snli_lines.h"

#include <string.h>

enum { TEXT = 64 };

typedef struct making {
    tn_snli_part part[TN_SPLITS];
    tn_tokenizer_scratch *scratch;
    tn_tokens tokens;
    size_t at; /* of the training sentences: the next line, the one that is read, which of its sentences comes next */
    tn_snli_row row;
    int which;
    tn_pairs *p;
} making;

/* --- tokens --------------------------------------------------------------------------------------------------------------------- */

static tn_status next_sentence(void *user, const char **text, size_t *bytes)
{
    making *m = user;
    bool more = true;
    while (m->which == TN_PREMISE && more) {
        more = tn__snli_next(&m->part[TN_TRAIN], &m->at, &m->row);
        if (more && !(*m->row.marks & TN_SNLI_LEFT_OUT)) break;
    }
    *text = more ? m->row.sentence[m->which] : NULL;
    *bytes = more ? strlen(*text) : 0;
    m->which = more && m->which == TN_PREMISE ? TN_HYPOTHESIS : TN_PREMISE;
    return TN_OK;
}

static tn_status encode_pair(making *m, const tn_snli_row *l, int64_t *pair)
{
    tn_pairs *p = m->p;
    for (int which = 0; which < 2; which++) {
        const char *s = l->sentence[which];
        const size_t first = m->tokens.n;
        TN_RETURN_IF(tn_tokenizer_encode(p->tokenizer, m->scratch, s, strlen(s), 0, &m->tokens));
        if (m->tokens.n - first > (size_t)p->text) {
            m->tokens.n = first + (size_t)p->text;
            p->cut++;
        }
        p->at[2 * *pair + which + 1] = m->tokens.n;
    }
    ++*pair;
    return TN_OK;
}

static bool is_pair(const tn_snli_row *l) { return *l->marks == TN_SNLI_ENTAILS; }

static tn_status encode(making *m)
{
    tn_pairs *p = m->p;
    int64_t pairs = 0;
    tn_snli_row l;
    for (int k = 0; k < TN_SPLITS; k++) {
        p->first[k] = pairs;
        for (size_t at = 0; tn__snli_next(&m->part[k], &at, &l);) pairs += is_pair(&l);
        p->count[k] = pairs - p->first[k];
        if (!p->count[k])
            return tn_error(TN_BAD_FILE,
                            "%.640s has no pair with gold_label entailment that is in no other split: use another "
                            "file",
                            m->part[k].path);
    }
    p->at = tn_alloc((2 * (size_t)pairs + 1) * sizeof *p->at);
    if (!p->at) return TN_MEMORY;
    pairs = 0;
    for (int k = 0; k < TN_SPLITS; k++)
        for (size_t at = 0; tn__snli_next(&m->part[k], &at, &l);)
            if (is_pair(&l)) TN_RETURN_IF(encode_pair(m, &l, &pairs));
    p->ids = m->tokens.ids;
    m->tokens = (tn_tokens){ 0 };
    return TN_OK;
}

static tn_status open_snli(const tn_settings *st, tn_pairs **out)
{
    tn_status s = TN_OK;
    making *m = tn_alloc(sizeof *m);
    if (!m) return TN_MEMORY;
    if (!(m->p = tn_alloc(sizeof *m->p))) TN_TRY(TN_MEMORY);
    m->p->text = tn_settings_is_auto(st, "task.length") ? TEXT : tn_settings_int(st, "task.length");
    TN_TRY(tn__snli_read(st, "snli", m->part, &m->p->left_out));
    const tn_bpe_options bpe = { .vocab = tn_settings_int(st, "task.vocab"), .threads = 1, .min_count = 2 };
    TN_TRY(tn_bpe_train(next_sentence, m, &bpe, &m->p->tokenizer));
    m->p->vocab = tn_tokenizer_vocab(m->p->tokenizer);
    TN_TRY(tn_tokenizer_scratch_new(&m->scratch));
    TN_TRY(encode(m));
    *out = m->p;
    m->p = NULL;
done:
    tn__snli_free(m->part);
    tn_tokens_free(&m->tokens);
    tn_tokenizer_scratch_free(m->scratch);
    tn_pairs_free(m->p);
    tn_free(m);
    return s;
}

const tn_task tn_task_snli = { .name = "snli",
                               .summary = "sentence pairs: which sentence follows from another",
                               .pairs = open_snli };
