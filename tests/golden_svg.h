/* Pictures against those in tests/golden/svg, which somebody has looked at in light and dark. TENON_RECORD=1 writes them anew; look at them
 * again then. Header only. */
#ifndef TN_GOLDEN_SVG_H
#define TN_GOLDEN_SVG_H

#include "base/alloc.h"
#include "base/fs.h"
#include "testlib.h"

#include <stdlib.h>
#include <string.h>

static inline void assert_golden_svg(const char *name, const char *svg)
{
    char path[256], *want = NULL;
    snprintf(path, sizeof path, "tests/golden/svg/%s.svg", name);
    if (getenv("TENON_RECORD")) assert_ok(tn_file_write_atomic(path, svg, strlen(svg)));
    assert_ok(tn_file_read_all(path, 1 << 20, &want, NULL));
    if (strcmp(want, svg) != 0) {
        size_t i = 0;
        while (want[i] == svg[i]) i++;
        fail_msg("%s differs from byte %zu on: \"%.60s\" instead of \"%.60s\" (TENON_RECORD=1 records it)", path, i,
                 svg + i, want + i);
    }
    tn_free(want);
}

#endif
