"""Train the primer's tasks in JAX, with all steps in one compiled loop: the JAX baseline of `primer.py`.

    python benchmarks/jax_loop.py TASK SEED        (called by primer.py --jax)

The program is a direct JAX implementation of the defaults of `regard train`: the query model, Adam and a cosine
schedule. One compiled `lax.scan` runs all steps and draws their samples. The program shares no code with
Regard, and runs in a separate environment without PyTorch.
"""

import json
import sys
import time
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
from jax import Array, lax

TASKS: dict[str, dict[str, Any]] = {
    "counting": {"letters": 4, "signals": 0, "outputs": 3, "lr": 0.05, "steps": 2000},
    "difference": {"letters": 4, "signals": 0, "outputs": 4, "lr": 0.05, "steps": 1000, "self_att": True},
    "signal": {"letters": 3, "signals": 1, "outputs": 1, "lr": 0.005, "steps": 2000, "encoder": True},
    "signal2": {"letters": 3, "signals": 3, "outputs": 3, "lr": 0.005, "steps": 2000, "encoder": True, "heads": 4},
}
"""Sizes of the tasks, with the defaults of `regard train`."""
MAX_LEN, HIDDEN, BATCH = 10, 64, 100
BETAS, OUTPUT_LR, WARMUP = (0.95, 0.98), 8.0, 0.2
EVERY, SAMPLES, GOAL, PATIENCE = 50, 2000, 0.99, 20_000
"""As in `primer.py`."""
Parameters = dict[str, Array]


def draw(task: str, key: Array, size: int) -> tuple[Array, Array]:
    """Draw letters (B, T) and targets (B, To)."""
    spec = TASKS[task]
    letters = jax.random.randint(key, (size, spec["signals"] + MAX_LEN), 0, spec["letters"])
    if spec["signals"]:
        signals, rest = letters[:, : spec["signals"]], letters[:, spec["signals"] :]
        return letters, (signals[:, :, None] == rest[:, None, :]).sum(-1)
    targets = (letters[:, None, :] == jnp.arange(1, spec["letters"])[:, None]).sum(-1)
    if task == "difference":
        targets = jnp.concatenate([targets, jnp.abs(targets[:, :1] - targets[:, 1:2])], axis=1)
    return letters, targets


def begin(task: str, key: Array) -> Parameters:
    """Initialize matrices by Glorot's uniform distribution, and all other parameters with zero or one."""
    spec, draws = TASKS[task], iter(jax.random.split(key, 32))

    def matrix(rows: int, columns: int) -> Array:
        return jax.nn.initializers.glorot_uniform()(next(draws), (rows, columns))

    def attention(name: str) -> Parameters:
        parts = ("query", "key", "value", "output") if spec.get("heads") else ()
        return {f"{name}.{part}": matrix(HIDDEN, HIDDEN) for part in parts} | norm(name)

    def norm(name: str) -> Parameters:
        return {f"{name}.scale": jnp.ones(HIDDEN), f"{name}.shift": jnp.zeros(HIDDEN)}

    found = {"embed": matrix(spec["letters"], HIDDEN), "embed.bias": jnp.zeros(HIDDEN)}
    found |= {"queries": jnp.zeros((spec["outputs"], HIDDEN)), **attention("cross")}
    found |= {"output": matrix(HIDDEN, MAX_LEN + 1), "output.bias": jnp.zeros(MAX_LEN + 1)}
    if spec.get("encoder"):
        found |= {"positions": jnp.zeros((spec["signals"] + MAX_LEN, HIDDEN)), **attention("encoder")}
        found |= {"inner": matrix(HIDDEN, 2 * HIDDEN), "inner.bias": jnp.zeros(2 * HIDDEN)}
        found |= {"outer": matrix(2 * HIDDEN, HIDDEN), "outer.bias": jnp.zeros(HIDDEN), **norm("forward")}
    return found | (attention("self") if spec.get("self_att") else {})


def normalised(p: Parameters, name: str, states: Array) -> Array:
    """Return the layer normalization of states (..., D)."""
    centred = states - states.mean(-1, keepdims=True)
    scaled = centred * lax.rsqrt((centred**2).mean(-1, keepdims=True) + 1e-5)
    return scaled * p[f"{name}.scale"] + p[f"{name}.shift"]


def attend(p: Parameters, name: str, heads: int, query: Array, memory: Array) -> Array:
    """Attend from (B, Tq, D) to memory (B, Tk, D), add the query, and normalize."""

    def split(states: Array, part: str) -> Array:
        if not heads:
            return states[:, :, None]
        return (states @ p[f"{name}.{part}"]).reshape(*states.shape[:2], heads, -1)

    q, k, v = split(query, "query"), split(memory, "key"), split(memory, "value")
    scores = jnp.einsum("bqhd,bkhd->bhqk", q, k) / q.shape[-1] ** 0.5
    context = jnp.einsum("bhqk,bkhd->bqhd", jax.nn.softmax(scores), v).reshape(query.shape)
    return normalised(p, name, query + (context @ p[f"{name}.output"] if heads else context))


def logits_of(task: str, p: Parameters, letters: Array) -> Array:
    """Return logits (B, To, classes) for letters (B, T)."""
    spec = TASKS[task]
    heads = spec.get("heads", 0)
    memory = jax.nn.one_hot(letters, spec["letters"]) @ p["embed"] + p["embed.bias"]
    if spec.get("encoder"):
        memory = attend(p, "encoder", heads, memory + p["positions"], memory + p["positions"])
        inner = jax.nn.relu(memory @ p["inner"] + p["inner.bias"])
        memory = normalised(p, "forward", memory + inner @ p["outer"] + p["outer.bias"])
    queries = jnp.broadcast_to(p["queries"], (len(letters), *p["queries"].shape))
    states = attend(p, "cross", heads, queries, memory)
    if spec.get("self_att"):
        states = attend(p, "self", heads, states, states)
    return states @ p["output"] + p["output.bias"]


def rate(task: str, step: Array) -> Array:
    """Return the learning rate at a step, counted from 0: a warm-up, then a cosine decay."""
    steps = TASKS[task]["steps"]
    rise, now = WARMUP * steps, step + 1.0
    fall = (1 + jnp.cos(jnp.pi * jnp.minimum((now - rise) / (steps + 1 - rise), 1.0))) / 2
    return TASKS[task]["lr"] * jnp.where(now < rise, now / rise, fall)


def take_step(task: str, carry: Any, _: None) -> tuple[Any, Array]:
    """Run one training step; return the next state and the loss."""
    p, means, squares, key, step = carry
    key, now = jax.random.split(key)
    letters, targets = draw(task, now, BATCH)

    def loss_of(p: Parameters) -> Array:
        believed = jax.nn.log_softmax(logits_of(task, p, letters))
        return -jnp.take_along_axis(believed, targets[..., None], -1).mean()

    loss, grads = jax.value_and_grad(loss_of)(p)
    lr, (one, two) = rate(task, step), BETAS
    means = jax.tree.map(lambda m, g: one * m + (1 - one) * g, means, grads)
    squares = jax.tree.map(lambda s, g: two * s + (1 - two) * g * g, squares, grads)
    first, second = 1 - one ** (step + 1.0), 1 - two ** (step + 1.0)
    p = {
        name: each
        - lr
        * (OUTPUT_LR if name.startswith("output") else 1.0)
        * (means[name] / first)
        / (jnp.sqrt(squares[name] / second) + 1e-8)
        for name, each in p.items()
    }
    return (p, means, squares, key, step + 1), loss


@partial(jax.jit, static_argnums=(0, 2))
def train(task: str, carry: Any, steps: int) -> tuple[Any, Array]:
    """Run many training steps in one compiled loop."""
    return lax.scan(partial(take_step, task), carry, length=steps)


def main() -> None:
    """Train until an exact match of 99 % on new samples, and time the loop alone; print both results as JSON."""
    task, seed = sys.argv[1], int(sys.argv[2])
    drawn, tested, began = jax.random.split(jax.random.key(seed), 3)
    letters, targets = draw(task, tested, SAMPLES)
    parameters = begin(task, began)
    zeros = jax.tree.map(jnp.zeros_like, parameters)
    carry = (parameters, zeros, zeros, drawn, jnp.zeros(()))
    right = jax.jit(lambda p: (logits_of(task, p, letters).argmax(-1) == targets).all(-1).mean())
    steps, share = 0, 0.0
    while share < GOAL and steps < min(PATIENCE, TASKS[task]["steps"]):
        carry, _ = train(task, carry, EVERY)
        steps, share = steps + EVERY, float(right(carry[0]))
    # One loop for all steps, compiled before timing.
    length = TASKS[task]["steps"]
    jax.block_until_ready(train(task, carry, length))
    wall, cpu = time.perf_counter(), time.process_time()
    jax.block_until_ready(train(task, carry, length))
    wall, cpu = time.perf_counter() - wall, time.process_time() - cpu
    found = {"reached": share >= GOAL, "steps": steps, "steps_per_second": length / wall}
    print(json.dumps({**found, "cpu_per_step": cpu / length}))


if __name__ == "__main__":
    main()
