/* Preloaded: the wall clock is off by as many seconds as the file that $WALL_SHIFT names says, so a test can set it back or forth while a program
 * runs. Waits until a time of the real wall clock are not shifted: one that was computed before the clock is set back lies in the future then, as
 * it would. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <fcntl.h>
#include <stdlib.h>
#include <time.h>
#include <unistd.h>

static long shift(void)
{
    const char *path = getenv("WALL_SHIFT");
    char text[32] = "";
    const int f = path ? open(path, O_RDONLY | O_CLOEXEC) : -1;
    if (f < 0) return 0;
    const ssize_t n = read(f, text, sizeof text - 1);
    close(f);
    return n > 0 ? atol(text) : 0;
}

int clock_gettime(clockid_t which, struct timespec *t)
{
    static int (*real)(clockid_t, struct timespec *);
    if (!real) *(void **)&real = dlsym(RTLD_NEXT, "clock_gettime");
    const int rc = real(which, t);
    if (which == CLOCK_REALTIME) t->tv_sec += shift();
    return rc;
}

time_t time(time_t *out)
{
    struct timespec t;
    clock_gettime(CLOCK_REALTIME, &t);
    if (out) *out = t.tv_sec;
    return t.tv_sec;
}
