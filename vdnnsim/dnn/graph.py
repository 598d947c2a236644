"""The layer graph: layers in their order of execution and the feature maps between them.

A feature map is one buffer: the input batch, or the output of a layer that does not work in place. Its consumers are
the layers that read it in forward; their number is the reference count of the vDNN paper (Fig. 3). It may be
offloaded or released only after the last of them.
"""

from dataclasses import dataclass, field, replace

from vdnnsim.dnn.convolutional import Activation, BatchNormalization, Convolution, FullyConnected, Pooling, SoftmaxLoss
from vdnnsim.dnn.elementwise import Cast, Concat, Dropout, ElementwiseAdd
from vdnnsim.dnn.layers import Layer, LayerKind, Stage
from vdnnsim.dnn.operator import Operator, SavingRule
from vdnnsim.dnn.shapes import MapShape, Size2
from vdnnsim.units import ElementType


@dataclass(frozen=True, slots=True)
class FeatureMap:
    """One feature map with its producer, its consumers, and the layers whose backward reads it.

    Attributes:
        producer: index of the layer that writes it; None for the input batch.
        consumers: indices of the layers that read it in forward, in order, but for layers in place over it.
        rewriters: indices of the in-place layers that overwrite it in forward, in order.
        saved_for: indices of the layers whose backward reads it, in order of execution.
        stage: the stage of its producer; the input batch belongs to feature extraction.
        holds_indices: whether it holds numbers of rows of a table.
        element_type: of its elements under mixed precision; None where all maps have that of the workload.
        is_constant: whether it has no gradient: the input batch, a cast of it, and for autograd whatever is computed
            from it without weights.
    """

    index: int
    name: str
    shape: MapShape
    producer: int | None
    consumers: tuple[int, ...]
    rewriters: tuple[int, ...]
    saved_for: tuple[int, ...]
    stage: Stage
    holds_indices: bool = False
    element_type: ElementType | None = None
    is_constant: bool = False

    @property
    def needs_gradient(self) -> bool:
        """Whether backward computes a gradient map of this shape: for all but what is constant and the loss."""
        return not self.is_constant and bool(self.consumers)


@dataclass(frozen=True)
class LayerGraph:
    """A network: its layers in order of execution and its feature maps; build one with `GraphBuilder`.

    Attributes:
        autocast: the narrow type of mixed precision; None without it.
        weights: number of weights of a captured model, each once; None for other networks.
        sample: the word for what it reads, where that is no series.
        tokens: of a captured sequence, also where maps are of micro-batches; 1 of others.
    """

    name: str
    layers: tuple[Layer, ...] = field(repr=False)
    maps: tuple[FeatureMap, ...] = field(repr=False)
    saving: SavingRule = SavingRule.PAPER
    autocast: ElementType | None = None
    weights: int | None = None
    sample: str = "image"
    tokens: int = 1

    def __hash__(self) -> int:
        """By name, size and rule alone; graphs are keys of caches."""
        return hash((self.name, len(self.layers), self.saving, self.autocast))

    @property
    def parameters(self) -> int:
        """Number of weights of the whole network, biases included."""
        return sum(layer.parameters for layer in self.layers) if self.weights is None else self.weights

    def map_kind(self, index: int) -> LayerKind | None:
        """The kind of layer whose X a map is: CONV if any of its consumers is one, else that of the first.

        None for a map that no layer reads.
        """
        kinds = [self.layers[consumer].kind for consumer in self.maps[index].consumers]
        if LayerKind.CONV in kinds:
            return LayerKind.CONV
        return kinds[0] if kinds else None


@dataclass
class GraphBuilder:
    """Adds layers one after the other; but for `append`, each method returns the index of the map that a layer writes.

    Layers run in the order in which they were added, so the order of branches is the order of execution.
    """

    name: str
    input_shape: MapShape
    saving: SavingRule = SavingRule.PAPER
    autocast: ElementType | None = None
    stage: Stage = Stage.FEATURES
    _types: list[ElementType] = field(default_factory=lambda: [ElementType.FLOAT32])
    _layers: list[Layer] = field(default_factory=list)
    _names: list[str] = field(default_factory=lambda: ["input"])
    _shapes: list[MapShape] = field(default_factory=list)
    _producers: list[int | None] = field(default_factory=lambda: [None])
    _constant: list[bool] = field(default_factory=lambda: [True])
    _read: set[int] = field(default_factory=set)

    def __post_init__(self) -> None:
        self._shapes.append(self.input_shape)

    def layer(
        self, name: str, operator: Operator, *inputs: int, weights_of: int | None = None, relu: bool = False
    ) -> int:
        """Add a layer of any operator, as `append` does, and an in-place rectifier if `relu`."""
        y = self.append(name, operator, inputs, weights_of).output
        return self.layer(f"{name}/relu", Activation(), y) if relu else y

    def conv(  # noqa: PLR0913 - one for each property of a convolution
        self,
        name: str,
        x: int,
        out_channels: int,
        kernel: int | Size2,
        *,
        stride: int = 1,
        padding: int | Size2 = 0,
        bias: bool = True,
        groups: int = 1,
        norm: str = "",
        relu: bool = True,
    ) -> int:
        """Add a convolution, square unless its size is a pair, and by default an in-place rectifier.

        If `norm` names a batch normalization, it stands between them, and its beta replaces the bias.
        """
        has_bias = bias and not norm
        operator = Convolution(out_channels, _pair(kernel), (stride, stride), _pair(padding), has_bias, groups)
        y = self.layer(name, operator, x, relu=relu and not norm)
        return self.batch_norm(norm, y, relu=relu) if norm else y

    def batch_norm(self, name: str, x: int, *, relu: bool = True) -> int:
        """Add a batch normalization and by default its in-place rectifier."""
        return self.layer(name, BatchNormalization(), x, relu=relu)

    def add(self, name: str, a: int, b: int, *, relu: bool = True) -> int:
        """Add the element-wise sum of two maps of equal shape and by default its in-place rectifier."""
        return self.layer(name, ElementwiseAdd(), a, b, relu=relu)

    def pool(self, name: str, x: int, kernel: int, *, stride: int, padding: int = 0) -> int:
        """Add a square maximum pooling."""
        return self.layer(name, Pooling((kernel, kernel), (stride, stride), (padding, padding)), x)

    def average_pool(self, name: str, x: int, kernel: int, *, stride: int, padding: int = 0) -> int:
        return self.layer(name, Pooling((kernel, kernel), (stride, stride), (padding, padding), average=True), x)

    def adaptive_average_pool(self, name: str, x: int, size: int) -> int:
        """Add an average pooling to a map of `size` squared, which divides that of X."""
        shape = self._shapes[x]
        assert shape.height % size == shape.width % size == 0, f"{name}: {shape} to {size} x {size}"
        window = (shape.height // size, shape.width // size)
        return self.layer(name, Pooling(window, window, average=True), x)

    def concat(self, name: str, inputs: tuple[int, ...]) -> int:
        return self.layer(name, Concat(), *inputs)

    def dropout(self, name: str, x: int, *, mask_bytes: int, in_place: bool) -> int:
        return self.layer(name, Dropout(mask_bytes, in_place), x)

    def begin_classifier(self) -> None:
        """Count all layers from here on as classification."""
        self.stage = Stage.CLASSIFIER

    def fc(self, name: str, x: int, out_features: int, *, relu: bool) -> int:
        """Add a fully connected layer, with an in-place activation behind it if `relu`."""
        return self.layer(name, FullyConnected(out_features), x, relu=relu)

    def build(self, output: int, loss: Operator | None = None) -> LayerGraph:
        """Close the network with its loss, by default softmax and cross entropy, and return the graph."""
        self.layer("loss", loss or SoftmaxLoss(), output)
        return self.graph()

    def graph(self) -> LayerGraph:
        return LayerGraph(self.name, tuple(self._layers), self._feature_maps(), self.saving, self.autocast)

    def append(self, name: str, operator: Operator, inputs: tuple[int, ...], weights_of: int | None = None) -> Layer:
        """Add a layer of any operator, with weights of its own or of layer `weights_of`, and return it."""
        in_shapes = tuple(self._shapes[x] for x in inputs)
        out_shapes = operator.outputs(in_shapes)
        assert all(shape.elements > 0 for shape in out_shapes), f"{name}: {in_shapes} leaves no output"
        work = operator.work(in_shapes, self.saving)
        index = len(self._layers)
        if operator.in_place:
            outputs = inputs[:1]
            assert outputs[0] not in self._read, f"{name} would overwrite what a layer before it reads"
        else:
            outputs = tuple(range(len(self._names), len(self._names) + len(out_shapes)))
            self._names += [name if len(outputs) == 1 else f"{name}.{number}" for number in range(len(outputs))]
            self._shapes += out_shapes
            self._producers += [index] * len(outputs)
            stays_constant = self.saving is SavingRule.AUTOGRAD or isinstance(operator, Cast)
            is_constant = stays_constant and not work.weights and all(self._constant[x] for x in inputs)
            self._constant += [is_constant] * len(outputs)
            if self.autocast is not None:
                types = [self._types[x] for x in inputs]
                self._types += [operator.output_type(types, self.autocast)] * len(outputs)
            self._read.update(inputs)
        needs_gradient = not all(self._constant[x] for x in inputs)
        if weights_of is not None:
            self._layers[weights_of] = replace(self._layers[weights_of], shares_weights=True)
        elif work.weights:
            weights_of = index
        layer = Layer(
            index=index,
            name=name,
            operator=operator,
            inputs=inputs,
            outputs=outputs,
            in_shapes=in_shapes,
            out_shapes=out_shapes,
            work=work,
            stage=self.stage,
            needs_input_gradient=needs_gradient,
            weights_of=weights_of,
        )
        self._layers.append(layer)
        return layer

    def element_type(self, index: int) -> ElementType:
        return self._types[index]

    def _feature_maps(self) -> tuple[FeatureMap, ...]:
        consumers: list[list[int]] = [[] for _ in self._names]
        rewriters: list[list[int]] = [[] for _ in self._names]
        saved_for: list[list[int]] = [[] for _ in self._names]
        for layer in self._layers:
            for x in layer.inputs:
                (rewriters if layer.in_place else consumers)[x].append(layer.index)
            for saved in layer.saved_maps:
                saved_for[saved].append(layer.index)
        return tuple(
            FeatureMap(
                index=index,
                name=self._names[index],
                shape=self._shapes[index],
                producer=producer,
                consumers=tuple(consumers[index]),
                rewriters=tuple(rewriters[index]),
                saved_for=tuple(saved_for[index]),
                stage=Stage.FEATURES if producer is None else self._layers[producer].stage,
                holds_indices=any(self._layers[layer].operator.reads_indices for layer in consumers[index]),
                element_type=None if self.autocast is None else self._types[index],
                is_constant=self._constant[index],
            )
            for index, producer in enumerate(self._producers)
        )


def _pair(size: int | Size2) -> Size2:
    return (size, size) if isinstance(size, int) else size
