/* Finds and loads the CUDA library. It is looked for beside this program or libtenon.so, and in the folder for libraries that
 * belongs to the program's bin/; TENON_CUDA_LIBRARY names another file. Only absolute paths are opened, so that neither the
 * working directory nor the system's search path decides what code runs. */
#define _GNU_SOURCE /* dladdr1, dlinfo */
#include "backend/cuda_library.h"

#include "base/status.h"
#include "tenon_cuda_abi.h"

#include <dlfcn.h>
#include <limits.h>
#include <link.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { PATH_BYTES = PATH_MAX + 64 }; /* a path and a name */

static const char FILE_NAME[] = "libtenon_cuda.so";

/* Set once, to what a process can have only one of: the library and its devices. */
static _Atomic(const tn_cuda_library *) library;

static const tn_cuda_host host = {
    .error = tn_error_at,
#define TN_HOST(type, name, parameters, arguments) .name = name,
#include "backend/host.def"
#undef TN_HOST
};

const tn_cuda_library *tn_cuda_library_loaded(void) { return atomic_load_explicit(&library, memory_order_acquire); }

/* The folder of the program or library that this code is in, links resolved. A library that was opened by a relative name is
 * where it was then, whatever the working directory is now. */
static bool own_folder(char folder[PATH_MAX])
{
    Dl_info info;
    struct link_map *map;
    char path[2 * PATH_MAX] = "/proc/self/exe", origin[PATH_MAX] = "";
    if (!dladdr1((void *)tn_cuda_library_loaded, &info, (void **)&map, RTLD_DL_LINKMAP)) return false;
    if (map->l_name[0] == '/') {
        snprintf(path, sizeof path, "%s", map->l_name);
    } else if (map->l_name[0]) {
        void *self = dlopen(map->l_name, RTLD_LAZY | RTLD_NOLOAD);
        if (!self || dlinfo(self, RTLD_DI_ORIGIN, origin) != 0) return false;
        dlclose(self);
        const char *name = strrchr(map->l_name, '/');
        snprintf(path, sizeof path, "%s/%s", origin, name ? name + 1 : map->l_name);
    }
    if (!realpath(path, folder)) return false;
    *strrchr(folder, '/') = 0;
    return true;
}

/* Where it is, or would be. */
static tn_status find(char path[PATH_BYTES])
{
    char folder[PATH_MAX];
    const char *given = getenv("TENON_CUDA_LIBRARY");
    if (given && given[0] == '/' && strlen(given) < PATH_MAX) {
        snprintf(path, PATH_BYTES, "%s", given);
        if (access(path, R_OK) == 0) return TN_OK;
        return tn_error(TN_USAGE, "device=cuda: cannot read %s (TENON_CUDA_LIBRARY); use device=cpu", given);
    }
    if (given && given[0])
        return tn_error(TN_USAGE, "device=cuda: TENON_CUDA_LIBRARY=%s must be an absolute path", given);
    if (!own_folder(folder))
        return tn_error(TN_USAGE,
                        "device=cuda: cannot tell where this program is; set "
                        "TENON_CUDA_LIBRARY to %s, or use device=cpu",
                        FILE_NAME);
    snprintf(path, PATH_BYTES, "%s/%s", folder, FILE_NAME);
    if (access(path, R_OK) == 0) return TN_OK;
    char *last = strrchr(folder, '/');
    const bool installed = last && strcmp(last, "/bin") == 0;
    if (installed) *last = 0;
    if (TN_LIBDIR[0] == '/') snprintf(path, PATH_BYTES, "%s/%s", TN_LIBDIR, FILE_NAME);
    else if (installed) snprintf(path, PATH_BYTES, "%s/%s/%s", folder, TN_LIBDIR, FILE_NAME);
    if (access(path, R_OK) == 0) return TN_OK;
    if (!tn_cuda_has_driver())
        return tn_error(TN_USAGE, "device=cuda: this machine has no NVIDIA driver: install it, or use device=cpu");
    return tn_error(TN_USAGE, "device=cuda: there is no %s: build it with `make CUDA=1`, or use device=cpu", path);
}

static const tn_cuda_library *refuse(const char *path, const char *abi)
{
    (void)tn_error(
        TN_USAGE, "device=cuda: %s belongs to another build (%s, this one is %s): run `make CUDA=1`, or use device=cpu",
        path, abi ? abi : "of unknown version", TN_CUDA_ABI);
    return NULL;
}

/* Loads the library unless that was done before. NULL with the error text set where it is not there or of another build. */
static const tn_cuda_library *load_library(void)
{
    char path[PATH_BYTES];
    const tn_cuda_library *l = tn_cuda_library_loaded();
    if (l) return l;
    if (find(path) != TN_OK) return NULL;
    void *file = dlopen(path, RTLD_NOW | RTLD_LOCAL); /* stays open: kernels are called until the process ends */
    if (!file) {
        (void)tn_error(TN_USAGE, "device=cuda: cannot load the CUDA library: %s; use device=cpu", dlerror());
        return NULL;
    }
    const char *abi = dlsym(file, "tn_cuda_abi");
    if (!abi || strcmp(abi, TN_CUDA_ABI) != 0) {
        l = refuse(path, abi);
        dlclose(file);
        return l;
    }
    tn_cuda_open_function *open = (tn_cuda_open_function *)dlsym(file, "tn_cuda_open");
    l = open ? open(&host) : NULL;
    if (!l)
        (void)tn_error(TN_USAGE, "device=cuda: another copy of Tenon in this process uses %s; use device=cpu", path);
    else atomic_store(&library, l);
    return l;
}

bool tn_cuda_has_driver(void) { return access("/dev/nvidiactl", F_OK) == 0 || access("/dev/dxg", F_OK) == 0; }

const tn_backend *tn_backend_get(tn_device d)
{
    if (d == TN_CPU) return &tn_backend_cpu;
    const tn_cuda_library *l = load_library();
    return l && l->available() == TN_OK ? l->backend : NULL;
}
