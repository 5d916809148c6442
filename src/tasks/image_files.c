/* Looks only at names and lengths of files; the readers look inside. */
#include "tasks/image_files.h"

#include "io/stream.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>

static bool is_file(const char *path)
{
    struct stat info;
    return stat(path, &info) == 0 && S_ISREG(info.st_mode);
}

/* Who asked for them, as it was said: the set's own task, or one that has its images. */
static const char *asked_by(const tn_settings *st, const tn_image_files *f, char buf[64])
{
    const bool own = strcmp(tn_settings_text(st, "task.name"), f->task) == 0;
    snprintf(buf, 64, "%s=%s", own ? "task" : "task.images", f->task);
    return buf;
}

tn_status tn__image_find(const tn_settings *st, const tn_image_files *f, const char *const *names, bool folder,
                         char *path)
{
    static const char *const endings[] = { "", ".gz", ".zst" };
    const char *data = tn_settings_text(st, "task.data");
    char by[64];
    struct stat info;
    asked_by(st, f, by);
    if (!*data)
        return tn_error(TN_USAGE, "%s needs its files: give task.data=FOLDER with %s in it (download: %s)%s", by,
                        f->needed, f->from, strncmp(by, "task=", 5) == 0 ? "" : "; task.images=strokes needs none");
    if (stat(data, &info) != 0) return tn_fs_error(TN_BAD_FILE, errno, "read", data);
    if (!S_ISDIR(info.st_mode) && !folder) return tn_path_join("", data, path, TN_PATH_BYTES);
    if (!S_ISDIR(info.st_mode))
        return tn_error(TN_USAGE, "task.data=%.640s is not a folder: %s needs one with %s in it", data, by, f->needed);
    for (; *names; names++)
        for (size_t i = 0; i < sizeof endings / sizeof *endings; i++) {
            char name[128];
            snprintf(name, sizeof name, "%s%s", *names, endings[i]);
            TN_RETURN_IF(tn_path_join(data, name, path, TN_PATH_BYTES));
            if (is_file(path)) return TN_OK;
        }
    return tn_error(TN_BAD_FILE, "%.640s contains no %s: %s needs %s there, packed (.gz) or not (download: %s)", data,
                    names[-1], by, f->needed, f->from);
}

tn_status tn__image_can_hold(const char *path, uint64_t bytes)
{
    struct stat info;
    if (stat(path, &info) != 0) return tn_fs_error(TN_BAD_FILE, errno, "read", path);
    if (bytes <= (uint64_t)info.st_size * TN_STREAM_RATIO + TN_STREAM_SLACK_BYTES) return TN_OK;
    return tn_error(TN_BAD_FILE,
                    "%.640s claims %llu bytes of samples in a file of %llu; it is damaged, download it again", path,
                    (unsigned long long)bytes, (unsigned long long)info.st_size);
}
