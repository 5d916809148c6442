/* The progress line: redrawn and cut at a field on a terminal, seldom and whole elsewhere. */
#include "cli/term.h"

#include "testlib.h"

#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

typedef struct capture {
    FILE *f;
    char *text;
    size_t bytes;
} capture;

static void start(capture *c, tn_progress *p, bool tty)
{
    c->f = open_memstream(&c->text, &c->bytes);
    assert_non_null(c->f);
    tn_progress_start(p, c->f);
    assert_false(p->term.tty); /* a memory stream is none */
    if (!tty) return;
    p->term.tty = true;
    p->term.width = 8;
    p->every_s = 0.1;
}

static void expect(capture *c, const char *text)
{
    fclose(c->f);
    assert_string_equal(c->text, text);
    free(c->text);
}

static void piped(void **state)
{
    (void)state;
    capture c;
    tn_progress p;
    start(&c, &p, false);
    for (int step = 0; step <= 12; step++) tn_progress_line(&p, step, "step %d", step);
    tn_progress_end(&p);
    expect(&c, "step 0\nstep 5\nstep 10\nstep 12\n");
}

static void drawn(void **state)
{
    (void)state;
    capture c;
    tn_progress p;
    start(&c, &p, true);
    tn_progress_line(&p, 0, "one");
    tn_progress_line(&p, 0.05, "too soon");
    tn_progress_line(&p, 0.2, "\xe2\x96\x88\xe2\x96\x88 a long line");
    tn_progress_end(&p);
    expect(&c, "\rone\033[K\r\xe2\x96\x88\xe2\x96\x88 a\033[K\n");
}

static void silent(void **state)
{
    (void)state;
    capture c;
    tn_progress p;
    start(&c, &p, true);
    tn_progress_end(&p);
    expect(&c, "");
}

static void fit(void **state)
{
    (void)state;
    assert_int_equal(tn_term_fit("abc", 2), 2);
    assert_int_equal(tn_term_fit("abc", 9), 3);
    assert_int_equal(tn_term_fit("\xc3\xa9t", 1), 2);
    assert_int_equal(tn_term_fit("\xff\xfft", 2), 2);
    assert_int_equal(tn_term_fit("abc", 0), 0);
    assert_int_equal(tn_term_fit("ab cd", 4), 2);
    assert_int_equal(tn_term_fit("ab cd", 5), 5);
    assert_int_equal(tn_term_fit("loss 1.25  lr 3e-3  |g| 0.1", 26), 18); /* whole fields */
    assert_int_equal(tn_term_fit("loss 1.25  lr 3e-3  |g| 0.1", 18), 18);
    assert_int_equal(tn_term_fit("loss 1.25  lr 3e-3  |g| 0.1", 17), 9);
    assert_int_equal(tn_term_fit("loss 1.25  lr", 8), 4);
    assert_int_equal(tn_term_fit("running  a/1 epoch 7, b/2 epoch 12, c/3", 33), 20); /* whole items of a list */
    assert_int_equal(tn_term_fit("running  a/1 epoch 7, b/2 epoch 12, c/3", 35), 34);
}

/* Control bytes arrive as '?', also where a character is cut between two writes; letters of two bytes and more stay. */
static void plain(void **state)
{
    (void)state;
    capture c = { 0 };
    c.f = open_memstream(&c.text, &c.bytes);
    FILE *f = tn_term_plain(c.f);
    assert_true(f && f != c.f);
    setvbuf(f, NULL, _IONBF, 0);
    fputs("a\033[31m\tb\r\x7f\n", f);
    fputs("\xc2", f);
    fputs("\x9b"
          "2J \xc2",
          f);
    fputs("\xa0 \xc3\xa9 \xe2\x82\xac", f);
    tn_progress p;
    tn_progress_start(&p, f); /* the command's own line goes past it */
    p.term.tty = true;
    p.term.width = 20;
    tn_progress_line(&p, 0, "x\033]0;y\007");
    tn_progress_end(&p);
    expect(&c, "a?[31m\tb??\n?2J \xc2\xa0 \xc3\xa9 \xe2\x82\xac\rx?]0;y?\033[K\n");
}

static void errors(void **state)
{
    (void)state;
    assert_fails(tn_error(TN_USAGE, "%s is not there",
                          "a\033[2J\nb\xc2\x9b"
                          "c \xc3\xa9"),
                 TN_USAGE, "a?[2J b??c \xc3\xa9 is not there");
    tn_error_prefix("%s", "\033x");
    assert_string_equal(tn_error_text(), "?x: a?[2J b??c \xc3\xa9 is not there");
}

/* Signals as `timeout --foreground` doubles them, then one of a user who does not want to wait. */
static void signals(void **state)
{
    (void)state;
    int status = 0, lived[2];
    char byte = 0;
    assert_int_equal(pipe(lived), 0);
    const pid_t child = fork();
    assert_true(child >= 0);
    if (child == 0) {
        tn_interrupt_watch();
        raise(SIGINT);
        raise(SIGINT);
        if (tn_interrupted(NULL) && !tn_terminated() && write(lived[1], "x", 1) == 1) {
            nanosleep(&(struct timespec){ .tv_nsec = 150000000 }, NULL);
            raise(SIGINT);
        }
        _exit(1);
    }
    close(lived[1]);
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_int_equal(read(lived[0], &byte, 1), 1);
    close(lived[0]);
    assert_true(WIFSIGNALED(status) && WTERMSIG(status) == SIGINT);
}

void tn_tests_term(tn_test_list *l)
{
    tn_test_add(l, piped, NULL, "term: piped progress");
    tn_test_add(l, drawn, NULL, "term: drawn progress");
    tn_test_add(l, silent, NULL, "term: no progress");
    tn_test_add(l, fit, NULL, "term: fit");
    tn_test_add(l, plain, NULL, "term: words from files");
    tn_test_add(l, errors, NULL, "term: errors are one line of text");
    tn_test_add(l, signals, NULL, "term: the same signal twice at once is one, later it ends the process");
}
