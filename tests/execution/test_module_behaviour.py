"""Applied and checkpointed modules behave as the module they were made of, or refuse in one line what they cannot do.

Each row does something to a module and returns numbers, names or tensors; both kinds must return the original's.
"""

from __future__ import annotations

import copy
import functools
import io
import pickle
import threading

import pytest
import torch
from torch import nn
from torch.nn.utils import prune, weight_norm
from torch.utils._pytree import tree_flatten

import costmodel
from costmodel.errors import PlanError
from costmodel.memory.checkpoint import checkpointed
from costmodel.memory.checkpoint_plan import CheckpointPlan
from tests.execution.test_planned_module import plan_for

X = torch.randn(2, 3, 8, 8, generator=torch.Generator().manual_seed(3))
KINDS = ("applied", "checkpointed")
pytestmark = [
    # torch's own, where it saves, traces, scripts, compiles or exports
    pytest.mark.filterwarnings("ignore:.*torch.jit:DeprecationWarning"),
    pytest.mark.filterwarnings("ignore:.*script_method:DeprecationWarning"),
    pytest.mark.filterwarnings("ignore:.*isinstance.treespec, LeafSpec.*:FutureWarning"),
]


class ConvNet(nn.Module):
    """A convolution, a batch norm that a plan folds into it, and a head."""

    def __init__(self, seed: int = 0) -> None:
        super().__init__()
        torch.manual_seed(seed)
        self.num_classes = 4
        self.features = nn.Sequential(nn.Conv2d(3, 4, 3), nn.BatchNorm2d(4), nn.ReLU())
        self.fc = nn.Linear(4, self.num_classes)
        self.features[1].running_mean.normal_()
        self.features[1].running_var.uniform_(0.5, 2.0)
        self.eval()

    def forward(self, x):
        return self.fc(self.features(x).mean((2, 3)))

    def doubled(self, x):
        return 2 * self(x)


def applied(module: nn.Module, x: torch.Tensor = X) -> nn.Module:
    return costmodel.apply(module, plan_for(module, (x,)), (x,))


def made(kind: str, module: nn.Module) -> nn.Module:
    """The module as one of the kinds makes it; the original for any other."""
    if kind == "applied":
        return applied(module)
    return checkpointed(module, CheckpointPlan("m", ("features",), 2, 1, 1.0)) if kind == "checkpointed" else module


def ran_planned(module: nn.Module) -> bool:
    """Whether the programs of an applied module were made of its present state."""
    runner = module._runner()
    return bool(runner.ready) and not runner._snapshot.has_changed()


def same(got, expected) -> None:
    """Asserts that results are nested alike, tensors close, and all else equal."""
    leaves, spec = tree_flatten(got)
    expected_leaves, expected_spec = tree_flatten(expected)
    assert spec == expected_spec
    for a, b in zip(leaves, expected_leaves, strict=True):
        if isinstance(b, torch.Tensor):
            torch.testing.assert_close(a, b, rtol=1e-4, atol=1e-5)
        else:
            assert a == b


def loaded(module, **options):
    missing, unexpected = module.load_state_dict(ConvNet(7).state_dict(), **options)
    assert (missing, unexpected) == ([], [])
    return module(X)


def loaded_in_part(module):
    state = {key: value for key, value in ConvNet(7).state_dict().items() if not key.startswith("fc")}
    assert module.load_state_dict(state | {"other": X}, strict=False) == (["fc.weight", "fc.bias"], ["other"])
    with pytest.raises(RuntimeError, match=r'Missing key.*"fc.weight"'):
        module.load_state_dict(state)
    return module(X)


def saved_and_loaded(module):
    buffer = io.BytesIO()
    torch.save(module, buffer)
    buffer.seek(0)
    return _independent(module, torch.load(buffer, weights_only=False))


def _independent(module, other):
    """Outputs of a module and its copy, after the copy's weights were replaced."""
    before = other(X)
    other.load_state_dict(ConvNet(7).state_dict())
    return before, module(X), other(X), type(other).__name__


def shallow(module):
    other = copy.copy(module)
    same(other(X), module(X))
    other.load_state_dict(ConvNet(7).state_dict())
    return other(X), module(X)


def in_memory_format(module):
    module.to(memory_format=torch.channels_last)
    return module(X), [parameter.stride() for parameter in module.parameters()]


def with_new_head(module):
    module.fc = nn.Linear(4, 7)
    nn.init.ones_(module.fc.weight)
    nn.init.zeros_(module.fc.bias)
    return module(X), [name for name, _ in module.named_parameters()]


def initialised(module):
    module.apply(lambda child: nn.init.ones_(child.weight) if isinstance(child, nn.Linear) else None)
    return module(X)


def stepped(module):
    with torch.no_grad():
        for parameter in module.parameters():
            parameter.mul_(0.5)
    return module(X)


def with_replaced_data(module):
    module.fc.weight.data = torch.zeros(4, 4)
    return module(X)


def with_other_epsilon(module):
    module.features[1].eps = 1.0
    return module(X)


def with_a_part_in_training(module):
    module.features[1].train()
    result = module(X)
    return result, module.features[1].running_mean.clone(), module.features[1].num_batches_tracked.clone()


def hooked(module):
    seen = []
    handles = [
        module.register_forward_hook(lambda *_: seen.append("after")),
        module.register_forward_pre_hook(lambda *_: seen.append("before")),
        module.fc.register_forward_hook(lambda _module, _inputs, output: output + 1),
    ]
    results = [module(X)]
    for handle in handles:
        handle.remove()
    return [*results, module(X)], seen


def globally_hooked(module):
    seen = []
    handle = nn.modules.module.register_module_forward_hook(lambda child, *_: seen.append(type(child).__name__))
    try:
        module(X)
    finally:
        handle.remove()
    return seen


def traced(module):
    with torch.no_grad():
        other = torch.jit.trace(module, X)
    module.load_state_dict(ConvNet(7).state_dict())
    return other(-X), other.state_dict()


def exported(module):
    program = torch.export.export(module, (X,))
    return program.module()(-X), list(program.state_dict)


def compiled(module):
    return torch.compile(module, backend="eager", fullgraph=True)(X)


def symbolic(module):
    return torch.fx.symbolic_trace(module)(X)


def functional(module):
    other = torch.func.functional_call(module, ConvNet(7).state_dict(), (X,))
    return other, module(X)


def mapped(module):
    return torch.func.vmap(module)(torch.stack([X, -X]))


def forward_derivative(module):
    return torch.func.jvp(module, (X,), (X,))


def autocast(module):
    with torch.autocast("cpu", torch.bfloat16):
        return module(X).float()


def under_a_dispatch_mode(module):
    from torch.utils.flop_counter import FlopCounterMode

    with FlopCounterMode(display=False) as counter:
        module(X)
    return counter.get_total_flops()


def names(module):
    kinds = (module.named_modules(), module.named_children(), module.named_parameters(), module.named_buffers())
    return [[name for name, _ in found] for found in kinds], list(module.state_dict())


def attributes(module):
    assert isinstance(module, ConvNet)
    module.num_classes += 1
    return module.num_classes, module.fc.out_features, module.get_parameter("fc.bias"), module.doubled(X)


def sliced(module):
    return module.features[:2](X), len(module.features)


def without_gradients(module):
    module.requires_grad_(False)
    return module(X).requires_grad, [parameter.requires_grad for parameter in module.parameters()]


def with_zeroed_gradients(module):
    for parameter in module.parameters():
        parameter.grad = torch.ones_like(parameter)
    module.zero_grad()
    return [parameter.grad for parameter in module.parameters()]


def shared(module):
    module.share_memory()
    return module(X), [parameter.is_shared() for parameter in module.parameters()]


def in_inference_mode(module):
    with torch.inference_mode():
        return module(X).clone(), module(X).is_inference()


def of_other_shapes(module):
    return [module(torch.ones(count, 3, 8, size)) for count in (1, 2, 3) for size in (5, 6)]


def of_another_device(module):
    with pytest.raises(RuntimeError, match="device"):
        module(X.to("meta"))
    return module(X)


def in_turns(module):
    """Results of threads that begin together with inputs of several shapes."""
    found = {}

    def call(number):
        with torch.no_grad():
            found[number] = [module(X[:, :, : 8 - number % 3]) for _ in range(3)]

    threads = [threading.Thread(target=call, args=(number,)) for number in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    return sorted(found.items())


def described(module):
    return repr(module), str(module.fc), type(module).__name__, module.extra_repr()


def deep(module):
    return _independent(module, copy.deepcopy(module))


def pickled(module):
    return _independent(module, pickle.loads(pickle.dumps(module)))


SAME = (
    *(loaded, functools.partial(loaded, assign=True), loaded_in_part, initialised, stepped, with_replaced_data),
    *(deep, shallow, pickled, saved_and_loaded, shared, in_memory_format, with_new_head, with_other_epsilon),
    *(with_a_part_in_training, hooked, globally_hooked, traced, compiled, symbolic, functional, mapped),
    *(forward_derivative, autocast, under_a_dispatch_mode, names, attributes, sliced, without_gradients),
    *(with_zeroed_gradients, in_inference_mode, of_other_shapes, of_another_device, in_turns, described),
    pytest.param(exported, marks=pytest.mark.slow),
)


def _name(action):
    inner = getattr(action, "func", action)
    return inner.__name__ + ("_" + "_".join(action.keywords) if isinstance(action, functools.partial) else "")


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("action", SAME, ids=_name)
def test_as_the_original(action, kind):
    torch.manual_seed(1)
    expected = action(made("original", ConvNet()))
    original = ConvNet()
    module = made(kind, original)
    torch.manual_seed(1)
    same(action(module), expected)
    assert not original.training


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("convert", ["half", "bfloat16", "double"])
def test_casts_are_as_the_originals_or_refused_before_anything_changes(convert, kind):
    original = ConvNet()
    expected = original(X)
    module = made(kind, original)
    if kind == "applied":
        with pytest.raises(PlanError, match=r"^a plan is for weights in torch.float32 on cpu; convert"):
            getattr(module, convert)()
        same(module(X), expected)
        same(original(X), expected)
        return
    dtype = next(getattr(module, convert)().parameters()).dtype
    reference = getattr(ConvNet(), convert)()
    for converted in (module, original):  # one set of parameters and buffers
        same(converted(X.to(dtype)), reference(X.to(dtype)))


def test_device_moves_are_refused_and_conversions_to_the_same_are_not():
    module = applied(ConvNet())
    for convert in (
        lambda: module.to("meta"),
        lambda: module.to(torch.float16),
        lambda: module.to_empty(device="meta"),
    ):
        with pytest.raises(PlanError, match="convert the original"):
            convert()
    assert module.float().cpu().to("cpu", torch.float32) is module
    assert ran_planned(module)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize(
    ("action", "refused"),
    [
        (torch.jit.script, KINDS),
        (lambda module: module(X).sum().backward(), ("applied",)),
        (lambda module: module(X.clone().requires_grad_()), ("applied",)),
        (lambda module: torch.func.grad(lambda x: module(x).sum())(X), ("applied",)),
        (lambda module: module.train()(X), ("applied",)),
        (lambda module: module._replicate_for_data_parallel(), ("applied",)),
    ],
    ids=["script", "backward", "input_gradient", "func_grad", "train", "data_parallel"],
)
def test_refused_in_one_line_or_done(action, refused, kind):
    module = made(kind, ConvNet())
    if kind in refused:
        with pytest.raises(PlanError) as caught:
            action(module)
        assert "\n" not in str(caught.value)
        assert any(word in str(caught.value) for word in ("original", "eval"))
    else:
        action(module)


def test_gradients_of_a_checkpointed_copy_are_its_own():
    module = made("checkpointed", ConvNet())
    other, reference = copy.deepcopy(module), ConvNet()
    for one in (other, reference):
        one.train()(X).square().sum().backward()
    assert all(parameter.grad is None for parameter in module.parameters())
    same([p.grad for p in other.parameters()], [p.grad for p in reference.parameters()])
    same(other.state_dict(), reference.state_dict())


def test_checkpointed_replicas_run_on_their_own_parameters():
    """As `DataParallel` makes them: a shallow copy of each module, its parameters replaced by others."""
    module = made("checkpointed", ConvNet())
    replica = module.features._replicate_for_data_parallel()
    replica._modules = {"0": nn.Conv2d(3, 5, 1)}
    assert replica(X).shape == (2, 5, 8, 8)


def test_new_weights_are_planned_for_again():
    original = ConvNet()
    module = applied(original)
    with torch.no_grad():
        original.load_state_dict(ConvNet(7).state_dict())
        assert not ran_planned(module)
        same(module(X), ConvNet(7)(X))
        assert ran_planned(module)
        torch.func.functional_call(module, ConvNet(3).state_dict(), (X,))
        assert ran_planned(module)  # tensors that stand in for one call leave it as it is


def test_writes_that_a_call_cannot_see_are_taken_over_on_refresh():
    original = ConvNet()
    module = applied(original)
    with torch.no_grad():
        original.features[0].weight.data.mul_(2.0)
        module.refresh()
        same(module(X), original(X))


def test_outputs_need_gradients_where_the_originals_do_and_may_be_written_to():
    class Several(nn.Module):
        def __init__(self):
            super().__init__()
            self.fc = nn.Linear(3, 4)

        def forward(self, x):
            y = self.fc(x)
            return y, y.argmax(1), 3

    module, x = Several().eval(), torch.randn(2, 3)
    got, expected = applied(module, x)(x), module(x)
    assert [tensor.requires_grad for tensor in got[:2]] == [tensor.requires_grad for tensor in expected[:2]]
    same(got[0].add_(1), expected[0] + 1)
    assert not x.requires_grad


def test_hooks_of_the_model_are_planned_and_others_refused():
    net = ConvNet()
    prune.l1_unstructured(net.fc, "weight", 0.5)
    with torch.no_grad():
        same(applied(net)(X), net(X))
    handle = net.features[0].register_forward_hook(lambda *_: None)
    with pytest.raises(PlanError, match=r"^features\.0 has a forward hook, which a plan would not run; remove it$"):
        applied(net)
    handle.remove()
    net.register_forward_hook(lambda *_: None)
    with pytest.raises(PlanError, match="register it on the applied module"):
        applied(net)


@pytest.mark.filterwarnings("ignore:.*weight_norm.*is deprecated:FutureWarning")
def test_a_weight_that_a_hook_of_torch_computes_stays_current():
    net = ConvNet()
    weight_norm(net.fc)
    module = applied(net)
    with torch.no_grad():
        for _ in range(2):
            same(module(X), net(X))
            same(module(X[:1]), net(X[:1]))
            net.fc.weight_g.mul_(3.0)


def test_a_name_that_an_applied_module_needs_is_refused():
    net = ConvNet()
    net.plan = "mine"
    with pytest.raises(PlanError, match="an attribute 'plan', which an applied module needs itself; rename it"):
        applied(net)


def test_a_module_that_cannot_be_copied_is_refused():
    net = ConvNet()
    net.guard = threading.Lock()
    for kind in KINDS:
        with pytest.raises(PlanError, match="ConvNet cannot be copied: cannot pickle"):
            made(kind, net)


def test_a_graph_module_is_planned_and_its_copies_are_refused():
    net = torch.fx.symbolic_trace(ConvNet()).eval()
    module = applied(net)
    with torch.no_grad():
        same(module(X), net(X))
    for copied in (copy.deepcopy, pickle.dumps):
        with pytest.raises(PlanError, match="the original, and apply the plan again"):
            copied(module)


def test_a_forward_pass_set_on_the_instance_is_planned():
    net = ConvNet()
    own = net.forward
    net.forward = lambda x: own(x) + 1
    module = applied(net)
    with torch.no_grad():
        same(module(X), ConvNet()(X) + 1)
        same(torch.func.vmap(module)(X[None]), ConvNet()(X)[None] + 1)


def test_an_applied_module_can_be_planned_and_applied_again():
    module = applied(applied(ConvNet()))
    with torch.no_grad():
        same(module(X), ConvNet()(X))
    assert sum(base.__name__ == "Planned" for base in type(module).__mro__) == 1
