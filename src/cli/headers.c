/* Looks for tenon/model.h and tenon/ops.h beside the running binary. Asks no compiler and no pkg-config. */
#include "cli/headers.h"

#include "base/text.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static bool holds(const char *dir, const char *header)
{
    char path[2 * TN_PATH_BYTES];
    snprintf(path, sizeof path, "%s/tenon/%s", dir, header);
    return access(path, R_OK) == 0;
}

/* dir/part without links and dots; "" when it is not there. */
static void resolve(const char *dir, const char *part, char out[TN_PATH_BYTES])
{
    char path[2 * TN_PATH_BYTES];
    snprintf(path, sizeof path, "%s/%s", dir, part);
    char *real = realpath(path, NULL);
    snprintf(out, TN_PATH_BYTES, "%s", real ? real : "");
    free(real);
}

static void beside_binary(tn_headers *h)
{
    char own[TN_PATH_BYTES], above[TN_PATH_BYTES], folder[TN_PATH_BYTES];
    const ssize_t n = readlink("/proc/self/exe", folder, sizeof folder - 1);
    if (n <= 0) return;
    folder[n] = 0;
    snprintf(h->command, sizeof h->command, "%s", folder);
    *strrchr(folder, '/') = 0;
    resolve(folder, "include", own);
    resolve(folder, "../include", above);
    if (!holds(above, "model.h")) return;
    if (holds(above, "ops.h")) memcpy(h->dir[0], above, sizeof above);
    else if (holds(own, "ops.h")) {
        memcpy(h->dir[0], above, sizeof above);
        memcpy(h->dir[1], own, sizeof own);
    }
}

tn_status tn_headers_find(const char *given, tn_headers *out)
{
    tn_headers h = { .command = "tenon" };
    char quoted[80];
    beside_binary(&h);
    if (given) {
        if (!holds(given, "model.h") || !holds(given, "ops.h"))
            return tn_error(TN_USAGE,
                            "--include=%s has no tenon/model.h and tenon/ops.h: name the folder that `make install` "
                            "put them in, PREFIX/include",
                            tn_text_quote(given, quoted, sizeof quoted));
        resolve(given, ".", h.dir[0]);
        h.dir[1][0] = 0;
    }
    *out = h;
    return TN_OK;
}
