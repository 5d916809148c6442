/* Colours: all differ, also for readers who do not see all of them, and stand out from the page. */
#include "report/chart/svg.h"
#include "testlib.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

/* Simulated sight (Machado, Oliveira and Fernandes 2009, full severity), on linear RGB: all colours, no red, no green, no blue. */
static const double sight[4][3][3] = {
    { { 1, 0, 0 }, { 0, 1, 0 }, { 0, 0, 1 } },
    { { 0.152286, 1.052583, -0.204868 }, { 0.114503, 0.786281, 0.099216 }, { -0.003882, -0.048116, 1.051998 } },
    { { 0.367322, 0.860646, -0.227968 }, { 0.280085, 0.672501, 0.047413 }, { -0.011820, 0.042940, 0.968881 } },
    { { 1.255528, -0.076749, -0.178779 }, { -0.078411, 0.930809, 0.147602 }, { 0.004733, 0.691367, 0.303900 } },
};

static void linear_of(const char *colour, double out[3])
{
    assert_int_equal(strlen(colour), 7);
    const long v = strtol(colour + 1, NULL, 16);
    for (int i = 0; i < 3; i++) {
        const double c = (double)(v >> (16 - 8 * i) & 255) / 255;
        out[i] = c <= 0.04045 ? c / 12.92 : pow((c + 0.055) / 1.055, 2.4);
    }
}

static void times(const double m[3][3], const double v[3], double out[3])
{
    for (int i = 0; i < 3; i++) out[i] = m[i][0] * v[0] + m[i][1] * v[1] + m[i][2] * v[2];
}

static void oklab_of(const char *colour, int eyes, double out[3])
{
    static const double to_cones[3][3] = { { 0.4122214708, 0.5363325363, 0.0514459929 },
                                           { 0.2119034982, 0.6806995451, 0.1073969566 },
                                           { 0.0883024619, 0.2817188376, 0.6299787005 } },
                        to_lab[3][3] = { { 0.2104542553, 0.7936177850, -0.0040720468 },
                                         { 1.9779984951, -2.4285922050, 0.4505937099 },
                                         { 0.0259040371, 0.7827717662, -0.8086757660 } };
    double rgb[3], seen[3], cones[3];
    linear_of(colour, rgb);
    times(sight[eyes], rgb, seen);
    for (int i = 0; i < 3; i++) seen[i] = fmin(fmax(seen[i], 0), 1);
    times(to_cones, seen, cones);
    for (int i = 0; i < 3; i++) cones[i] = cbrt(cones[i]);
    times(to_lab, cones, out);
}

static double luminance(const char *colour)
{
    double c[3];
    linear_of(colour, c);
    return 0.2126 * c[0] + 0.7152 * c[1] + 0.0722 * c[2];
}

static void palette(void **state)
{
    (void)state;
    assert_true(TN_SVG_STYLES >= 12);
    for (int dark = 0; dark < 2; dark++)
        for (size_t i = 0; i < TN_SVG_STYLES; i++) {
            const char *const a = tn__svg_colour(i, dark);
            const double l = luminance(a), page = luminance(dark ? "#0d1117" : "#ffffff");
            if ((fmax(l, page) + 0.05) / (fmin(l, page) + 0.05) < 3) fail_msg("%s does not stand out", a);
            for (size_t k = 0; k < i; k++)
                for (int eyes = 0; eyes < 4; eyes++) {
                    double p[3], q[3];
                    oklab_of(a, eyes, p), oklab_of(tn__svg_colour(k, dark), eyes, q);
                    const double d = sqrt(pow(p[0] - q[0], 2) + pow(p[1] - q[1], 2) + pow(p[2] - q[2], 2));
                    const double least = i < 6 ? (eyes ? 0.1 : 0.19) : eyes ? 0.075 : 0.13;
                    if (d < least) fail_msg("%s and %s: %.3f apart, sight %d", a, tn__svg_colour(k, dark), d, eyes);
                }
        }
}

void tn_tests_style(tn_test_list *l) { tn_test_add(l, palette, NULL, "style: twelve colours for all readers"); }
