/* SNLI: pairs of sentences where the second follows from the first. Training sentences come as they were written (some with the
 * quotes of a CSV file), held-out ones cut into words: all are brought to one form before anything is compared or counted. No premise
 * is in two splits. The tokenizer is trained on the training sentences, those of other labels too. */
#include "base/alloc.h"
#include "base/text.h"
#include "tasks/image_files.h"
#include "tasks/pairs.h"
#include "tasks/sentence.h"
#include "tasks/tsv.h"

#include <string.h>

enum { TEXT = 64, SENTENCE_MAX = 1 << 16 };

static const tn_image_files files = { .task = "snli",
                                      .needed = "snli_train.tsv, snli_dev.tsv and snli_test.tsv",
                                      .from = "nlp.stanford.edu/projects/snli" };

enum { ENTAILS = 1, LEFT_OUT = 2 }; /* marks of a line */

/* One file. Its lines stand one behind the other, and nothing beside them: the shortest take no more memory than in the file. */
typedef struct part {
    char path[TN_PATH_BYTES];
    tn_text text;      /* of a line: a byte of marks, the premise, NUL, the hypothesis, NUL */
    size_t n;          /* lines */
    uint32_t *premise; /* (n): where premises begin, sorted by what they say; NULL: no other split asks */
} part;

typedef struct row {
    char *marks;
    const char *sentence[2];
} row;

typedef struct making {
    part part[TN_SPLITS];
    tn_tokenizer_scratch *scratch;
    tn_tokens tokens;
    size_t at; /* of the training sentences: the next line, the one that is read, which of its sentences comes next */
    row row;
    int which;
    tn_pairs *p;
} making;

/* The line at *at, which becomes that of the next; false: there is none. */
static bool next_row(part *p, size_t *at, row *out)
{
    if (*at == p->text.n) return false;
    out->marks = p->text.data + *at;
    out->sentence[TN_PREMISE] = out->marks + 1;
    out->sentence[TN_HYPOTHESIS] = out->sentence[TN_PREMISE] + strlen(out->sentence[TN_PREMISE]) + 1;
    *at = (size_t)(out->sentence[TN_HYPOTHESIS] + strlen(out->sentence[TN_HYPOTHESIS]) + 1 - p->text.data);
    return true;
}

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

static tn_status keep_byte(part *p, int byte)
{
    void *v = p->text.data;
    TN_RETURN_IF(tn_grow(&v, &p->text.capacity, p->text.n + 1, 1));
    p->text.data = v;
    p->text.data[p->text.n++] = (char)byte;
    return TN_OK;
}

static tn_status keep_sentence(part *p, size_t line, const char *name, tn_tsv_field f)
{
    char plain[SENTENCE_MAX];
    size_t bytes = f.bytes;
    const size_t at = p->text.n;
    if (f.bytes > SENTENCE_MAX)
        return tn_error(TN_BAD_FILE, "%.640s:%zu: %s has %zu bytes: is it the right file?", p->path, line, name,
                        f.bytes);
    const char *text = unquoted(f, plain, &bytes) ? plain : f.text;
    TN_RETURN_IF(tn__sentence_write(text, bytes, &p->text));
    if (p->text.n == at)
        return tn_error(TN_BAD_FILE, "%.640s:%zu: %s is empty: remove the line, or download the file again", p->path,
                        line, name);
    return keep_byte(p, 0);
}

/* "-" is a pair whose readers disagree. */
static tn_status keep_row(void *user, size_t line, const tn_tsv_field *field)
{
    static const char *const labels[] = { "entailment", "neutral", "contradiction", "-" };
    part *p = user;
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
    if (p->text.n > UINT32_MAX - 4 * SENTENCE_MAX)
        return tn_error(TN_BAD_FILE, "%.640s has more than 4 GB of sentences: use a part of it", p->path);
    TN_RETURN_IF(keep_byte(p, k == 0 ? ENTAILS : 0));
    TN_RETURN_IF(keep_sentence(p, line, "sentence1", field[1]));
    TN_RETURN_IF(keep_sentence(p, line, "sentence2", field[2]));
    p->n++;
    return TN_OK;
}

/* --- premises ------------------------------------------------------------------------------------------------------------------- */

static int compare(const part *p, uint32_t a, const char *b) { return strcmp(p->text.data + a, b); }

/* The heap below `i` of x (n), where all but x[i] is in order. */
static void sink(const part *p, uint32_t *x, size_t i, size_t n)
{
    const uint32_t top = x[i];
    for (size_t child; (child = 2 * i + 1) < n; i = child) {
        if (child + 1 < n && compare(p, x[child + 1], p->text.data + x[child]) > 0) child++;
        if (compare(p, x[child], p->text.data + top) <= 0) break;
        x[i] = x[child];
    }
    x[i] = top;
}

/* A heap sort: a library's takes memory of its own, and has no argument for the text. */
static tn_status sort_premises(part *p)
{
    row l;
    size_t n = 0;
    uint32_t *x = p->premise = tn_alloc(p->n * sizeof *x);
    if (!x) return TN_MEMORY;
    for (size_t at = 0; next_row(p, &at, &l);) x[n++] = (uint32_t)(l.sentence[TN_PREMISE] - p->text.data);
    for (size_t i = n / 2; i-- > 0;) sink(p, x, i, n);
    while (n-- > 1) {
        const uint32_t largest = x[0];
        x[0] = x[n];
        x[n] = largest;
        sink(p, x, 0, n);
    }
    return TN_OK;
}

static bool has_premise(const part *p, const char *premise)
{
    size_t low = 0, high = p->n;
    while (low < high) {
        const size_t middle = low + (high - low) / 2;
        const int c = compare(p, p->premise[middle], premise);
        if (c == 0) return true;
        if (c < 0) low = middle + 1;
        else high = middle;
    }
    return false;
}

static tn_status read_part(const tn_settings *st, const char *const *names, part *p)
{
    static const char *const columns[] = { "gold_label", "sentence1", "sentence2", NULL };
    TN_RETURN_IF(tn__image_find(st, &files, names, true, p->path));
    return tn__tsv_read(p->path, columns, keep_row, p);
}

/* Lines of a split whose premise a later one has: the test keeps all of its own. */
static tn_status part_premises(making *m)
{
    row l;
    for (int k = TN_TRAIN + 1; k < TN_SPLITS; k++) TN_RETURN_IF(sort_premises(&m->part[k]));
    for (int k = TN_TRAIN; k < TN_TEST; k++)
        for (size_t at = 0; next_row(&m->part[k], &at, &l);) {
            bool later = false;
            for (int o = k + 1; o < TN_SPLITS; o++) later |= has_premise(&m->part[o], l.sentence[TN_PREMISE]);
            if (later) *l.marks = (char)(*l.marks | LEFT_OUT);
            m->p->left_out += later;
        }
    return TN_OK;
}

/* --- tokens --------------------------------------------------------------------------------------------------------------------- */

static tn_status next_sentence(void *user, const char **text, size_t *bytes)
{
    making *m = user;
    bool more = true;
    while (m->which == TN_PREMISE && more) {
        more = next_row(&m->part[TN_TRAIN], &m->at, &m->row);
        if (more && !(*m->row.marks & LEFT_OUT)) break;
    }
    *text = more ? m->row.sentence[m->which] : NULL;
    *bytes = more ? strlen(*text) : 0;
    m->which = more && m->which == TN_PREMISE ? TN_HYPOTHESIS : TN_PREMISE;
    return TN_OK;
}

static tn_status encode_pair(making *m, const row *l, int64_t *pair)
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

static bool is_pair(const row *l) { return *l->marks == ENTAILS; }

static tn_status encode(making *m)
{
    tn_pairs *p = m->p;
    int64_t pairs = 0;
    row l;
    for (int k = 0; k < TN_SPLITS; k++) {
        p->first[k] = pairs;
        for (size_t at = 0; next_row(&m->part[k], &at, &l);) pairs += is_pair(&l);
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
        for (size_t at = 0; next_row(&m->part[k], &at, &l);)
            if (is_pair(&l)) TN_RETURN_IF(encode_pair(m, &l, &pairs));
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
    TN_TRY(part_premises(m));
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
