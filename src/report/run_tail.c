/* Reads metrics.jsonl from near its end. A line that is cut, at the end of the file or where the part that is read begins, is none. */
#include "report/run_tail.h"

#include "base/fs.h"
#include "io/jsonl.h"

#include <math.h>
#include <string.h>

enum { TAIL_BYTES = 4 * TN_JSONL_LINE_BYTES };

tn_status tn_run_tail_open(const char *run, tn_jsonl_reader **out)
{
    char path[TN_PATH_BYTES];
    tn_jsonl_reader *r;
    TN_RETURN_IF(tn_path_join(run, "metrics.jsonl", path, sizeof path));
    TN_RETURN_IF(tn_jsonl_reader_open(path, &r));
    tn_jsonl_reader_forgive(r);
    const tn_status s = tn_jsonl_reader_tail(r, TAIL_BYTES);
    if (s == TN_OK) *out = r;
    else tn_jsonl_reader_close(r);
    return s;
}

/* Drops what stands further back than so many lines before line `end`, damaged ones counted. number: of each line in `out`. */
static void drop_old(json_t *out, int64_t number[TN_RUN_TAIL_LINES], int64_t end)
{
    while (json_array_size(out) && number[0] <= end - TN_RUN_TAIL_LINES) {
        json_array_remove(out, 0);
        memmove(number, number + 1, json_array_size(out) * sizeof *number);
    }
}

json_t *tn_run_tail(const char *run)
{
    int64_t number[TN_RUN_TAIL_LINES];
    tn_jsonl_reader *r;
    json_t *line, *out = json_array();
    if (tn_run_tail_open(run, &r) == TN_OK) {
        while (tn_jsonl_reader_next(r, &line) == TN_OK && line) {
            drop_old(out, number, tn_jsonl_reader_line(r));
            if (json_array_append(out, line) != 0) break;
            number[json_array_size(out) - 1] = tn_jsonl_reader_line(r);
        }
        drop_old(out, number, tn_jsonl_reader_line(r) - tn_jsonl_reader_cut(r));
        tn_jsonl_reader_close(r);
    }
    if (json_array_size(out)) return out;
    json_decref(out);
    return NULL;
}

double tn_run_tail_last(const json_t *tail, const char *key)
{
    double x;
    for (size_t i = json_array_size(tail); i-- > 0;)
        if (tn_jsonl_get_number(json_array_get(tail, i), key, &x) && !isnan(x)) return x;
    return NAN;
}

double tn_run_tail_mean(const json_t *tail, const char *key)
{
    double sum = 0, x;
    int n = 0;
    for (size_t i = 0; i < json_array_size(tail); i++)
        if (tn_jsonl_get_number(json_array_get(tail, i), key, &x) && isfinite(x)) sum += x, n++;
    return n ? sum / n : NAN;
}
