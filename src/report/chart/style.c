/* Colours and the rules of all classes. */
#include "report/chart/svg.h"

/* Any two differ, also to a reader who sees no red, green or blue (OKLab distance of at least 0.075 under each simulated
 * deficiency, 0.13 under none; 0.1 and 0.19 among the first six), and stand out from the background with a contrast of at
 * least 3. style_test.c measures it. */
static const char *const light[TN_SVG_STYLES] = { "#1450d2", "#f0560a", "#0a9fa6", "#a81467", "#111827", "#7a4a00",
                                                  "#d25aff", "#09594e", "#9d936d", "#a86066", "#5a1ea5", "#785aa5" };
static const char *const dark[TN_SVG_STYLES] = { "#3585ff", "#ff6d1f", "#1fd9d2", "#c274b8", "#fbfdff", "#ffcb1f",
                                                 "#643aec", "#7b8070", "#9aadff", "#c30f0f", "#bead89", "#874b87" };

const char *tn__svg_colour(size_t style, bool on_dark) { return (on_dark ? dark : light)[style % TN_SVG_STYLES]; }

void tn__svg_dash(FILE *out, size_t style)
{
    static const char *const dashes[] = { "7 5", "2 4", "10 4 2 4" };
    const size_t n = style / TN_SVG_STYLES, known = sizeof dashes / sizeof *dashes;
    if (!n) return;
    if (n <= known) fprintf(out, " stroke-dasharray=\"%s\"", dashes[n - 1]);
    else fprintf(out, " stroke-dasharray=\"%zu 4 2 4 2 4\"", 10 + 4 * (n - known));
}

void tn__svg_fill(FILE *out, size_t style, const char *more)
{
    const size_t n = style / TN_SVG_STYLES;
    fprintf(out, " class=\"n%zu%s\"", style % TN_SVG_STYLES, more);
    if (n) fprintf(out, " fill-opacity=\"%s\"", n == 1 ? ".6" : n == 2 ? ".35" : ".2");
}

static void put_colours(FILE *out, const char *const *colour, size_t n)
{
    for (size_t i = 0; i < n; i++) fprintf(out, ".s%zu{stroke:%s}.n%zu{fill:%s}", i, colour[i], i, colour[i]);
}

void tn__svg_rules(FILE *out, size_t groups)
{
    const size_t used = groups < TN_SVG_STYLES ? groups : TN_SVG_STYLES;
    fputs("<style>text{font:12px system-ui,-apple-system,\"Segoe UI\",\"DejaVu Sans\",Helvetica,Arial,sans-serif}"
          ".h{font-size:15px;font-weight:600}.e{text-anchor:end}.c{text-anchor:middle}"
          "path{fill:none;stroke-width:1.75;stroke-linejoin:round;stroke-linecap:round}line{stroke-width:1}.k{stroke-"
          "width:2}.p{stroke-width:1;opacity:.4}.w{stroke:#fff;stroke-width:.5}\n"
          ".b{fill:#fff}.t{fill:#1f2328}.m{fill:#656d76}.i{fill:#fff}.o{stroke:#1f2328}.g{stroke:#e4e8ec}.a{stroke:#"
          "9aa4ae}",
          out);
    put_colours(out, light, used);
    fputs("\n@media(prefers-color-scheme:dark){.p{opacity:.6}.b{fill:#0d1117}.t{fill:#e6edf3}.m{fill:#9198a1}"
          ".i{fill:#0d1117}.o{stroke:#e6edf3}.w{stroke:#0d1117}.g{stroke:#242b33}.a{stroke:#656d76}",
          out);
    put_colours(out, dark, used);
    fputs("}</style>\n", out);
}
