/* SNLI: pairs of sentences where the second follows from the first. Training sentences come as they were written (some with the
 * quotes of a CSV file), held-out ones cut into words: all are brought to one form before anything is compared or counted. No premise
 * is in two splits. The tokenizer is trained on the training sentences, those of other labels too. */
#include "base/alloc.h"
#include "base/text.h"
#include "tasks/image_files.h"
#include "tasks/pairs.h"
#include "tasks/sentence.h"
#include "tasks/tsv.h"

#include <stdlib.h>
#include <string.h>

enum { TEXT = 64, SENTENCE_MAX = 1 << 16, PAIRS_MAX = 1 << 28 };

static const tn_image_files files = { .task = "snli",
                                      .needed = "snli_train.tsv, snli_dev.tsv and snli_test.tsv",
                                      .from = "nlp.stanford.edu/projects/snli" };

typedef struct entry {
    size_t sentence[2]; /* where they begin in the text */
    bool entails, left_out;
} entry;

/* One file. Sentences end with NUL. */
typedef struct part {
    char path[TN_PATH_BYTES];
    tn_text text;
    entry *entry; /* (n) */
    size_t n, capacity;
    const char **premise; /* (n), sorted: those that other splits must not have */
} part;

typedef struct making {
    part part[TN_SPLITS];
    tn_tokenizer_scratch *scratch;
    tn_tokens tokens;
    size_t next; /* of the training sentences */
    tn_pairs *p;
} making;

/* --- reading -------------------------------------------------------------------------------------------------------------------- */

/* A field that a CSV writer has quoted: "He said ""hi""." True where it is one; `out` is then what it says. */
static bool unquoted(tn_tsv_field f, char *out, size_t *bytes)
{
    size_t n = 0;
    if (f.bytes < 2 || f.text[0] != '"' || f.text[f.bytes - 1] != '"') return false;
    for (size_t i = 1; i + 1 < f.bytes; i++) {
        if (f.text[i] == '"' && (i + 2 >= f.bytes || f.text[++i] != '"')) return false;
        out[n++] = f.text[i];
    }
    *bytes = n;
    return true;
}

static tn_status keep_sentence(part *p, size_t line, const char *name, tn_tsv_field f, size_t *at)
{
    char plain[SENTENCE_MAX];
    size_t bytes = f.bytes;
    *at = p->text.n;
    if (f.bytes > SENTENCE_MAX)
        return tn_error(TN_BAD_FILE, "%.640s:%zu: %s has %zu bytes: is it the right file?", p->path, line, name,
                        f.bytes);
    const char *text = unquoted(f, plain, &bytes) ? plain : f.text;
    TN_RETURN_IF(tn__sentence_write(text, bytes, &p->text));
    if (p->text.n == *at)
        return tn_error(TN_BAD_FILE, "%.640s:%zu: %s is empty: remove the line, or download the file again", p->path,
                        line, name);
    void *v = p->text.data;
    TN_RETURN_IF(tn_grow(&v, &p->text.capacity, p->text.n + 1, 1));
    p->text.data = v;
    p->text.data[p->text.n++] = 0;
    return TN_OK;
}

/* "-" is a pair whose readers disagree. */
static tn_status keep_row(void *user, size_t line, const tn_tsv_field *field)
{
    static const char *const labels[] = { "entailment", "neutral", "contradiction", "-" };
    part *p = user;
    void *v = p->entry;
    entry e = { .entails = false };
    size_t k = 0;
    while (k < 4 && !(field[0].bytes == strlen(labels[k]) && memcmp(field[0].text, labels[k], field[0].bytes) == 0))
        k++;
    if (k == 4) {
        char label[41] = "", quoted[80];
        memcpy(label, field[0].text, field[0].bytes < 40 ? field[0].bytes : 40);
        return tn_error(
            TN_BAD_FILE,
            "%.640s:%zu: gold_label is \"%s\" instead of entailment, neutral, contradiction or -: correct the "
            "line, or download the file again",
            p->path, line, tn_text_quote(label, quoted, sizeof quoted));
    }
    if (p->n == PAIRS_MAX)
        return tn_error(TN_BAD_FILE, "%.640s has more than %d pairs: use a part of it", p->path, PAIRS_MAX);
    e.entails = k == 0;
    TN_RETURN_IF(keep_sentence(p, line, "sentence1", field[1], &e.sentence[TN_PREMISE]));
    TN_RETURN_IF(keep_sentence(p, line, "sentence2", field[2], &e.sentence[TN_HYPOTHESIS]));
    if (p->n == p->capacity) TN_RETURN_IF(tn_grow(&v, &p->capacity, p->n ? 2 * p->n : 1024, sizeof e));
    p->entry = v;
    p->entry[p->n++] = e;
    return TN_OK;
}

static const char *sentence(const part *p, size_t i, int which) { return p->text.data + p->entry[i].sentence[which]; }

static int compare(const void *a, const void *b) { return strcmp(*(const char *const *)a, *(const char *const *)b); }

static tn_status read_part(const tn_settings *st, const char *const *names, part *p)
{
    static const char *const columns[] = { "gold_label", "sentence1", "sentence2", NULL };
    TN_RETURN_IF(tn__image_find(st, &files, names, true, p->path));
    TN_RETURN_IF(tn__tsv_read(p->path, columns, keep_row, p));
    p->premise = tn_alloc(p->n * sizeof *p->premise);
    if (!p->premise) return TN_MEMORY;
    for (size_t i = 0; i < p->n; i++) p->premise[i] = sentence(p, i, TN_PREMISE);
    qsort(p->premise, p->n, sizeof *p->premise, compare);
    return TN_OK;
}

/* Lines of a split whose premise a later one has: the test keeps all of its own. */
static void part_premises(making *m)
{
    for (int k = TN_TRAIN; k < TN_TEST; k++)
        for (size_t i = 0; i < m->part[k].n; i++) {
            const char *s = sentence(&m->part[k], i, TN_PREMISE);
            for (int later = k + 1; later < TN_SPLITS; later++) {
                const part *q = &m->part[later];
                if (bsearch(&s, q->premise, q->n, sizeof *q->premise, compare)) m->part[k].entry[i].left_out = true;
            }
            m->p->left_out += m->part[k].entry[i].left_out;
        }
}

/* --- tokens --------------------------------------------------------------------------------------------------------------------- */

static tn_status next_sentence(void *user, const char **text, size_t *bytes)
{
    making *m = user;
    const part *p = &m->part[TN_TRAIN];
    while (m->next < 2 * p->n && p->entry[m->next / 2].left_out) m->next += 2;
    *text = m->next < 2 * p->n ? sentence(p, m->next / 2, (int)(m->next % 2)) : NULL;
    *bytes = *text ? strlen(*text) : 0;
    m->next++;
    return TN_OK;
}

static tn_status encode_pair(making *m, const part *q, size_t i, int64_t *pair)
{
    tn_pairs *p = m->p;
    for (int which = 0; which < 2; which++) {
        const char *s = sentence(q, i, which);
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

static bool is_pair(const entry *e) { return e->entails && !e->left_out; }

static tn_status encode(making *m)
{
    tn_pairs *p = m->p;
    int64_t pairs = 0;
    for (int k = 0; k < TN_SPLITS; k++) {
        p->first[k] = pairs;
        for (size_t i = 0; i < m->part[k].n; i++) pairs += is_pair(&m->part[k].entry[i]);
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
        for (size_t i = 0; i < m->part[k].n; i++)
            if (is_pair(&m->part[k].entry[i])) TN_RETURN_IF(encode_pair(m, &m->part[k], i, &pairs));
    p->ids = m->tokens.ids;
    m->tokens = (tn_tokens){ 0 };
    return TN_OK;
}

static tn_status open_snli(const tn_settings *st, tn_pairs **out)
{
    static const char *const names[TN_SPLITS][4] = {
        [TN_TRAIN] = { "snli_1.0_train.txt", "snli_train_20k.tsv", "snli_train.tsv", NULL },
        [TN_VALID] = { "snli_1.0_dev.txt", "snli_dev.tsv", NULL },
        [TN_TEST] = { "snli_1.0_test.txt", "snli_test.tsv", NULL },
    };
    tn_status s = TN_OK;
    making *m = tn_alloc(sizeof *m);
    if (!m) return TN_MEMORY;
    if (!(m->p = tn_alloc(sizeof *m->p))) TN_TRY(TN_MEMORY);
    m->p->text = tn_settings_is_auto(st, "task.length") ? TEXT : tn_settings_int(st, "task.length");
    for (int k = 0; k < TN_SPLITS; k++) TN_TRY(read_part(st, names[k], &m->part[k]));
    part_premises(m);
    const tn_bpe_options bpe = { .vocab = tn_settings_int(st, "task.vocab"), .threads = 1, .min_count = 2 };
    TN_TRY(tn_bpe_train(next_sentence, m, &bpe, &m->p->tokenizer));
    m->p->vocab = tn_tokenizer_vocab(m->p->tokenizer);
    TN_TRY(tn_tokenizer_scratch_new(&m->scratch));
    TN_TRY(encode(m));
    *out = m->p;
    m->p = NULL;
done:
    for (int k = 0; k < TN_SPLITS; k++) {
        tn_text_free(&m->part[k].text);
        tn_free(m->part[k].entry);
        tn_free(m->part[k].premise);
    }
    tn_tokens_free(&m->tokens);
    tn_tokenizer_scratch_free(m->scratch);
    tn_pairs_free(m->p);
    tn_free(m);
    return s;
}

const tn_task tn_task_snli = { .name = "snli",
                               .summary = "sentence pairs: which sentence follows from another",
                               .pairs = open_snli };
