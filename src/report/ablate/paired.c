/* See paired.h. */
#include "report/ablate/paired.h"

#include <math.h>
#include <string.h>

static tn_ratio of_round(const tn_paired *p, int round)
{
    return tn_ratio_of(p->ratio[round], p->n[round], TN_RATIOS_TAIL);
}

tn_ratio tn_paired_all(const tn_paired *p)
{
    double x[TN_RATIOS_MOST];
    int n = 0;
    for (int r = 0; r < TN_ABLATE_ROUNDS; r++) {
        memcpy(x + n, p->ratio[r], sizeof *x * (size_t)p->n[r]);
        n += p->n[r];
    }
    return tn_ratio_of(x, n, TN_RATIOS_TAIL);
}

int tn_paired_rounds(const tn_paired *p)
{
    int rounds = 0;
    for (int r = 0; r < TN_ABLATE_ROUNDS; r++) rounds += p->n[r] > 0;
    return rounds;
}

typedef struct sides_shown {
    int rounds, gains, losses; /* rounds: with enough pairs */
} sides_shown;

static sides_shown count(const tn_paired *p)
{
    sides_shown c = { .rounds = 0 };
    for (int r = 0; r < TN_ABLATE_ROUNDS; r++) {
        const tn_ratio x = of_round(p, r);
        if (x.n < TN_RATIOS_LEAST) continue;
        c.rounds++;
        c.gains += x.low > 1;
        c.losses += x.high < 1;
    }
    return c;
}

tn_gain tn_paired_gain(const tn_paired *p)
{
    const sides_shown c = count(p);
    const double all = tn_paired_all(p).median;
    if (c.rounds < TN_ABLATE_AGREE) return TN_GAIN_SHORT;
    if (c.gains >= TN_ABLATE_AGREE && !c.losses && all >= 1 + TN_ABLATE_LEAST) return TN_GAIN_SHOWN;
    if (c.losses >= TN_ABLATE_AGREE && !c.gains && all <= 1 / (1 + TN_ABLATE_LEAST)) return TN_GAIN_NEGATIVE;
    return TN_GAIN_NONE;
}

bool tn_paired_undecided(const tn_paired *p)
{
    const sides_shown c = count(p);
    return c.rounds == TN_ABLATE_AGREE && c.gains + c.losses == 1;
}
