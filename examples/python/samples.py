"""An equilibrium network learns which of three corners a point is near, from numpy arrays: python3 samples.py"""
import numpy as np
import tenon

net = tenon.open("tep", "train.lr=2e-2", "train.schedule=constant", inputs=2, classes=3, dim=16)
print(*net.inputs.values(), sep="; ")

draw = np.random.default_rng(0)
corners = np.array([[0, 1], [-1, -1], [1, -1]])


def batch(n):
    labels = draw.integers(3, size=(n, 1))
    points = corners[labels[:, 0]] + 0.4 * draw.normal(size=(n, 2))
    return points[:, None, :], labels  # (B,T,inputs), (B,labels)


for step in range(100):
    points, labels = batch(32)
    loss = net.gradients(features=points, labels=labels)
    net.step()
points, labels = batch(500)
right = (net.forward(features=points).argmax(-1) == labels).mean()
print(f"loss {loss:.3f}, {right:.0%} of 500 new points are right")
assert right > 0.9
