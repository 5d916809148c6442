/* What git leaves in the place of a large file that was not fetched: a small text. Header only. */
#ifndef TN_IO_LFS_H
#define TN_IO_LFS_H

#include <stdbool.h>
#include <stddef.h>
#include <string.h>

#define TN_LFS_REMEDY "it is a pointer of Git LFS, not the file itself: run `git lfs pull` where it was cloned"

static inline bool tn_is_lfs_pointer(const void *p, size_t bytes)
{
    static const char first[] = "version https://git-lfs";
    return bytes >= sizeof first - 1 && memcmp(p, first, sizeof first - 1) == 0;
}

#endif
