/* Clocks. */
#include "base/clock.h"

#include <math.h>
#include <stdio.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

static double read_clock(clockid_t which)
{
    struct timespec t;
    clock_gettime(which, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

double tn_clock_s(void) { return read_clock(CLOCK_MONOTONIC); }

double tn_clock_cpu_s(void) { return read_clock(CLOCK_PROCESS_CPUTIME_ID); }

/* The kernel keeps when a process began in ticks since the machine did: the twentieth number behind its name, which may hold
 * anything and ends at the last parenthesis. */
double tn_clock_process_s(void)
{
    char text[1024];
    unsigned long long ticks = 0;
    FILE *f = fopen("/proc/self/stat", "r");
    if (!f) return NAN;
    const size_t n = fread(text, 1, sizeof text - 1, f);
    fclose(f);
    text[n] = 0;
    const char *p = strrchr(text, ')');
    for (int i = 0; p && i < 20; i++) p = strchr(p + 1, ' ');
    if (!p || sscanf(p, "%llu", &ticks) != 1) return NAN;
    return read_clock(CLOCK_BOOTTIME) - (double)ticks / (double)sysconf(_SC_CLK_TCK);
}
