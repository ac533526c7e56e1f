"""A smaller student that starts as its teacher, or as a projection of it onto the principal directions.

A student of the teacher's whole width has its token stream and its final norm, and may have less in its MLPs. A
narrower one has no final norm. It approximates the teacher's stream x in an orthonormal basis Q of the directions
that carry most of it: z = Qᵀx, with the same Q at every depth, so that skip connections remain skip connections.
Cosines between its features are then cosines between the teacher's projected features.

A layer norm takes off the mean of the channels, and another basis has another mean. So the teacher's mean is then left
out of the stream from the beginning, which changes nothing that it computes, and the student's coordinates are turned
so that their mean is 0 for every x: its layer norms then do what the teacher's do, and only that.

Every linear map starts as the teacher's own, seen through Q, and is then corrected by least squares, layer by layer,
given the input that the student itself has there. What the pictures of the fit say nothing about stays the teacher's.
An MLP with fewer units than the teacher's is then trained alone, by gradient steps, to do the same with what it has.
"""

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from transformers import Dinov2Backbone, Dinov2Config, PreTrainedConfig
from transformers.models.dinov2.modeling_dinov2 import Dinov2Embeddings, Dinov2Layer, Dinov2LayerScale

from ...devices import for_linear_algebra
from .recording import Recording, at, in_parts, recording, some_tokens

LAST_STAGE_WEIGHT = 2.0
"""Weight of the last stage in the basis, relative to the mean over all depths."""
RIDGE = 1e-1
"""Weight of the distance from the teacher's own maps in every least-squares problem, relative to its mean diagonal."""
TOKENS_AT_ONCE = 4096
PASSES = 4
"""How often an MLP with fewer units than the teacher's sees all tokens when it is trained alone."""
TOKENS_PER_STEP = 1024
RATE = 1e-3
"""Highest learning rate of that training."""


def student_config(
    teacher: PreTrainedConfig, stage: int | None, width: int | None, image_size: int, mlp_ratio: int
) -> Dinov2Config:
    """The teacher's architecture up to `stage`, with as many heads of the teacher's size as fit in `width`.

    None is all of its layers, or its whole width. An MLP has `mlp_ratio` times the width as its units.
    """
    if teacher.model_type != "dinov2" or teacher.use_swiglu_ffn:
        raise ValueError(f"teacher: expected a DINOv2 backbone with a plain MLP, got {teacher.model_type!r}")
    stage = teacher.num_hidden_layers if stage is None else stage
    width = teacher.hidden_size if width is None else width
    if not 1 <= stage <= teacher.num_hidden_layers:
        raise ValueError(f"stage: expected 1 to the teacher's {teacher.num_hidden_layers} layers, got {stage}")
    head_size = teacher.hidden_size // teacher.num_attention_heads
    if width % head_size or not head_size <= width <= teacher.hidden_size:
        raise ValueError(
            f"width: expected a multiple of the teacher's head size {head_size} "
            f"up to its width {teacher.hidden_size}, got {width}"
        )
    units = teacher.hidden_size * teacher.mlp_ratio
    if not 0 < mlp_ratio * width <= units:
        raise ValueError(
            f"mlp_ratio: expected 1 or more, up to the teacher's {units} units, got {mlp_ratio} x {width}"
        )
    return Dinov2Config(
        hidden_size=width,
        num_attention_heads=width // head_size,
        num_hidden_layers=stage,
        mlp_ratio=mlp_ratio,
        hidden_act=teacher.hidden_act,
        layer_norm_eps=teacher.layer_norm_eps,
        qkv_bias=teacher.qkv_bias,
        patch_size=teacher.patch_size,
        image_size=image_size,
        use_mask_token=False,
        out_features=[f"stage{stage}"],
        apply_layernorm=width == teacher.hidden_size,  # it would be another norm in another basis
        reshape_hidden_states=True,
    )


def new_student(config: Dinov2Config) -> Dinov2Backbone:
    """A student with random weights, of which only the linear maps in its layers are trainable.

    The fit takes the embeddings from the teacher, and sets the norms and layer scales to the scale of its features.
    """
    student = Dinov2Backbone(config).requires_grad_(False)
    for module in student.encoder.modules():
        if isinstance(module, nn.Linear):
            module.requires_grad_(True)
    return student


@torch.no_grad()
def fit_to_teacher(student: Dinov2Backbone, teacher: Dinov2Backbone, pixels: Tensor) -> Tensor:
    """Fit the student's weights to the teacher on pictures (n, 3, H, W); returns the basis Q (C, c)."""
    teacher_layers = teacher.encoder.layer[: len(student.encoder.layer)]
    teacher_stream = in_parts(teacher.embeddings, pixels)  # (n, 1 + hw, C)
    basis = _shared_basis(teacher_layers, teacher_stream, student.config.hidden_size)
    _project_embeddings(student.embeddings, teacher.embeddings, basis, student.config.image_size)
    if student.config.apply_layernorm:
        student.layernorm.load_state_dict(teacher.layernorm.state_dict())
    stream = in_parts(student.embeddings, pixels)  # (n, 1 + hw, c)
    kept = some_tokens(stream)
    for layer, teacher_layer in zip(student.encoder.layer, teacher_layers, strict=True):
        with recording(teacher_layer, kept) as seen:
            teacher_stream = in_parts(teacher_layer, teacher_stream)
        stream = _fit_attention(layer, teacher_layer, seen, stream, basis, kept)
        stream = _fit_mlp(layer, teacher_layer, seen, stream, at(teacher_stream, kept) @ basis, basis, kept)
    return basis


def _shared_basis(layers: nn.ModuleList, stream: Tensor, width: int) -> Tensor:
    """(C, c) of rank c - 1: principal directions of the stream over all depths, turned so that rows have the sum 0.

    They are not centred over the tokens, to preserve cosines, but over the channels, as the layer norms do. At the
    whole width C it is the identity, in which the layer norms are the teacher's own.
    """
    if width == stream.shape[-1]:
        return torch.eye(width).to(stream)
    moments = [_relative_moment(stream)]
    for layer in layers:
        stream = in_parts(layer, stream)
        moments.append(_relative_moment(stream))
    moment = torch.stack(moments).mean(0) + LAST_STAGE_WEIGHT * moments[-1]
    directions = torch.linalg.eigh(moment).eigenvectors[:, 1 - width :]  # (C, c - 1): the largest come last
    centring = torch.eye(width, dtype=moment.dtype, device=moment.device) - 1 / width
    turn = torch.linalg.eigh(centring).eigenvectors[:, 1:]  # (c, c - 1): what has the sum 0
    return (directions @ turn.T).to(stream)


def _relative_moment(stream: Tensor) -> Tensor:
    """(C, C): second moment of the patch tokens without their means, with trace 1: every depth counts the same."""
    tokens = stream[:, 1:].flatten(0, 1)
    tokens = tokens - tokens.mean(1, keepdim=True)
    moment = _product(tokens, tokens)
    return moment / moment.trace()


def _project_embeddings(student: Dinov2Embeddings, teacher: Dinov2Embeddings, basis: Tensor, image_size: int) -> None:
    """Project patch embedding, class token and positions; positions are resampled to the student's grid."""
    projection, teacher_projection = student.patch_embeddings.projection, teacher.patch_embeddings.projection
    projection.weight.copy_(torch.einsum("cd,cijk->dijk", basis, teacher_projection.weight))
    projection.bias.copy_(teacher_projection.bias @ basis)
    student.cls_token.copy_(teacher.cls_token @ basis)
    tokens = torch.empty_like(student.position_embeddings)  # only its shape matters
    positions = teacher.interpolate_pos_encoding(
        tokens.new_empty(1, tokens.shape[1], len(basis)), image_size, image_size
    )
    student.position_embeddings.copy_(positions @ basis)


def _fit_attention(
    layer: Dinov2Layer, teacher: Dinov2Layer, seen: Recording, stream: Tensor, basis: Tensor, kept: Tensor
) -> Tensor:
    """Fit the attention to the teacher's most useful heads; returns the student's stream after it."""
    attention, size = layer.attention, layer.attention.head_dim
    before = at(stream, kept)
    contribution = teacher.layer_scale1(seen.outputs("o_proj")) @ basis
    heads = _useful_heads(seen.inputs("o_proj"), contribution, size, attention.num_attention_heads)
    channels = torch.cat([torch.arange(head * size, (head + 1) * size) for head in heads])
    inputs = _whitened(layer.norm1, before)
    for name in ("q_proj", "k_proj", "v_proj"):
        own, theirs = getattr(attention, name), getattr(teacher.attention, name)
        start = _through_norm(theirs, teacher.norm1, layer.norm1, basis)[channels]
        _fit_linear(own, inputs, seen.outputs(name)[:, channels], start)
    with recording(layer, kept) as recorded:
        in_parts(lambda part: attention(layer.norm1(part))[0], stream)
    # The target is the difference between the student's stream and the teacher's, not the teacher's contribution:
    # this corrects the error so far instead of carrying it along.
    outputs = seen.inputs("norm2") @ basis - before
    start = _to_stream(teacher.attention.o_proj, teacher.layer_scale1, basis)[:, channels]
    _fit_scaled(attention.o_proj, layer.layer_scale1, recorded.inputs("o_proj"), outputs, start)
    return in_parts(lambda part: part + layer.layer_scale1(attention(layer.norm1(part))[0]), stream)


def _fit_mlp(
    layer: Dinov2Layer,
    teacher: Dinov2Layer,
    seen: Recording,
    stream: Tensor,
    target: Tensor,
    basis: Tensor,
    kept: Tensor,
) -> Tensor:
    """Fit the MLP to the teacher's most important units; returns the student's stream after it."""
    mlp, before = layer.mlp, at(stream, kept)
    effect = _to_stream(teacher.mlp.fc2, teacher.layer_scale2, basis)  # (c, units)
    importance = seen.inputs("fc2").var(dim=0) * effect.square().sum(0)
    units = importance.topk(mlp.fc1.out_features).indices.sort().values
    inputs = _whitened(layer.norm2, before)
    start = _through_norm(teacher.mlp.fc1, teacher.norm2, layer.norm2, basis)[units]
    _fit_linear(mlp.fc1, inputs, seen.outputs("fc1")[:, units], start)
    hidden = mlp.activation_fn(mlp.fc1(inputs))
    _fit_scaled(mlp.fc2, layer.layer_scale2, hidden, target - before, effect[:, units])
    if len(units) < len(importance):  # what is left makes up for the rest: the second map alone cannot
        _train_alone(mlp, inputs, (target - before) / layer.layer_scale2.lambda1)
    return in_parts(lambda part: part + layer.layer_scale2(mlp(layer.norm2(part))), stream)


@torch.enable_grad()
def _train_alone(mlp: nn.Module, inputs: Tensor, outputs: Tensor) -> None:
    """Train an MLP, from where it is, to map inputs (tokens, c) to outputs (tokens, c)."""
    steps = max(1, len(inputs) // TOKENS_PER_STEP)
    optimizer = torch.optim.Adam(mlp.parameters(), RATE)
    schedule = torch.optim.lr_scheduler.OneCycleLR(optimizer, RATE, total_steps=PASSES * steps, pct_start=0.1)
    generator = torch.Generator().manual_seed(0)
    for _ in range(PASSES):
        order = torch.randperm(len(inputs), generator=generator).to(inputs.device)
        for some in order[: steps * TOKENS_PER_STEP].split(TOKENS_PER_STEP):
            loss = F.mse_loss(mlp(inputs[some]), outputs[some])
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            schedule.step()


def _through_norm(linear: nn.Linear, norm: nn.LayerNorm, own_norm: nn.LayerNorm, basis: Tensor) -> Tensor:
    """(o, c): the teacher's map after its norm, as a map of the student's coordinates after its own norm."""
    width = basis.shape[1]
    scale = (len(basis) / width) ** 0.5  # a norm makes the mean square 1, whatever the number of channels
    return (linear.weight * norm.weight) @ basis * scale / own_norm.weight


def _to_stream(linear: nn.Linear, scale: Dinov2LayerScale, basis: Tensor) -> Tensor:
    """(c, i): the teacher's map into its stream, as one into the student's."""
    return basis.T @ (scale.lambda1[:, None] * linear.weight)


def _useful_heads(heads: Tensor, contribution: Tensor, head_size: int, count: int) -> list[int]:
    """The heads whose outputs (tokens, heads x head size) best predict the contribution, chosen greedily."""
    inputs, outputs = heads - heads.mean(0), contribution - contribution.mean(0)
    gram, cross = _product(inputs, inputs), _product(inputs, outputs)
    chosen: list[int] = []
    while len(chosen) < count:
        explained = {}
        for head in set(range(len(gram) // head_size)) - set(chosen):
            columns = torch.cat([torch.arange(h * head_size, (h + 1) * head_size) for h in (*chosen, head)])
            part, part_cross = gram[columns][:, columns], cross[columns]
            explained[head] = float((part_cross * _solve(part, part_cross)).sum())
        chosen.append(max(explained, key=lambda head: explained[head]))
    return sorted(chosen)


def _whitened(norm: nn.LayerNorm, tokens: Tensor) -> Tensor:
    """Set the norm's gain and bias so that every coordinate of its output has mean 0 and deviation 1; returns it.

    Principal coordinates differ in scale by orders of magnitude. With the scales in the norms and layer scales, all
    weights are of similar size, and an optimiser step is small for each of them.
    """
    norm.weight.fill_(1)
    norm.bias.zero_()
    normed = norm(tokens)
    gain = 1 / _deviation(normed)
    norm.weight.copy_(gain)
    norm.bias.copy_(-normed.mean(0) * gain)
    return norm(tokens)


def _fit_scaled(linear: nn.Linear, scale: Dinov2LayerScale, inputs: Tensor, outputs: Tensor, start: Tensor) -> None:
    """Like `_fit_linear`, with the scale of each output coordinate in the layer scale."""
    scale.lambda1.copy_(_deviation(outputs))
    _fit_linear(linear, inputs, outputs / scale.lambda1, start / scale.lambda1[:, None])


def _deviation(tokens: Tensor) -> Tensor:
    """(features,): standard deviations, bounded below so that dividing by them does not amplify noise."""
    deviation = tokens.std(dim=0)
    return deviation.clamp_min(1e-3 * float(deviation.max()) + torch.finfo(tokens.dtype).tiny)


def _fit_linear(linear: nn.Linear, inputs: Tensor, outputs: Tensor, start: Tensor) -> None:
    """Set weights and bias to the least-squares map of inputs (tokens, i) to outputs (tokens, o), near `start`."""
    centred = inputs - inputs.mean(0)
    missing = outputs - outputs.mean(0) - centred @ start.T
    change = _solve(_product(centred, centred), _product(centred, missing)).to(inputs)  # (i, o)
    linear.weight.copy_(start + change.T)
    if linear.bias is not None:
        linear.bias.copy_(outputs.mean(0) - linear.weight @ inputs.mean(0))


def _product(first: Tensor, second: Tensor) -> Tensor:
    """firstᵀ second of tokens (P, a) and (P, b), summed in double precision over parts of them."""
    parts = zip(first.split(TOKENS_AT_ONCE), second.split(TOKENS_AT_ONCE), strict=True)
    return sum((for_linear_algebra(a.T @ b).double() for a, b in parts), start=torch.zeros(()))


def _solve(gram: Tensor, cross: Tensor) -> Tensor:
    ridge = RIDGE * gram.diagonal().mean() + torch.finfo(torch.float32).tiny
    return torch.linalg.solve(gram + ridge * torch.eye(len(gram), dtype=gram.dtype, device=gram.device), cross)
