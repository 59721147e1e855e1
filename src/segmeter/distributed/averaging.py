"""A model -> the same model, whose gradients are averaged over processes while they are computed."""

from collections.abc import Iterator
from contextlib import contextmanager

from torch import Tensor, nn
from torch.nn.parallel import DistributedDataParallel

from segmeter.distributed.ranks import World


class Averaged:
    """Runs a model in `DistributedDataParallel`; alone, it runs the model itself.

    What learns may change between steps, as where an encoder is frozen at first: the wrapper is then made anew, as it
    averages the gradients of those parameters only that learnt when it was made. Running statistics are each process's
    own, and rank 0's are saved; synchronised batch norm takes them over all.

    Parameters
    ----------
    model
        The same in all processes; rank 0's weights win.
    world
        The processes.
    """

    def __init__(self, model: nn.Module, world: World) -> None:
        self.model = model
        self.world = world
        self._wrapped: DistributedDataParallel | None = None
        self._learning: tuple[bool, ...] = ()

    def __call__(self, image: Tensor) -> Tensor:
        logits: Tensor = self.model(image) if self.world.size == 1 else self._parallel()(image)
        return logits

    @contextmanager
    def gathering(self, *, last: bool) -> Iterator[None]:
        """Average in the last backward pass of a step only: until then gradients add up here."""
        if last or self.world.size == 1:
            yield
        else:
            with self._parallel().no_sync():
                yield

    def _parallel(self) -> DistributedDataParallel:
        learning = tuple(parameter.requires_grad for parameter in self.model.parameters())
        if self._wrapped is None or learning != self._learning:
            self._wrapped = None  # its hooks go before there are new ones
            self._wrapped = DistributedDataParallel(self.model, broadcast_buffers=False)
            self._learning = learning
        return self._wrapped
