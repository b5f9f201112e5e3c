"""Graphs whose parameters are attributes, as some releases of Dynamo pass them, beside graphs that take them."""

from __future__ import annotations

import pytest
import torch
from torch import fx, nn

from costmodel.backend.dynamo_backend import costmodel_backend
from costmodel.backend.graph_call import STATIC, GraphCall, Slots, without_metadata
from costmodel.backend.records import records_of
from costmodel.capture.executable import capture_exactly
from costmodel.zoo import load_real
from tests.backend.test_dynamo_backend import Net, close, net_and_input
from tests.support.uncompiled import CPU, uncompiled


def as_attributes(gm: fx.GraphModule, arguments):
    """The graph with its parameters and buffers as attributes, and the remaining arguments."""
    slots = Slots.of(gm, arguments)
    graph, holder, nodes = fx.Graph(), nn.Module(), {}
    for index, node in enumerate(gm.graph.find_nodes(op="placeholder")):
        if index in slots.static:
            value = arguments[index]
            if isinstance(value, nn.Parameter):
                holder.register_parameter(node.name, value)
            else:
                holder.register_buffer(node.name, value)
            nodes[node] = graph.get_attr(node.name)
            nodes[node].meta = dict(node.meta)
    graph.output(graph.graph_copy(gm.graph, nodes))
    return fx.GraphModule(holder, graph), [arguments[index] for index in slots.inputs], slots


@pytest.fixture
def by_attributes():
    """A backend that turns parameters into attributes before it calls ours."""

    def backend(gm, arguments):
        rewritten, given, slots = as_attributes(gm, arguments)
        assert not list(Slots.of(rewritten, given).static)
        run = costmodel_backend(rewritten, given, CPU)
        return lambda *all_arguments: run(*[all_arguments[index] for index in slots.inputs])

    with uncompiled():
        yield backend


def test_they_are_planned_and_new_weights_count(by_attributes):
    net, x = net_and_input()
    before = records_of(None)  # of which some go with their modules
    with torch.no_grad():
        fast = torch.compile(net, backend=by_attributes)
        close(fast(x), net(x))
        net.load_state_dict(Net().state_dict())
        close(fast(x), net(x))
    (record,) = [record for record in records_of(None) if record not in before]
    assert record.report.choice == "plan", str(record.report)


def test_gradients_of_attributes_are_seen(by_attributes):
    net, x = net_and_input()
    before = records_of(None)  # of which some go with their modules
    torch.compile(net, backend=by_attributes)(x).sum().backward()
    (record,) = [record for record in records_of(None) if record not in before]
    assert "may need gradients" in record.report.why
    assert net.first.weight.grad is not None


def test_a_training_flag_of_the_users_submodule_is_left_alone():
    inner = nn.Dropout().train()
    graph = fx.Graph()
    x = graph.placeholder("x")
    graph.output((graph.call_module("inner", (x,)),))
    gm = without_metadata(fx.GraphModule({"inner": inner}, graph))
    call = GraphCall(gm, Slots((), (0,)), [torch.ones(2)])
    assert not call.training
    assert inner.training


def test_parameters_are_told_from_inputs_by_their_class_or_torchs_mark():
    graph = fx.Graph()
    nodes = [graph.placeholder(name) for name in ("x", "weight", "buffer")]
    nodes[2].meta["tensor_dict"] = {STATIC: "unguarded"}
    graph.output((nodes[0],))
    gm = fx.GraphModule({}, graph)
    slots = Slots.of(gm, [torch.ones(1), nn.Parameter(torch.ones(1)), torch.ones(1)])
    assert slots == Slots((1, 2), (0,))


def test_a_graph_call_shares_memory_with_the_parameters_but_does_not_keep_them():
    weight, x = nn.Parameter(torch.ones(3)), torch.ones(3)
    graph = fx.Graph()
    first, second = graph.placeholder("x"), graph.placeholder("weight")
    graph.output((graph.call_function(torch.add, (first, second)),))
    call = GraphCall(fx.GraphModule({}, graph), Slots((1,), (0,)), [x, weight])
    held = call.parameter_0
    version = held._version
    with torch.no_grad():
        weight.mul_(5)
    assert held is not weight
    assert held.requires_grad
    assert held._version == version + 1  # by which a change is noticed
    assert call(x)[0].tolist() == [6.0, 6.0, 6.0]


@pytest.mark.slow
@pytest.mark.parametrize("name", ["resnet18", "convnext_tiny"])
def test_the_captured_graph_has_the_operators_of_the_module(name: str):
    """Predictions of the backend are then those of `costmodel.plan`: they are trained on graphs of modules."""
    loaded = load_real(name, torch.device("cpu"), batch_size=1, img_size=64)
    found = []

    def backend(gm, arguments):
        slots = Slots.of(gm, arguments)
        call = GraphCall(without_metadata(gm), slots, arguments)
        found.append(capture_exactly(call, [arguments[index] for index in slots.inputs], name).graph)
        return gm.forward

    torch._dynamo.reset()
    with torch.no_grad():
        torch.compile(loaded.module, backend=backend)(*loaded.inputs)
    torch._dynamo.reset()
    expected = capture_exactly(loaded.module, tuple(loaded.inputs), name).graph
    assert len(found) == 1
    assert [(op.op, op.types) for op in found[0].ops] == [(op.op, op.types) for op in expected.ops]
