/* Clocks. */
#include "base/clock.h"

#include <time.h>

static double read_clock(clockid_t which)
{
    struct timespec t;
    clock_gettime(which, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

double tn_clock_s(void) { return read_clock(CLOCK_MONOTONIC); }

double tn_clock_cpu_s(void) { return read_clock(CLOCK_PROCESS_CPUTIME_ID); }
