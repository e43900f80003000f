"""Which layers of a network stay as they are when a share of its parameters is frozen, from the input on."""

from __future__ import annotations

from torch import nn

from coldstream.models.registry import Shape, on_blank


def layers_in_order(network: nn.Module, shape: Shape) -> list[nn.Module]:
    """Return the modules that have parameters or statistics of their own, in the order in which they begin to work.

    The order is that of one blank item of `shape`; a module that works more than once counts where it does first.
    """
    seen: dict[nn.Module, None] = {}
    layers = [m for m in network.modules() if [*m.parameters(recurse=False), *m.buffers(recurse=False)]]
    hooks = [layer.register_forward_pre_hook(lambda module, _: seen.setdefault(module)) for layer in layers]
    try:
        on_blank(network, shape)
    finally:
        for hook in hooks:
            hook.remove()
    return list(seen)


def first_layers(network: nn.Module, shape: Shape, share: float) -> list[nn.Module]:
    """Return as many whole layers from the input on as have no more than `share` of the network's parameters.

    Examples
    --------
    Of 3 + 6 + 12 parameters (no biases), half is 10.5: the third layer would be too much.

    >>> layers = [nn.Linear(i, o, bias=False) for i, o in ((1, 3), (3, 2), (2, 6))]
    >>> first_layers(nn.Sequential(*layers), (1,), 0.5) == layers[:2]
    True
    """
    check_share(share)
    if share == 0:
        return []
    total = sum(parameter.numel() for parameter in network.parameters())
    chosen: list[nn.Module] = []
    counted: dict[nn.Parameter, None] = {}
    for layer in layers_in_order(network, shape):
        counted |= dict.fromkeys(layer.parameters(recurse=False))
        if sum(parameter.numel() for parameter in counted) > share * total:
            break
        chosen.append(layer)
    return chosen


def check_share(share: object) -> None:
    """Refuse what is not a share."""
    if isinstance(share, bool) or not isinstance(share, (int, float)) or not 0 <= share <= 1:
        raise ValueError(f"freeze is a number from 0 to 1, the share of the body's parameters; not {share!r}")
