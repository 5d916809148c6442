/* A thread that asks NVML. */
#include "backend/gpu_usage.h"

#include "backend/cuda_library.h"
#include "base/alloc.h"

#include <dlfcn.h>
#include <pthread.h>
#include <stdlib.h>
#include <time.h>

enum { PERIOD_MS = 1000, PCI_BYTES = 32 };

struct tn_gpu_usage {
    tn_nvml nvml;
    void *device;
    void *library; /* or NULL: the functions are the caller's */
    pthread_t thread;
    pthread_mutex_t lock;
    pthread_cond_t ended;
    bool stop;
    double sum; /* of the samples since the last read */
    int64_t since;
    tn_gpu_sample last;
};

/* --- NVML ------------------------------------------------------------------------------------------------------------- */

static void *open_library(void)
{
    const char *given = getenv("TENON_NVML");
    if (given && given[0]) return dlopen(given, RTLD_NOW | RTLD_LOCAL);
    return tn_cuda_has_driver() ? dlopen("libnvidia-ml.so.1", RTLD_NOW | RTLD_LOCAL) : NULL;
}

static bool find_functions(void *library, tn_nvml *out)
{
    struct {
        const char *name;
        void *to;
    } wanted[] = { { "nvmlInit_v2", &out->init },
                   { "nvmlShutdown", &out->shutdown },
                   { "nvmlDeviceGetHandleByIndex_v2", &out->by_index },
                   { "nvmlDeviceGetHandleByPciBusId_v2", &out->by_pci },
                   { "nvmlDeviceGetUtilizationRates", &out->rates },
                   { "nvmlDeviceGetMemoryInfo", &out->memory } };
    for (size_t i = 0; i < sizeof wanted / sizeof *wanted; i++) {
        void *f = dlsym(library, wanted[i].name);
        if (!f) return false;
        *(void **)wanted[i].to = f;
    }
    return true;
}

/* The GPU that this process uses: its number is CUDA's, which counts only those that are visible. */
static bool find_device(tn_gpu_usage *u)
{
    char id[PCI_BYTES];
    const tn_cuda_library *cuda = tn_cuda_library_loaded();
    if (cuda && cuda->pci(id, sizeof id) && u->nvml.by_pci(id, &u->device) == 0) return true;
    return u->nvml.by_index(0, &u->device) == 0;
}

/* --- the thread ------------------------------------------------------------------------------------------------------- */

static void ask(tn_gpu_usage *u)
{
    tn_nvml_rates rates;
    tn_nvml_memory memory;
    if (u->nvml.rates(u->device, &rates) != 0 || u->nvml.memory(u->device, &memory) != 0) return;
    pthread_mutex_lock(&u->lock);
    u->sum += rates.gpu;
    u->since++;
    u->last = (tn_gpu_sample){ rates.gpu, (double)memory.used, (double)memory.total, u->last.heard + 1 };
    pthread_mutex_unlock(&u->lock);
}

static void *run(void *arg)
{
    tn_gpu_usage *u = arg;
    struct timespec until;
    clock_gettime(CLOCK_REALTIME, &until);
    for (bool stop = false; !stop;) {
        ask(u);
        until.tv_sec += PERIOD_MS / 1000;
        pthread_mutex_lock(&u->lock);
        while (!u->stop && pthread_cond_timedwait(&u->ended, &u->lock, &until) == 0) {
        }
        stop = u->stop;
        pthread_mutex_unlock(&u->lock);
    }
    return NULL;
}

static void release(tn_gpu_usage *u)
{
    if (u->library) dlclose(u->library);
    tn_free(u);
}

tn_gpu_usage *tn_gpu_usage_start(const tn_nvml *from)
{
    tn_gpu_usage *u = tn_alloc(sizeof *u);
    if (!u) return NULL;
    *u = (tn_gpu_usage){ .lock = PTHREAD_MUTEX_INITIALIZER, .ended = PTHREAD_COND_INITIALIZER };
    if (from) u->nvml = *from;
    else u->library = open_library();
    if ((!from && (!u->library || !find_functions(u->library, &u->nvml))) || u->nvml.init() != 0) {
        release(u);
        return NULL;
    }
    if (find_device(u) && pthread_create(&u->thread, NULL, run, u) == 0) return u;
    u->nvml.shutdown();
    release(u);
    return NULL;
}

bool tn_gpu_usage_read(tn_gpu_usage *u, tn_gpu_sample *out)
{
    if (!u) return false;
    pthread_mutex_lock(&u->lock);
    *out = u->last;
    if (u->since) out->busy = u->sum / (double)u->since;
    u->sum = 0, u->since = 0;
    pthread_mutex_unlock(&u->lock);
    return out->heard > 0;
}

void tn_gpu_usage_stop(tn_gpu_usage *u)
{
    if (!u) return;
    pthread_mutex_lock(&u->lock);
    u->stop = true;
    pthread_cond_signal(&u->ended);
    pthread_mutex_unlock(&u->lock);
    pthread_join(u->thread, NULL);
    u->nvml.shutdown();
    release(u);
}
