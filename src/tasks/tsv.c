/* Lines are read one by one: memory is that of the longest, which is bounded. */
#include "tasks/tsv.h"

#include "base/alloc.h"
#include "base/text.h"
#include "io/stream.h"

#include <stdbool.h>
#include <string.h>

enum { READ_BYTES = 64 << 10, LINE_MAX = 1 << 20, FIELDS_MAX = 64 };

typedef struct table {
    tn_stream *stream;
    const char *path;
    char *text; /* (capacity): `begin` to `end` are to be taken */
    size_t begin, end, capacity;
    bool file_end;
    size_t line;                  /* number of the last one, from 1 */
    size_t place[TN_TSV_COLUMNS]; /* of the columns that were asked for, in a line */
    size_t n, fields;             /* columns asked for; fields of a line */
} table;

static tn_status fill(table *t)
{
    void *p = t->text;
    size_t got = 0;
    if (t->end - t->begin > LINE_MAX)
        return tn_error(TN_BAD_FILE, "%.640s:%zu: the line is longer than %d bytes: is it the right file?", t->path,
                        t->line + 1, LINE_MAX);
    if (t->begin) memmove(t->text, t->text + t->begin, t->end - t->begin);
    t->end -= t->begin;
    t->begin = 0;
    if (t->end + READ_BYTES + 1 > t->capacity) TN_RETURN_IF(tn_grow(&p, &t->capacity, 2 * (t->end + READ_BYTES), 1));
    t->text = p;
    TN_RETURN_IF(tn_stream_read(t->stream, t->text + t->end, READ_BYTES, &got));
    t->end += got;
    t->file_end = got < READ_BYTES;
    return TN_OK;
}

/* The next line without its end, as a string; *line is NULL at the end of the file. */
static tn_status next_line(table *t, char **line, size_t *bytes)
{
    char *newline = NULL;
    while (!(newline = t->end > t->begin ? memchr(t->text + t->begin, '\n', t->end - t->begin) : NULL) && !t->file_end)
        TN_RETURN_IF(fill(t));
    *line = NULL;
    if (t->begin == t->end) return TN_OK;
    *line = t->text + t->begin;
    *bytes = newline ? (size_t)(newline - *line) : t->end - t->begin;
    t->begin += *bytes + (newline != NULL);
    t->line++;
    if (*bytes && (*line)[*bytes - 1] == '\r') --*bytes;
    (*line)[*bytes] = 0;
    if (!memchr(*line, 0, *bytes) && tn_utf8_valid(*line)) return TN_OK;
    return tn_error(TN_BAD_FILE, "%.640s:%zu: the line is not UTF-8 text: download the file again, or convert it",
                    t->path, t->line);
}

/* The fields of a line into `field`, as many as fit; returns how many there are. */
static size_t split(const char *line, size_t bytes, tn_tsv_field *field)
{
    size_t n = 0;
    for (const char *p = line, *end = line + bytes;; n++) {
        const char *tab = memchr(p, '\t', (size_t)(end - p));
        const size_t length = (size_t)((tab ? tab : end) - p);
        if (n < FIELDS_MAX) field[n] = (tn_tsv_field){ p, length };
        if (!tab) return n + 1;
        p = tab + 1;
    }
}

static bool is(tn_tsv_field f, const char *name)
{
    return f.bytes == strlen(name) && memcmp(f.text, name, f.bytes) == 0;
}

static tn_status find_columns(table *t, const char *const *columns, const char *line, size_t bytes)
{
    tn_tsv_field field[FIELDS_MAX];
    t->fields = split(line, bytes, field);
    const size_t have = t->fields < FIELDS_MAX ? t->fields : FIELDS_MAX;
    for (t->n = 0; columns[t->n]; t->n++) {
        size_t i = 0;
        while (i < have && !is(field[i], columns[t->n])) i++;
        if (i == have)
            return tn_error(TN_BAD_FILE,
                            "%.640s:1: no column %s; the first line names the columns, with tabs between them: is it "
                            "the right file?",
                            t->path, columns[t->n]);
        t->place[t->n] = i;
    }
    return TN_OK;
}

static tn_status take_line(const table *t, const char *text, size_t bytes, tn_tsv_row *row, void *user)
{
    tn_tsv_field field[FIELDS_MAX], wanted[TN_TSV_COLUMNS];
    const size_t n = split(text, bytes, field);
    if (n != t->fields)
        return tn_error(TN_BAD_FILE,
                        "%.640s:%zu: %zu fields, and the first line has %zu: a tab or a line is missing or too many; "
                        "correct the line, or download the file again",
                        t->path, t->line, n, t->fields);
    for (size_t i = 0; i < t->n; i++) wanted[i] = field[t->place[i]];
    return row(user, t->line, wanted);
}

tn_status tn__tsv_read(const char *path, const char *const *columns, tn_tsv_row *row, void *user)
{
    tn_status s = TN_OK;
    table t = { .path = path };
    char *line;
    size_t bytes;
    TN_TRY(tn_stream_open(path, &t.stream));
    for (;;) {
        TN_TRY(next_line(&t, &line, &bytes));
        if (!line) break;
        if (t.line == 1) TN_TRY(find_columns(&t, columns, line, bytes));
        else TN_TRY(take_line(&t, line, bytes, row, user));
    }
    if (t.line < 2) TN_FAIL(TN_BAD_FILE, "%.640s has no rows: download it again", path);
done:
    tn_stream_close(t.stream);
    tn_free(t.text);
    return s;
}
