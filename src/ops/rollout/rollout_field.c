/* The lattice's field on the CPU: a grid of corners over [-1,1]^3 for each sample. Rows give to it in their order, at the place after
 * their move, and read it at the next step by trilinear weights. */
#include "ops/rollout/rollout_back.h"

#include <math.h>
#include <string.h>

tn_rollout_corners tn_rollout_find_corners(const tn_rollout_attr *a, const float *place, bool nearest)
{
    tn_rollout_corners c = { .n = nearest ? 1 : 8 };
    int32_t from[3];
    float part[3], slope[3];
    for (int i = 0; i < 3; i++) {
        const float x = (place[i] + 1) * 0.5f * (float)(a->grid[i] - 1), most = (float)(a->grid[i] - (nearest ? 1 : 2));
        float first = nearest ? rintf(x) : floorf(x);
        first = first > 0 ? first : 0; /* NaN too */
        first = first < most ? first : most;
        from[i] = (int32_t)first;
        part[i] = nearest ? 0 : x - first;
        slope[i] = nearest ? 0 : 0.5f * (float)(a->grid[i] - 1);
    }
    for (int k = 0; k < c.n; k++) {
        const int up[3] = { k & 1, k >> 1 & 1, k >> 2 & 1 };
        float w[3], s[3];
        for (int i = 0; i < 3; i++) w[i] = up[i] ? part[i] : 1 - part[i], s[i] = up[i] ? slope[i] : -slope[i];
        c.at[k] = ((from[2] + up[2]) * a->grid[1] + from[1] + up[1]) * a->grid[0] + from[0] + up[0];
        c.weight[k] = w[0] * w[1] * w[2];
        for (int i = 0; i < 3; i++) c.slope[k][i] = s[i] * w[(i + 1) % 3] * w[(i + 2) % 3];
    }
    return c;
}

void tn_rollout_read(const tn_rollout_sizes *z, const float *grid, const float *place, float *read)
{
    const tn_rollout_corners c = tn_rollout_find_corners(z->a, place, false);
    for (int k = 0; k < c.n; k++)
        for (int64_t f = 0; f < z->F; f++) read[f] += c.weight[k] * grid[c.at[k] * z->F + f];
}

void tn_rollout_deposit(const tn_rollout_sizes *z, const tn_rollout_step *s, int64_t b, float *grid)
{
    memset(grid, 0, sizeof *grid * (size_t)(z->voxels * z->F));
    for (int64_t i = s->live[b]; i < s->live[b + 1]; i++) {
        if (s->bits[i] & TN_ROLLOUT_OFF) continue;
        const tn_rollout_corners c = tn_rollout_find_corners(z->a, s->after + i * z->P, !z->a->smooth);
        for (int k = 0; k < c.n; k++)
            for (int64_t f = 0; f < z->F; f++) grid[c.at[k] * z->F + f] += c.weight[k] * s->phi[i * z->F + f];
    }
}

/* --- backward ------------------------------------------------------------------------------------------------------- */

void tn_rollout_deposit_back(const tn_rollout_sizes *z, const float *dgrid, const float *after, const float *phi,
                             float *dphi, float *dplace)
{
    const tn_rollout_corners c = tn_rollout_find_corners(z->a, after, !z->a->smooth);
    for (int k = 0; k < c.n; k++) {
        const float *d = dgrid + c.at[k] * z->F;
        float along = 0;
        for (int64_t f = 0; f < z->F; f++) dphi[f] += c.weight[k] * d[f];
        for (int64_t f = 0; phi && f < z->F; f++) along += phi[f] * d[f];
        for (int a = 0; phi && a < 3; a++) dplace[a] += c.slope[k][a] * along;
    }
}

void tn_rollout_read_back(const tn_rollout_sizes *z, const float *grid, const float *place, const float *dread,
                          float *dplace)
{
    const tn_rollout_corners c = tn_rollout_find_corners(z->a, place, false);
    for (int k = 0; k < c.n; k++) {
        float along = 0;
        for (int64_t f = 0; f < z->F; f++) along += dread[f] * grid[c.at[k] * z->F + f];
        for (int a = 0; a < 3; a++) dplace[a] += c.slope[k][a] * along;
    }
}

void tn_rollout_reads_back(const tn_rollout_sizes *z, const tn_rollout_step *s, const float *din, int64_t first,
                           int64_t last, float *dgrid)
{
    for (int64_t i = first; i < last; i++, din += z->I) {
        if (s->bits[i] & TN_ROLLOUT_OFF) continue;
        const tn_rollout_corners c = tn_rollout_find_corners(z->a, s->places + i * z->P, false);
        for (int k = 0; k < c.n; k++)
            for (int64_t f = 0; f < z->F; f++) dgrid[c.at[k] * z->F + f] += c.weight[k] * din[z->P + f];
    }
}
