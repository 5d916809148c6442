/* Settings and presets of `flow`, its rows, and the row that registers the model. */
#include "models/flow/flow.h"

static const tn_setting settings[] = {
    TN_SETTING_AUTO_INT("inputs", "auto", TN_RANGE(1, 1e8), "", "numbers per token (auto: the task's)"),
    TN_SETTING_AUTO_INT("tokens", "auto", TN_RANGE(1, 65536), "",
                        "tokens per sample, which together are the surface (auto: the task's)"),
    TN_SETTING_AUTO_INT("classes", "auto", TN_RANGE(2, 1e6), "",
                        "number of classes (auto: the task's; a task that asks for a surface has none)"),
    TN_SETTING_AUTO_INT("cells", "auto", TN_RANGE(1, 1e8), "", "numbers of a target surface (auto: the task's)"),
    TN_SETTING_AUTO_INT("width", "auto", TN_RANGE(1, 65536), "cells", "of the surface (auto: the task's, or a square)"),
    TN_SETTING_AUTO_INT("height", "auto", TN_RANGE(1, 65536), "cells",
                        "of the surface (auto: the task's, or a square)"),
    TN_SETTING_INT("depth", "16", TN_RANGE(2, 1e6), "", "of the lattice; flows take half as many steps (see steps)"),
    TN_SETTING_AUTO_INT("steps", "auto", TN_RANGE(1, 4096), "steps", "most steps of a flow (auto: depth / 2)"),
    TN_SETTING_FLOAT("start", "0", TN_RANGE_OPEN(-1, 1), "", "where between the planes at -1 and 1 flows start"),
    TN_SETTING_INT("dim", "64", TN_RANGE(2, 65536), "", "width of a flow's state"),
    TN_SETTING_INT("layers", "2", TN_RANGE(1, TN_ROLLOUT_LAYERS), "", "layers of the recurrent cell"),
    TN_SETTING_INT("energy", "1", TN_RANGE(1, TN_ROLLOUT_ENERGY), "", "numbers of an energy"),
    TN_SETTING_CHOICE("energy_init", "kept", "kept|random",
                      "first weights: flows nearly keep their energy, so that the surface comes out as it went in, or "
                      "random ones"),
    TN_SETTING_CHOICE("stop", "sample", "never|batch|sample",
                      "flows end early where enough have left or none leave any more: not at all, as a whole batch, or "
                      "each sample by itself"),
    TN_SETTING_FLOAT("threshold", "0.95", TN_RANGE_LO_OPEN(0, 1), "", "stop: fraction of the flows that is enough"),
    TN_SETTING_INT("s_min", "5", TN_RANGE(0, 1e6), "steps", "stop: not before"),
    TN_SETTING_INT("patience", "3", TN_RANGE(1, 1e6), "steps", "stop: after so many steps in which no flow left"),
    TN_SETTING_FLOAT("kappa", "0.3", TN_RANGE(0, 100), "",
                     "factor on displacements in the first 100 steps of training"),
    TN_SETTING_FLOAT("kappa_min", "1", TN_RANGE(0, 100), "",
                     "kappa shrinks to this, by a tenth every 10 steps (at least kappa: it stays)"),
    TN_SETTING_FLOAT("drift", "1.2", TN_RANGE(0, 100), "",
                     "distance that a flow drifts to the nearer plane in all its steps (a plane is 1 from the centre)"),
    TN_SETTING_INT("drift_steps", "0", TN_RANGE(0, 1e12), "steps",
                   "training steps in which drift goes to 0 (0: stays)"),
    TN_SETTING_FLOAT("noise", "0.02", TN_RANGE(0, 1), "", "standard deviation of noise on each step, in training"),
    TN_SETTING_FLOAT("noise_over", "0.8", TN_RANGE(0, 1), "",
                     "fraction of the training over which noise goes to 0 (0: it stays)"),
    TN_SETTING_BOOL("noise_z", "false", "noise along the depth too"),
    TN_SETTING_CHOICE("collect", "splat", "splat|nearest",
                      "landings go to the four cells around them, or to the nearest (no gradient by the place)"),
    TN_SETTING_FLOAT("collect_eps", "1e-2", TN_RANGE_ABOVE(0), "",
                     "splat: added to a cell's weights; a smaller one makes rarer and larger gradients"),
    TN_SETTING_CHOICE("planes", "merged", "merged|beside",
                      "both planes are one surface, or two side by side (classes)"),
    TN_SETTING_INT("spawn", "0", TN_RANGE(0, 16), "flows", "flows that a long step may add (0: none)"),
    TN_SETTING_FLOAT("rho", "0.5", TN_RANGE_ABOVE(0), "", "spawn: length of a step that counts as long"),
    TN_SETTING_BOOL("shorten", "false", "spawn: long steps are cut to rho"),
    TN_SETTING_INT("field", "0", TN_RANGE(0, TN_ROLLOUT_FIELD), "channels",
                   "channels of a field that flows write and read, so that they see each other (0: none)"),
    TN_SETTING_AUTO_INT("field_width", "auto", TN_RANGE(2, 1024), "", "corners of the field (auto: width / 2)"),
    TN_SETTING_AUTO_INT("field_height", "auto", TN_RANGE(2, 1024), "", "corners of the field (auto: height / 2)"),
    TN_SETTING_AUTO_INT("field_depth", "auto", TN_RANGE(2, 1024), "", "corners of the field (auto: depth, at most 10)"),
    TN_SETTING_CHOICE("field_deposit", "nearest", "nearest|smooth",
                      "flows write to the nearest corner, or to all eight around them"),
    TN_SETTING_FLOAT("field_init", "1", TN_RANGE_ABOVE(0), "",
                     "size of the first weights that write the field, relative to Xavier's"),
    TN_SETTING_AUTO_INT("keep", "auto", TN_RANGE(0, 4096), "steps",
                        "states kept for the gradient: every so many steps (0: everything; auto: everything that fits "
                        "in memory)"),
    TN_SETTING_FLOAT("keep_memory", "0", TN_RANGE_MIN(0), "GB", "keep=auto: memory that fits (0: that of the device)"),
    TN_SETTING_CHOICE("mapper_in", "identity", "identity|trained",
                      "a sample is the surface, or a trained map makes one of it"),
    TN_SETTING_CHOICE("mapper_out", "identity", "identity|trained",
                      "the surface is the answer, or a trained map makes it"),
    TN_SETTING_FLOAT("mapper_dropout", "0.1", TN_RANGE_HI_OPEN(0, 1), "",
                     "dropout at the mapper's widest layer; half of it at the other"),
    TN_SETTING_FLOAT("lambda_exit", "0.05", TN_RANGE(0, 1e3), "",
                     "weight in the loss of the distance that flows had left"),
    TN_SETTING_INT("exit_steps", "3000", TN_RANGE(0, 1e12), "steps",
                   "training steps in which lambda_exit goes to 0 (0: it stays)"),
    TN_SETTING_CHOICE("lattice", "on", "on|frozen|off", "frozen: as it starts; off: what is read is the input surface"),
    TN_SETTING_BOOL("movement", "true", "false: flows stay above their cell and only drift to a plane"),
};

/* --- presets ------------------------------------------------------------------------------------------------------ */

#define VALUES(...) ((const char *const[]){ __VA_ARGS__, NULL })
#define LATTICE(w, h, d) "width=" #w, "height=" #h, "depth=" #d
/* Of a sample: these can be checked and timed without data. */
#define SIZE(cells) "inputs=" #cells, "tokens=1"
/* Sizes as published. */
#define LARGE "dim=512", "layers=3", "train.lr=1e-3", "train.decay=1e-5", "s_min=10", "patience=5"

static const tn_preset presets[] = {
    { "flow_debug", "lattice of 20x20x10, 0.7 M parameters",
      VALUES(LATTICE(20, 20, 10), SIZE(400), "dim=256", "layers=2", "train.batch=8", "kappa=0.2", "noise=0.01",
             "threshold=0.8", "s_min=3", "patience=2") },
    { "flow_experiment", "lattice of 28x28x40, 4.2 M parameters",
      VALUES(LATTICE(28, 28, 40), LARGE, SIZE(784), "s_min=5", "patience=8", "train.batch=16", "train.accumulate=4") },
    { "flow_s", "lattice of 28x28x60, 4.2 M parameters, 60 steps",
      VALUES(LATTICE(28, 28, 60), LARGE, SIZE(784), "steps=60", "train.batch=128", "train.accumulate=4") },
    { "flow_seed", "lattice of 50x50x60, 4.2 M parameters, 60 steps",
      VALUES(LATTICE(50, 50, 60), LARGE, SIZE(2500), "steps=60", "train.batch=64", "train.accumulate=4") },
    { "flow_optimised", "lattice of 100x100x50, 16.5 M parameters",
      VALUES(LATTICE(100, 100, 50), "dim=1024", "layers=3", "train.lr=1e-3", "train.decay=1e-5", SIZE(10000),
             "train.batch=32") },
    { "flow_route", "moves images by a cell: flows carry every pixel to its goal",
      VALUES("task=route", "task.images=mnist", "dim=64", "layers=1", "depth=16", "train.batch=32", "train.steps=1500",
             "train.eval_every=250", "train.eval_batches=20", "train.lr=3e-3") },
    { "flow_mnist", "28x28 digits by a lattice whose flows see each other",
      VALUES("task=mnist", "task.valid_frac=0.1", "dim=128", "layers=1", "depth=16", "energy=8", "field=8",
             "field_deposit=smooth", "kappa=0.1", "noise=0", "collect_eps=0.05", "planes=beside", "train.batch=64",
             "train.epochs=5", "train.lr=4e-3", "train.warmup=200") },
    { "flow_restore", "takes noise out of images by a lattice whose flows see each other",
      VALUES("task=restore", "task.images=mnist", "task.damage=noise", "dim=64", "layers=2", "depth=12", "field=8",
             "collect_eps=0.05", "train.batch=32", "train.steps=2000", "train.eval_every=250", "train.eval_batches=20",
             "train.lr=2e-3") },
};

/* --- rows --------------------------------------------------------------------------------------------------------- */

/* A class or a surface is wanted of a sample. labels has no .below: where a surface is wanted, nobody knows the classes. */
static const tn_input_row inputs[] = {
    { "features", TN_F32, .dims = { TN_B, TN_T, "inputs" } },
    { "labels", TN_I32, { TN_B, "labels" }, .pad = -1, .optional = true },
    { "target", TN_F32, { TN_B, "cells" }, .optional = true },
    { "goal", TN_I32, { TN_B, "cells" }, .pad = -1, .optional = true },
    { "count", TN_I32, { "1" }, .valid_rows = true },
    { "sample", TN_I32, .dims = { TN_B } }, /* keys of noise */
};

static const tn_source_number assumes[] = { { "inputs", 64 }, { "tokens", 1 }, { "labels", 1 } };

static const tn_metric_row metrics[] = {
    { "loss", "", TN_LOWER, TN_MEAN_BY_COUNT, .key = "heldout" },
    { "accuracy", "", TN_HIGHER, TN_ADDED, .add = tn_answers_add, .reads = "logits", .needs = "answers",
      .by_group = true },
    { "psnr", "dB", TN_HIGHER, TN_FROM_SUMS, .sums = { "squares", "cells" }, .make = flow_psnr, .needs = "targets" },
    { "landing", "", TN_HIGHER, TN_ADDED, .add = flow_landing_add, .reads = "u", .needs = "goals" },
};

static const tn_step_row steps[] = {
    { "train", flow_build, .gradients = true },
    { "eval", flow_build, .gradients = false },
    { "flows", flow_build_flows, .gradients = false },
};

static const tn_schedule_row schedules[] = {
    { "kappa", flow_kappa_at },
    { "drift", flow_drift_at },
    { "noise", flow_noise_at },
    { "lambda_exit", flow_exit_at },
};

/* Steps of single flows; a gradient is two more. */
static double gradient_units(const tn_settings *st)
{
    (void)st;
    return 2;
}

static const tn_cost_row costs[] = {
    { "flow_steps", .output = "flow_steps" },
    { "backward", .output = "flow_steps", .units = gradient_units },
    { "eval", .output = "flow_steps", .eval = true },
};

/* No noise, a slope of a landing's place, and no flow that leaves a step earlier or later when a parameter moves a little. */
static const char *const exact[] = {
    "noise=0", "drift=0.85", "stop=never", "collect=splat", "field_deposit=smooth", "mapper_dropout=0", NULL
};

/* Also by the names that the report of this network has for them. */
static const tn_instrument_row reported[] = {
    { "samples_per_s", .key = "throughput_samples_per_sec" },
    { "lattice_steps", .cap = "steps", .key = "flow_convergence_steps" },
    { "flow_steps", .rate = "flow_steps_per_s" },
    { "lattice.ms", .key = "energy_computation_time_ms" },
};

static const char *const defaults[] = { "train.decay=0.01", "train.lr=3e-3", NULL };

const tn_model tn_model_flow = {
    TN_MODEL_HEAD,
    .name = "flow",
    .summary = "energy-flow lattice: flows carry energies from the cells of a surface to where they land",
    .settings = settings,
    .n_settings = sizeof settings / sizeof *settings,
    .presets = presets,
    .n_presets = sizeof presets / sizeof *presets,
    .build = flow_build,
    .forward = flow_forward,
    .defaults = defaults,
    .exact = exact,
    .time = "tokens",
    .assumes = assumes,
    .n_assumes = sizeof assumes / sizeof *assumes,
    .instruments = flow_instruments,
    TN_INPUTS(inputs),
    TN_METRICS(metrics),
    TN_STEPS(steps),
    TN_SCHEDULES(schedules),
    TN_COSTS(costs),
    TN_REPORTED(reported),
};
