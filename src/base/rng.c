/* Philox 4x32 with ten rounds, and the two distributions the library draws from it. Pure functions, no state. */
#include "base/rng.h"

#include <math.h>

static inline void philox_round(uint32_t c[4], const uint32_t k[2])
{
    const uint64_t p0 = (uint64_t)0xD2511F53u * c[0], p1 = (uint64_t)0xCD9E8D57u * c[2];
    const uint32_t n0 = (uint32_t)(p1 >> 32) ^ c[1] ^ k[0], n2 = (uint32_t)(p0 >> 32) ^ c[3] ^ k[1];
    c[1] = (uint32_t)p1;
    c[3] = (uint32_t)p0;
    c[0] = n0;
    c[2] = n2;
}

void tn_rng_block(tn_rng r, uint64_t index, uint32_t out[4])
{
    uint32_t k[2] = { (uint32_t)r.seed, (uint32_t)(r.seed >> 32) };
    uint32_t c[4] = { (uint32_t)index, (uint32_t)(index >> 32), (uint32_t)r.stream, (uint32_t)(r.stream >> 32) };
    for (int i = 0; i < 10; i++) {
        philox_round(c, k);
        k[0] += 0x9E3779B9u;
        k[1] += 0xBB67AE85u;
    }
    for (int i = 0; i < 4; i++) out[i] = c[i];
}

/* Sixteen blocks side by side: each line of a round is a loop that compilers turn into vector code. */
void tn_rng_blocks(tn_rng r, uint64_t first, int64_t n, uint32_t *out)
{
    enum { WIDE = 16 };
    uint32_t a[WIDE], b[WIDE], c[WIDE], d[WIDE];
    for (; n >= WIDE; n -= WIDE, first += WIDE, out += 4 * WIDE) {
        uint32_t k0 = (uint32_t)r.seed, k1 = (uint32_t)(r.seed >> 32);
        for (int i = 0; i < WIDE; i++) {
            a[i] = (uint32_t)(first + (uint64_t)i);
            b[i] = (uint32_t)((first + (uint64_t)i) >> 32);
            c[i] = (uint32_t)r.stream;
            d[i] = (uint32_t)(r.stream >> 32);
        }
        for (int round = 0; round < 10; round++, k0 += 0x9E3779B9u, k1 += 0xBB67AE85u)
            for (int i = 0; i < WIDE; i++) {
                const uint64_t p0 = (uint64_t)0xD2511F53u * a[i], p1 = (uint64_t)0xCD9E8D57u * c[i];
                a[i] = (uint32_t)(p1 >> 32) ^ b[i] ^ k0;
                c[i] = (uint32_t)(p0 >> 32) ^ d[i] ^ k1;
                b[i] = (uint32_t)p1;
                d[i] = (uint32_t)p0;
            }
        for (int i = 0; i < WIDE; i++) {
            out[4 * i] = a[i];
            out[4 * i + 1] = b[i];
            out[4 * i + 2] = c[i];
            out[4 * i + 3] = d[i];
        }
    }
    for (int64_t i = 0; i < n; i++) tn_rng_block(r, first + (uint64_t)i, out + 4 * i);
}

float tn_rng_uniform(tn_rng r, uint64_t index)
{
    uint32_t w[4];
    tn_rng_block(r, index, w);
    return (float)(w[0] >> 8) * 0x1p-24f;
}

/* Two normals from two words: radius from the first, which is never 0, angle from the second. */
static void box_muller(uint32_t a, uint32_t b, float *x, float *y)
{
    const double radius = sqrt(-2.0 * log(((double)a + 1.0) * 0x1p-32)),
                 angle = 6.283185307179586 * ((double)b * 0x1p-32);
    *x = (float)(radius * cos(angle));
    *y = (float)(radius * sin(angle));
}

static void normal_block(tn_rng r, uint64_t block, float x[4])
{
    uint32_t w[4];
    tn_rng_block(r, block, w);
    box_muller(w[0], w[1], &x[0], &x[1]);
    box_muller(w[2], w[3], &x[2], &x[3]);
}

float tn_rng_normal(tn_rng r, uint64_t index)
{
    float x[4];
    normal_block(r, index / 4, x);
    return x[index % 4];
}

void tn_rng_normals_from(tn_rng r, uint64_t first, float *x, int64_t n)
{
    float last[4];
    for (int64_t i = 0; i + 4 <= n; i += 4) normal_block(r, (first + (uint64_t)i) / 4, x + i);
    if (n % 4) normal_block(r, (first + (uint64_t)n) / 4, last);
    for (int64_t i = n / 4 * 4; i < n; i++) x[i] = last[i % 4];
}

void tn_rng_normals(tn_rng r, float *x, int64_t n) { tn_rng_normals_from(r, 0, x, n); }

uint64_t tn_rng_below(tn_rng r, uint64_t index, uint64_t n)
{
    uint32_t w[4];
    tn_rng_block(r, index, w);
    const uint64_t x = (uint64_t)w[0] << 32 | w[1];
    return (uint64_t)(((unsigned __int128)x * n) >> 64);
}

uint64_t tn_rng_stream(const char *name)
{
    uint64_t h = 0xcbf29ce484222325u; /* FNV-1a */
    for (; *name; name++) h = (h ^ (unsigned char)*name) * 0x100000001b3u;
    return h;
}
