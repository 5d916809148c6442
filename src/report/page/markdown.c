/* Escapes, part by part. */
#include "report/page/markdown.h"

#include "base/text.h"

#include <string.h>

enum { PART = 256 };

/* Bytes of the next part: a character is not cut. */
static size_t part_of(const char *s)
{
    size_t n = strnlen(s, PART);
    while (n > 1 && ((unsigned char)s[n] & 0xc0) == 0x80) n--;
    return n;
}

void tn_markdown_text(FILE *out, const char *s)
{
    char part[PART + 1];
    for (size_t n; *s; s += n) {
        n = part_of(s);
        memcpy(part, s, n);
        part[n] = 0;
        tn_text_clean(part);
        for (const char *p = part; *p; p++) {
            if (*p == '|' || *p == '<') fputc('\\', out);
            fputc(*p, out);
        }
    }
}
