"""The rivals in plain NumPy, patch by patch: slow, obvious, float64; they share no code with the package."""

import math

import numpy as np

from .. import plain


def linear(weights, name, x):
    return weights[f"{name}.weight"] @ x + weights[f"{name}.bias"]


def norm(weights, name, x):
    return plain.layer_norm(x, weights[f"{name}.weight"], weights[f"{name}.bias"])


def attention(weights, name, queries, keys, values, num_heads):
    """Multi-head attention of `torch.nn.MultiheadAttention`, one query and one head after another."""
    channels = len(queries[0])
    width = channels // num_heads
    joined, bias = weights[f"{name}.in_proj_weight"], weights[f"{name}.in_proj_bias"]
    parts = [
        (joined[start : start + channels], bias[start : start + channels])
        for start in range(0, 3 * channels, channels)
    ]
    projected = [
        [matrix @ vector + shift for vector in vectors]
        for (matrix, shift), vectors in zip(parts, (queries, keys, values), strict=True)
    ]
    result = []
    for query in projected[0]:
        attended = np.zeros(channels)
        for head in range(num_heads):
            part = slice(head * width, (head + 1) * width)
            logits = np.array([query[part] @ key[part] / math.sqrt(width) for key in projected[1]])
            shares = np.exp(logits - logits.max())
            shares /= shares.sum()
            attended[part] = sum(share * value[part] for share, value in zip(shares, projected[2], strict=True))
        result.append(linear(weights, f"{name}.out_proj", attended))
    return result


def counted_positions(counted, channels):
    """DETR's: rows and columns counted from 1 among the patches that count, as a share of the last number."""
    height, width = counted.shape
    half = channels // 2
    result = np.zeros((height, width, channels))
    for row in range(height):
        for column in range(width):
            shares = (
                counted[: row + 1, column].sum() / (counted[:, column].sum() + 1e-6),
                counted[row, : column + 1].sum() / (counted[row].sum() + 1e-6),
            )
            for side, share in enumerate(shares):
                for index in range(half):
                    angle = 2 * math.pi * share / 10_000 ** (2 * (index // 2) / half)
                    result[row, column, side * half + index] = math.cos(angle) if index % 2 else math.sin(angle)
    return result


def nagl(weights, query, normals, abnormal, marked, num_heads, denoise):
    """Patch scores (h, w) of a query (h, w, C), with normals (Q, C) and one abnormal reference (h, w, C)."""

    def residual(patch):
        if denoise:
            return plain.denoise(patch, normals, 12, 4, 0.8)[1]
        return patch - normals[np.argmax([patch @ normal for normal in normals])]

    def attend(name, proxies, keys, values):
        crossed = attention(weights, f"{name}.cross", proxies, keys, values, num_heads)
        proxies = [norm(weights, f"{name}.cross_norm", a + b) for a, b in zip(proxies, crossed, strict=True)]
        mutual = attention(weights, f"{name}.mutual", proxies, proxies, proxies, num_heads)
        return [norm(weights, f"{name}.mutual_norm", a + b) for a, b in zip(proxies, mutual, strict=True)]

    height, width, channels = query.shape
    places = counted_positions(~marked, channels)
    keys = [abnormal[place] + places[place] for place in zip(*np.nonzero(marked), strict=True)]
    values = [residual(abnormal[place]) for place in zip(*np.nonzero(marked), strict=True)]
    mined = attend("residual_mining", list(weights["proxies.weight"]), keys, values)
    places = counted_positions(np.ones((height, width), bool), channels).reshape(-1, channels)
    patches = query.reshape(-1, channels)
    keys = [residual(patch) + place for patch, place in zip(patches, places, strict=True)]
    proxies = attend("anomaly_learning", mined, keys, list(patches))
    scores = [
        (
            np.mean([(1 + plain.cosine(patch, proxy)) / 2 for proxy in proxies])
            + min(plain.cosine_distance(patch, normal) for normal in normals)
        )
        / 2
        for patch in patches
    ]
    return np.array(scores).reshape(height, width)


def flow(weights, prefix, vector, num_couplings):
    """The vector that a flow carries a vector to."""
    for index in range(num_couplings):
        name = f"{prefix}couplings.{index}"
        kept = len(vector) - len(vector) // 2
        hidden = np.maximum(linear(weights, f"{name}.subnet.0", vector[:kept]), 0)
        told = 0.1 * linear(weights, f"{name}.subnet.2", hidden)
        logarithm, shift = 1.9 * np.tanh(told[: len(told) // 2] / 1.9), told[len(told) // 2 :]
        joined = np.concatenate([vector[:kept], vector[kept:] * np.exp(logarithm) + shift])
        scale = 0.1 * np.log1p(np.exp(0.5 * weights[f"{name}.scale"])) / 0.5
        vector = weights[f"{name}.rotation"] @ (joined * scale + weights[f"{name}.offset"])
    return vector


def log_likelihood(weights, prefix, vector, num_couplings):
    """Divided by the number of channels; the determinant is that of differences, not of the flow's own account."""
    step, channels = 1e-5, len(vector)
    columns = [
        flow(weights, prefix, vector + step * axis, num_couplings)
        - flow(weights, prefix, vector - step * axis, num_couplings)
        for axis in np.eye(channels)
    ]
    _, determinant = np.linalg.slogdet(np.array(columns).T / (2 * step))
    end = flow(weights, prefix, vector, num_couplings)
    return (-0.5 * end @ end - 0.5 * channels * math.log(2 * math.pi) + determinant) / channels


def resad(weights, query, normals, num_couplings, denoise):
    """Patch scores (h, w) of a query (h, w, C)."""
    scores = []
    for patch in query.reshape(-1, query.shape[2]):
        residual = plain.denoise(patch, normals, 12, 4, 0.8)[int(denoise)]
        hidden = plain.gelu(linear(weights, "constraintor.0", residual))
        constrained = linear(weights, "constraintor.2", hidden)
        scores.append(-math.exp(log_likelihood(weights, "flow.", constrained, num_couplings)))
    return np.array(scores).reshape(query.shape[:2])


def foundad(weights, query, depth, num_heads):
    """Patch scores (h, w) of a query (h, w, C)."""
    patches = query.reshape(-1, query.shape[2])
    start = [linear(weights, "embed", patch) for patch in patches]
    embedded = start
    for index in range(depth):
        name = f"layers.{index}"
        normed = [norm(weights, f"{name}.norm1", x) for x in embedded]
        attended = attention(weights, f"{name}.self_attn", normed, normed, normed, num_heads)
        embedded = [x + a for x, a in zip(embedded, attended, strict=True)]
        changes = [
            linear(
                weights,
                f"{name}.linear2",
                plain.gelu(linear(weights, f"{name}.linear1", norm(weights, f"{name}.norm2", x))),
            )
            for x in embedded
        ]
        embedded = [x + change + first for x, change, first in zip(embedded, changes, start, strict=True)]
    projected = [linear(weights, "project", norm(weights, "norm", x)) for x in embedded]
    return np.array([np.mean((a - b) ** 2) for a, b in zip(projected, patches, strict=True)]).reshape(query.shape[:2])
