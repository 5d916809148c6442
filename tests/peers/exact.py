"""A decoder of transformers in float64 throughout.

`model.double()` is not: norms are computed in f32, and so are the angles of rotary positions, which at position 200 are 1e-5 off. That shows in
logits: transformers in f32, and `double()` too, are about twice as far from what exact() returns as transformers in f32 with these angles is.
"""
import copy

import numpy as np
import torch


def head_dim(config):
    return getattr(config, "head_dim", None) or config.hidden_size // config.num_attention_heads


class Norm(torch.nn.Module):
    def __init__(self, norm):
        super().__init__()
        self.weight, self.eps = norm.weight, norm.variance_epsilon

    def forward(self, x):
        return self.weight * x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + self.eps)


class Angles(torch.nn.Module):
    def __init__(self, config):
        super().__init__()
        p, d = config.rope_parameters, head_dim(config)
        w = float(p["rope_theta"]) ** (-torch.arange(0, d, 2, dtype=torch.float64) / d)
        self.scale = 1.0
        if p["rope_type"] == "llama3":
            ratio = p["original_max_position_embeddings"] * w / (2 * torch.pi)  # contexts per wavelength
            blend = ((ratio - p["low_freq_factor"]) / (p["high_freq_factor"] - p["low_freq_factor"])).clamp(0, 1)
            w = (1 - blend) * w / p["factor"] + blend * w
        elif p["rope_type"] == "linear":
            w = w / p["factor"]
        elif p["rope_type"] == "yarn":
            turns = [d / 2 * np.log(p["original_max_position_embeddings"] / (2 * np.pi * (p.get(b) or n))) / np.log(p["rope_theta"])
                     for b, n in (("beta_fast", 32), ("beta_slow", 1))]  # the pairs that turn so often
            low, high = max(np.floor(turns[0]), 0), min(np.ceil(turns[1]), d - 1)
            ramp = ((torch.arange(d // 2, dtype=torch.float64) - low) / max(high - low, 0.001)).clamp(0, 1)
            w = w / p["factor"] * ramp + w * (1 - ramp)
            self.scale = p.get("attention_factor") or 0.1 * np.log(p["factor"]) + 1
        elif p["rope_type"] != "default":
            raise ValueError(f"rope_type {p['rope_type']}")
        self.w = w

    def forward(self, x, position_ids):
        angle = position_ids[..., None].double() * self.w
        angle = torch.cat((angle, angle), -1)
        return (self.scale * angle.cos()).to(x.dtype), (self.scale * angle.sin()).to(x.dtype)


def exact(model):
    model = copy.deepcopy(model).double().eval()
    model.model.rotary_emb = Angles(model.config)
    for module in list(model.modules()):
        for name, child in list(module.named_children()):
            if type(child).__name__.endswith("RMSNorm"):
                setattr(module, name, Norm(child))
    return model
