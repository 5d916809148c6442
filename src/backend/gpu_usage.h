/* How busy a GPU is, its clock and power, and how much of its memory is taken, as NVIDIA's management library (NVML) says it: a thread
 * asks once a second, whoever reads gets what it last heard. Nothing is asked of the CUDA driver, so no step waits.
 *
 *     tn_gpu_usage *u = tn_gpu_usage_start(NULL);      NULL: no such library, or no GPU that it knows
 *     if (tn_gpu_usage_read(u, &now)) ...              false: nothing is known yet
 *     tn_gpu_usage_stop(u);                            takes NULL */
#ifndef TN_BACKEND_GPU_USAGE_H
#define TN_BACKEND_GPU_USAGE_H

#include <stdbool.h>
#include <stdint.h>

/* Functions and structures of NVML, by its documented interface. Each returns 0 where it worked. The last two may be NULL: drivers
 * without them, and GPUs that do not answer, leave out what they say. */
typedef struct tn_nvml_rates {
    unsigned gpu,
        memory; /* per cent of the last period in which a kernel ran, and in which memory was read or written */
} tn_nvml_rates;
typedef struct tn_nvml_memory {
    unsigned long long total, free, used;
} tn_nvml_memory;

enum { TN_NVML_CLOCK_SM = 1 };

typedef struct tn_nvml {
    int (*init)(void);
    int (*shutdown)(void);
    int (*by_index)(unsigned index, void **device);
    int (*by_pci)(const char *id, void **device);
    int (*rates)(void *device, tn_nvml_rates *out);
    int (*memory)(void *device, tn_nvml_memory *out);
    int (*clock)(void *device, int kind, unsigned *mhz);
    int (*power)(void *device, unsigned *milliwatts);
} tn_nvml;

typedef struct tn_gpu_sample {
    /* Means of what was heard since the last read, or what was heard last. */
    double busy;            /* per cent */
    double clock_mhz, watt; /* NaN: it does not say */
    double used, all;       /* bytes of its memory, by all programs */
    int64_t heard;          /* times that NVML answered */
} tn_gpu_sample;

typedef struct tn_gpu_usage tn_gpu_usage;

/* from: functions to ask; NULL: those of the library TENON_NVML names, or of the driver's own. */
tn_gpu_usage *tn_gpu_usage_start(const tn_nvml *from);
bool tn_gpu_usage_read(tn_gpu_usage *u, tn_gpu_sample *out);
bool tn_gpu_usage_last(tn_gpu_usage *u, tn_gpu_sample *out); /* the last alone; means of others go on */
void tn_gpu_usage_stop(tn_gpu_usage *u);

#endif
