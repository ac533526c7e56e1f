"""IDEAL in plain NumPy, loop by loop as Eq. 1-10 are written: slow, obvious, float64.

Written from the paper alone; shares no code with the package. Features are arrays (n, C); a reference set is
`normals` (Q, C) and the anomalous patches of the abnormal references.
"""

import math

import numpy as np

RELATIVE_VARIANCE, ABSOLUTE_VARIANCE = 1e-5, 1e-10  # what counts as no variation at all


def cosine(a, b):
    length = np.linalg.norm(a) * np.linalg.norm(b)
    return float(a @ b / length) if length > 0 else 0.0


def cosine_distance(a, b):
    return (1 - cosine(a, b)) / 2


def neighbors_of(target, normals, k):
    """Eq. 2: the k nearest by cosine, nearest first."""
    cosines = np.array([cosine(target, normal) for normal in normals])
    order = np.argsort(-cosines, kind="stable")[:k]
    return normals[order], cosines[order]


def denoise(target, normals, k, r, alpha, anchor="nearest"):
    """Eq. 1-4 for one patch: residual and denoised deviation."""
    neighbors, cosines = neighbors_of(target, normals, k)
    k = len(neighbors)
    weights = np.full(k, 1 / k)
    if anchor == "centroid":
        weights = np.exp(cosines) / np.exp(cosines).sum()
    mean = sum(weight * neighbor for weight, neighbor in zip(weights, neighbors, strict=True))
    residual = target - (neighbors[0] if anchor == "nearest" else mean)  # Eq. 1
    covariance = np.zeros((len(target), len(target)))
    for weight, neighbor in zip(weights, neighbors, strict=True):
        covariance += weight * np.outer(neighbor - mean, neighbor - mean)
    values, vectors = np.linalg.eigh(covariance)
    denoised = residual.copy()
    for index in range(1, min(r, k - 1) + 1):  # Eq. 3: top-r eigenvectors
        if values[-index] > max(RELATIVE_VARIANCE * values[-1], ABSOLUTE_VARIANCE * (target @ target)):
            direction = vectors[:, -index]
            denoised -= alpha * direction * (direction @ residual)  # Eq. 4
    return residual, denoised


def positions(height, width, channels):
    """2-D sinusoidal positions: sines then cosines of the row, then of the column."""
    quarter = math.ceil(channels / 4)
    result = np.zeros((height, width, 4 * quarter))
    for row in range(height):
        for column in range(width):
            for index in range(quarter):
                frequency = 10_000 ** (-index / quarter)
                result[row, column, index] = math.sin(row * frequency)
                result[row, column, quarter + index] = math.cos(row * frequency)
                result[row, column, 2 * quarter + index] = math.sin(column * frequency)
                result[row, column, 3 * quarter + index] = math.cos(column * frequency)
    return result[..., :channels]


def layer_norm(x, weight, bias):
    return (x - x.mean()) / np.sqrt(x.var() + 1e-5) * weight + bias


def gelu(x):
    return np.array([0.5 * value * (1 + math.erf(value / math.sqrt(2))) for value in x])


def deviation_vectors(weights, features, places, deviations, num_heads, scale=2.4):
    """Eq. 5-6: T* from the anomalous patches; `weights` is the encoder's state as arrays."""
    factor = scale / np.sqrt(np.mean(features**2))
    keys = [
        weights["key.weight"] @ (f * factor + p) + weights["key.bias"] for f, p in zip(features, places, strict=True)
    ]
    values = [weights["value.weight"] @ (d * factor) + weights["value.bias"] for d in deviations]
    result = []
    for vector in weights["vectors.weight"]:
        query = weights["query.weight"] @ vector + weights["query.bias"]
        width = len(vector) // num_heads
        attended = np.zeros_like(vector)
        for head in range(num_heads):
            part = slice(head * width, (head + 1) * width)
            logits = np.array([query[part] @ key[part] / math.sqrt(width) for key in keys])
            attention = np.exp(logits - logits.max())
            attention /= attention.sum()
            attended[part] = sum(share * value[part] for share, value in zip(attention, values, strict=True))
        output = weights["output.weight"] @ attended + weights["output.bias"]
        x = layer_norm(vector + output, weights["attention_norm.weight"], weights["attention_norm.bias"])
        hidden = gelu(weights["mlp_in.weight"] @ x + weights["mlp_in.bias"])
        x = x + weights["mlp_out.weight"] @ hidden + weights["mlp_out.bias"]
        result.append(layer_norm(x, weights["mlp_norm.weight"], weights["mlp_norm.bias"]))
    return np.array(result)


def patch_score(target, denoised, nearest, vectors, alignment="cosine"):
    """Eq. 8-9 for one patch."""
    projection = np.zeros_like(denoised)
    for vector in vectors:
        projection += (denoised @ vector) / (vector @ vector) * vector
    if alignment == "cosine":
        aligned = 1 - cosine_distance(denoised, projection)
    else:
        unit = [v / np.linalg.norm(v) if np.linalg.norm(v) > 0 else v for v in (denoised, projection)]
        if np.linalg.norm(denoised) == 0:
            unit = [np.array([1.0, 0.0]), np.array([0.0, 1.0])]  # no direction: as if orthogonal
        aligned = 1 - np.linalg.norm(unit[0] - unit[1]) / 2
    return (aligned + cosine_distance(target, nearest)) / 2


def contrast_patch_score(target, denoised, nearest, vectors, anomalous, known):
    """The distance of one patch to normal, times how much more it is like the anomalous patches, which deviate so."""
    if vectors is None:
        factor = (2 + max(0.0, *(cosine(denoised, deviation) for deviation in known))) / 3
    else:
        projection = np.zeros_like(denoised)
        for vector in vectors:
            projection += (denoised @ vector) / (vector @ vector) * vector
        factor = cosine(denoised, projection)
    difference = max(cosine(target, patch) for patch in anomalous) - cosine(target, nearest)
    return cosine_distance(target, nearest) * factor / (1 + math.exp(-difference / 0.4))


def smooth(scores, sigma):
    """Gaussian over a grid (h, w), out to four standard deviations, the border repeated."""
    height, width = scores.shape
    reach = int(4 * sigma + 0.5)
    result = np.zeros_like(scores)
    for row in range(height):
        for column in range(width):
            total = weight = 0.0
            for down in range(-reach, reach + 1):
                for across in range(-reach, reach + 1):
                    share = math.exp(-0.5 * (down**2 + across**2) / sigma**2)
                    place = min(max(row + down, 0), height - 1), min(max(column + across, 0), width - 1)
                    total += share * scores[place]
                    weight += share
            result[row, column] = total / weight
    return result


def image_score(scores, fraction):
    count = max(1, int(len(scores) * fraction))
    return float(np.mean(sorted(scores)[-count:]))


def focal(probabilities, targets):
    total = 0.0
    for p, t in zip(probabilities.ravel(), targets.ravel(), strict=True):
        total += -0.25 * (1 - p) ** 2 * math.log(p) if t else -0.75 * p**2 * math.log(1 - p)
    return total / probabilities.size


def dice(probabilities, targets):
    return 1 - (2 * (probabilities * targets).sum() + 1) / (probabilities.sum() + targets.sum() + 1)


def binary_cross_entropy(score, label):
    return -math.log(score) if label else -math.log(1 - score)


def discriminability(deviations, vectors):
    return float(np.mean([min(cosine_distance(d, v) for v in vectors) for d in deviations]))


def orthogonality(vectors):
    count = len(vectors)
    pairs = [cosine(vectors[i], vectors[j]) ** 2 for i in range(count) for j in range(count) if i != j]
    return sum(pairs) / (count * (count - 1))
