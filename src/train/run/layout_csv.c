/* The arena's layout as a table beside the metrics. A tensor without a name of its own is known by the op that makes it and
 * the part of the model that op belongs to. */
#include "train/run/metrics.h"

#include "base/alloc.h"
#include "base/fs.h"

#include <stdio.h>
#include <stdlib.h>

static void put_row(FILE *f, const char *plan, const tn_layout_row *r)
{
    fprintf(f, "%s,%zu,%zu,%zu,%zu,%s,%s,%s,%s,%s,%s,", plan, r->offset, r->bytes, r->first, r->last,
            r->workspace ? "workspace" : "tensor", r->name ? r->name : "", r->op, r->backward ? "backward" : "forward",
            r->region, tn_dtype_name(r->dtype));
    for (int i = 0; i < r->dims.rank; i++) fprintf(f, "%s%lld", i ? "x" : "", (long long)r->dims.dim[i]);
    fputc('\n', f);
}

static tn_status put_plan(FILE *f, const char *name, const tn_plan *p)
{
    const size_t n = tn_plan_layout(p, NULL);
    tn_layout_row *rows = tn_alloc(sizeof *rows * (n + 1));
    if (!rows) return TN_MEMORY;
    tn_plan_layout(p, rows);
    for (size_t i = 0; i < n; i++) put_row(f, name, &rows[i]);
    tn_free(rows);
    return TN_OK;
}

tn_status tn_layout_csv(tn_trainer *t, const char *csv)
{
    tn_status s = TN_OK;
    char *text = NULL;
    size_t bytes = 0;
    FILE *f = open_memstream(&text, &bytes);
    if (!f) TN_FAIL(TN_MEMORY, "out of memory while writing %s", csv);
    (void)tn_trainer_feed(t); /* the widest plans */
    fputs("plan,offset,bytes,first_step,last_step,kind,name,op,pass,region,dtype,shape\n", f);
    TN_TRY(put_plan(f, "train", tn_trainer_plan(t, true)));
    TN_TRY(put_plan(f, "eval", tn_trainer_plan(t, false)));
    const int closed = fclose(f);
    f = NULL;
    if (closed != 0) TN_FAIL(TN_MEMORY, "out of memory while writing %s", csv);
    TN_TRY(tn_file_write_atomic(csv, text, bytes));
done:
    if (f) fclose(f);
    free(text);
    return s;
}
