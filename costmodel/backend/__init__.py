"""Dynamo backend: graphs of `torch.compile(model, backend="costmodel")` -> callables that run by a plan.

    fast = torch.compile(model, backend="costmodel", options={"hardware": "nvidia-h200", "calls": 1e6})
    print(costmodel.explain_backend(fast))    # for each graph: what runs it, why, and predicted times

New weights count from the next call, unless they are written through `tensor.data`, which no plan notices (nor Inductor
with freezing): `torch._dynamo.reset()` has everything planned anew.

An installed package needs no import, for torch finds the backend by its entry point. From a checkout, importing this
package makes the backend known.
"""

from importlib.metadata import EntryPoint

from torch._dynamo.backends import registry

NAME, GROUP = "costmodel", "torch_dynamo_backends"
ENTRY = EntryPoint(NAME, "costmodel.backend.dynamo_backend:costmodel_backend", GROUP)
"""Entry point of the backend, as in pyproject.toml."""

registry._BACKENDS.setdefault(NAME, ENTRY)
