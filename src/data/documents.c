/* Reads documents through one buffer: text line by line, JSON element by element. Invariant: no byte of a text file is
 * lost except separator lines and blank documents, and none comes twice. */
#include "data/documents.h"

#include "base/fs.h"
#include "io/json_read.h"
#include "io/stream.h"

#include <stdio.h>
#include <string.h>

enum { READ_BYTES = 256 << 10 };

typedef enum separator { SEP_NONE, SEP_LINE, SEP_BLANK, SEP_WIKITEXT, SEP_TEXT } separator;

struct tn_documents {
    const tn_input_files *in;
    tn_documents_options o;
    separator sep;
    size_t file;       /* index of the open file */
    tn_stream *stream; /* NULL between files */
    uint64_t consumed; /* of files that are done */
    char *buf;         /* (capacity); begin..end not yet handed out */
    size_t capacity, begin, end;
    size_t scan; /* bytes after begin that were looked at: whole lines of the open document */
    bool file_end;
    bool inside;      /* a piece of the open document was handed out */
    uint64_t sent;    /* bytes of it */
    bool after_blank; /* the line before `scan` was blank, or there was none */
    int64_t line;     /* lines (JSON: elements) seen, for messages */
    const char *text; /* of the JSON element that is handed out in pieces, in buf; NULL: none */
    size_t text_bytes, text_at;
    bool list_open, list_end; /* of a .json file */
};

static bool is_letter(char c) { return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z'); }

/* Split patterns of byte-level BPE put a word and the single space before it together, so a cut there changes nothing. */
static size_t cut_at_space(const void *ctx, const char *text, size_t bytes)
{
    (void)ctx;
    for (size_t i = bytes; i-- > 2;)
        if (text[i - 1] == ' ' && is_letter(text[i]) && is_letter(text[i - 2])) return i - 1;
    return 0;
}

/* Where nothing better is known: not inside a UTF-8 character. */
static size_t cut_anywhere(const char *text, size_t bytes)
{
    size_t n = bytes;
    for (int i = 0; i < 3 && n > 1 && ((unsigned char)text[n] & 0xC0) == 0x80; i++) n--;
    return n;
}

/* How much of text (more than TN_PIECE_BYTES of it) is the next piece; text[bytes] is readable. */
static size_t piece_of(const tn_documents *d, const char *text, size_t bytes)
{
    const size_t n = d->o.cut(d->o.cut_ctx, text, bytes < TN_PIECE_BYTES ? bytes : TN_PIECE_BYTES);
    if (n) return n;
    const size_t space = cut_at_space(NULL, text, TN_PIECE_BYTES);
    return space ? space : cut_anywhere(text, TN_PIECE_BYTES);
}

tn_status tn_documents_open(const tn_input_files *in, const tn_documents_options *o, tn_documents **out)
{
    static const char *const words[] = { "none", "line", "blank", "wikitext" };
    tn_documents *d = tn_alloc(sizeof *d);
    if (!d) return TN_MEMORY;
    d->in = in;
    d->o = *o;
    if (!d->o.doc_sep || !*d->o.doc_sep) d->o.doc_sep = "none";
    if (!d->o.text_key) d->o.text_key = "text";
    if (!d->o.cut) d->o.cut = cut_at_space;
    d->sep = SEP_TEXT;
    for (int i = 0; i < 4; i++)
        if (strcmp(d->o.doc_sep, words[i]) == 0) d->sep = (separator)i;
    *out = d;
    return TN_OK;
}

void tn_documents_close(tn_documents *d)
{
    if (!d) return;
    tn_stream_close(d->stream);
    tn_free(d->buf);
    tn_free(d);
}

uint64_t tn_documents_consumed(const tn_documents *d)
{
    return d->consumed + (d->stream ? tn_stream_consumed(d->stream) : 0);
}

static const char *path_of(const tn_documents *d) { return d->in->v[d->file].path; }

/* More bytes behind `end`; what was handed out is dropped. The buffer always has a byte to spare behind `end`. */
static tn_status fill(tn_documents *d)
{
    void *p = d->buf;
    size_t got = 0;
    if (d->begin) memmove(d->buf, d->buf + d->begin, d->end - d->begin);
    d->end -= d->begin;
    d->begin = 0;
    TN_RETURN_IF(tn_grow(&p, &d->capacity, d->end + READ_BYTES + 1, 1));
    d->buf = p;
    TN_RETURN_IF(tn_stream_read(d->stream, d->buf + d->end, READ_BYTES, &got));
    d->end += got;
    d->file_end = got < READ_BYTES;
    return TN_OK;
}

static bool is_blank(const char *s, size_t n)
{
    for (size_t i = 0; i < n; i++)
        if (s[i] != ' ' && s[i] != '\t' && s[i] != '\r' && s[i] != '\n' && s[i] != '\f' && s[i] != '\v') return false;
    return true;
}

static tn_status open_next(tn_documents *d)
{
    TN_RETURN_IF(tn_stream_open(path_of(d), &d->stream));
    d->begin = d->end = d->scan = 0;
    d->file_end = d->inside = d->list_open = d->list_end = false;
    d->after_blank = true;
    d->sent = 0;
    d->line = 0;
    return TN_OK;
}

static void close_file(tn_documents *d)
{
    d->consumed += tn_stream_consumed(d->stream);
    tn_stream_close(d->stream);
    d->stream = NULL;
    d->file++;
}

/* --- text: lines and the separators between them ------------------------------------------------------------------------ */

/* Hands out n bytes from begin and goes over `skip` more. */
static bool hand_out(tn_documents *d, size_t n, size_t skip, bool ends_document, tn_piece *out)
{
    const bool send = n > 0 && (d->inside || !is_blank(d->buf + d->begin, n));
    if (send) *out = (tn_piece){ .text = d->buf + d->begin, .bytes = n, .first = !d->inside };
    d->begin += n + skip;
    d->scan = d->scan > n + skip ? d->scan - n - skip : 0;
    d->inside = !ends_document && (send || d->inside);
    d->sent = ends_document ? 0 : d->sent + (send ? n : 0);
    return send;
}

/* The line at begin + at, with its newline; false where its end is not in the buffer yet and more may come. */
static bool line_at(const tn_documents *d, size_t at, size_t *bytes)
{
    const size_t left = d->end - d->begin - at;
    const char *p = left ? d->buf + d->begin + at : ""; /* an empty file has no buffer */
    const char *newline = memchr(p, '\n', left);
    *bytes = newline ? (size_t)(newline - p) + 1 : left;
    return newline || d->file_end;
}

/* " = Title = " and not " = = Section = = ". */
static bool is_title(const char *s, size_t n)
{
    while (n && (s[n - 1] == '\n' || s[n - 1] == '\r' || s[n - 1] == ' ')) n--;
    while (n && *s == ' ') s++, n--;
    return n >= 5 && s[0] == '=' && s[1] == ' ' && s[2] != '=' && s[n - 1] == '=' && s[n - 2] == ' ' && s[n - 3] != '=';
}

static bool is_separator_text(const tn_documents *d, const char *s, size_t n)
{
    while (n && (s[n - 1] == '\n' || s[n - 1] == '\r')) n--;
    return n == strlen(d->o.doc_sep) && memcmp(s, d->o.doc_sep, n) == 0;
}

typedef enum boundary { GO_ON, BEFORE, DROP, AFTER, MORE } boundary;

/* What the line of n bytes at `scan` means; MORE: the line behind it has to be read first. */
static boundary boundary_at(const tn_documents *d, size_t n)
{
    const char *s = d->buf + d->begin + d->scan;
    const bool is_long = d->o.doc_bytes > 0 && d->sent + d->scan + n >= (uint64_t)d->o.doc_bytes;
    size_t next;
    switch (d->sep) {
    case SEP_LINE: return AFTER;
    case SEP_BLANK: return is_blank(s, n) ? DROP : GO_ON;
    case SEP_TEXT: return is_separator_text(d, s, n) ? DROP : GO_ON;
    case SEP_WIKITEXT:
        if (!d->after_blank || !is_title(s, n)) return GO_ON;
        if (!line_at(d, d->scan + n, &next)) return MORE;
        return is_blank(s + n, next) ? BEFORE : GO_ON;
    case SEP_NONE: return is_long ? AFTER : GO_ON;
    }
    return GO_ON;
}

/* One step through the text: *sent says whether *out is a piece. */
static tn_status text_step(tn_documents *d, tn_piece *out, bool *sent)
{
    size_t n;
    const size_t left = d->end - d->begin;
    *sent = false;
    if (left - d->scan >= TN_PIECE_BYTES || d->scan >= TN_PIECE_BYTES) {
        /* A long document: its scanned part if that is a piece, else the line that is longer than one. */
        const size_t most = d->scan >= TN_PIECE_BYTES ? d->scan : 0;
        if (most || !line_at(d, d->scan, &n) || n >= TN_PIECE_BYTES) {
            *sent = hand_out(d, piece_of(d, d->buf + d->begin, most ? most : left), 0, false, out);
            return TN_OK;
        }
    }
    const bool whole = line_at(d, d->scan, &n);
    const boundary b = whole && n ? boundary_at(d, n) : whole ? GO_ON : MORE;
    if (b == MORE) return fill(d);
    if (n == 0) { /* the end of the file */
        *sent = hand_out(d, left, 0, true, out);
        close_file(d);
        return TN_OK;
    }
    const bool blank = is_blank(d->buf + d->begin + d->scan, n);
    if (b == DROP) *sent = hand_out(d, d->scan, n, true, out);
    else if (b == AFTER) {
        const size_t newline = d->sep == SEP_LINE && d->buf[d->begin + d->scan + n - 1] == '\n';
        *sent = hand_out(d, d->scan + n - newline, newline, true, out);
    } else {
        if (b == BEFORE && (d->inside || !is_blank(d->buf + d->begin, d->scan))) {
            *sent = hand_out(d, d->scan, 0, true, out);
            d->after_blank = false; /* the title is the first line of the next document */
            d->scan = n;
            return TN_OK;
        }
        d->scan += n;
    }
    d->after_blank = blank;
    return TN_OK;
}

/* --- JSON: elements, one a line or in one list -------------------------------------------------------------------------- */

static tn_status bad_json(const tn_documents *d, const char *why)
{
    return tn_error(TN_BAD_FILE, "%.640s: %s %lld: %s", path_of(d),
                    d->in->v[d->file].format == TN_FORMAT_JSON ? "element" : "line", (long long)d->line + 1, why);
}

static tn_status need_more(tn_documents *d)
{
    if (d->file_end) return bad_json(d, "the file ends inside the list; it was cut short, download it again");
    if (d->end - d->begin > TN_ELEMENT_BYTES) return bad_json(d, "longer than 64 MiB; split it into several documents");
    return fill(d);
}

/* The first byte at or after begin that is no white space and no comma, in *c; 0 at the end of the file. */
static tn_status skip_space(tn_documents *d, bool comma, char *c)
{
    for (*c = 0;; d->begin++) {
        if (d->begin == d->end) {
            if (d->file_end) return TN_OK;
            TN_RETURN_IF(fill(d));
            if (d->begin == d->end) return TN_OK;
        }
        const char x = d->buf[d->begin];
        if (x == ',' && comma) {
            comma = false;
            continue;
        }
        if (x != ' ' && x != '\t' && x != '\r' && x != '\n') {
            *c = x;
            return TN_OK;
        }
    }
}

/* Length of the value at begin: to the comma or bracket that ends it. */
static tn_status element_extent(tn_documents *d, size_t *bytes)
{
    size_t depth = 0;
    bool quoted = false;
    for (size_t i = 0;; i++) {
        while (d->begin + i >= d->end) TN_RETURN_IF(need_more(d));
        const char c = d->buf[d->begin + i];
        if (quoted) {
            if (c == '\\') i++;
            else if (c == '"') quoted = false;
        } else if (c == '"') quoted = true;
        else if (c == '[' || c == '{') depth++;
        else if ((c == ']' || c == '}') && depth) depth--;
        else if ((c == ',' || c == ']' || c == '}') && !depth) {
            *bytes = i;
            return TN_OK;
        }
    }
}

/* The remedy names a key that is there and holds a text: the first. */
static tn_status no_text(const tn_documents *d, size_t at, size_t n)
{
    static const char plain[] = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_-.";
    char why[700], set[96] = "text_key=KEY", say[512], key[65];
    tn_json r;
    tn_json_open(&r, d->buf + at, n);
    if (tn_json_enter(&r, '{'))
        for (bool found = false; !found && tn_json_key(&r);) {
            const bool fits = r.raw_bytes < sizeof key;
            if (fits) memcpy(key, r.raw, r.raw_bytes);
            key[fits ? r.raw_bytes : 0] = 0;
            found = key[0] && strspn(key, plain) == strlen(key) && tn_json_peek(&r) == '"';
            if (found) snprintf(set, sizeof set, "text_key=%s", key);
            else (void)tn_json_skip(&r);
        }
    snprintf(why, sizeof why, "no text under \"%.64s\": %s", d->o.text_key, tn_input_files_hint(d->in, set, say));
    return bad_json(d, why);
}

/* The text of the element at buf + at: a string, or under text_key in an object. It is decoded where it lies, where it only
 * becomes shorter: a line takes its own bytes and no more. */
static tn_status json_text(tn_documents *d, size_t at, size_t n)
{
    tn_json r;
    char why[200];
    const char *raw = NULL; /* what tn_json_copy needs of the text, which is not the last thing read */
    size_t raw_bytes = 0, bytes = 0;
    tn_json_open(&r, d->buf + at, n);
    r.nul = true;
    const bool is_object = tn_json_enter(&r, '{');
    while (!is_object || tn_json_key(&r)) {
        if (is_object && !tn_json_is(&r, d->o.text_key)) (void)tn_json_skip(&r);
        else {
            raw = tn_json_text(&r) ? r.raw : NULL;
            raw_bytes = r.raw_bytes;
            bytes = r.bytes;
        }
        if (!is_object) break;
    }
    if (!tn_json_end(&r)) {
        snprintf(why, sizeof why, "%s; the file is damaged or not JSON", r.why);
        return bad_json(d, why);
    }
    if (!raw) return no_text(d, at, n);
    r.raw = raw;
    r.raw_bytes = raw_bytes;
    d->text = tn_json_copy(&r, d->buf + (raw - d->buf));
    d->text_bytes = bytes;
    d->text_at = 0;
    d->line++;
    return TN_OK;
}

static tn_status list_step(tn_documents *d)
{
    char c;
    size_t n;
    TN_RETURN_IF(skip_space(d, d->list_open && d->line > 0 && !d->list_end, &c));
    if (d->list_end) {
        if (c) return bad_json(d, "data follows the list; give one list of strings per file, or use .jsonl");
        close_file(d);
        return TN_OK;
    }
    if (!d->list_open) {
        if (c != '[')
            return bad_json(
                d, "the file is not a list of strings; for one object per line name it .jsonl or set format=jsonl");
        d->list_open = true;
        d->begin++;
        return TN_OK;
    }
    if (c == ']') {
        d->list_end = true;
        d->begin++;
        return TN_OK;
    }
    TN_RETURN_IF(element_extent(d, &n));
    const size_t at = d->begin;
    d->begin += n;
    return json_text(d, at, n);
}

static tn_status line_step(tn_documents *d)
{
    size_t n, seen = 0; /* bytes from begin that hold no newline */
    while (!line_at(d, seen, &n)) {
        seen += n;
        if (seen > TN_ELEMENT_BYTES) return bad_json(d, "longer than 64 MiB; is the file JSON Lines?");
        TN_RETURN_IF(fill(d));
    }
    n += seen;
    if (n == 0) {
        close_file(d);
        return TN_OK;
    }
    const size_t at = d->begin;
    d->begin += n;
    if (is_blank(d->buf + at, n)) {
        d->line++;
        return TN_OK;
    }
    return json_text(d, at, n);
}

static bool json_piece(tn_documents *d, tn_piece *out)
{
    const char *s = d->text + d->text_at;
    const size_t left = d->text_bytes - d->text_at, n = left > TN_PIECE_BYTES ? piece_of(d, s, left) : left;
    const bool send = n > 0 && (d->text_at > 0 || !is_blank(s, n));
    if (send) *out = (tn_piece){ .text = s, .bytes = n, .first = d->text_at == 0 };
    d->text_at += n;
    if (d->text_at == d->text_bytes) d->text = NULL;
    return send;
}

tn_status tn_documents_next(tn_documents *d, tn_piece *out)
{
    bool sent = false;
    while (!sent) {
        if (d->text) {
            sent = json_piece(d, out);
            continue;
        }
        if (!d->stream) {
            if (d->file == d->in->n) {
                *out = (tn_piece){ 0 };
                return TN_OK;
            }
            TN_RETURN_IF(open_next(d));
        }
        const tn_format f = d->in->v[d->file].format;
        if (f == TN_FORMAT_JSON) TN_RETURN_IF(list_step(d));
        else if (f == TN_FORMAT_JSONL) TN_RETURN_IF(line_step(d));
        else TN_RETURN_IF(text_step(d, out, &sent));
    }
    return TN_OK;
}
