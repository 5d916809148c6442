"""CartPole and Acrobot by REINFORCE with an equilibrium network as the policy, its gradient by any of tep_torch.py's methods: what
a step of learning differentiates is sum_t w_t CE(policy, action_t) + (value_t - G_t)^2 / 2, a mean over the steps of the played
episodes, with w = G - value and G the discounted returns brought to mean 0 and deviation 1.

    python tep_rl.py --env cartpole --grad ep --episodes 1000 --seeds 4

Networks of all seeds learn side by side (tep_many.py). Keep: the same as src/train/source_env.c and the environments of src/tasks.
"""
import argparse
import math
import time
import types

import torch

import against
import tep_many

MOST = 500  # steps of an episode


# --- environments, as many as there are rows -----------------------------------------------------------------------------------

class CartPole:
    observations, actions, solved, spread = 4, 2, 195, 0.05

    def look(s):
        return s.float()

    def step(s, action):
        x, dx, th, dth = s.unbind(-1)
        push, cos, sin = 20.0 * action - 10, th.cos(), th.sin()
        t = (push + 0.05 * dth * dth * sin) / 1.1
        ddth = (9.8 * sin - cos * t) / (0.5 * (4 / 3 - 0.1 * cos * cos / 1.1))
        ddx = t - 0.05 * ddth * cos / 1.1
        s = torch.stack([x + 0.02 * dx, dx + 0.02 * ddx, th + 0.02 * dth, dth + 0.02 * ddth], -1)
        over = (s[..., 0].abs() > 2.4) | (s[..., 2].abs() > 12 * math.pi / 180)
        return s, torch.ones_like(x), over


class Acrobot:
    observations, actions, solved, spread = 6, 3, -120, 0.1

    def look(s):
        a, b, da, db = s.unbind(-1)
        return torch.stack([a.cos(), a.sin(), b.cos(), b.sin(), da, db], -1).float()

    def slope(s, torque):
        a, b, da, db = s.unbind(-1)
        g, cb, sb = 9.8, b.cos(), b.sin()
        d1, d2 = 0.25 + (1.25 + cb) + 2, 0.25 + 0.5 * cb + 1
        phi2 = 0.5 * g * (a + b - math.pi / 2).cos()
        phi1 = -0.5 * db * db * sb - db * da * sb + 1.5 * g * (a - math.pi / 2).cos() + phi2
        ddb = (torque + d2 / d1 * phi1 - 0.5 * da * da * sb - phi2) / (1.25 - d2 * d2 / d1)
        return torch.stack([da, db, -(d2 * ddb + phi1) / d1, ddb], -1)

    def step(s, action):
        f, h = lambda y: Acrobot.slope(y, action - 1.0), 0.2
        k1 = f(s)
        k2 = f(s + h / 2 * k1)
        k3 = f(s + h / 2 * k2)
        s = s + h / 6 * (k1 + 2 * k2 + 2 * k3 + f(s + h * k3))
        angles, speeds = s[..., :2], s[..., 2:]
        angles = torch.remainder(angles + math.pi, 2 * math.pi) - math.pi
        limit = torch.tensor([4 * math.pi, 9 * math.pi], dtype=s.dtype)
        s = torch.cat([angles, torch.minimum(torch.maximum(speeds, -limit), limit)], -1)
        goal = -s[..., 0].cos() - (s[..., 0] + s[..., 1]).cos() > 1
        return s, torch.where(goal, 0.0, -1.0).double(), goal


ENVS = {"cartpole": CartPole, "acrobot": Acrobot}


# --- playing and learning --------------------------------------------------------------------------------------------------------

@torch.no_grad()
def play(env, nets, N, E, o, rng):
    """E episodes of each network: seen (N,E,T,F), action, reward, value (N,E,T), there (N,E,T): which steps were taken."""
    s = env.spread * (2 * torch.rand(N, E, 4, generator=rng, dtype=torch.float64) - 1)
    over, kept = torch.zeros(N, E, dtype=torch.bool), []
    for _ in range(MOST):
        x = env.look(s)
        a = nets.inject(x)
        h, _ = tep_many.solve(lambda h: nets.f(h, a), torch.zeros_like(a), o, mask=over)
        p = nets.logits(h).softmax(2)
        action = torch.multinomial(p.flatten(0, 1), 1, generator=rng).view(N, E)
        s, reward, now_over = env.step(s, action)
        kept.append((x, action, reward.float(), nets.value(h), ~over))
        over = over | now_over
        if bool(over.all()):
            break
    return [torch.stack(k, 2) for k in zip(*kept)]


def returns_of(reward, there, discount):
    """Discounted, then mean 0 and deviation 1 over the steps of each network."""
    G, worth = torch.zeros_like(reward), torch.zeros_like(reward[..., 0])
    for t in range(reward.shape[2] - 1, -1, -1):
        worth = there[..., t] * (reward[..., t] + discount * worth)
        G[..., t] = worth
    n = there.sum((1, 2)).clamp_min(2)[:, None, None]
    off = (G - (G * there).sum((1, 2), keepdim=True) / n) * there
    return off / ((off.square().sum((1, 2), keepdim=True) / (n - 1)).sqrt() + 1e-8)


def learn(nets, played, o, lr, clip):
    x, action, reward, value, there = played
    N = x.shape[0]
    G = returns_of(reward, there, o.discount)
    flat = lambda t: t.reshape(N, -1, *t.shape[3:])
    x, y, G, value, padding = flat(x), torch.nn.functional.one_hot(flat(action), nets.p["head.b"].shape[1]).float(), flat(G), flat(value), ~flat(there)
    weight, share = (G - value) * ~padding, 1 / (~padding).sum(1)
    o.share = share[:, None, None]

    def cost(h):
        ce = -(nets.logits(h).log_softmax(2) * y).sum(2)
        return (weight * ce + 0.5 * (nets.value(h) - G).square() * ~padding) * share[:, None]

    def force(v):
        out = torch.bmm((nets.logits(v).softmax(2) - y) * weight[..., None], nets.p["head.w"])
        return out + ((nets.value(v) - G) * ~padding)[..., None] * nets.p["value.w"]

    tep_many.gradients(nets, x, cost, force, o, mask=padding)
    nets.step(lr, clip)


def main():
    a = argparse.ArgumentParser(description="CartPole or Acrobot with an equilibrium network as the policy.")
    a.add_argument("--env", choices=tuple(ENVS), default="cartpole")
    a.add_argument("--grad", choices=("ep", "ep_centred", "one_step", "bptt"), default="ep")
    a.add_argument("--anchor", choices=("rest", "state", "image"), default="rest")
    a.add_argument("--mode", choices=("block", "energy"), default="block")
    for name, kind, value in (("d", int, 16), ("seeds", int, 4), ("seed", int, 0), ("episodes", int, 1000), ("together", int, 4), ("beta", float, 0.1),
                              ("damping", float, 0.9), ("rtol", float, 1e-2), ("iterations", int, 20), ("lr", float, 5e-3),
                              ("lr-min-frac", float, 0.1), ("clip", float, 1.0), ("discount", float, 0.99)):
        a.add_argument("--" + name, type=kind, default=value)
    args = a.parse_args()
    torch.set_num_threads(1)
    torch.backends.mkldnn.enabled = False
    env, E, steps = ENVS[args.env], args.together, args.episodes // args.together
    o = types.SimpleNamespace(**vars(args))
    seeds = list(range(args.seed, args.seed + args.seeds))
    nets = tep_many.Nets(args.d, env.observations, env.actions, seeds, args.mode, value=True)
    rates = {"train.lr": args.lr, "train.warmup": 0, "train.steps": steps, "train.schedule": "cosine", "train.lr_min_frac": args.lr_min_frac}
    rng, rewards, begin, first = torch.Generator().manual_seed(args.seed), [], time.perf_counter(), [0] * len(seeds)
    for step in range(steps):
        played = play(env, nets, len(seeds), E, o, rng)
        rewards.append((played[2] * played[4]).sum(2))  # (N,E)
        learn(nets, played, o, against.learning_rate(rates, step), args.clip)
        last = torch.cat(rewards[-max(100 // E, 1):], 1).mean(1)
        if (step + 1) * E >= 100:
            first = [f or ((step + 1) * E if float(m) >= env.solved else 0) for f, m in zip(first, last)]
        if (step + 1) % max(steps // 10, 1) == 0:
            print(f"{(step + 1) * E} episodes, {time.perf_counter() - begin:.0f} s: mean of the last 100: "
                  + " ".join(f"{m:.1f}" for m in last.tolist()), flush=True)
    print(f"{args.env} {args.mode} {args.grad}: {sum(m >= env.solved for m in last.tolist())} of {len(seeds)} seeds end at {env.solved} or more, "
          f"mean {last.mean():.1f}; first reached after " + ", ".join(str(f or "never") for f in first) + " episodes")


if __name__ == "__main__":
    main()
