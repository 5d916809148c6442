/* Reading SNLI's tables into lines, and which of them are left out. */
#include "tasks/snli_lines.h"

#include "base/alloc.h"
#include "base/text.h"
#include "tasks/image_files.h"
#include "tasks/pairs.h"
#include "tasks/sentence.h"
#include "tasks/tsv.h"

#include <string.h>

enum { SENTENCE_MAX = 1 << 16, LABELS = 4 };
typedef tn_snli_part part;
typedef tn_snli_row row;

bool tn__snli_next(part *p, size_t *at, row *out)
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
    static const char *const labels[LABELS] = { "entailment", "neutral", "contradiction", "-" };
    part *p = user;
    size_t k = 0;
    while (k < LABELS &&
           !(field[0].bytes == strlen(labels[k]) && memcmp(field[0].text, labels[k], field[0].bytes) == 0))
        k++;
    if (k == LABELS) {
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
    TN_RETURN_IF(keep_byte(p, (int)k));
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
    for (size_t at = 0; tn__snli_next(p, &at, &l);) x[n++] = (uint32_t)(l.sentence[TN_PREMISE] - p->text.data);
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

/* Lines of a split whose premise a later one has: the test keeps all of its own. */
static tn_status part_premises(part *p, int64_t *left_out)
{
    row l;
    for (int k = TN_TRAIN + 1; k < TN_SPLITS; k++) TN_RETURN_IF(sort_premises(&p[k]));
    for (int k = TN_TRAIN; k < TN_TEST; k++)
        for (size_t at = 0; tn__snli_next(&p[k], &at, &l);) {
            bool later = false;
            for (int o = k + 1; o < TN_SPLITS; o++) later |= has_premise(&p[o], l.sentence[TN_PREMISE]);
            if (later) *l.marks = (char)(*l.marks | TN_SNLI_LEFT_OUT);
            *left_out += later;
        }
    return TN_OK;
}

tn_status tn__snli_read(const tn_settings *st, const char *task, part p[TN_SPLITS], int64_t *left_out)
{
    static const char *const columns[] = { "gold_label", "sentence1", "sentence2", NULL };
    static const char *const names[TN_SPLITS][4] = {
        [TN_TRAIN] = { "snli_1.0_train.txt", "snli_train_20k.tsv", "snli_train.tsv", NULL },
        [TN_VALID] = { "snli_1.0_dev.txt", "snli_dev.tsv", NULL },
        [TN_TEST] = { "snli_1.0_test.txt", "snli_test.tsv", NULL },
    };
    const tn_image_files files = { .task = task,
                                   .needed = "snli_train.tsv, snli_dev.tsv and snli_test.tsv",
                                   .from = "nlp.stanford.edu/projects/snli" };
    for (int k = 0; k < TN_SPLITS; k++) {
        TN_RETURN_IF(tn__image_find(st, &files, names[k], true, p[k].path));
        TN_RETURN_IF(tn__tsv_read(p[k].path, columns, keep_row, &p[k]));
    }
    return part_premises(p, left_out);
}

void tn__snli_free(part p[TN_SPLITS])
{
    for (int k = 0; k < TN_SPLITS; k++) {
        tn_text_free(&p[k].text);
        tn_free(p[k].premise);
    }
}
