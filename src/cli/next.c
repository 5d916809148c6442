/* Next commands. */
#include "cli/next.h"

#include <ctype.h>
#include <stdarg.h>
#include <string.h>

/* $'...', for names with line breaks and other control bytes: on one line, and a shell takes it back. */
static const char *escaped_word(const char *word, char *buf, size_t bytes)
{
    size_t n = 0;
    buf[n++] = '$';
    buf[n++] = '\'';
    for (const char *p = word; *p && n + 6 < bytes; p++) {
        const unsigned char c = (unsigned char)*p;
        if (c < ' ' || c == 0x7f) n += (size_t)snprintf(buf + n, bytes - n, "\\%03o", c);
        else {
            if (c == '\'' || c == '\\') buf[n++] = '\\';
            buf[n++] = (char)c;
        }
    }
    buf[n++] = '\'';
    buf[n] = 0;
    return buf;
}

const char *tn_shell_word(const char *word, char *buf, size_t bytes)
{
    bool plain = *word != 0;
    size_t n = 0;
    for (const char *p = word; *p; p++) {
        if (iscntrl((unsigned char)*p)) return escaped_word(word, buf, bytes);
        plain = plain && (isalnum((unsigned char)*p) || strchr("%+,-./:=@_", *p));
    }
    if (plain) {
        snprintf(buf, bytes, "%s", word);
        return buf;
    }
    buf[n++] = '\'';
    for (const char *p = word; *p && n + 6 < bytes; p++) {
        if (*p == '\'') memcpy(buf + n, "'\\''", 4), n += 4;
        else buf[n++] = *p;
    }
    buf[n++] = '\'';
    buf[n] = 0;
    return buf;
}

void tn_next(const tn_cli *c, const char *fmt, ...)
{
    char program[TN_PATH_BYTES];
    va_list ap;
    if (c->json) return;
    fflush(c->out); /* where both go to one place it comes last */
    fprintf(c->err, "next    %s ", tn_shell_word(c->program, program, sizeof program));
    va_start(ap, fmt);
    vfprintf(c->err, fmt, ap);
    va_end(ap);
    fputc('\n', c->err);
}

void tn_next_of(const tn_cli *c, const char *verb, const char *target, const char *more)
{
    static const char *const kept[] = { "model", "tokenizer" };
    enum { KEPT = sizeof kept / sizeof *kept };
    char path[TN_PATH_BYTES], value[TN_PATH_BYTES], words[KEPT * (TN_PATH_BYTES + 16)] = "";
    size_t n = 0;
    for (size_t i = 0; i < KEPT; i++) {
        const char *given = tn_cli_override(c, kept[i]);
        if (given)
            n += (size_t)snprintf(words + n, sizeof words - n, " %s=%s", kept[i],
                                  tn_shell_word(given, value, sizeof value));
    }
    tn_next(c, "%s %s%s%s", verb, tn_shell_word(target, path, sizeof path), words, more);
}
