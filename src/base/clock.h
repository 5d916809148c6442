/* The monotonic clock, in seconds, the processor time of this process, all threads together, and how long the process has lived. */
#ifndef TN_BASE_CLOCK_H
#define TN_BASE_CLOCK_H

double tn_clock_s(void);
double tn_clock_cpu_s(void);
double tn_clock_process_s(void); /* since the process began, to a hundredth; NaN where the system does not say */

#endif
