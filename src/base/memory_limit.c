/* Memory limits from /proc and /sys. In a container the group's path may be "/" or not mounted: every prefix of it with
 * a limit counts. */
#include "base/memory_limit.h"

#include "base/fs.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static const double NO_LIMIT = 1e30;

/* The first line of a small file of the system; false where there is none. */
static bool first_line(const char *path, char *line, int bytes)
{
    FILE *f = fopen(path, "r");
    if (!f) return false;
    const bool ok = fgets(line, bytes, f) != NULL;
    fclose(f);
    return ok;
}

static double limit_in(const char *path)
{
    char line[64], *end;
    if (!first_line(path, line, sizeof line)) return NO_LIMIT;
    const double x = strtod(line, &end);
    return end != line && x > 0 ? x : NO_LIMIT; /* "max" is none */
}

double tn_memory_limit_of_group(const char *root, const char *group)
{
    char path[TN_PATH_BYTES];
    double least = NO_LIMIT;
    for (size_t n = strlen(group);; n--) {
        if (n && group[n] != '/' && group[n]) continue;
        if (snprintf(path, sizeof path, "%s%.*s/memory.max", root, (int)n, group) < (int)sizeof path) {
            const double x = limit_in(path);
            if (x < least) least = x;
        }
        if (n == 0) return least;
    }
}

double tn_memory_limit(void)
{
    char line[1024] = "";
    const long pages = sysconf(_SC_PHYS_PAGES), bytes = sysconf(_SC_PAGESIZE);
    double least = pages > 0 && bytes > 0 ? (double)pages * (double)bytes : 4e9;
    const bool grouped = first_line("/proc/self/cgroup", line, sizeof line) && strncmp(line, "0::", 3) == 0;
    line[strcspn(line, "\n")] = 0;
    const double of_group = tn_memory_limit_of_group("/sys/fs/cgroup", grouped ? line + 3 : ""),
                 version_1 = limit_in("/sys/fs/cgroup/memory/memory.limit_in_bytes");
    if (of_group < least) least = of_group;
    return version_1 < least ? version_1 : least;
}

double tn_memory_available(void)
{
    char line[256];
    double kib = 0;
    const double limit = tn_memory_limit();
    FILE *f = fopen("/proc/meminfo", "r");
    while (f && kib <= 0 && fgets(line, sizeof line, f))
        if (strncmp(line, "MemAvailable:", 13) == 0) kib = strtod(line + 13, NULL);
    if (f) fclose(f);
    return kib > 0 && 1024 * kib < limit ? 1024 * kib : limit;
}
