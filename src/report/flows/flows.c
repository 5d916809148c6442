/* Flows in figures, and what their pictures share. */
#include "report/flows/flows.h"

#include "base/alloc.h"

double tn__flow_energy(const tn_flows *f, const float *e)
{
    double sum = 0;
    for (int64_t k = 0; k < f->energy; k++) {
        if (!isfinite(e[k])) return NAN;
        sum += (double)e[k] * e[k];
    }
    return f->energy == 1 ? (double)e[0] : sqrt(sum);
}

bool tn__flow_span(const tn_flows *f, int64_t sample, int64_t slot, int64_t *first, int64_t *last)
{
    int64_t a = 0, b = f->steps;
    while (a <= b && !tn__flow_is_place(tn__flow_at(f, a, sample, slot))) a++;
    while (b > a && !tn__flow_is_place(tn__flow_at(f, b, sample, slot))) b--;
    *first = a, *last = b;
    return a <= b;
}

static int64_t nearest(double w, int64_t cells)
{
    const double c = rint((w + 1) / 2 * (double)(cells - 1));
    return c <= 0 ? 0 : c >= (double)cells ? cells - 1 : (int64_t)c;
}

int64_t tn__flow_cell(const tn_flows *f, double u, double v)
{
    return isfinite(u) && isfinite(v) ? nearest(v, f->height) * f->width + nearest(u, f->width) : -1;
}

/* + 0: a zero has no sign. */
double tn__flow_z(const tn_flows *f, double z) { return f->depth > 0 ? (z + 1) / 2 * (double)f->depth : z + 0.0; }

static double largest(double so_far, const float *x, int64_t n)
{
    for (int64_t i = 0; x && i < n; i++)
        if (isfinite(x[i]) && fabs((double)x[i]) > so_far) so_far = fabs((double)x[i]);
    return so_far;
}

/* Of energies: their lengths count. */
static double largest_energy(const tn_flows *f, double so_far, const float *e, int64_t n, int64_t stride)
{
    for (int64_t i = 0; i < n; i++) {
        const double x = fabs(tn__flow_energy(f, e + i * stride));
        if (x > so_far) so_far = x;
    }
    return so_far;
}

double tn__flows_scale(const tn_flows *f)
{
    const int64_t S = f->width * f->height;
    double most = largest(0, f->input, f->samples * S);
    most = largest(most, f->target, f->samples * f->target_planes * S);
    most = largest(most, f->output, f->samples * f->planes * S);
    most = largest_energy(f, most, f->paths + 3, (f->steps + 1) * f->samples * f->slots, 3 + f->energy);
    if (most < 1e-30) return 1;
    const double power = pow(10, floor(log10(most))), lead = most / power, slack = 1 + 1e-6;
    return power * (lead <= slack ? 1 : lead <= 2 * slack ? 2 : lead <= 5 * slack ? 5 : 10);
}

/* Points at equal distances on the sum of all weights fall into slots; those that have been chosen are not again. */
int64_t tn__flows_choose(const tn_flows *f, int64_t sample, int64_t most, int64_t *slots)
{
    const int64_t S = f->width * f->height;
    const float *input = f->input + sample * S;
    int64_t used = 0, n = 0, first, last;
    double ink = 0, sum = 0;
    for (int64_t i = 0; i < f->slots; i++) used += tn__flow_span(f, sample, i, &first, &last);
    for (int64_t i = 0; i < S; i++) ink += isfinite(input[i]) ? fabs((double)input[i]) : 0;
    for (int64_t i = 0; i < f->slots && used; i++) {
        if (!tn__flow_span(f, sample, i, &first, &last)) continue;
        const double own = i < S && ink > 0 && isfinite(input[i]) ? fabs((double)input[i]) / ink : 0;
        const double before = sum;
        sum += ink > 0 ? 0.5 / (double)used + 0.5 * own : 1 / (double)used;
        if (used <= most || floor(sum * (double)most + 0.5) > floor(before * (double)most + 0.5)) slots[n++] = i;
        if (n == most) break;
    }
    return n;
}

void tn__flows_landings(const tn_flows *f, int64_t sample, double *count, double *mean)
{
    const int64_t S = f->width * f->height;
    for (int64_t i = 0; i < 2 * S; i++) count[i] = mean[i] = 0;
    for (int64_t i = 0; i < f->slots; i++) {
        const int64_t at = sample * f->slots + i, cell = tn__flow_cell(f, f->u[at], f->v[at]);
        const double e = tn__flow_energy(f, f->e + at * f->energy);
        if (!f->landed[at] || cell < 0 || !isfinite(e)) continue;
        const int64_t place = (f->plane[at] != 0) * S + cell;
        count[place] += 1;
        mean[place] += e;
    }
    for (int64_t i = 0; i < 2 * S; i++) mean[i] = count[i] > 0 ? mean[i] / count[i] : NAN;
}

/* --- figures ---------------------------------------------------------------------------------------------------------------- */

/* Cells that a sample's landings hit on either plane, and the entropy of where they are. */
static void measure_cells(const tn_flows *f, const double *count, tn_flows_figures *m)
{
    const int64_t S = f->width * f->height;
    double all = 0, entropy = 0;
    for (int64_t i = 0; i < 2 * S; i++) all += count[i];
    for (int64_t i = 0; i < S; i++) {
        const double n = count[i] + count[S + i];
        if (n <= 0) continue;
        m->hit += 1;
        entropy -= n / all * log(n / all);
    }
    m->entropy += entropy;
}

static double psnr_of(const tn_flows *f, int64_t first, int64_t samples)
{
    const int64_t each = f->planes * f->width * f->height;
    double squares = 0;
    if (!f->target || f->target_planes != f->planes || !f->answers) return NAN;
    for (int64_t i = first * each; i < (first + samples) * each; i++)
        squares += ((double)f->output[i] - f->target[i]) * ((double)f->output[i] - f->target[i]);
    return 10 * log10((double)(samples * each) / fmax(squares, 1e-10 * (double)(samples * each)));
}

tn_status tn_flows_measure(const tn_flows *f, int64_t first, int64_t samples, tn_flows_figures *out)
{
    const int64_t S = f->width * f->height;
    tn_flows_figures m = { .most = log((double)S) };
    double age = 0, upper = 0, *count = tn_alloc(sizeof *count * (size_t)(4 * S));
    if (!count) return TN_MEMORY;
    for (int64_t b = first; b < first + samples; b++) {
        for (int64_t i = b * f->slots; i < (b + 1) * f->slots; i++) {
            if (!f->landed[i]) continue;
            m.flows++;
            m.exited += f->landed[i] == 1;
            m.projected += f->landed[i] == 2;
            age += f->age[i];
            upper += f->plane[i] != 0;
        }
        tn__flows_landings(f, b, count, count + 2 * S);
        measure_cells(f, count, &m);
    }
    m.age = m.flows ? age / (double)m.flows : NAN;
    m.upper = m.flows ? upper / (double)m.flows : NAN;
    m.hit = samples > 0 ? m.hit / (double)samples : NAN;
    m.entropy = samples > 0 ? m.entropy / (double)samples : NAN;
    m.psnr = samples > 0 ? psnr_of(f, first, samples) : NAN;
    tn_free(count);
    *out = m;
    return TN_OK;
}

const char *tn_flows_caption(const tn_flows_figures *m, char *buf, size_t bytes)
{
    char age[48] = "", psnr[48] = "";
    if (isfinite(m->age)) snprintf(age, sizeof age, ", mean age %.1f steps", m->age);
    if (isfinite(m->psnr)) snprintf(psnr, sizeof psnr, ", PSNR %.1f dB", m->psnr);
    snprintf(buf, bytes, "%lld flows: %lld exited, %lld projected%s%s", (long long)m->flows, (long long)m->exited,
             (long long)m->projected, age, psnr);
    return buf;
}
