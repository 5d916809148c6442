/* Linux: /proc/self/status has the peak, and /proc/self/clear_refs forgets it. What the allocator keeps of memory that was freed goes back to
 * the system first: else whoever comes next would seem to need less. */
#include "base/memory_peak.h"

#include <malloc.h>
#include <math.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>

/* "VmHWM:     1234 kB" */
static double status_bytes(const char *key)
{
    char line[256];
    double bytes = NAN;
    FILE *f = fopen("/proc/self/status", "r");
    while (f && isnan(bytes) && fgets(line, sizeof line, f))
        if (strncmp(line, key, strlen(key)) == 0) bytes = 1024 * strtod(line + strlen(key), NULL);
    if (f) fclose(f);
    return bytes;
}

double tn_memory_peak_begin(void)
{
#ifdef __GLIBC__
    (void)malloc_trim(0);
#endif
    FILE *f = fopen("/proc/self/clear_refs", "w");
    if (!f) return NAN;
    const bool written = fputs("5", f) >= 0;
    return fclose(f) == 0 && written ? status_bytes("VmRSS:") : NAN;
}

double tn_memory_peak(void) { return status_bytes("VmHWM:"); }

double tn_process_peak(void)
{
    struct rusage u;
    return getrusage(RUSAGE_SELF, &u) == 0 ? 1024.0 * (double)u.ru_maxrss : NAN;
}
