/* What fuzz targets share: an input as a file, because readers take paths, and what is demanded of every refusal. The files lie in
 * memory (/dev/shm) where there is such a place, in a folder of the process's own that goes with it. Header only. */
#ifndef TN_FUZZ_FILE_H
#define TN_FUZZ_FILE_H

#include "base/status.h"

#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define CHECK(x)                                                                                                       \
    do {                                                                                                               \
        if (!(x)) abort();                                                                                             \
    } while (0)

int LLVMFuzzerTestOneInput(const uint8_t *input, size_t bytes);

static char fuzz_folder[64], fuzz_last[128];

static void fuzz_tidy(void)
{
    unlink(fuzz_last);
    rmdir(fuzz_folder);
}

static inline const char *fuzz_dir(void)
{
    if (fuzz_folder[0]) return fuzz_folder;
    snprintf(fuzz_folder, sizeof fuzz_folder, "%s/tenon-fuzz-XXXXXX",
             access("/dev/shm", W_OK) == 0 ? "/dev/shm" : "/tmp");
    CHECK(mkdtemp(fuzz_folder));
    atexit(fuzz_tidy);
    return fuzz_folder;
}

/* The input as the file NAME; one at a time. */
static inline const char *fuzz_put(const char *name, const uint8_t *data, size_t bytes)
{
    char path[sizeof fuzz_last];
    snprintf(path, sizeof path, "%s/%s", fuzz_dir(), name);
    if (strcmp(path, fuzz_last) != 0 && fuzz_last[0]) unlink(fuzz_last);
    memcpy(fuzz_last, path, sizeof path);
    FILE *f = fopen(path, "wb");
    CHECK(f && fwrite(data, 1, bytes, f) == bytes && fclose(f) == 0);
    return fuzz_last;
}

/* Nothing but a bad file or a wrong setting, said in one line that a terminal can show. */
static inline void fuzz_refused(tn_status s)
{
    CHECK(s == TN_BAD_FILE || s == TN_USAGE);
    CHECK(tn_error_text()[0]);
    for (const unsigned char *p = (const unsigned char *)tn_error_text(); *p; p++) CHECK(*p >= ' ' && *p != 0x7f);
}

#endif
