/* The still picture: paths of one sample through the lattice, where its flows landed, and input, output and target of several. */
#include "report/flows/flows.h"

#include "base/alloc.h"
#include "report/chart/svg.h"
#include "report/flows/flows_cells.h"

enum {
    WIDTH = 800,
    SHOWN = 240,     /* flows */
    SEGMENTS = 9000, /* of lines: half the size of a file */
    LEAST = 40,
    BOX_TOP = 92,
    MAPS_TOP = 484,
    MAP = 224,
    STRIP_TOP = MAPS_TOP + MAP + 84,
    STRIP_LEFT = 76
};

typedef struct picture {
    const tn_flows *f;
    FILE *out;
    double scale;          /* of energies */
    int64_t chosen, *slot; /* (chosen): flows of sample 0 that are drawn */
    double *count, *mean;  /* (2,S): landings of sample 0 */
    double *cells;         /* (2 S): of one surface */
} picture;

static int64_t surface_of(const tn_flows *f) { return f->width * f->height; }

/* --- the box ------------------------------------------------------------------------------------------------------------ */

/* An oblique view: z goes to the right, v down, u to the right and up. */
enum { CENTRE_X = 400, CENTRE_Y = BOX_TOP + 166, HALF_Z = 268, HALF_V = 104, SLANT_X = 62, SLANT_Y = 42 };

static double box_x(double u, double z) { return CENTRE_X + HALF_Z * z + SLANT_X * u; }
static double box_y(double u, double v) { return CENTRE_Y + HALF_V * v - SLANT_Y * u; }

/* Cells lie around their places, so those of the rim are half outside. */
static tn_flow_affine plane_at(const tn_flows *f, double z)
{
    const double du = 2 / (double)(f->width - 1), dv = 2 / (double)(f->height - 1), u = -1 - du / 2, v = -1 - dv / 2;
    return (tn_flow_affine){ box_x(u, z), box_y(u, v), SLANT_X * du, -SLANT_Y * du, 0, HALF_V * dv };
}

static void put_edge(FILE *out, double u0, double v0, double z0, double u1, double v1, double z1)
{
    fprintf(out, "<line class=\"a\" x1=\"%.1f\" y1=\"%.1f\" x2=\"%.1f\" y2=\"%.1f\"/>", box_x(u0, z0), box_y(u0, v0),
            box_x(u1, z1), box_y(u1, v1));
}

static void put_edges(FILE *out, double start)
{
    for (int i = -1; i <= 1; i += 2)
        for (int k = -1; k <= 1; k += 2) {
            put_edge(out, i, k, -1, i, k, 1);
            put_edge(out, i, -1, k, i, 1, k);
            put_edge(out, -1, i, k, 1, i, k);
        }
    for (int i = -1; i <= 1; i += 2) put_edge(out, -1, i, start, 1, i, start), put_edge(out, i, -1, start, i, 1, start);
    fputc('\n', out);
}

static void put_axes(const picture *p, double start)
{
    const tn_flows *f = p->f;
    char text[64];
    const double at[] = { -1, start, 1 };
    for (int i = 0; i < 3; i++) {
        snprintf(text, sizeof text, "%s, z = %g", i == 1 ? "input plane" : "exit", tn__flow_z(f, at[i]));
        tn__svg_label(p->out, "m c z", box_x(-1, at[i]) + SLANT_X, box_y(-1, 1) + 34, text, 40);
    }
    snprintf(text, sizeof text, "x 0 to %lld", (long long)f->width - 1);
    fprintf(p->out, "<text class=\"m z c\" transform=\"translate(%.1f %.1f) rotate(-34)\">%s</text>\n",
            box_x(0, 1) + 16, box_y(0, 1) + 14, text);
    snprintf(text, sizeof text, "y 0 to %lld", (long long)f->height - 1);
    fprintf(p->out, "<text class=\"m z c\" transform=\"translate(%.1f %.1f) rotate(-90)\">%s</text>\n",
            box_x(-1, -1) - 8, box_y(-1, 0), text);
}

/* Where flows of sample 0 begin. */
static double start_of(const picture *p)
{
    for (int64_t i = 0; i < p->chosen; i++) {
        const float *at = tn__flow_at(p->f, 0, 0, p->slot[i]);
        if (tn__flow_is_place(at)) return at[2];
    }
    return 0;
}

/* The segments whose end has this energy; those that follow each other are one line. */
static void put_flow(const picture *p, int64_t slot, int bin, bool *any)
{
    const tn_flows *f = p->f;
    bool joined = false;
    for (int64_t t = 1; t <= f->steps; t++) {
        const float *a = tn__flow_at(f, t - 1, 0, slot), *b = tn__flow_at(f, t, 0, slot);
        const bool drawn =
            tn__flow_is_place(a) && tn__flow_is_place(b) && tn__flow_bin(tn__flow_energy(f, b + 3), p->scale) == bin;
        if (drawn && !*any) fprintf(p->out, "<path class=\"l l%d\" d=\"", bin), *any = true;
        if (drawn && !joined)
            tn__svg_number(p->out, 'M', box_x(a[0], a[2])), tn__svg_number(p->out, ' ', box_y(a[0], a[1]));
        if (drawn) tn__svg_number(p->out, 'L', box_x(b[0], b[2])), tn__svg_number(p->out, ' ', box_y(b[0], b[1]));
        joined = drawn;
    }
}

/* Strong energies are drawn last. */
static void put_flows(const picture *p)
{
    for (int distance = 0; distance <= TN_FLOW_ZERO; distance++)
        for (int side = -1; side <= (distance ? 1 : -1); side += 2) {
            bool any = false;
            for (int64_t i = 0; i < p->chosen; i++) put_flow(p, p->slot[i], TN_FLOW_ZERO + side * distance, &any);
            if (any) fputs("\"/>\n", p->out);
        }
}

/* From where a flow was when the steps ended to where it was put. Returns how many. */
static int64_t put_projected(const picture *p)
{
    const tn_flows *f = p->f;
    int64_t n = 0, first, last;
    for (int64_t i = 0; i < p->chosen; i++) {
        const int64_t slot = p->slot[i];
        if (f->landed[slot] != 2 || !tn__flow_span(f, 0, slot, &first, &last)) continue;
        const float *a = tn__flow_at(f, last, 0, slot);
        if (!n++) fprintf(p->out, "<path class=\"l l%d\" stroke-dasharray=\"2 3\" d=\"", TN_FLOW_ZERO);
        tn__svg_number(p->out, 'M', box_x(a[0], a[2])), tn__svg_number(p->out, ' ', box_y(a[0], a[1]));
        tn__svg_number(p->out, 'H', box_x(a[0], f->plane[slot] ? 1 : -1));
    }
    if (n) fputs("\"/>\n", p->out);
    return n;
}

static const double *input_of(const picture *p, int64_t sample)
{
    const int64_t S = surface_of(p->f);
    for (int64_t i = 0; i < S; i++) p->cells[i] = p->f->input[sample * S + i];
    return p->cells;
}

/* Short lines of colours, and the numbers at their ends. */
static void put_scale(const picture *p)
{
    char text[32];
    const double x = 618, w = 8;
    tn__svg_label(p->out, "m e z", x - 34, BOX_TOP + 1, p->f->energy > 1 ? "length of energy" : "energy", 30);
    for (int i = 0; i < TN_FLOW_BINS; i++)
        fprintf(p->out, "<rect class=\"f%d\" x=\"%.0f\" y=\"%d\" width=\"%.0f\" height=\"9\"/>", i, x + w * i,
                BOX_TOP - 8, w);
    snprintf(text, sizeof text, "%g", -p->scale);
    tn__svg_label(p->out, "m e z", x - 5, BOX_TOP + 1, text, 10);
    snprintf(text, sizeof text, "%g", p->scale);
    tn__svg_label(p->out, "m z", x + w * TN_FLOW_BINS + 5, BOX_TOP + 1, text, 10);
}

static const char *sample_text(const tn_flows *f, int64_t sample, char buf[64])
{
    if (f->label && f->label[sample] >= 0)
        snprintf(buf, 64, "sample %lld, label %d", (long long)sample, (int)f->label[sample]);
    else snprintf(buf, 64, "sample %lld", (long long)sample);
    return buf;
}

static tn_status put_box(const picture *p)
{
    const tn_flows *f = p->f;
    const int64_t S = surface_of(f);
    const double start = start_of(p);
    char sample[64], text[128];
    snprintf(text, sizeof text, "Paths of %lld flows (%s)", (long long)p->chosen, sample_text(f, 0, sample));
    tn__svg_label(p->out, "t", 20, BOX_TOP, text, 90);
    put_scale(p);
    fputs("<g opacity=\".8\">\n", p->out);
    for (int i = 0; i < 2; i++)
        TN_RETURN_IF(tn__flow_cells(p->out, p->mean + i * S, f->width, f->height, p->scale, 2.0 * HALF_V,
                                    plane_at(f, i ? 1 : -1)));
    TN_RETURN_IF(
        tn__flow_cells(p->out, input_of(p, 0), f->width, f->height, p->scale, 2.0 * HALF_V, plane_at(f, start)));
    fputs("</g>\n", p->out);
    put_edges(p->out, start);
    if (put_projected(p)) tn__svg_label(p->out, "m z", 20, BOX_TOP + 16, "dashed: projected", 40);
    put_flows(p);
    put_axes(p, start);
    return TN_OK;
}

/* --- landings ------------------------------------------------------------------------------------------------------------- */

static tn_flow_affine square_at(const tn_flows *f, double x, double y, double pixels)
{
    const double longer = (double)(f->width > f->height ? f->width : f->height), c = pixels / longer;
    return (tn_flow_affine){ x, y, c, 0, 0, c };
}

static void put_frame(FILE *out, tn_flow_affine a, double columns, double rows)
{
    fprintf(out, "<path class=\"a v\" d=\"M%.1f %.1fh%.1fv%.1fh%.1fz\"/>\n", a.x0, a.y0, columns * a.across_x,
            rows * a.down_y, -columns * a.across_x);
}

/* One landing shows, and so does the difference between few; the most of any cell has the strongest colour, or a middle one where it is 1. */
static double count_colour(double count, double most)
{
    if (count <= 0) return NAN;
    return most > 1 ? 0.5 + (TN_FLOW_ZERO - 0.5) * log(count) / log(most) : TN_FLOW_ZERO / 2.0;
}

static tn_status put_counts(const picture *p, int plane, double x)
{
    const tn_flows *f = p->f;
    const int64_t S = surface_of(f);
    const double *count = p->count + plane * S;
    double most = 0, all = 0;
    char text[96];
    for (int64_t i = 0; i < S; i++) most = count[i] > most ? count[i] : most, all += count[i];
    for (int64_t i = 0; i < S; i++) p->cells[i] = count_colour(count[i], most);
    const tn_flow_affine to = square_at(f, x, MAPS_TOP, MAP);
    TN_RETURN_IF(tn__flow_cells(p->out, p->cells, f->width, f->height, TN_FLOW_ZERO, MAP, to));
    put_frame(p->out, to, (double)f->width, (double)f->height);
    snprintf(text, sizeof text, "Landings at z = %g", tn__flow_z(f, plane ? 1 : -1));
    tn__svg_label(p->out, "t", x, MAPS_TOP - 10, text, 34);
    snprintf(text, sizeof text, "%.0f landings, at most %.0f in a cell", all, most);
    tn__svg_label(p->out, "m z", x, MAPS_TOP + (double)f->height * to.down_y + 16, text, 44);
    return TN_OK;
}

static bool arrow_of(const picture *p, int64_t slot, double at[4], int *bin)
{
    const tn_flows *f = p->f;
    int64_t first, last;
    const float *e = f->e + slot * f->energy;
    if (!f->landed[slot] || tn__flow_cell(f, f->u[slot], f->v[slot]) < 0) return false;
    if (!tn__flow_span(f, 0, slot, &first, &last)) return false;
    const float *from = tn__flow_at(f, first, 0, slot);
    const double place[4] = { from[0], from[1], f->u[slot], f->v[slot] };
    for (int i = 0; i < 4; i++)
        at[i] = (fmax(-1, fmin(1, place[i])) + 1) / 2 * (double)((i % 2 ? f->height : f->width) - 1) + 0.5;
    *bin = tn__flow_bin(tn__flow_energy(f, e), p->scale);
    return *bin >= 0;
}

/* A line from the cell, a dot at the landing. dots: the second pass, on top of all lines. */
static void put_arrows(const picture *p, tn_flow_affine to, bool dots)
{
    for (int b = 0; b < TN_FLOW_BINS; b++) {
        bool any = false;
        for (int64_t i = 0; i < p->chosen; i++) {
            double at[4];
            int bin;
            if (!arrow_of(p, p->slot[i], at, &bin) || bin != b) continue;
            if (!any) fprintf(p->out, "<path class=\"%s l%d\" d=\"", dots ? "d" : "l", b), any = true;
            for (int k = dots ? 2 : 0; k < 4; k += 2) {
                tn__svg_number(p->out, k == 0 || dots ? 'M' : 'L', to.x0 + at[k] * to.across_x);
                tn__svg_number(p->out, ' ', to.y0 + at[k + 1] * to.down_y);
            }
            if (dots) fputs("h0", p->out);
        }
        if (any) fputs("\"/>\n", p->out);
    }
}

static tn_status put_landings(const picture *p)
{
    const tn_flows *f = p->f;
    const double x = WIDTH - 20 - MAP;
    const tn_flow_affine to = square_at(f, x, MAPS_TOP, MAP);
    char text[96];
    tn_flows_figures m;
    TN_RETURN_IF(tn_flows_measure(f, 0, 1, &m));
    TN_RETURN_IF(put_counts(p, 0, 20));
    TN_RETURN_IF(put_counts(p, 1, (WIDTH - MAP) / 2.0));
    put_frame(p->out, to, (double)f->width, (double)f->height);
    put_arrows(p, to, false);
    put_arrows(p, to, true);
    tn__svg_label(p->out, "t", x, MAPS_TOP - 10, "From cell to landing (dot)", 34);
    const double below = MAPS_TOP + (double)f->height * to.down_y + 16;
    snprintf(text, sizeof text, "%.0f of %lld cells hit", m.hit, (long long)surface_of(f));
    tn__svg_label(p->out, "m z", x, below, text, 44);
    snprintf(text, sizeof text, "landing entropy %.2f of %.2f nats", m.entropy, m.most);
    tn__svg_label(p->out, "m z", x, below + 14, text, 44);
    return TN_OK;
}

/* --- samples ---------------------------------------------------------------------------------------------------------------- */

enum { INPUT, OUTPUT, TARGET, KINDS };

/* Planes side by side as the surface has them: row y of both. Returns its columns; 0: there is none. */
static int64_t surface_cells(const picture *p, int kind, int64_t sample)
{
    const tn_flows *f = p->f;
    const int64_t S = surface_of(f), W = f->width,
                  planes = kind == INPUT    ? 1
                           : kind == OUTPUT ? f->planes
                                            : f->target_planes;
    if (kind == TARGET && !f->target) return 0;
    for (int64_t i = 0; i < planes * S; i++) {
        const int64_t at = sample * planes * S + i, plane = i / S, y = i % S / W, x = i % W;
        p->cells[(y * planes + plane) * W + x] = kind == INPUT    ? f->input[at]
                                                 : kind == OUTPUT ? f->output[at]
                                                                  : f->target[at];
    }
    return planes * W;
}

static int64_t strip_columns(const tn_flows *f)
{
    const int64_t most = f->planes > 1 || f->target_planes > 1 ? 4 : 8;
    return f->samples < most ? f->samples : most;
}

/* Pixels of a cell in the strip: all columns and planes fit. */
static double strip_cell(const tn_flows *f)
{
    const double planes = f->planes > 1 || f->target_planes > 1 ? 2 : 1,
                 longer = fmax((double)f->width, (double)f->height), room = planes > 1 ? 172 : 82;
    return fmin(room / (planes * (double)f->width), 82 / longer);
}

static double strip_row(const tn_flows *f) { return strip_cell(f) * (double)f->height + 8; }
static int strip_kinds(const tn_flows *f) { return f->target ? KINDS : TARGET; }

static tn_status put_strip(const picture *p)
{
    static const char *const names[KINDS] = { "input", "output", "target" };
    const tn_flows *f = p->f;
    const double c = strip_cell(f), row = strip_row(f), column = f->planes > 1 || f->target_planes > 1 ? 180 : 89;
    tn__svg_label(p->out, "t", 20, STRIP_TOP - 12, f->target ? "Input, output and target" : "Input and output", 40);
    for (int k = 0; k < strip_kinds(f); k++)
        tn__svg_label(p->out, "m", 20, STRIP_TOP + row * k + row / 2, names[k], 10);
    for (int64_t b = 0; b < strip_columns(f); b++) {
        char text[64];
        tn_flows_figures m;
        const double x = STRIP_LEFT + column * (double)b, y = STRIP_TOP + row * strip_kinds(f) + 8;
        for (int k = 0; k < strip_kinds(f); k++) {
            const int64_t columns = surface_cells(p, k, b);
            const tn_flow_affine to = { x, STRIP_TOP + row * k, c, 0, 0, c };
            TN_RETURN_IF(tn__flow_cells(p->out, p->cells, columns, f->height, p->scale,
                                        c * fmax((double)columns, (double)f->height), to));
            put_frame(p->out, to, (double)columns, (double)f->height);
        }
        TN_RETURN_IF(tn_flows_measure(f, b, 1, &m));
        const bool labelled = f->label && f->label[b] >= 0;
        snprintf(text, sizeof text, "%s %lld", labelled ? "label" : "sample",
                 labelled ? (long long)f->label[b] : (long long)b);
        tn__svg_label(p->out, "m z", x, y, text, 20);
        snprintf(text, sizeof text, isfinite(m.psnr) ? "%.1f dB" : "%.1f steps", isfinite(m.psnr) ? m.psnr : m.age);
        if (isfinite(m.psnr) || isfinite(m.age)) tn__svg_label(p->out, "m z", x, y + 14, text, 20);
    }
    return TN_OK;
}

/* --- the whole --------------------------------------------------------------------------------------------------------------- */

static tn_status put_all(const picture *p)
{
    const tn_flows *f = p->f;
    char text[512], title[256];
    tn_flows_figures m;
    TN_RETURN_IF(tn_flows_measure(f, 0, f->samples, &m));
    const int height = STRIP_TOP + (int)strip_row(f) * strip_kinds(f) + 44;
    snprintf(title, sizeof title, "Flows of %.150s, %s split", f->run, f->split);
    tn__svg_begin(p->out, WIDTH, height, title, "flows", 0);
    tn__flow_style(p->out);
    const int n = snprintf(text, sizeof text, "%lld sample%s, ", (long long)f->samples, f->samples == 1 ? "" : "s");
    tn_flows_caption(&m, text + n, sizeof text - (size_t)n);
    tn__svg_label(p->out, "m", 20, 52, text, 130);
    TN_RETURN_IF(put_box(p));
    TN_RETURN_IF(put_landings(p));
    TN_RETURN_IF(put_strip(p));
    tn__svg_end(p->out);
    return ferror(p->out) ? tn_error(TN_DISK, "the picture could not be written") : TN_OK;
}

tn_status tn_flows_svg(const tn_flows *f, FILE *out)
{
    const size_t S = (size_t)surface_of(f);
    int64_t most = SEGMENTS / f->steps;
    most = most > SHOWN ? SHOWN : most < LEAST ? LEAST : most;
    picture p = { .f = f, .out = out, .scale = tn__flows_scale(f) };
    p.slot = tn_alloc(sizeof *p.slot * (size_t)most);
    p.count = tn_alloc(sizeof *p.count * 6 * S);
    tn_status st = p.slot && p.count ? TN_OK : TN_MEMORY;
    if (st == TN_OK) {
        p.mean = p.count + 2 * S, p.cells = p.count + 4 * S;
        p.chosen = tn__flows_choose(f, 0, most, p.slot);
        tn__flows_landings(f, 0, p.count, p.mean);
        st = put_all(&p);
    }
    tn_free(p.slot), tn_free(p.count);
    return st;
}
