/* The monotonic clock, in seconds. */
#ifndef TN_BASE_CLOCK_H
#define TN_BASE_CLOCK_H

double tn_clock_s(void);

#endif
