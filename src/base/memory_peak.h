/* The most memory that this process had resident for a while, where the system can be asked to forget what was before. */
#ifndef TN_BASE_MEMORY_PEAK_H
#define TN_BASE_MEMORY_PEAK_H

/* Forgets the peak so far. Bytes that are resident now; NaN: it cannot be known. */
double tn_memory_peak_begin(void);
/* Bytes of the peak since then; NaN: not known. */
double tn_memory_peak(void);
/* The same where nobody said tn_memory_peak_begin: of the whole life of the process. */
double tn_process_peak(void);

#endif
