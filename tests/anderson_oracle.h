/* Anderson's weights in double, for oracles of solves. Header only. */
#ifndef TN_TESTS_ANDERSON_ORACLE_H
#define TN_TESTS_ANDERSON_ORACLE_H

enum { AO_PAIRS = 16 }; /* most */

/* Of n pairs whose residuals have the products m (n,n): (m + 1e-8 tr/n I) w = 1, scaled to sum 1, by elimination. m is used up. */
static inline void ao_weights(double m[AO_PAIRS][AO_PAIRS + 1], int n, double *w)
{
    double trace = 0, sum = 0;
    for (int i = 0; i < n; i++) trace += m[i][i];
    for (int i = 0; i < n; i++) m[i][i] += 1e-8 * trace / n, m[i][n] = 1;
    for (int i = 0; i < n; i++)
        for (int k = 0; k < n; k++) {
            const double q = m[k][i] / m[i][i];
            for (int j = i; k != i && j <= n; j++) m[k][j] -= q * m[i][j];
        }
    for (int i = 0; i < n; i++) sum += w[i] = m[i][n] / m[i][i];
    for (int i = 0; i < n; i++) w[i] /= sum;
}

#endif
