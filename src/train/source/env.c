/* Plays episodes and turns them into a batch: REINFORCE with a learned baseline. Each episode draws from its own random
 * streams, so the next episode's number is the whole cursor. Episodes of a batch run side by side: one forward pass
 * gives the next action of each. */
#include "train/source/task_setup.h"

#include "base/alloc.h"
#include "base/rng.h"

#include <math.h>
#include <string.h>

enum { RECENT = 100 };              /* episodes over which a mean reward is taken */
static const double ENDLESS = 1e18; /* samples of an epoch: there is always another episode */

const tn_setting tn_rl_settings[] = {
    TN_SETTING_INT("rl.episodes", "1", TN_RANGE(1, 1024), "episodes", "episodes per step (environments)"),
    TN_SETTING_FLOAT("rl.discount", "0.99", TN_RANGE(0, 1), "", "discount factor of rewards"),
    TN_SETTING_BOOL("rl.standardise", "on",
                    "normalise each training step's returns to mean 0 and standard deviation 1"),
};
const size_t tn_rl_settings_n = sizeof tn_rl_settings / sizeof *tn_rl_settings;

/* What it fills, in this order: observations, actions, how much better each went than expected, what it was worth. */
enum { FEATURES, LABELS, COUNT, SAMPLE, WEIGHTS, TARGETS, ROWS };
static const tn_input_row rows[ROWS] = {
    { "features", TN_F32, .dims = { TN_B, TN_T, "features" } },
    { "labels", TN_I32, { TN_B, "1" }, .pad = -1 },
    { "count", TN_I32, { "1" }, .valid_rows = true },
    { "sample", TN_I32, .dims = { TN_B } },
    { "weights", TN_F32, .dims = { TN_B } },
    { "targets", TN_F32, .dims = { TN_B } },
};

typedef struct env_source {
    const tn_env *env;
    const tn_model *model;
    const tn_settings *settings; /* borrowed */
    tn_feed_map map, actor_map;  /* of the learner's inputs and of the actor's */
    tn_trainer *actor;
    int64_t E, most, F; /* episodes side by side; steps of one at most; numbers of an observation */
    double discount;
    bool standardise;
    uint64_t seed, train_begin, train_act; /* the last two: streams of training episodes */
    int64_t episode;                       /* the next one's number */
    int64_t steps;                         /* of all episodes so far */
    char *state;                           /* (E, state_bytes) */
    float *now;                            /* (E, F): what each episode sees */
    float *seen;                           /* (E, most, F) */
    int32_t *action;                       /* (E, most) */
    float *reward, *value;                 /* (E, most) */
    int64_t *length;                       /* (E) */
    bool *over;                            /* (E) */
    double recent[RECENT];                 /* rewards of the last episodes, in a ring by number */
    double last;                           /* mean reward of the last batch's episodes */
    bool alike; /* all steps of the batch were worth the same: what the value makes of them is noise */
} env_source;

int64_t tn_source_env_rows(const tn_env *env, const tn_settings *st)
{
    return tn_settings_int(st, "rl.episodes") * (int64_t)env->max_steps;
}

/* --- playing ------------------------------------------------------------------------------------------------------------ */

typedef struct match {
    int64_t first;       /* number of episode 0 */
    uint64_t begin, act; /* streams: of training and of play they differ */
    bool greedy;
} match;

static tn_rng stream_of(const env_source *s, const match *m, uint64_t stream, int64_t e)
{
    return (tn_rng){ s->seed, stream + (uint64_t)(m->first + e) };
}

/* From logits (n): the largest, or one drawn with the probabilities of the softmax. */
static int choose(const float *logits, int n, bool greedy, float draw)
{
    int best = 0;
    double sum = 0, at = 0;
    for (int i = 1; i < n; i++)
        if (logits[i] > logits[best]) best = i;
    if (greedy) return best;
    for (int i = 0; i < n; i++) sum += exp((double)logits[i] - (double)logits[best]);
    for (int i = 0; i < n; i++) {
        at += exp((double)logits[i] - (double)logits[best]);
        if ((double)draw * sum < at) return i;
    }
    return best; /* rounding, or a logit that is not a number */
}

/* Logits (E, actions) and values (E, or NULL) of what the episodes see. */
static tn_status think(env_source *s, const float **logits, const float **value)
{
    const tn_feed f = tn_trainer_feed(s->actor);
    int64_t n;
    float loss;
    memcpy(tn_feed_row(&f, &s->actor_map, FEATURES), s->now, sizeof *s->now * (size_t)(s->E * s->F));
    TN_RETURN_IF(tn_trainer_eval(s->actor, &loss));
    *logits = tn_trainer_output(s->actor, "logits", &n);
    if (!*logits || n != s->E * s->env->actions)
        return tn_error(TN_USAGE, "model %s does not output logits of %d actions, so it cannot play", s->model->name,
                        s->env->actions);
    *value = tn_trainer_output(s->actor, "value", &n);
    return TN_OK;
}

static void begin(env_source *s, const match *m)
{
    const tn_feed f = tn_trainer_feed(s->actor);
    const tn_env *env = s->env;
    for (int64_t e = 0; e < s->E; e++) {
        const tn_rng r = stream_of(s, m, m->begin, e);
        env->reset(s->state + (size_t)e * env->state_bytes, &r, s->now + e * s->F);
        s->length[e] = 0;
        s->over[e] = false;
    }
    for (int k = LABELS; k < ROWS; k++) { /* no loss is looked at; the plan reads them all the same */
        void *x = tn_feed_row(&f, &s->actor_map, k);
        if (x && k != COUNT) memset(x, 0, sizeof(float) * (size_t)s->E);
    }
    tn_feed_end(&f, s->E);
    tn_trainer_steady(s->actor, true); /* the parameters changed since the last episode, and do not during this one */
}

/* E episodes to their ends, kept in seen, action, reward, value and length. */
static tn_status play(env_source *s, const match *m)
{
    const tn_env *env = s->env;
    int64_t left = s->E;
    begin(s, m);
    for (int64_t t = 0; left > 0 && t < s->most; t++) {
        const float *logits = NULL, *value = NULL;
        TN_RETURN_IF(think(s, &logits, &value));
        for (int64_t e = 0; e < s->E; e++) {
            const int64_t at = e * s->most + t;
            if (s->over[e]) continue;
            const float draw = tn_rng_uniform(stream_of(s, m, m->act, e), (uint64_t)t);
            memcpy(s->seen + at * s->F, s->now + e * s->F, sizeof *s->seen * (size_t)s->F);
            s->action[at] = choose(logits + e * env->actions, env->actions, m->greedy, draw);
            s->value[at] = value ? value[e] : 0.f;
            env->step(s->state + (size_t)e * env->state_bytes, s->action[at], s->now + e * s->F, &s->reward[at],
                      &s->over[e]);
            s->length[e]++;
            left -= s->over[e];
        }
    }
    return TN_OK;
}

static double reward_of(const env_source *s, int64_t e)
{
    double sum = 0;
    for (int64_t t = 0; t < s->length[e]; t++) sum += (double)s->reward[e * s->most + t];
    return sum;
}

/* --- a batch of what was played ---------------------------------------------------------------------------------------------- */

/* An episode that was cut at its limit would have gone on as it went. Counted as worth nothing, what comes after the cut would make the
 * last steps of a hopeless episode look better than its first ones, and those of a perfect one worse. */
static double worth_after(const env_source *s, int64_t e)
{
    if (s->length[e] < s->most || s->discount >= 1) return 0;
    return reward_of(s, e) / (double)s->length[e] / (1 - s->discount);
}

/* What every step was worth, in place of its reward. */
static void find_returns(env_source *s)
{
    for (int64_t e = 0; e < s->E; e++) {
        double worth = worth_after(s, e);
        for (int64_t t = s->length[e] - 1; t >= 0; t--) {
            worth = (double)s->reward[e * s->most + t] + s->discount * worth;
            s->reward[e * s->most + t] = (float)worth;
        }
    }
}

static void standardise(env_source *s)
{
    double n = 0, sum = 0, square = 0;
    for (int64_t e = 0; e < s->E; e++)
        for (int64_t t = 0; t < s->length[e]; t++, n++) sum += (double)s->reward[e * s->most + t];
    const double mean = n > 0 ? sum / n : 0;
    for (int64_t e = 0; e < s->E; e++)
        for (int64_t t = 0; t < s->length[e]; t++) square += pow((double)s->reward[e * s->most + t] - mean, 2);
    const double deviation = sqrt(n > 1 ? square / (n - 1) : 0);
    s->alike = !(deviation > 1e-5 * (1 + fabs(mean)));
    const double scale = s->alike ? 0 : 1 / deviation;
    for (int64_t e = 0; e < s->E; e++)
        for (int64_t t = 0; t < s->length[e]; t++) {
            float *r = &s->reward[e * s->most + t];
            *r = (float)(((double)*r - mean) * scale);
        }
}

static int64_t fill(env_source *s, const tn_feed *f)
{
    int64_t row = 0;
    float *features = tn_feed_row(f, &s->map, FEATURES), *weights = tn_feed_row(f, &s->map, WEIGHTS),
          *targets = tn_feed_row(f, &s->map, TARGETS);
    int32_t *labels = tn_feed_row(f, &s->map, LABELS), *sample = tn_feed_row(f, &s->map, SAMPLE);
    for (int64_t e = 0; e < s->E; e++)
        for (int64_t t = 0; t < s->length[e]; t++, row++) {
            const int64_t at = e * s->most + t;
            memcpy(features + row * s->F, s->seen + at * s->F, sizeof *s->seen * (size_t)s->F);
            labels[row] = s->action[at];
            if (sample) sample[row] = 0;
            if (weights) weights[row] = s->alike ? 0.f : s->reward[at] - s->value[at];
            if (targets) targets[row] = s->reward[at];
        }
    tn_feed_end(f, row);
    return row;
}

static tn_status source_next(void *ctx, int64_t step, const tn_feeder *to, int64_t *count)
{
    (void)step;
    env_source *s = ctx;
    const tn_feed f = tn_feed_full(to);
    double sum = 0;
    TN_RETURN_IF(play(s, &(match){ .first = s->episode, .begin = s->train_begin, .act = s->train_act }));
    for (int64_t e = 0; e < s->E; e++) {
        const double r = reward_of(s, e);
        s->recent[(s->episode + e) % RECENT] = r;
        s->steps += s->length[e];
        sum += r;
    }
    s->last = sum / (double)s->E;
    s->episode += s->E;
    find_returns(s);
    if (s->standardise) standardise(s);
    *count = fill(s, &f);
    return TN_OK;
}

static double recent_mean(const env_source *s)
{
    const int64_t n = s->episode < RECENT ? s->episode : RECENT;
    double sum = 0;
    for (int64_t i = 0; i < n; i++) sum += s->recent[i];
    return n ? sum / (double)n : NAN;
}

static void source_report(void *ctx, void (*report)(void *to, const char *name, double value, const char *unit),
                          void *to)
{
    const env_source *s = ctx;
    report(to, "episodes", (double)s->episode, "episodes");
    report(to, "reward", s->last, "");
    report(to, "reward_100", recent_mean(s), "");
}

/* Of the last episodes that were learned from. */
const tn_metric_row tn_env_reward = { "reward", "", TN_HIGHER, TN_MEAN_BY_COUNT, .key = "reward_100" };

static tn_status source_play(void *ctx, int64_t episodes, tn_source_play *out)
{
    env_source *s = ctx;
    double sum = 0, square = 0;
    match m = { .begin = tn_rng_stream("rl.play.begin"), .act = tn_rng_stream("rl.play.act"), .greedy = true };
    *out = (tn_source_play){ 0 };
    while (out->episodes < episodes) {
        m.first = out->episodes;
        TN_RETURN_IF(play(s, &m));
        for (int64_t e = 0; e < s->E && out->episodes < episodes; e++, out->episodes++) {
            const double r = reward_of(s, e);
            out->steps += s->length[e];
            sum += r;
            square += r * r;
        }
    }
    const double n = (double)out->episodes;
    out->mean = n > 0 ? sum / n : NAN;
    out->deviation = n > 1 ? sqrt(fmax(0, (square - sum * sum / n) / (n - 1))) : 0;
    return TN_OK;
}

/* --- the cursor ---------------------------------------------------------------------------------------------------------- */

static json_t *source_save(void *ctx)
{
    const env_source *s = ctx;
    json_t *recent = json_array(), *cursor;
    for (int i = 0; recent && i < RECENT; i++)
        if (json_array_append_new(recent, json_real(s->recent[i]))) {
            json_decref(recent);
            return NULL;
        }
    if (!recent) return NULL;
    cursor = json_pack("{s:s, s:s, s:I, s:I, s:I, s:I, s:f, s:o}", "kind", "environment", "env", s->env->name,
                       "episode", (json_int_t)s->episode, "steps", (json_int_t)s->steps, "seed", (json_int_t)s->seed,
                       "together", (json_int_t)s->E, "last", s->last, "recent", recent);
    return cursor; /* a failing json_pack has taken `recent` too */
}

static tn_status source_load(void *ctx, const json_t *cursor)
{
    env_source *s = ctx;
    const char *kind = json_string_value(json_object_get(cursor, "kind")),
               *env = json_string_value(json_object_get(cursor, "env"));
    const json_t *recent = json_object_get(cursor, "recent");
    int64_t episode, steps;
    if (!kind || strcmp(kind, "environment") != 0 || !env || strcmp(env, s->env->name) != 0)
        return tn_error(TN_USAGE, "the run was not trained in %s: give it its own task, or start over with --fresh",
                        s->env->name);
    if (tn_cursor_number(cursor, "seed") != (int64_t)s->seed || tn_cursor_number(cursor, "together") != s->E)
        return tn_error(TN_USAGE,
                        "the run began with another seed or rl.episodes: put it back, or start over with --fresh");
    TN_RETURN_IF(tn_cursor_count(cursor, "episode", &episode));
    TN_RETURN_IF(tn_cursor_count(cursor, "steps", &steps));
    bool numbers = json_array_size(recent) == RECENT && json_is_number(json_object_get(cursor, "last"));
    for (size_t i = 0; i < RECENT && numbers; i++) numbers = json_is_number(json_array_get(recent, i));
    if (!numbers)
        return tn_error(TN_BAD_FILE,
                        "the checkpoint's cursor is damaged: use an older checkpoint, or start over with --fresh");
    s->episode = episode;
    s->steps = steps;
    s->last = json_number_value(json_object_get(cursor, "last"));
    for (int i = 0; i < RECENT; i++) s->recent[i] = json_number_value(json_array_get(recent, (size_t)i));
    return TN_OK;
}

/* --- opening --------------------------------------------------------------------------------------------------------------- */

static void source_close(void *ctx)
{
    env_source *s = ctx;
    tn_trainer_free(s->actor);
    tn_free(s->state);
    tn_free(s->now);
    tn_free(s->seen);
    tn_free(s->action);
    tn_free(s->reward);
    tn_free(s->value);
    tn_free(s->length);
    tn_free(s->over);
    tn_free(s);
}

static tn_status take_memory(env_source *s)
{
    const size_t E = (size_t)s->E, all = E * (size_t)s->most;
    s->state = tn_alloc(E * s->env->state_bytes);
    s->now = tn_alloc(sizeof *s->now * E * (size_t)s->F);
    s->seen = tn_alloc(sizeof *s->seen * all * (size_t)s->F);
    s->action = tn_alloc(sizeof *s->action * all);
    s->reward = tn_alloc(sizeof *s->reward * all);
    s->value = tn_alloc(sizeof *s->value * all);
    s->length = tn_alloc(sizeof *s->length * E);
    s->over = tn_alloc(sizeof *s->over * E);
    return s->state && s->now && s->seen && s->action && s->reward && s->value && s->length && s->over ? TN_OK
                                                                                                       : TN_MEMORY;
}

/* Needs what a model must have to act: observations, and actions to learn from. */
static tn_status check_map(const env_source *s, const tn_feed_map *m)
{
    if (m->slot[FEATURES] >= 0 && m->slot[LABELS] >= 0) return TN_OK;
    return tn_error(TN_USAGE, "model %s cannot learn in an environment: it has no inputs features and labels",
                    s->model->name);
}

/* The actor has the learner's parameters, and rows for one observation of each episode. */
static tn_status source_start(tn_source *self, const tn_source_start *how)
{
    env_source *e = self->ctx;
    const tn_input_spec input_spec = tn_source_input_spec(self);
    const tn_graph_options *learner = tn_trainer_graph_options(how->trainer);
    const tn_trainer_options actor = { .model = e->model,
                                       .settings = e->settings,
                                       .batch = e->E,
                                       .length = 1,
                                       .input_spec = &input_spec,
                                       .logits = true,
                                       .forward_only = true,
                                       .frozen = learner->frozen,
                                       .weights = learner->weights,
                                       .store = tn_trainer_store(how->trainer),
                                       .threads = 1 };
    tn_trainer_free(e->actor);
    e->actor = NULL;
    e->episode = e->steps = 0;
    e->last = 0;
    memset(e->recent, 0, sizeof e->recent);
    TN_RETURN_IF(tn_trainer_new(&actor, &e->actor));
    e->map = tn_feed_map_of(tn_trainer_inputs(how->trainer), rows, ROWS);
    e->actor_map = tn_feed_map_of(tn_trainer_inputs(e->actor), rows, ROWS);
    self->weigh_by = self->train_samples;
    self->weigh_of = (double)how->batch * self->train_tokens;
    return check_map(e, &e->map);
}

static int64_t source_count(void *ctx, tn_data_split split)
{
    (void)ctx;
    return split == TN_TRAIN ? INT64_MAX : 0;
}

static void source_about(void *ctx, FILE *f)
{
    const tn_env *env = ((const env_source *)ctx)->env;
    fprintf(f, "task    %s, an environment: %d numbers, %d actions, at most %d steps an episode, solved at %g\n",
            env->name, env->observations, env->actions, env->max_steps, env->solved);
}

bool tn_source_takes_env(const tn_source_open *o)
{
    const tn_task *task = tn_task_named(tn_settings_text(o->settings, "task.name"));
    return task && task->env && tn_model_reads(o->model, "features");
}

tn_status tn_source_open_env(const tn_source_open *o, tn_source *out)
{
    enum { ENV_EVALUATIONS = 30 };
    const tn_task *task;
    const tn_settings *st = o->settings;
    TN_RETURN_IF(tn_task_find(tn_settings_text(st, "task.name"), &task));
    TN_RETURN_IF(tn_task_fit_env(o->settings, task));
    env_source *e = tn_alloc(sizeof *e);
    if (!e) return TN_MEMORY;
    *e = (env_source){ .env = task->env,
                       .model = o->model,
                       .settings = st,
                       .E = tn_settings_int(st, "rl.episodes"),
                       .most = task->env->max_steps,
                       .F = task->env->observations,
                       .discount = tn_settings_float(st, "rl.discount"),
                       .standardise = tn_settings_on(st, "rl.standardise"),
                       .seed = (uint64_t)tn_settings_int(st, "seed"),
                       .train_begin = tn_rng_stream("rl.train.begin"),
                       .train_act = tn_rng_stream("rl.train.act") };
    const tn_status s = take_memory(e);
    if (s != TN_OK) {
        source_close(e);
        return s;
    }
    *out = (tn_source){ .ctx = e,
                        .what = "task",
                        .start = source_start,
                        .next = source_next,
                        .save = source_save,
                        .load = source_load,
                        .report = source_report,
                        .play = source_play,
                        .count = source_count,
                        .about = source_about,
                        .close = source_close,
                        .rows = rows,
                        .n_rows = ROWS,
                        .on_policy = true,
                        .evaluations = ENV_EVALUATIONS,
                        .train_tokens = ENDLESS,
                        .train_samples = ENDLESS,
                        .bits = NAN,
                        .metrics = &tn_env_reward,
                        .n_metrics = 1 };
    tn_source_add_number(out, "features", (double)e->F);
    tn_source_add_number(out, "labels", 1);
    return TN_OK;
}
