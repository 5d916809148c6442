/* The monotonic clock, in seconds, and the processor time of this process, all threads together. */
#ifndef TN_BASE_CLOCK_H
#define TN_BASE_CLOCK_H

double tn_clock_s(void);
double tn_clock_cpu_s(void);

#endif
