/* Finding cuDNN. */
#include "backend/cuda/cudnn.h"

#include <dlfcn.h>
#include <stdlib.h>

enum { OLDEST = 90000 };

bool tn_cudnn_asked_for(void)
{
    const char *given = getenv("TENON_CUDNN");
    return given && given[0];
}

static void *find_library(void)
{
    static const char *const names[] = { "libcudnn.so.9", "/usr/local/cuda/lib64/libcudnn.so.9", "libcudnn.so" };
    if (tn_cudnn_asked_for()) return dlopen(getenv("TENON_CUDNN"), RTLD_NOW | RTLD_LOCAL);
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        void *l = dlopen(names[i], RTLD_NOW | RTLD_LOCAL);
        if (l) return l;
    }
    return NULL;
}

tn_status tn_cudnn_open(tn_cudnn *out)
{
    tn_cudnn l = { .library = find_library() };
    if (!l.library) {
        const char *why = dlerror();
        return tn_error(
            TN_USAGE,
            "cuDNN is not found (%s): install cuDNN 9 or name libcudnn.so.9 in TENON_CUDNN, or use opt.cudnn=off",
            why ? why : "no reason given");
    }
    const char *missing = NULL;
#define FIND(name, result, arguments)                                                                                  \
    *(void **)&l.name = dlsym(l.library, "cudnn" #name);                                                               \
    if (!l.name) missing = "cudnn" #name;
    TN_DNN_FUNCTIONS(FIND)
#undef FIND
    tn_status s = TN_OK;
    if (missing)
        s = tn_error(TN_USAGE, "the cuDNN that was found has no %s: install cuDNN 9, or use opt.cudnn=off", missing);
    else if (l.GetVersion() < OLDEST)
        s = tn_error(TN_USAGE, "cuDNN is version %zu: install cuDNN 9, or use opt.cudnn=off", l.GetVersion());
    if (s != TN_OK) {
        dlclose(l.library);
        return s;
    }
    *out = l;
    return TN_OK;
}

void tn_cudnn_close(tn_cudnn *l)
{
    if (l->library) dlclose(l->library);
    *l = (tn_cudnn){ 0 };
}

tn_status tn_cudnn_failed(const tn_cudnn *l, int status, const char *what, const char *file, int line)
{
    char words[400] = "";
    l->GetLastErrorString(words, sizeof words);
    return tn_error_at(file, line, TN_INTERNAL, "cuDNN %zu: %s: %s%s%s", l->GetVersion(), what,
                       l->GetErrorString(status), words[0] ? ": " : "", words);
}
