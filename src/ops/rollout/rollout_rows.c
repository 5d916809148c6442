/* The rows of rollout's steps on the CPU: births, landings, children, stop rules, counts, paths, and who is a row of the next step.
 *
 * Children get the highest slots of their sample, so the next rows are those that stay, in their order, then the children.
 * Without compaction a row is its slot, and rows without an active flow have the bit TN_ROLLOUT_OFF. */
#include "ops/rollout/rollout_move.h"
#include "ops/rollout/rollout_run.h"
#include "ops/rows.h"

#include <math.h>
#include <string.h>

enum { RUNS, STOPPED, STOPS }; /* of a sample */

/* Rows of a step that are being written. */
typedef struct rows {
    float *places;
    int32_t *slot, *from, *bits;
} rows;

static rows rows_at(const tn_rollout_run *r, int64_t t)
{
    const tn_rollout_step s = tn_rollout_step_at(r, t);
    return (rows){ (float *)(uintptr_t)s.places, (int32_t *)(uintptr_t)s.slot, (int32_t *)(uintptr_t)s.from, s.bits };
}

static int32_t *tally(const tn_rollout_run *r, int64_t b) { return r->counts + b * TN_ROLLOUT_TALLIES; }

static int32_t used_of(const tn_rollout_run *r, int64_t b)
{
    return tally(r, b)[TN_ROLLOUT_ASKED] - tally(r, b)[TN_ROLLOUT_REFUSED];
}

/* --- the first step ------------------------------------------------------------------------------------------------- */

static void birth_tile(void *arg, int64_t b)
{
    const tn_rollout_run *r = arg;
    const tn_rollout_sizes *z = &r->j.z;
    const int32_t *live = r->live;
    const float *e0 = (const float *)r->j.c->in[TN_ROLLOUT_E0].data + b * z->S * z->E;
    const rows to = rows_at(r, 0);
    const bool exists = r->stopped[b] == RUNS;
    for (int64_t i = 0; i < live[b + 1] - live[b]; i++) {
        const int64_t row = live[b] + i, slot = b * z->N + i;
        float *place = to.places + row * z->P;
        const bool born = exists && i < z->S;
        memset(place, 0, sizeof *place * (size_t)z->P);
        to.slot[row] = (int32_t)slot;
        to.from[row] = (int32_t)row;
        to.bits[row] = born ? 0 : TN_ROLLOUT_OFF;
        r->even[slot] = tn_rollout_even(i, z->a->width);
        r->birth[slot] = 0;
        if (!born) continue;
        place[0] = 2.0f * (float)(i % z->a->width) / (float)(z->a->width - 1) - 1.0f;
        place[1] = 2.0f * (float)(i / z->a->width) / (float)(z->a->height - 1) - 1.0f;
        place[2] = z->a->start;
        memcpy(place + 3, e0 + i * z->E, sizeof *place * (size_t)z->E);
    }
}

static void clear(const tn_rollout_run *r, int output, float with)
{
    const tn_arg *o = &r->j.c->out[output];
    const int64_t n = tn_dims_count(o->dims);
    float *x = o->data;
    if (x && with == 0) memset(x, 0, sizeof *x * (size_t)n);
    for (int64_t i = 0; x && with != 0 && i < n; i++) x[i] = with;
}

void tn_rollout_begin(tn_rollout_run *r)
{
    const tn_rollout_sizes *z = &r->j.z;
    const int32_t *given = r->j.c->in[TN_ROLLOUT_COUNT].data;
    const int64_t count = given && *given < z->B ? (*given < 0 ? 0 : *given) : z->B;
    for (int i = TN_ROLLOUT_E; i <= TN_ROLLOUT_LANDED; i++) clear(r, i, 0);
    clear(r, TN_ROLLOUT_PATHS, NAN);
    memset(r->counts, 0, sizeof *r->counts * (size_t)(z->B * TN_ROLLOUT_TALLIES));
    for (int64_t b = 0; b < z->B; b++) {
        const bool exists = b < count;
        r->live[b] = (int32_t)(z->a->compact ? (exists ? b : count) * z->S : b * z->N);
        r->stopped[b] = exists ? RUNS : STOPPED;
        r->last[b] = -1, r->stale[b] = 0;
        r->active[b] = tally(r, b)[TN_ROLLOUT_ASKED] = exists ? (int32_t)z->S : 0;
    }
    r->live[z->B] = (int32_t)(count == 0 ? 0 : z->a->compact ? count * z->S : z->C);
    if (!count) memset(r->live, 0, sizeof *r->live * (size_t)z->B);
    tn_pool_run(r->j.c->pool, count ? z->B : 0, birth_tile, r);
    tn_rollout_check(r, 0);
}

/* --- stop rules ----------------------------------------------------------------------------------------------------- */

/* The rules at the top of step t for `done` of `created` flows that left; watch: what the last check remembers. */
static bool stops(const tn_rollout_attr *a, int64_t t, int64_t done, int64_t created, int64_t active, int32_t *last,
                  int32_t *stale)
{
    if (active == 0) return true;
    if (a->stop == TN_ROLLOUT_NEVER || t < a->s_min) return false;
    if ((double)done >= (double)a->threshold * (double)created) return true;
    *stale = done > *last ? 0 : *stale + 1;
    *last = (int32_t)done;
    return *stale >= a->patience;
}

/* Marks the samples that stop at the top of step t. */
void tn_rollout_check(tn_rollout_run *r, int64_t t)
{
    const tn_rollout_sizes *z = &r->j.z;
    int64_t done = 0, created = 0, active = 0;
    for (int64_t b = 0; b < z->B; b++) {
        done += tally(r, b)[TN_ROLLOUT_EXITED];
        created += used_of(r, b);
        active += r->stopped[b] == RUNS ? r->active[b] : 0;
    }
    const bool whole = z->a->stop != TN_ROLLOUT_SAMPLE;
    const bool all = t == z->T || (whole && stops(z->a, t, done, created, active, &r->last[0], &r->stale[0]));
    for (int64_t b = 0; b < z->B; b++) {
        if (r->stopped[b] != RUNS) continue;
        const bool own = !whole && stops(z->a, t, tally(r, b)[TN_ROLLOUT_EXITED], used_of(r, b), r->active[b],
                                         &r->last[b], &r->stale[b]);
        if (all || own) r->stopped[b] = STOPS;
    }
}

/* --- after a step --------------------------------------------------------------------------------------------------- */

/* A flow lands; place (P) is where it is, how: 1 left, 2 projected. */
static void land(const tn_rollout_run *r, int64_t slot, const float *place, int64_t t, int how)
{
    const tn_rollout_sizes *z = &r->j.z;
    const tn_arg *out = r->j.c->out;
    float *const to[] = { out[TN_ROLLOUT_U].data, out[TN_ROLLOUT_V].data, out[TN_ROLLOUT_D].data };
    int32_t *const plane = out[TN_ROLLOUT_PLANE].data, *const age = out[TN_ROLLOUT_AGE].data,
                   *const landed = out[TN_ROLLOUT_LANDED].data;
    float *e = out[TN_ROLLOUT_E].data, *path = out[TN_ROLLOUT_PATHS].data;
    const float low = fabsf(place[2] + 1), high = fabsf(place[2] - 1);
    if (to[0]) to[0][slot] = place[0];
    if (to[1]) to[1][slot] = place[1];
    if (to[2]) to[2][slot] = how == 1 ? 0 : high < low ? high : low;
    if (e) memcpy(e + slot * z->E, place + 3, sizeof *e * (size_t)z->E);
    if (plane) plane[slot] = high < low;
    if (age) age[slot] = (int32_t)(t + 1) - r->birth[slot];
    if (landed) landed[slot] = how;
    if (path) memcpy(path + ((t + 1) * z->C + slot) * z->P, place, sizeof *path * (size_t)z->P);
}

/* Children of row i that there is room for. */
static int32_t give_slots(const tn_rollout_run *r, int64_t b, int64_t i, int32_t asked, int64_t t)
{
    const tn_rollout_sizes *z = &r->j.z;
    const tn_rollout_step *s = r->now;
    int32_t *n = tally(r, b);
    const int64_t used = used_of(r, b), left = z->N - used, given = asked < left ? asked : left;
    for (int64_t child = b * z->N + used; child < b * z->N + used + given; child++) {
        r->parent[child] = (int32_t)i;
        r->birth[child] = (int32_t)(t + 1);
        r->even[child] = r->even[s->slot[i]];
    }
    n[TN_ROLLOUT_ASKED] += asked;
    n[TN_ROLLOUT_REFUSED] += asked - (int32_t)given;
    return (int32_t)given;
}

/* Landings, children and counts of a sample. */
static void settle_tile(void *arg, int64_t b)
{
    const tn_rollout_run *r = arg;
    const tn_rollout_sizes *z = &r->j.z;
    const tn_rollout_step *s = r->now;
    int32_t *n = tally(r, b), moved = 0, active = 0;
    float *path = r->j.c->out[TN_ROLLOUT_PATHS].data;
    r->child[b] = used_of(r, b);
    for (int64_t i = s->live[b]; i < s->live[b + 1]; i++) {
        int32_t *bits = &s->bits[i];
        if (*bits & TN_ROLLOUT_OFF) continue;
        const int64_t slot = s->slot[i];
        const int32_t asked = *bits >> TN_ROLLOUT_CHILDREN, given = asked ? give_slots(r, b, i, asked, s->t) : 0;
        *bits = (*bits & ((1 << TN_ROLLOUT_CHILDREN) - 1)) | given << TN_ROLLOUT_CHILDREN;
        if (path) memcpy(path + (s->t * z->C + slot) * z->P, s->places + i * z->P, sizeof *path * (size_t)z->P);
        if (*bits & TN_ROLLOUT_LEFT) land(r, slot, s->after + i * z->P, s->t, 1), n[TN_ROLLOUT_EXITED]++;
        else active++;
        active += given;
        moved++;
    }
    r->active[b] = active;
    n[TN_ROLLOUT_FLOW_STEPS] += moved;
    if (moved) n[TN_ROLLOUT_TAKEN] = (int32_t)s->t + 1;
}

/* Where a child starts: the parent's place before the step, with the energy after it. */
static void child_place(const tn_rollout_run *r, int64_t slot, float *place)
{
    const int64_t P = r->j.z.P, i = r->parent[slot];
    memcpy(place, r->now->places + i * P, sizeof *place * 3);
    memcpy(place + 3, r->now->after + i * P + 3, sizeof *place * (size_t)(P - 3));
}

static void project(const tn_rollout_run *r, int64_t b)
{
    const tn_rollout_sizes *z = &r->j.z;
    const tn_rollout_step *s = r->now;
    int32_t *n = &tally(r, b)[TN_ROLLOUT_PROJECTED];
    for (int64_t i = s->live[b]; i < s->live[b + 1]; i++) {
        if (s->bits[i] & (TN_ROLLOUT_OFF | TN_ROLLOUT_LEFT)) continue;
        s->bits[i] |= TN_ROLLOUT_LAST;
        land(r, s->slot[i], s->after + i * z->P, s->t, 2);
        ++*n;
    }
    for (int64_t slot = b * z->N + r->child[b]; slot < b * z->N + used_of(r, b); slot++) {
        float place[3 + TN_ROLLOUT_ENERGY];
        child_place(r, slot, place);
        land(r, slot, place, s->t, 2);
        ++*n;
    }
}

static void write_row(const tn_rollout_sizes *z, const rows *to, int64_t row, int64_t slot, int64_t from,
                      const float *place, int32_t bits)
{
    to->slot[row] = (int32_t)slot;
    to->from[row] = (int32_t)from;
    to->bits[row] = bits;
    memcpy(to->places + row * z->P, place, sizeof *place * (size_t)z->P);
}

/* Rows of the next step; without compaction those that are off keep their place. */
static void next_rows(const tn_rollout_run *r, int64_t b, int64_t first, bool goes_on)
{
    const tn_rollout_sizes *z = &r->j.z;
    const tn_rollout_step *s = r->now;
    const rows to = rows_at(r, s->t + 1);
    int64_t row = first;
    for (int64_t i = s->live[b]; i < s->live[b + 1]; i++) {
        const bool stays = goes_on && !(s->bits[i] & (TN_ROLLOUT_OFF | TN_ROLLOUT_LEFT));
        if (!stays && z->a->compact) continue;
        write_row(z, &to, row++, s->slot[i], i, (stays ? s->after : s->places) + i * z->P, stays ? 0 : TN_ROLLOUT_OFF);
    }
    if (!z->a->compact) row = first + r->child[b];
    for (int64_t slot = b * z->N + r->child[b]; goes_on && slot < b * z->N + used_of(r, b); slot++) {
        float place[3 + TN_ROLLOUT_ENERGY];
        child_place(r, slot, place);
        write_row(z, &to, row++, slot, r->parent[slot], place, 0);
    }
}

static void advance_tile(void *arg, int64_t b)
{
    const tn_rollout_run *r = arg;
    const tn_rollout_sizes *z = &r->j.z;
    const int32_t *next = r->live + (r->now->t + 1) * (z->B + 1);
    if (r->stopped[b] == STOPS) project(r, b);
    if (next[z->B]) next_rows(r, b, next[b], r->stopped[b] == RUNS);
}

void tn_rollout_finish(tn_rollout_run *r, const tn_rollout_step *s)
{
    const tn_rollout_sizes *z = &r->j.z;
    int32_t *next = r->live + (s->t + 1) * (z->B + 1);
    memset(next, 0, sizeof *next * (size_t)(z->B + 1));
    if (!s->rows) return;
    r->now = s;
    tn_pool_run(r->j.c->pool, z->B, settle_tile, r);
    tn_rollout_check(r, s->t + 1);
    int64_t n = 0, active = 0;
    for (int64_t b = 0; b < z->B; b++) {
        next[b] = (int32_t)(z->a->compact ? n : b * z->N);
        if (r->stopped[b] == RUNS) active += r->active[b], n += r->active[b];
    }
    if (!z->a->compact) n = z->C;
    if (!active) memset(next, 0, sizeof *next * (size_t)z->B);
    next[z->B] = (int32_t)(active ? n : 0);
    tn_pool_run(r->j.c->pool, z->B, advance_tile, r);
    for (int64_t b = 0; b < z->B; b++)
        if (r->stopped[b] == STOPS) r->stopped[b] = STOPPED;
}
