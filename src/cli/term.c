/* Terminal facts and the progress line. A redraw is one write: carriage return, the fields that fit, clear to the
 * end; nothing is ever printed beyond the last column, since a wrapped line cannot be redrawn. */
#define _GNU_SOURCE /* fopencookie */
#include "cli/term.h"

#include "base/text.h"
#include "cli/fold.h"

#include <errno.h>
#include <math.h>
#include <signal.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <time.h>
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

/* --- words from files -------------------------------------------------------------------------------------------------- */

typedef struct plain {
    FILE *plain;
    tn_fold fold; /* to the stream itself */
    int error;    /* the first */
    bool held;    /* the first byte of U+0080 to U+00BF waits for its second */
} plain;

/* What main made of the two streams of the process, before anything runs. */
static plain streams[2];

static ssize_t write_plain(void *cookie, const char *bytes, size_t n)
{
    plain *p = cookie;
    char out[1024];
    size_t used = 0;
    for (size_t i = 0; i < n; i++) {
        const unsigned char c = (unsigned char)bytes[i];
        const bool control = (c < 0x20 && c != '\n' && c != '\t') || c == 0x7f || (p->held && c >= 0x80 && c <= 0x9f);
        if (p->held && !control) out[used++] = (char)0xc2;
        p->held = c == 0xc2;
        if (!p->held) out[used++] = control ? '?' : (char)c;
        if (used + 2 < sizeof out && i + 1 < n) continue;
        if (!tn_fold_put(&p->fold, out, used)) break;
        used = 0;
    }
    if (used == 0 && fflush(p->fold.to) == 0) return (ssize_t)n;
    if (!p->error) p->error = errno;
    return 0;
}

FILE *tn_term_plain(FILE *to)
{
    plain *p = &streams[to == stderr];
    *p = (plain){ .fold = { .to = to, .width = isatty(fileno(to)) ? width_of(fileno(to)) : 0 } };
    p->plain = fopencookie(p, "w", (cookie_io_functions_t){ .write = write_plain });
    if (!p->plain) return to;
    if (to == stderr) setvbuf(p->plain, NULL, _IONBF, 0);
    return p->plain;
}

static plain *plain_of(FILE *f)
{
    for (size_t i = 0; i < sizeof streams / sizeof *streams; i++)
        if (f && streams[i].plain == f) return &streams[i];
    return NULL;
}

static FILE *under(FILE *f)
{
    plain *p = plain_of(f);
    if (!p) return f;
    tn_term_flush(f); /* what was said before comes first */
    return p->fold.to;
}

void tn_term_flush(FILE *f)
{
    plain *p = plain_of(f);
    fflush(f);
    if (p && (!tn_fold_end(&p->fold) || fflush(p->fold.to) != 0) && !p->error) p->error = errno;
}

int tn_term_errno(FILE *f) { return plain_of(f) ? plain_of(f)->error : 0; }

void tn_term_fold(FILE *f, tn_folding how)
{
    plain *p = plain_of(f);
    if (!p) return;
    fflush(f);
    if (how == TN_FOLD_NEVER) p->fold.width = 0;
    else if (how == TN_FOLD_ALWAYS) p->fold.width = width_of(fileno(p->fold.to));
    p->fold.plain = how == TN_FOLD_TEXT;
}

tn_term tn_term_of(FILE *stream)
{
    FILE *f = under(stream);
    const int fd = fileno(f);
    const char *no_color = getenv("NO_COLOR"), *kind = getenv("TERM");
    tn_term t = { .f = f, .tty = fd >= 0 && isatty(fd), .width = width_of(fd) };
    t.color = t.tty && !(no_color && *no_color) && !(kind && strcmp(kind, "dumb") == 0);
    return t;
}

static size_t cut(const char *s, int columns)
{
    size_t used = 0;
    for (; s[used] && columns > 0; columns--) {
        uint32_t code;
        const size_t n = tn_utf8_decode(s + used, &code);
        used += n ? n : 1;
    }
    return used;
}

/* The last place in the second half of s[0..most] where a field or an item of a list ends; 0: there is none. */
static size_t last_end(const char *s, size_t most, bool item)
{
    for (size_t i = most; i > most / 2; i--)
        if (item ? s[i] == ' ' && s[i - 1] == ',' : s[i] == ' ' && s[i + 1] == ' ' && s[i - 1] != ' ') return i - item;
    return 0;
}

size_t tn_term_fit(const char *s, int columns)
{
    const size_t most = cut(s, columns);
    size_t word = most, end;
    if (!s[most]) return most;
    while (word > 0 && s[word] != ' ') word--;
    if ((end = last_end(s, most, false)) || (end = last_end(s, most, true))) return end;
    return word ? word : most;
}

void tn_term_print(const tn_term *t, const char *text)
{
    tn_fold f = { .to = t->f, .width = t->tty ? t->width : 0 };
    (void)tn_fold_put(&f, text, strlen(text)); /* whoever flushes the stream sees what failed */
    (void)tn_fold_end(&f);
}

const char *tn_clock_text(double s, char buf[32])
{
    if (!isfinite(s) || s > 1e8) return "?";
    const long n = (long)(s + 0.5);
    if (n >= 3600) snprintf(buf, 32, "%ld:%02ld:%02ld", n / 3600, n / 60 % 60, n % 60);
    else snprintf(buf, 32, "%ld:%02ld", n / 60, n % 60);
    return buf;
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
    tn_text_clean(p->text);
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

/* --- Ctrl-C ------------------------------------------------------------------------------------------------------- */

/* The one piece of process state that the command needs. */
static volatile sig_atomic_t interrupts;     /* the signal, or 0 */
static volatile sig_atomic_t interrupted_ms; /* when it came */

/* A second one ends the process at once, but not within this time: `timeout --foreground`, and others that run a command, pass on what
 * the terminal has sent to all of them. */
enum { TOGETHER_MS = 100 };

static void on_signal(int number)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    const int now = (int)(t.tv_sec % 1000000 * 1000 + t.tv_nsec / 1000000);
    if (!interrupts) interrupted_ms = now;
    if (interrupts && now - interrupted_ms >= TOGETHER_MS) {
        signal(number, SIG_DFL);
        raise(number); /* when this handler has returned */
    }
    if (interrupts != SIGTERM) interrupts = number; /* of two that wait the last comes first, and the stronger stays */
}

static void catch_signals(int flags)
{
    struct sigaction a = { .sa_handler = on_signal, .sa_flags = flags };
    sigaction(SIGINT, &a, NULL);
    sigaction(SIGTERM, &a, NULL);
}

void tn_interrupt_watch(void)
{
    interrupts = 0;
    catch_signals(SA_RESTART);
}

void tn_interrupt_reads(bool end)
{
    if (!interrupts) catch_signals(end ? 0 : SA_RESTART);
}

bool tn_interrupted(void *unused)
{
    (void)unused;
    return interrupts != 0;
}

bool tn_terminated(void) { return interrupts == SIGTERM; }
