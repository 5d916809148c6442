/* Trajectories as CSV: a line for each step of each flow, the landing last. */
#include "report/flows/flows.h"

static void put_row(const tn_flows *f, int64_t b, int64_t slot, int64_t step, bool last, FILE *out)
{
    static const char *const landed[] = { "active", "exited", "projected" };
    const float *p = tn__flow_at(f, step, b, slot);
    const int32_t how = last ? f->landed[b * f->slots + slot] : 0;
    if (!tn__flow_is_place(p)) return;
    fprintf(out, "%lld,%lld,%lld,%.6g,%.6g,%.6g", (long long)b, (long long)slot, (long long)step,
            (p[0] + 1.0) / 2 * (double)(f->width - 1), (p[1] + 1.0) / 2 * (double)(f->height - 1), tn__flow_z(f, p[2]));
    for (int64_t k = 0; k < f->energy; k++) {
        fputc(',', out);
        if (isfinite(p[3 + k])) fprintf(out, "%.6g", p[3 + k]);
    }
    fprintf(out, ",%s\n", landed[how == 1 || how == 2 ? how : 0]);
}

tn_status tn_flows_csv(const tn_flows *f, FILE *out)
{
    int64_t first, last;
    fputs("sample,slot,step,x,y,z", out);
    for (int64_t k = 0; k < f->energy; k++)
        if (f->energy == 1) fputs(",energy", out);
        else fprintf(out, ",energy%lld", (long long)k);
    fputs(",status\n", out);
    for (int64_t b = 0; b < f->samples; b++)
        for (int64_t i = 0; i < f->slots; i++) {
            if (!tn__flow_span(f, b, i, &first, &last)) continue;
            for (int64_t t = first; t <= last; t++) put_row(f, b, i, t, t == last, out);
        }
    return ferror(out) ? tn_error(TN_DISK, "the trajectories could not be written") : TN_OK;
}
