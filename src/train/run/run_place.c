/* Where a run may be written. run=DIR on the command line may be anywhere; a settings file may name only a directory
 * below the current one, or the run that the file is in: files from others do not choose what is overwritten. */
#include "train/run/run.h"

#include "base/fs.h"
#include "train/run/run_info.h"

#include <string.h>
#include <sys/stat.h>

/* source: "FILE:LINE". */
static bool is_own_run(const char *source, const char *run)
{
    char dir[TN_RUN_PATH];
    struct stat a, b;
    const char *slash = strrchr(source, '/');
    const size_t n = slash ? (size_t)(slash - source) + (slash == source) : 0;
    if (n >= sizeof dir) return false;
    memcpy(dir, slash ? source : ".", slash ? n : 1);
    dir[slash ? n : 1] = 0;
    return stat(dir, &a) == 0 && stat(run, &b) == 0 && a.st_dev == b.st_dev && a.st_ino == b.st_ino;
}

tn_status tn_run_is_target(tn_settings *st, const char *target)
{
    char dir[TN_RUN_PATH];
    size_t n = target ? strlen(target) : 0;
    while (n > 1 && target[n - 1] == '/') n--;
    if (!n || n >= sizeof dir || strcmp(tn_settings_source(st, "run"), "command line") == 0) return TN_OK;
    memcpy(dir, target, n);
    dir[n] = 0;
    return tn_is_run(dir) ? tn_settings_set(st, "run", dir, "command line") : TN_OK;
}

tn_status tn__run_check_path(const tn_settings *st)
{
    const char *run = tn_settings_text(st, "run"), *source = tn_settings_source(st, "run");
    const char *colon = strrchr(source, ':');
    const bool from_file = colon && colon[1] && strspn(colon + 1, "0123456789") == strlen(colon + 1);
    if (!run[0] || !from_file || tn_path_is_below(run) || is_own_run(source, run)) return TN_OK;
    return tn_error(TN_USAGE,
                    "run: %.300s says %.300s, which is outside the current directory: a file may not choose that; type "
                    "run=%.300s to allow it",
                    source, run, run);
}
