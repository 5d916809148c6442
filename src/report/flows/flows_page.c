/* The page that plays the steps: markup, data and the player (page.js) in one file.
 *
 * Numbers are bytes in base64: 0 .. 254 for -1 .. 1, 255 where there is none; energies and cells are divided by the scale first. A
 * sample's paths are its flows one after the other: slot (3 bytes, low one first), first step (2), steps (2), how it landed (1; +4: at
 * +1), then u, v, z, energy of each of these steps. Steps at which a flow is not active are not there. */
#include "report/flows/flows.h"

#include "base/alloc.h"
#include "report/chart/html.h"

enum { MOST_BYTES = 2000000, HEAD = 8, NONE = 255, SHOWN_SAMPLES = 16 };

static const char script[] =
#include "tenon_flows_page.def"
    ;

static const char style[] =
    "#controls{display:flex;flex-wrap:wrap;gap:.4rem 1.2rem;align-items:center}#controls label{display:flex;gap:.4rem;"
    "align-items:center}#step{width:16rem}#now{min-width:11rem}button{min-width:5rem}#box{width:100%;cursor:grab;"
    "touch-action:pan-y}.maps{display:flex;flex-wrap:wrap;gap:1rem}figure{margin:0}figure "
    "canvas{display:block;height:132px;image-rendering:pixelated;outline:1px solid #8b949e}figcaption{font-size:.8rem}"
    "#exits{width:100%;height:90px}";

/* --- base64 ----------------------------------------------------------------------------------------------------------------- */

typedef struct sink {
    FILE *out;
    uint32_t bits;
    int n; /* bytes in bits */
} sink;

static void put_group(sink *s)
{
    static const char digits[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    const uint32_t b = s->bits << 8 * (3 - s->n);
    for (int i = 0; i < 4; i++) fputc(i <= s->n ? digits[b >> (18 - 6 * i) & 63] : '=', s->out);
    s->bits = 0, s->n = 0;
}

static void put_byte(sink *s, int64_t byte)
{
    s->bits = s->bits << 8 | (uint32_t)(byte & 255);
    if (++s->n == 3) put_group(s);
}

static void put_end(sink *s)
{
    if (s->n) put_group(s);
}

static void put_value(sink *s, double x) { put_byte(s, isfinite(x) ? lrint((fmax(-1, fmin(1, x)) + 1) * 127) : NONE); }

/* --- data ------------------------------------------------------------------------------------------------------------------- */

static void put_flow(const tn_flows *f, int64_t sample, int64_t slot, double scale, sink *s)
{
    int64_t first, last;
    if (!tn__flow_span(f, sample, slot, &first, &last)) return;
    const int64_t steps = last - first + 1;
    for (int i = 0; i < 3; i++) put_byte(s, slot >> 8 * i);
    for (int i = 0; i < 2; i++) put_byte(s, first >> 8 * i);
    for (int i = 0; i < 2; i++) put_byte(s, steps >> 8 * i);
    put_byte(s, f->landed[sample * f->slots + slot] + 4 * (f->plane[sample * f->slots + slot] != 0));
    for (int64_t t = first; t <= last; t++) {
        const float *p = tn__flow_at(f, t, sample, slot);
        for (int k = 0; k < 3; k++) put_value(s, p[k]);
        put_value(s, tn__flow_energy(f, p + 3) / scale);
    }
}

static void put_floats(const char *name, const float *x, int64_t n, double scale, FILE *out)
{
    sink s = { .out = out };
    fprintf(out, ",\n\"%s\":", name);
    if (!x) {
        fputs("null", out);
        return;
    }
    fputc('"', out);
    for (int64_t i = 0; i < n; i++) put_value(&s, x[i] / scale);
    put_end(&s);
    fputc('"', out);
}

/* As a JSON string inside a script: nothing in it ends either. */
static void put_string(FILE *out, const char *s)
{
    fputc('"', out);
    for (; *s; s++)
        if ((unsigned char)*s < 0x20 || *s == '"' || *s == '\\' || *s == '<' || *s == '>' || *s == '&')
            fprintf(out, "\\u%04x", (unsigned)(unsigned char)*s);
        else fputc(*s, out);
    fputc('"', out);
}

static void put_number(FILE *out, const char *name, double x)
{
    fprintf(out, ",\"%s\":", name);
    if (isfinite(x)) fprintf(out, "%.6g", x);
    else fputs("null", out);
}

static tn_status put_sample(const tn_flows *f, int64_t b, double scale, const int64_t *slots, int64_t n, FILE *out)
{
    const int64_t S = f->width * f->height;
    char text[256];
    sink s = { .out = out };
    tn_flows_figures m;
    TN_RETURN_IF(tn_flows_measure(f, b, 1, &m));
    fputs(b ? ",\n{\"caption\":" : "\n{\"caption\":", out);
    put_string(out, tn_flows_caption(&m, text, sizeof text));
    if (f->label && f->label[b] >= 0) put_number(out, "label", f->label[b]);
    fputs(",\n\"paths\":\"", out);
    for (int64_t i = 0; i < n; i++) put_flow(f, b, slots[i], scale, &s);
    put_end(&s);
    fputc('"', out);
    put_floats("input", f->input + b * S, S, scale, out);
    put_floats("output", f->output + b * f->planes * S, f->planes * S, scale, out);
    const int64_t each = f->target_planes * S;
    put_floats("target", f->target ? f->target + b * each : NULL, each, scale, out);
    fputc('}', out);
    return TN_OK;
}

static int64_t bytes_of(const tn_flows *f, int64_t sample)
{
    int64_t n = 3 * f->planes * f->width * f->height, first, last;
    for (int64_t i = 0; i < f->slots; i++)
        if (tn__flow_span(f, sample, i, &first, &last)) n += HEAD + 4 * (last - first + 1);
    return n;
}

/* What fits: samples, and flows of each (slots: all). */
typedef struct extent {
    int64_t samples, flows;
} extent;

static extent extent_of(const tn_flows *f)
{
    extent x = { .flows = f->slots };
    int64_t bytes = 0;
    while (x.samples < f->samples && x.samples < SHOWN_SAMPLES) {
        bytes += bytes_of(f, x.samples);
        if (bytes > MOST_BYTES) break;
        x.samples++;
    }
    if (x.samples == 0) {
        const int64_t room = MOST_BYTES - 3 * f->planes * f->width * f->height;
        x.samples = 1;
        x.flows = room > 0 ? room / (HEAD + 4 * (f->steps + 1)) : 0;
        if (x.flows > f->slots) x.flows = f->slots;
    }
    return x;
}

static tn_status put_data(const tn_flows *f, extent x, FILE *out)
{
    const double scale = tn__flows_scale(f);
    int64_t *slots = tn_alloc(sizeof *slots * (size_t)(x.flows + 1));
    tn_status st = TN_OK;
    if (!slots) return TN_MEMORY;
    fputs("<script type=\"application/json\" id=\"data\">{\"run\":", out);
    put_string(out, f->run);
    put_number(out, "width", (double)f->width), put_number(out, "height", (double)f->height);
    put_number(out, "depth", (double)f->depth), put_number(out, "steps", (double)f->steps);
    put_number(out, "scale", scale);
    fputs(",\"samples\":[", out);
    for (int64_t b = 0; b < x.samples && st == TN_OK; b++) {
        const int64_t n = tn__flows_choose(f, b, x.flows, slots);
        st = put_sample(f, b, scale, slots, n, out);
    }
    fputs("]}</script>\n", out);
    tn_free(slots);
    return st;
}

/* --- markup ----------------------------------------------------------------------------------------------------------------- */

static void put_controls(const tn_flows *f, extent x, FILE *out)
{
    fprintf(out,
            "<div id=\"controls\"><button id=\"play\" type=\"button\">Play</button>\n<label>step <input id=\"step\" "
            "type=\"range\" min=\"0\" max=\"%lld\" step=\"any\" value=\"0\"></label><span id=\"now\"></span>\n"
            "<label>sample <select id=\"sample\">",
            (long long)f->steps);
    for (int64_t b = 0; b < x.samples; b++) {
        fprintf(out, "<option value=\"%lld\">%lld", (long long)b, (long long)b);
        if (f->label && f->label[b] >= 0) fprintf(out, " (label %d)", (int)f->label[b]);
        fputs("</option>", out);
    }
    fputs("</select></label>\n<label><input id=\"ink\" type=\"checkbox\"> only cells with ink</label></div>\n", out);
}

static void put_canvas(const tn_flows *f, const char *id, const char *name, int64_t planes, FILE *out)
{
    fprintf(out,
            "<figure><canvas id=\"%s\" width=\"%lld\" height=\"%lld\" role=\"img\" "
            "aria-label=\"%s\"></canvas><figcaption>%s</figcaption></figure>\n",
            id, (long long)(planes * f->width), (long long)f->height, name, name);
}

static void put_maps(const tn_flows *f, FILE *out)
{
    char name[2][64];
    for (int i = 0; i < 2; i++) snprintf(name[i], sizeof name[i], "landed at z = %g", tn__flow_z(f, i ? 1 : -1));
    fputs("<div class=\"maps\">\n", out);
    put_canvas(f, "input", "input", 1, out);
    for (int i = 0; i < 2; i++) put_canvas(f, i ? "plane1" : "plane0", name[i], 1, out);
    put_canvas(f, "output", "output", f->planes, out);
    if (f->target) put_canvas(f, "target", "target", f->target_planes, out);
    fputs("</div>\n", out);
}

static tn_status put_table(const tn_flows *f, FILE *out)
{
    fputs("<h2>Figures</h2>\n<div class=\"wide\"><table><tr><th>sample</th><th>label</th><th>flows</th><th>exited</th>"
          "<th>projected</th><th>mean age</th><th>cells hit</th><th>entropy (nats)</th><th>PSNR (dB)</th></tr>\n",
          out);
    for (int64_t b = 0; b < f->samples; b++) {
        tn_flows_figures m;
        TN_RETURN_IF(tn_flows_measure(f, b, 1, &m));
        fprintf(out, "<tr><td>%lld</td>", (long long)b);
        tn_html_number(out, f->label && f->label[b] >= 0 ? f->label[b] : NAN);
        fprintf(out, "<td>%lld</td><td>%lld</td><td>%lld</td>", (long long)m.flows, (long long)m.exited,
                (long long)m.projected);
        const double rest[] = { m.age, m.hit, m.entropy, m.psnr };
        for (size_t i = 0; i < sizeof rest / sizeof *rest; i++) tn_html_number(out, rest[i]);
        fputs("</tr>\n", out);
    }
    fputs("</table></div>\n", out);
    return TN_OK;
}

tn_status tn_flows_page(const tn_flows *f, FILE *out)
{
    char title[512];
    const extent x = extent_of(f);
    snprintf(title, sizeof title, "Flows of %.400s, %s split", f->run, f->split);
    tn_html_begin(out, title);
    fprintf(out, "<style>%s</style>\n", style);
    tn_html_tag(out, "h1", title);
    fputs("\n<p id=\"caption\"></p>\n<noscript><p>Playing needs JavaScript; <code>--svg=FILE</code> draws a still "
          "picture.</p></noscript>\n",
          out);
    put_controls(f, x, out);
    fputs("<canvas id=\"box\" role=\"img\" aria-label=\"flows on their way through the lattice\"></canvas>\n<p "
          "class=\"note\">Blue is negative, orange positive; drag to turn the lattice.",
          out);
    if (x.samples < f->samples)
        fprintf(out, " The first %lld of %lld samples are played.", (long long)x.samples, (long long)f->samples);
    if (x.flows < f->slots) fprintf(out, " %lld of %lld flows are played.", (long long)x.flows, (long long)f->slots);
    fputs("</p>\n", out);
    put_maps(f, out);
    fputs("<h2>Landings by step</h2>\n<canvas id=\"exits\" role=\"img\" aria-label=\"landings by step\"></canvas>\n<p "
          "class=\"note\">Grey flows did not reach an exit and were projected onto the nearer one.</p>\n",
          out);
    TN_RETURN_IF(put_table(f, out));
    TN_RETURN_IF(put_data(f, x, out));
    fprintf(out, "<script>%s</script>\n", script);
    tn_html_end(out);
    return ferror(out) ? tn_error(TN_DISK, "the page could not be written") : TN_OK;
}
