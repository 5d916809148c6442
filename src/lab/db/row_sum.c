/* tn_sum(). */
#include "lab/db/row_sum.h"

#include <stdint.h>
#include <string.h>
#include <xxhash.h>

static void sum(sqlite3_context *to, int n, sqlite3_value **v)
{
    uint64_t h = (uint64_t)n;
    for (int i = 0; i < n; i++) {
        const int type = sqlite3_value_type(v[i]);
        const uint64_t seed = h * 31 + (uint64_t)type; /* so that 1 and '1', '' and NULL differ */
        if (type == SQLITE_INTEGER || type == SQLITE_FLOAT) {
            const sqlite3_int64 whole = type == SQLITE_INTEGER ? sqlite3_value_int64(v[i]) : 0;
            const double number =
                type == SQLITE_FLOAT ? sqlite3_value_double(v[i]) + 0.0 : 0; /* -0 is read back as 0 */
            h = XXH3_64bits_withSeed(type == SQLITE_INTEGER ? (const void *)&whole : &number, 8, seed);
        } else {
            const void *bytes = type == SQLITE_NULL ? NULL : sqlite3_value_blob(v[i]);
            h = XXH3_64bits_withSeed(bytes ? bytes : "", bytes ? (size_t)sqlite3_value_bytes(v[i]) : 0, seed);
        }
    }
    sqlite3_result_int64(to, (sqlite3_int64)h);
}

int tn__row_sum_register(sqlite3 *db)
{
    return sqlite3_create_function_v2(db, "tn_sum", -1, SQLITE_UTF8 | SQLITE_DETERMINISTIC | SQLITE_DIRECTONLY, NULL,
                                      sum, NULL, NULL, NULL);
}
