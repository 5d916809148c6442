/* What a rollout keeps for its backward pass. Everything, where that fits; else states every k steps, and the k steps between two of
 * them are computed again. A step's own numbers are five states, so that T/k + 5 k is least near k = 0.44 sqrt(T). The choice
 * changes no bit of a result. */
#include "models/flow/flow.h"

#include "backend/backend.h"
#include "base/memory_limit.h"
#include "base/status.h"

#include <math.h>
#include <stdio.h>

double flow_memory(const tn_graph *g)
{
    size_t left, all;
    const tn_device device = tn_graph_get_options(g)->device;
    const tn_backend *gpu = device == TN_CPU ? NULL : tn_backend_get(device);
    return gpu && gpu->memory(&left, &all) == TN_OK ? (double)all : tn_memory_limit();
}

const char *flow_memory_where(const tn_graph *g)
{
    return tn_graph_get_options(g)->device == TN_CPU ? "the machine has" : "the GPU has";
}

double flow_keep_bytes(const tn_graph *g, const flow_config *c, int64_t batch, int64_t keep)
{
    const double flows = (double)batch * (double)flow_slots(c), H = (double)c->dim, L = (double)c->layers,
                 T = (double)c->steps, of = tn_graph_get_options(g)->activation == TN_BF16 ? 2 : 4; /* rollout's */
    const double state = flows * L * H * of, heads = flows * (H / 2 + 64) * of, step = 5 * state + heads;
    const double places = T * flows * 4 * (double)(3 + c->energy + 3);
    const double grid = T * (double)batch * 4 * (double)(c->field * c->grid[0] * c->grid[1] * c->grid[2]);
    const double slopes = flows * 4 * (L * 5 * H + H / 2 + 192); /* of one step, in f32 */
    const double states = keep ? ceil(T / (double)keep) * state + (double)keep * step : T * step;
    return states + places + grid + slopes;
}

/* A tenth of the memory is the system's, as the trainer has it; parameters and what stands beside them have a part too. */
static double room(const tn_graph *g, const flow_config *c)
{
    const double H = (double)c->dim, parameters = (double)c->layers * 6 * H * H;
    return c->keep_bytes > 0 ? c->keep_bytes : 0.8 * flow_memory(g) - 16 * parameters;
}

/* What takes the memory, and what to make smaller. */
static tn_status refuse(const tn_graph *g, const flow_config *c, int64_t batch, int64_t keep, double needs, double has)
{
    char field[96] = "";
    const bool chosen = c->keep >= 0, allowed = !chosen && c->keep_bytes > 0;
    if (c->field)
        snprintf(field, sizeof field, ", a field of %lld x %lld x %lld x %lld", (long long)c->grid[0],
                 (long long)c->grid[1], (long long)c->grid[2], (long long)c->field);
    return tn_error(TN_MEMORY,
                    "train.batch=%lld of %lld flows with dim=%lld, layers=%lld%s and %lld steps needs %.3g GB with "
                    "keep=%lld and %s %.3g GB%s: use %sa smaller train.batch (train.accumulate makes up for it), dim%s "
                    "or steps",
                    (long long)batch, (long long)flow_slots(c), (long long)c->dim, (long long)c->layers, field,
                    (long long)c->steps, needs / 1e9, (long long)keep,
                    allowed ? "keep_memory allows" : flow_memory_where(g), fmax(has, 0) / 1e9,
                    allowed || chosen ? "" : " left for it", chosen ? "keep=auto, " : "", c->field ? ", field" : "");
}

/* A keep that was chosen is taken at its word, unless no machine of this size could hold it. */
tn_status flow_keep(const tn_graph *g, const flow_config *c, int64_t batch, int64_t *keep)
{
    *keep = c->keep < 0 ? 0 : c->keep;
    if (!tn_graph_get_options(g)->training || c->lattice == FLOW_OFF) return TN_OK;
    const double has = c->keep < 0 ? room(g, c) : flow_memory(g);
    if (c->keep < 0 && flow_keep_bytes(g, c, batch, 0) > has) {
        const int64_t k = (int64_t)llround(sqrt((double)c->steps / 5));
        *keep = k < 1 ? 1 : k;
    }
    const double needs = flow_keep_bytes(g, c, batch, *keep);
    return needs <= has ? TN_OK : refuse(g, c, batch, *keep, needs, has);
}
