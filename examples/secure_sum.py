"""Nobody is trusted: thirty devices, a secure sum by Flower's SecAgg+, and the noise of joint DP.

Each device answers what the agent asks about its own episode, adds its share of the noise, and
gives the result to Flower's secure aggregation, which shows the server the sum over all devices and
nothing else. Two devices drop out in the middle; their masks are removed with the help of the
others, and the noise of those who stay is enough. Everything runs in one process here, with every
message of the protocol; in a deployment the devices are Flower's supernodes.

Run it in an environment of its own, ``make secure-sum``: Flower pins other versions of packages
than Tacit is tested with.
"""

# ruff: noqa: T201

from __future__ import annotations

import copy
import logging
from collections.abc import Iterable
from typing import Any

import numpy as np
from flwr.app import Context, Error, Message, RecordDict
from flwr.client.mod import secaggplus_mod
from flwr.common import Code, ConfigRecord, FitIns, FitRes, Status, ndarrays_to_parameters
from flwr.common import parameters_to_ndarrays as arrays_of
from flwr.compat.common import recorddict_compat as compat
from flwr.server import LegacyContext
from flwr.server.workflow import SecAggPlusWorkflow
from flwr.server.workflow.constant import MAIN_CONFIGS_RECORD, MAIN_PARAMS_RECORD, Key
from flwr.supercore.task_identity import TaskIdentity

import tacit

DEVICES, DROPPED, BITS = 30, 2, 22
PRIVACY = tacit.DistributedDP(epsilon=10.0, delta=1e-6, honest=0.9, bits=BITS)


class Device:
    """One user: her episode, and her side of the protocol."""

    def __init__(self, number: int, answer: np.ndarray) -> None:
        self.answer = answer
        self.context = Context(1, number, {}, RecordDict(), {})

    def handle(self, message: Message) -> Message:
        """What it replies, by way of SecAgg+."""
        return secaggplus_mod(message, self.context, self._fit)

    def _fit(self, message: Message, context: Context) -> Message:
        # SecAgg+ quantises numbers from -2^21 to 2^21 to whole ones: ours are whole already.
        centred = (self.answer + 2 ** (BITS - 1)) % 2**BITS - 2 ** (BITS - 1)
        sent = ndarrays_to_parameters([centred.astype(np.float64)])
        result = FitRes(Status(Code.OK, ""), sent, 1, {})
        return Message(compat.fitres_to_recorddict(result, keep_input=False), reply_to=message)


class Wires:
    """Takes messages to devices and back; some devices are gone when masked answers are due."""

    def __init__(self, devices: dict[int, Device], gone: set[int]) -> None:
        self.devices, self.gone, self.stage = devices, gone, 0

    def send_and_receive(
        self, messages: Iterable[Message], timeout: float | None = None
    ) -> list[Message]:
        """One stage of the protocol."""
        self.stage += 1
        replies = []
        for message in messages:
            number = message.metadata.dst_node_id
            if self.stage >= 3 and number in self.gone:
                replies.append(Message(Error(0, "gone"), reply_to=message))
            else:
                # A copy: over a wire nobody shares memory.
                received = Message(copy.deepcopy(message.content), metadata=message.metadata)
                replies.append(self.devices[number].handle(received))
        return replies


class Sum:
    """A strategy that asks every device and keeps the mean of those who stayed."""

    def __init__(self, devices: Iterable[int]) -> None:
        self.proxies = [type("Proxy", (), {"node_id": number})() for number in devices]
        self.mean: np.ndarray | None = None
        self.stayed = 0

    def configure_fit(self, server_round: int, parameters: Any, client_manager: Any) -> Any:
        """Everybody."""
        return [(proxy, FitIns(parameters, {})) for proxy in self.proxies]

    def aggregate_fit(self, server_round: int, results: Any, failures: Any) -> Any:
        """What was opened."""
        self.stayed = len(results)
        self.mean = arrays_of(results[0][1].parameters)[0]
        return None, {}


def secure_sum(answers: dict[int, np.ndarray], gone: set[int]) -> tuple[np.ndarray, int]:
    """The sum of all answers, opened by SecAgg+, and how many devices are in it."""
    devices = {number: Device(number, answer) for number, answer in answers.items()}
    strategy = Sum(devices)
    server = LegacyContext(
        Context(1, 0, {}, RecordDict(), {}),
        strategy=strategy,
        client_manager=type("Manager", (), {"num_available": lambda self: len(devices)})(),
    )
    server.state.config_records[MAIN_CONFIGS_RECORD] = ConfigRecord({Key.CURRENT_ROUND: 1})
    nothing = ndarrays_to_parameters([np.zeros(1)])
    server.state.array_records[MAIN_PARAMS_RECORD] = compat.parameters_to_arrayrecord(nothing, True)
    protocol = SecAggPlusWorkflow(
        num_shares=15,
        reconstruction_threshold=8,
        max_weight=1.0,
        clipping_range=float(2 ** (BITS - 1)),
        quantization_range=2**BITS,
        modulus_range=2**32,
    )
    protocol(Wires(devices, gone), server)
    if strategy.mean is None:
        raise RuntimeError("the sum was not opened")
    return np.rint(strategy.mean * strategy.stayed).astype(np.int64), strategy.stayed


def main() -> None:
    """An agent that learns from thirty devices, block after block."""
    logging.getLogger("flwr").setLevel(logging.ERROR)
    # What a supernode would set in its own process.
    TaskIdentity.task_id, TaskIdentity.run_id, TaskIdentity.node_id = 1, 1, 1
    rng = np.random.default_rng(0)
    world = tacit.tabular.riverswim(states=3, horizon=6)
    agent = tacit.ConcurrentPSRL(
        world.spec, users=10 * DEVICES, privacy=PRIVACY, schedule=f"fixed:size={DEVICES}"
    )
    while agent.block_users:
        users = agent.block_users
        block = world.simulate(agent.policy, users, rng, "episodes").block()
        statistic = agent.statistic
        answers = {
            10 + user: tacit.distributed.share(
                statistic, block.take(slice(user, user + 1)), PRIVACY, devices=users
            )
            for user in range(users)
        }
        gone = {10 + user for user in range(DROPPED)}
        total, stayed = secure_sum(answers, gone)
        # Only a demonstration can look: the sum of the shares of all who stayed.
        kept = sum(answer for number, answer in answers.items() if number not in gone)
        plan = tacit.distributed.SumPlan.of(statistic, PRIVACY, users)
        right = "right" if np.array_equal(total % plan.modulus, kept % plan.modulus) else "wrong"
        agent.learn_sum(total % plan.modulus, stayed=stayed)
        greedy = world.value(agent.greedy_policy) / world.optimal_value
        print(
            f"{agent.served:4d} users: {stayed} of {users} devices in the sum, which is {right}; "
            f"greedy policy at {greedy:.2f} of the optimum"
        )
    print(agent.guarantee)


if __name__ == "__main__":
    main()
