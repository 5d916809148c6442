/* Where the headers for models of one's own are, for `tenon new` (which writes it down) and `tenon doctor`. */
#ifndef TN_CLI_HEADERS_H
#define TN_CLI_HEADERS_H

#include "base/fs.h"

typedef struct tn_headers {
    char command[TN_PATH_BYTES]; /* the running binary; "tenon" where nobody knows */
    char dir[2][TN_PATH_BYTES];  /* folders with tenon/ in them; "" where there is none. A build tree needs two: */
} tn_headers;                    /* include/, and build/include/ with the ops.h made there */

/* `given` (may be NULL) must hold tenon/model.h and tenon/ops.h. Else looks beside the running binary: ../include where
 * it is installed, include and ../include in a build tree. Finding nothing leaves both folders "" and is no error. */
tn_status tn_headers_find(const char *given, tn_headers *out);

#endif
