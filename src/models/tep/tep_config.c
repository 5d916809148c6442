/* Settings and presets of `tep`, reading them with their cross-checks, and the row that registers the model. */
#include "models/tep/tep.h"

#include <string.h>

static const tn_setting settings[] = {
    TN_SETTING_AUTO_INT("inputs", "auto", TN_RANGE(1, 1e8), "", "features per token (auto: the task's)"),
    TN_SETTING_AUTO_INT("tokens", "auto", TN_RANGE(1, 65536), "", "tokens per sample (auto: the task's)"),
    TN_SETTING_AUTO_INT("classes", "auto", TN_RANGE(2, 1e6), "", "number of classes (auto: the task's)"),
    TN_SETTING_INT("dim", "64", TN_RANGE(1, 65536), "", "width of the state"),
    TN_SETTING_AUTO_INT("ff", "auto", TN_RANGE(1, 1e6), "", "inner width of the map (auto: 4 dim)"),
    TN_SETTING_CHOICE("mode", "block", "block|energy|toroidal|hopfield",
                      "map whose fixed point is the state: transformer block, descent of an energy, recurrence with a "
                      "ring buffer, symmetric recurrence"),
    TN_SETTING_CHOICE("variant", "corrected", "corrected|faithful",
                      "faithful: the prototype's block with its nudge by beta/count, proxy gradient, absolute tol and "
                      "unused parameters"),
    TN_SETTING_CHOICE("grad", "auto", "auto|ep|ep_centred|implicit|one_step|bptt",
                      "gradient method (auto: ep_centred; faithful: ep)"),
    TN_SETTING_FLOAT("beta", "0.1", TN_RANGE_LO_OPEN(0, 10), "", "strength of the nudge (ep, ep_centred)"),
    TN_SETTING_CHOICE("anchor", "auto", "auto|state|rest",
                      "ep, ep_centred: nudge f, or f less its residual at the free state, which is then a fixed point "
                      "(auto: rest for ep)"),
    TN_SETTING_FLOAT("nudge_rtol", "0", TN_RANGE(0, 1), "",
                     "nudged samples have converged when a step changes their displacement by this fraction (0: rtol, "
                     "as free ones)"),
    TN_SETTING_FLOAT("damping", "0.9", TN_RANGE_LO_OPEN(0, 1), "", "fraction of each step that is taken (1: undamped)"),
    TN_SETTING_INT("iterations", "20", TN_RANGE(1, 1e6), "steps", "largest number of steps of a solve"),
    TN_SETTING_FLOAT("rtol", "1e-2", TN_RANGE_OPEN(0, 1), "",
                     "a sample has converged when |f(h)-h| is this fraction of |f(h)|"),
    TN_SETTING_FLOAT("tol", "1e-4", TN_RANGE_ABOVE(0), "",
                     "faithful: a batch has converged when a step moves it by less"),
    TN_SETTING_CHOICE("solver", "picard", "picard|anderson", "damped iteration, or Anderson's extrapolation"),
    TN_SETTING_INT("memory", "5", TN_RANGE(2, 16), "steps", "history of anderson"),
    TN_SETTING_CHOICE("attention", "linear", "linear|softmax", "block: attention of states to inputs (several tokens)"),
    TN_SETTING_AUTO_INT("heads", "auto", TN_RANGE(1, 1024), "",
                        "block: attention heads (auto: the largest of 8, 4, 2, 1 that divides dim)"),
    TN_SETTING_CHOICE("pos", "learned", "none|learned",
                      "block: positions added to the tokens of a sample (several tokens)"),
    TN_SETTING_FLOAT("kappa", "0.7", TN_RANGE_OPEN(0, 1), "", "energy, hopfield: bound on the map's slope"),
    TN_SETTING_FLOAT("radius", "0.95", TN_RANGE_OPEN(0, 1), "", "toroidal: bound on the map's slope"),
    TN_SETTING_BOOL("through_sigma", "false",
                    "energy, toroidal, hopfield: gradients also see the factor that keeps the map contracting (exact, "
                    "but not local)"),
    TN_SETTING_FLOAT("alpha", "0.5", TN_RANGE_LO_OPEN(0, 1), "", "toroidal: fraction of the state that a step updates"),
    TN_SETTING_INT("buffer", "3", TN_RANGE(0, 8), "steps", "toroidal: earlier states that a step sees"),
    TN_SETTING_FLOAT("buffer_fade", "0.9", TN_RANGE(0, 1), "",
                     "toroidal: factor between the weights of one earlier state and the next"),
    TN_SETTING_FLOAT("jacobian", "0", TN_RANGE(0, 1e6), "",
                     "adds this times |J v|^2 per element of the state to the loss: a small slope J converges sooner "
                     "(v: random +-1)"),
    TN_SETTING_FLOAT("head_scale", "1", TN_RANGE_LO_OPEN(0, 10), "",
                     "scale of the head's initial weights: near 0, a policy starts uniform"),
    TN_SETTING_BOOL("value", "false", "a second head for one number, such as the value of a position in a game"),
    TN_SETTING_BOOL("cache", "false", "training solves start from the equilibria of the last epoch"),
};

/* --- presets ------------------------------------------------------------------------------------------------------ */

#define VALUES(...) ((const char *const[]){ __VA_ARGS__, NULL })
/* Adam as the prototype has it, and its best trial on the digits. */
#define ADAM "train.beta2=0.999", "train.decay=0", "train.warmup=0", "train.schedule=constant"
#define DIGITS ADAM, "task=digits", "dim=13", "train.batch=64", "beta=0.0955", "damping=0.741"
/* Chosen on validation parts for centred nudges; the report's trial has a rate that does not come down. */
#define SETTLED DIGITS, "train.epochs=50", "train.lr=0.012", "train.schedule=cosine", "iterations=60", "rtol=1e-3"

static const tn_preset presets[] = {
    { "digits_tep", "8x8 digits by centred equilibrium propagation, 2.8 K parameters", VALUES(SETTLED) },
    { "digits_tep_faithful", "the same as the prototype computed it, 3.2 K parameters",
      VALUES(DIGITS, "variant=faithful", "train.epochs=30", "train.lr=0.0255", "iterations=26", "tol=2.9e-4",
             "train.clip=0") },
    { "digits_bptt", "the same by back-propagation through the iterations", VALUES(SETTLED, "grad=bptt") },
    { "energy_tep", "8x8 digits with a state that descends an energy, where equilibrium propagation is exact",
      VALUES(ADAM, "task=digits", "mode=energy", "dim=32", "rtol=1e-3", "train.batch=64", "train.epochs=30",
             "train.lr=5e-3") },
    { "mnist_tep", "28x28 digits by centred equilibrium propagation in a symmetric recurrence, 0.45 M parameters",
      VALUES(ADAM, "task=mnist", "task.valid_frac=0.1", "mode=hopfield", "dim=384", "rtol=1e-3", "beta=0.2",
             "iterations=30", "train.batch=128", "train.epochs=12", "train.lr=2e-3", "train.decay=0.02",
             "train.schedule=cosine") },
    { "cartpole_tep", "a pole on a cart by the policy gradient of an energy network with a value head",
      VALUES(ADAM, "task=cartpole", "mode=energy", "value=true", "dim=32", "train.steps=1000", "train.lr=1e-2",
             "train.schedule=cosine") },
    { "acrobot_tep", "a two-link pendulum to be swung up, the same way",
      VALUES(ADAM, "task=acrobot", "mode=energy", "value=true", "dim=32", "rl.episodes=2", "train.steps=500",
             "train.lr=5e-3", "train.schedule=cosine", "head_scale=0.01") },
    { "xor_tep", "exclusive or, the smallest task",
      VALUES(ADAM, "task=xor", "dim=8", "train.batch=32", "train.epochs=5", "train.lr=1e-2") },
};

/* --- reading ------------------------------------------------------------------------------------------------------ */

static float number(const tn_settings *st, const char *key) { return (float)tn_settings_float(st, key); }

static int64_t most_heads(int64_t dim)
{
    int64_t h = 8;
    while (dim % h) h /= 2;
    return h;
}

static void read_all(const tn_settings *st, tep_config *c)
{
    *c = (tep_config){ .inputs = tn_settings_int(st, "inputs"),
                       .tokens = tn_settings_int(st, "tokens"),
                       .classes = tn_settings_int(st, "classes"),
                       .dim = tn_settings_int(st, "dim"),
                       .ff = tn_settings_int(st, "ff"),
                       .heads = tn_settings_int(st, "heads"),
                       .iterations = tn_settings_int(st, "iterations"),
                       .memory = tn_settings_int(st, "memory"),
                       .buffer = tn_settings_int(st, "buffer"),
                       .mode = (tep_mode)tn_settings_choice(st, "mode"),
                       .faithful = tn_settings_choice(st, "variant") == 1,
                       .softmax = tn_settings_choice(st, "attention") == 1,
                       .anderson = tn_settings_choice(st, "solver") == 1,
                       .positions = tn_settings_choice(st, "pos") == 1,
                       .through_sigma = tn_settings_on(st, "through_sigma"),
                       .value = tn_settings_on(st, "value"),
                       .cache = tn_settings_on(st, "cache"),
                       .beta = number(st, "beta"),
                       .damping = number(st, "damping"),
                       .rtol = number(st, "rtol"),
                       .nudge_rtol = number(st, "nudge_rtol"),
                       .tol = number(st, "tol"),
                       .kappa = number(st, "kappa"),
                       .radius = number(st, "radius"),
                       .alpha = number(st, "alpha"),
                       .fade = number(st, "buffer_fade"),
                       .jacobian = number(st, "jacobian"),
                       .head_scale = number(st, "head_scale") };
    const int grad = tn_settings_choice(st, "grad"); /* 0: auto */
    c->grad = grad ? (tep_grad)(grad - 1) : c->faithful ? TEP_EP : TEP_EP_CENTRED;
    const int anchor = tn_settings_choice(st, "anchor"); /* centred nudges cancel what is left over by themselves */
    c->at_rest = !c->faithful && (anchor ? anchor == 2 : c->grad == TEP_EP);
    if (!c->ff) c->ff = 4 * c->dim;
    if (!c->heads) c->heads = most_heads(c->dim);
}

static tn_status check(const tep_config *c)
{
    if (c->mode != TEP_BLOCK && c->faithful)
        return tn_model_error("variant=faithful needs mode=block: remove one of them");
    if (c->mode != TEP_BLOCK && c->tokens > 1)
        return tn_model_error("samples of several tokens (here %lld) need mode=block", (long long)c->tokens);
    if (c->faithful && c->grad != TEP_EP && c->grad != TEP_BPTT)
        return tn_model_error("variant=faithful supports grad=ep (its proxy) and grad=bptt only");
    if (c->dim % c->heads)
        return tn_model_error("heads=%lld must divide dim=%lld", (long long)c->heads, (long long)c->dim);
    if (c->anderson && c->grad == TEP_BPTT)
        return tn_model_error("grad=bptt needs the damped iteration: use solver=picard, or another gradient");
    return TN_OK;
}

tn_status tep_config_read(const tn_settings *st, tn_graph *g, const tn_batch *b, tep_config *c)
{
    read_all(st, c);
    if (b) {
        const int64_t F = tn_ref_dim(g, tn_in(b, "features"), -1);
        if (!c->inputs) c->inputs = F;
        if (!c->tokens) c->tokens = b->length;
        if (!c->classes) return tn_model_error("classes is auto and no task is set: give task=NAME or classes=N");
        if (c->inputs != F || c->tokens != b->length)
            return tn_model_error(
                "the samples have %lld tokens of %lld numbers, the settings say tokens=%lld inputs=%lld",
                (long long)b->length, (long long)F, (long long)c->tokens, (long long)c->inputs);
    }
    return check(c);
}

static const char *const exact[] = { "grad=bptt",   "rtol=1e-6",     "tol=1e-6",           "iterations=100",
                                     "cache=false", "solver=picard", "through_sigma=true", NULL };

static const char *const scalars[] = { "beta", "damping", "rtol", "tol", NULL }; /* nudge_rtol: 0 is another graph */

/* Samples of T tokens with F numbers each, and one label a sample or one a token. Environments give each sample a weight, and the value head
 * what it should say. */
static const tn_input_row inputs[] = {
    { "features", TN_F32, .dims = { TN_B, TN_T, "inputs" } },
    { "labels", TN_I32, { TN_B, "labels" }, .below = "classes", .pad = -1 },
    { "count", TN_I32, { "1" }, .valid_rows = true },
    { "sample", TN_I32, .dims = { TN_B } }, /* a row's number in the training set: where its last state is kept */
    { "weights", TN_F32, { TN_B }, .optional = true },
    { "targets", TN_F32, { TN_B }, .optional = true },
};

static const tn_source_number assumes[] = { { "inputs", 64 }, { "tokens", 1 }, { "classes", 10 }, { "labels", 1 } };

static const tn_metric_row metrics[] = {
    { "loss", "nats", TN_LOWER, TN_MEAN_BY_COUNT, .sums = { "xent" }, .key = "heldout" },
    { "accuracy", "", TN_HIGHER, TN_ADDED, .add = tn_answers_add, .reads = "logits", .needs = "answers",
      .by_group = true },
};

/* Evaluations of the map: of solves, of its transposed slope (adjoint), and times that the gradients of its parameters were made. A gradient
 * at the equilibrium is three (the map again, its state's, its parameters'), one through a step that was kept two. */
static bool through_time(const tn_settings *st) { return strcmp(tn_settings_text(st, "grad"), "bptt") == 0; }
static bool at_the_end(const tn_settings *st) { return !through_time(st); }
static double gradient_units(const tn_settings *st) { return through_time(st) ? 2 : 3; }

static const tn_cost_row costs[] = {
    { "free", .output = "steps" },
    { "nudged", .output = "nudged_steps" },
    { "adjoint", .output = "adjoint_steps" },
    { "backward", .output = "steps", .units = gradient_units, .by_sample = at_the_end },
    { "eval", .output = "steps", .eval = true },
};

#define STEPS(phase)                                                                                                   \
    { phase "steps", .cap = "iterations" }, { phase "steps_p90", .cap = "iterations" }
static const tn_instrument_row reported[] = {
    STEPS(""),
    { "steps_max", .also = "solver_iters", .cap = "iterations" },
    STEPS("nudged_"),
    { "nudged_steps_max", .cap = "iterations" },
    STEPS("adjoint_"),
    { "adjoint_steps_max", .cap = "iterations" },
    { "contraction", .also = "spectral_radius" },
};

const tn_model tn_model_tep = {
    TN_MODEL_HEAD,
    .name = "tep",
    .summary = "equilibrium network: the state is a fixed point of a learned map; five gradient methods",
    .settings = settings,
    .n_settings = sizeof settings / sizeof *settings,
    .presets = presets,
    .n_presets = sizeof presets / sizeof *presets,
    .build = tep_build,
    TN_INPUTS(inputs),
    TN_METRICS(metrics),
    .instruments = tep_instruments,
    .time = "tokens",
    .assumes = assumes,
    .n_assumes = sizeof assumes / sizeof *assumes,
    .exact = exact,
    .scalars = scalars,
    TN_COSTS(costs),
    TN_REPORTED(reported),
};
