"""A narrow student that starts as a projection of its teacher onto the principal directions.

The student has the teacher's depth and a fraction of its width. Its token stream z approximates the teacher's
stream x in an orthonormal basis Q (C, c) of the c directions that carry most of it: z = Qᵀx, with the same Q at
every depth, so that skip connections remain skip connections. Cosines between the student's features are then
cosines between the teacher's projected features. From the first layer to the last, every linear map is a
least-squares fit of the teacher's output, given the input that the student itself has there.
"""

from collections.abc import Iterator
from contextlib import contextmanager

import torch
from torch import Tensor, nn
from torch.utils.hooks import RemovableHandle
from transformers import Dinov2Backbone, Dinov2Config, PreTrainedConfig
from transformers.models.dinov2.modeling_dinov2 import Dinov2Embeddings, Dinov2Layer, Dinov2LayerScale

from ...devices import for_linear_algebra

LAST_STAGE_WEIGHT = 2.0
"""Weight of the last stage in the basis, relative to the mean over all depths."""
RIDGE = 1e-3
"""Added to the diagonal of every least-squares problem, as a fraction of its mean."""

Recorded = dict[str, tuple[Tensor, Tensor]]
"""Inputs and outputs (tokens, features) of modules, by name."""


def student_config(teacher: PreTrainedConfig, stage: int, width: int, image_size: int) -> Dinov2Config:
    """The teacher's architecture up to `stage`, with as many heads of the teacher's size as fit in `width`."""
    if teacher.model_type != "dinov2" or teacher.use_swiglu_ffn:
        raise ValueError(f"teacher: expected a DINOv2 backbone with a plain MLP, got {teacher.model_type!r}")
    if not 1 <= stage <= teacher.num_hidden_layers:
        raise ValueError(f"stage: expected 1 to the teacher's {teacher.num_hidden_layers} layers, got {stage}")
    head_size = teacher.hidden_size // teacher.num_attention_heads
    if width % head_size or not head_size <= width <= teacher.hidden_size:
        raise ValueError(
            f"width: expected a multiple of the teacher's head size {head_size} "
            f"up to its width {teacher.hidden_size}, got {width}"
        )
    return Dinov2Config(
        hidden_size=width,
        num_attention_heads=width // head_size,
        num_hidden_layers=stage,
        mlp_ratio=teacher.mlp_ratio,
        hidden_act=teacher.hidden_act,
        layer_norm_eps=teacher.layer_norm_eps,
        qkv_bias=teacher.qkv_bias,
        patch_size=teacher.patch_size,
        image_size=image_size,
        use_mask_token=False,
        out_features=[f"stage{stage}"],
        apply_layernorm=False,
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
    teacher_stream = teacher.embeddings(pixels)  # (n, 1 + hw, C)
    basis = _shared_basis(teacher_layers, teacher_stream, student.config.hidden_size)
    _project_embeddings(student.embeddings, teacher.embeddings, basis, student.config.image_size)
    stream = student.embeddings(pixels)  # (n, 1 + hw, c)
    for layer, teacher_layer in zip(student.encoder.layer, teacher_layers, strict=True):
        with _recording(teacher_layer) as seen:
            teacher_stream = teacher_layer(teacher_stream)
        stream = _fit_attention(layer, teacher_layer, seen, stream, basis)
        stream = _fit_mlp(layer, teacher_layer, seen, stream, teacher_stream @ basis, basis)
    return basis


def _shared_basis(layers: nn.ModuleList, stream: Tensor, width: int) -> Tensor:
    """(C, c): principal directions of the stream over all depths, not centred, to preserve cosines."""
    moments = [_relative_moment(stream)]
    for layer in layers:
        stream = layer(stream)
        moments.append(_relative_moment(stream))
    moment = torch.stack(moments).mean(0) + LAST_STAGE_WEIGHT * moments[-1]
    return torch.linalg.eigh(moment).eigenvectors[:, -width:].to(stream)  # the largest come last


def _relative_moment(stream: Tensor) -> Tensor:
    """(C, C): second moment of the patch tokens, with trace 1 so that every depth counts the same."""
    tokens = stream[:, 1:].flatten(0, 1)
    moment = for_linear_algebra(tokens.T @ tokens).double()
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


def _fit_attention(layer: Dinov2Layer, teacher: Dinov2Layer, seen: Recorded, stream: Tensor, basis: Tensor) -> Tensor:
    """Fit the attention to the teacher's most useful heads; returns the student's stream after it."""
    attention = layer.attention
    teacher_heads = seen["o_proj"][0]
    contribution = teacher.layer_scale1(seen["o_proj"][1]) @ basis
    heads = _useful_heads(teacher_heads, contribution, attention.head_dim, attention.num_attention_heads)
    inputs = _whitened(layer.norm1, stream)
    for name in ("q_proj", "k_proj", "v_proj"):
        outputs = seen[name][1].unflatten(-1, (-1, attention.head_dim))[:, heads]
        _fit_linear(getattr(attention, name), inputs, outputs.flatten(1))
    with _recording(layer) as own:
        attention(inputs)
    # The target is the difference between the student's stream and the teacher's, not the teacher's contribution:
    # this corrects the error so far instead of carrying it along.
    after = seen["norm2"][0] @ basis
    _fit_scaled(attention.o_proj, layer.layer_scale1, own["o_proj"][0], after - stream.flatten(0, 1))
    return stream + layer.layer_scale1(attention(inputs)[0])


def _fit_mlp(
    layer: Dinov2Layer, teacher: Dinov2Layer, seen: Recorded, stream: Tensor, target: Tensor, basis: Tensor
) -> Tensor:
    """Fit the MLP to the teacher's most important units; returns the student's stream after it."""
    mlp = layer.mlp
    effect = (teacher.mlp.fc2.weight * teacher.layer_scale2.lambda1[:, None]).T @ basis  # (units, c)
    importance = seen["fc2"][0].var(dim=0) * effect.square().sum(dim=1)
    units = importance.topk(mlp.fc1.out_features).indices.sort().values
    inputs = _whitened(layer.norm2, stream)
    _fit_linear(mlp.fc1, inputs, seen["fc1"][1][:, units])
    _fit_scaled(mlp.fc2, layer.layer_scale2, mlp.activation_fn(mlp.fc1(inputs)), (target - stream).flatten(0, 1))
    return stream + layer.layer_scale2(mlp(inputs))


def _useful_heads(heads: Tensor, contribution: Tensor, head_size: int, count: int) -> list[int]:
    """The heads whose outputs (tokens, heads x head size) best predict the contribution, chosen greedily."""
    inputs, outputs = _centred(heads), _centred(contribution)
    gram, cross = inputs.T @ inputs, inputs.T @ outputs
    chosen: list[int] = []
    while len(chosen) < count:
        explained = {}
        for head in set(range(len(gram) // head_size)) - set(chosen):
            columns = torch.cat([torch.arange(h * head_size, (h + 1) * head_size) for h in (*chosen, head)])
            part, part_cross = gram[columns][:, columns], cross[columns]
            explained[head] = float((part_cross * _solve(part, part_cross)).sum())
        chosen.append(max(explained, key=lambda head: explained[head]))
    return sorted(chosen)


def _whitened(norm: nn.LayerNorm, stream: Tensor) -> Tensor:
    """Set the norm's gain and bias so that every coordinate of its output has mean 0 and deviation 1; returns it.

    Principal coordinates differ in scale by orders of magnitude. With the scales in the norms and layer scales, all
    weights are of similar size, and an optimiser step is small for each of them.
    """
    norm.weight.fill_(1)
    norm.bias.zero_()
    tokens = norm(stream).flatten(0, -2)
    gain = 1 / _deviation(tokens)
    norm.weight.copy_(gain)
    norm.bias.copy_(-tokens.mean(0) * gain)
    return norm(stream)


def _fit_scaled(linear: nn.Linear, scale: Dinov2LayerScale, inputs: Tensor, outputs: Tensor) -> None:
    """Like `_fit_linear`, with the scale of each output coordinate in the layer scale."""
    scale.lambda1.copy_(_deviation(outputs))
    _fit_linear(linear, inputs, outputs / scale.lambda1)


def _deviation(tokens: Tensor) -> Tensor:
    """(features,): standard deviations, bounded below so that dividing by them does not amplify noise."""
    deviation = tokens.std(dim=0)
    return deviation.clamp_min(1e-3 * float(deviation.max()) + torch.finfo(tokens.dtype).tiny)


def _fit_linear(linear: nn.Linear, inputs: Tensor, outputs: Tensor) -> None:
    """Set weights and bias to the least-squares map from inputs (..., i) to outputs (tokens, o)."""
    inputs = inputs.flatten(0, -2)
    centred_inputs = _centred(inputs)
    weight = _solve(centred_inputs.T @ centred_inputs, centred_inputs.T @ _centred(outputs)).to(inputs)  # (i, o)
    linear.weight.copy_(weight.T)
    if linear.bias is not None:
        linear.bias.copy_(outputs.mean(0) - inputs.mean(0) @ weight)


def _centred(values: Tensor) -> Tensor:
    return for_linear_algebra(values - values.mean(0)).double()


def _solve(gram: Tensor, cross: Tensor) -> Tensor:
    ridge = RIDGE * gram.diagonal().mean() + torch.finfo(torch.float32).tiny
    return torch.linalg.solve(gram + ridge * torch.eye(len(gram), dtype=gram.dtype, device=gram.device), cross)


@contextmanager
def _recording(layer: Dinov2Layer) -> Iterator[Recorded]:
    """Record the inputs and outputs of the linear maps and norms of a layer."""
    recorded: Recorded = {}

    def watch(name: str, module: nn.Module) -> RemovableHandle:
        def keep(_module: nn.Module, inputs: tuple, output: Tensor) -> None:
            recorded[name] = (inputs[0].flatten(0, -2), output.flatten(0, -2))

        return module.register_forward_hook(keep)

    hooks = [
        watch(name.rpartition(".")[2], module)
        for name, module in layer.named_modules()
        if isinstance(module, (nn.Linear, nn.LayerNorm))
    ]
    try:
        yield recorded
    finally:
        for hook in hooks:
            hook.remove()
