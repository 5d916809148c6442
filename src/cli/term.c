/* Terminal facts and the progress line. A redraw is one write: carriage return, text cut to the width, clear to the
 * end; nothing is ever printed beyond the last column, since a wrapped line cannot be redrawn. */
#include "cli/term.h"

#include "base/text.h"

#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <unistd.h>

static const double TTY_EVERY_S = 0.1, PIPE_EVERY_S = 5;

static int width_of(int fd)
{
    struct winsize w;
    if (fd >= 0 && ioctl(fd, TIOCGWINSZ, &w) == 0 && w.ws_col > 0) return w.ws_col;
    const char *columns = getenv("COLUMNS");
    const long n = columns ? strtol(columns, NULL, 10) : 0;
    return n > 0 && n < 10000 ? (int)n : 80;
}

tn_term tn_term_of(FILE *f)
{
    const int fd = fileno(f);
    const char *no_color = getenv("NO_COLOR"), *kind = getenv("TERM");
    tn_term t = { .f = f, .tty = fd >= 0 && isatty(fd), .width = width_of(fd) };
    t.color = t.tty && !(no_color && *no_color) && !(kind && strcmp(kind, "dumb") == 0);
    return t;
}

size_t tn_term_fit(const char *s, int columns)
{
    size_t used = 0;
    for (; s[used] && columns > 0; columns--) {
        uint32_t code;
        const size_t n = tn_utf8_decode(s + used, &code);
        used += n ? n : 1;
    }
    return used;
}

void tn_progress_start(tn_progress *p, FILE *f)
{
    *p = (tn_progress){ .term = tn_term_of(f) };
    p->every_s = p->term.tty ? TTY_EVERY_S : PIPE_EVERY_S;
}

static void draw(tn_progress *p)
{
    const tn_term *t = &p->term;
    if (t->tty) fprintf(t->f, "\r%.*s\033[K", (int)tn_term_fit(p->text, t->width - 1), p->text);
    else fprintf(t->f, "%s\n", p->text);
    fflush(t->f);
    p->drawn = true;
    p->pending = false;
}

void tn_progress_line(tn_progress *p, double now_s, const char *fmt, ...)
{
    va_list ap;
    va_start(ap, fmt);
    vsnprintf(p->text, sizeof p->text, fmt, ap);
    va_end(ap);
    p->pending = true;
    if (p->drawn && now_s - p->last_s < p->every_s) return;
    p->last_s = now_s;
    draw(p);
}

void tn_progress_end(tn_progress *p)
{
    if (p->pending) draw(p);
    if (p->drawn && p->term.tty) fputc('\n', p->term.f);
    p->drawn = false;
}
