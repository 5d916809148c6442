/* Folding of lines, byte by byte, since text arrives in pieces. Blanks are written before the word that follows them: none stand at the
 * end of a line. A word wider than the line is written whole. */
#include "cli/fold.h"

enum {
    LEAST_TEXT = 24,  /* columns that what follows must have */
    LONGEST_LEAD = 12 /* "warning: " */
};

static bool put_blanks(tn_fold *f, int n)
{
    f->column += n;
    return fprintf(f->to, "%*s", n, "") >= 0;
}

/* Where the following lines begin: below the first word, below what stands behind "error: ", or below the last of several columns. */
static void set_indent(tn_fold *f)
{
    const int at = f->column + f->blanks;
    const bool column = f->words == 0 || f->gap >= 2 || (f->words == 1 && f->colon && at <= LONGEST_LEAD);
    if (!f->plain && !f->folds && column && at + LEAST_TEXT <= f->width) f->indent = at;
}

static bool put_word(tn_fold *f)
{
    bool ok = true;
    if (f->n == 0) return true;
    if (!f->open) {
        set_indent(f);
        if (f->words && f->column + f->blanks + f->word_columns > f->width) {
            const int room = f->width - f->word_columns;
            ok = fputc('\n', f->to) != EOF;
            f->column = 0;
            f->folds++;
            ok = put_blanks(f, f->indent <= room ? f->indent : room > 0 ? room : 0) && ok;
        } else ok = put_blanks(f, f->blanks);
        f->blanks = f->gap = 0;
        f->colon = f->words++ == 0 && f->word[f->n - 1] == ':';
    }
    f->column += f->word_columns;
    ok = fwrite(f->word, 1, f->n, f->to) == f->n && ok;
    f->n = 0;
    f->word_columns = 0;
    f->open = false;
    return ok;
}

static bool put_byte(tn_fold *f, char c)
{
    bool ok = true;
    if (c != ' ' && c != '\t' && c != '\n') {
        if (f->n == sizeof f->word) {
            ok = put_word(f);
            f->open = true;
        }
        f->word[f->n++] = c;
        f->word_columns += ((unsigned char)c & 0xc0) != 0x80;
        return ok;
    }
    ok = put_word(f);
    f->open = false;
    if (c == '\n') {
        f->column = f->indent = f->blanks = f->gap = f->words = f->folds = 0;
        return fputc('\n', f->to) != EOF && ok;
    }
    const int n = c == ' ' ? 1 : 8 - (f->column + f->blanks) % 8;
    f->blanks += n;
    f->gap += n;
    return ok;
}

bool tn_fold_put(tn_fold *f, const char *bytes, size_t n)
{
    bool ok = true;
    if (f->width <= 0) return fwrite(bytes, 1, n, f->to) == n;
    for (size_t i = 0; i < n; i++) ok = put_byte(f, bytes[i]) && ok;
    if (f->n || f->words == 0 || f->column + f->blanks >= f->width) return ok;
    ok = put_blanks(f, f->blanks) && ok; /* a prompt is seen with the blank behind it */
    f->blanks = 0;
    return ok;
}

bool tn_fold_end(tn_fold *f)
{
    const bool ok = put_word(f);
    f->open = f->words > 0; /* whatever comes now belongs to it */
    return ok;
}
