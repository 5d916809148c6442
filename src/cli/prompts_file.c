/* Takes a file of prompts apart at its lines. */
#include "cli/prompts_file.h"

#include "base/fs.h"
#include "base/text.h"

#include <string.h>

enum { MOST_BYTES = 64 << 20 };

static size_t count_lines(const char *text, size_t bytes)
{
    size_t n = 1;
    for (size_t i = 0; i < bytes; i++) n += text[i] == '\n';
    return n;
}

static tn_status add_prompt(const char *path, int64_t line, const char *text, size_t bytes, tn_prompts *p)
{
    if (strlen(text) != bytes || !tn_utf8_valid(text))
        return tn_error(TN_BAD_FILE, "%.300s:%lld: this line is not UTF-8 text, of which a prompt is made", path,
                        (long long)line);
    const char *where = tn_arena_printf(&p->arena, "%.300s:%lld", path, (long long)line);
    if (!where) return tn_error(TN_MEMORY, "out of memory");
    p->at[p->n] = (tn_sample_prompt){ .text = text, .bytes = bytes, .where = where };
    p->line[p->n++] = line;
    if (bytes > p->longest) p->longest = bytes;
    return TN_OK;
}

static tn_status split(const char *path, int64_t most, size_t bytes, tn_prompts *p)
{
    char *at = p->text, *const end = p->text + bytes;
    for (int64_t line = 1; at < end; line++) {
        char *next = memchr(at, '\n', (size_t)(end - at)), *stop = next ? next : end;
        if (stop > at && stop[-1] == '\r') stop--;
        *stop = 0; /* behind the last line is a NUL already */
        if (stop > at && p->n == most)
            return tn_error(TN_USAGE, "%.300s has more than %lld prompts, the most that are sampled together: split it",
                            path, (long long)most);
        if (stop > at) TN_RETURN_IF(add_prompt(path, line, at, (size_t)(stop - at), p));
        at = next ? next + 1 : end;
    }
    if (p->n == 0) return tn_error(TN_USAGE, "%.300s has no prompts: write one per line", path);
    return TN_OK;
}

tn_status tn_prompts_read(const char *path, int64_t most, tn_prompts *out)
{
    tn_prompts p = { 0 };
    size_t bytes;
    TN_RETURN_IF(tn_file_read_all(path, MOST_BYTES, &p.text, &bytes));
    const size_t lines = count_lines(p.text, bytes), room = lines < (size_t)most ? lines : (size_t)most;
    p.at = tn_arena_alloc(&p.arena, room * sizeof *p.at);
    p.line = tn_arena_alloc(&p.arena, room * sizeof *p.line);
    const tn_status s = p.at && p.line ? split(path, most, bytes, &p) : tn_error(TN_MEMORY, "out of memory");
    if (s == TN_OK) *out = p;
    else tn_prompts_free(&p);
    return s;
}

void tn_prompts_free(tn_prompts *p)
{
    tn_free(p->text);
    tn_arena_free(&p->arena);
    *p = (tn_prompts){ 0 };
}
