"""Write a program, compile it to a Transformer, and look at its attention.

    python examples/compiled_model.py

The program writes each letter of a text, and at the end the number of different letters.
"""

from regard_lab.bench.known_models import run_compiled
from regard_lab.programs.compiler import compile_program
from regard_lab.programs.language import (
    Program,
    aggregate,
    constant,
    elementwise,
    indices,
    select,
    select_all,
    steps,
    tokens,
    width,
)

# In the encoder: whether a letter is new, and the number of new letters.
earlier = select(tokens, tokens) & select(indices, indices, lambda key, query: key < query)
is_new = width(earlier).map(lambda number: number == 0)
different = width(select(is_new, constant(True)))

# In the decoder: the letter at the index of the output step, then the number, then None, which ends the answer.
letter = aggregate(select(indices, steps), tokens).otherwise("")
number = aggregate(select(indices, constant(0, "output")), different).map(str)
length = width(select_all("input", "output"))
answer = elementwise(lambda letter, number: letter or number, letter, number)
is_over = elementwise(lambda step, length: step > length, steps, length)
result = elementwise(lambda symbol, over: None if over else symbol, answer, is_over)

program = Program(
    name="letters",
    summary="the text, then the number of its different letters",
    family="encoder-decoder",
    alphabet="abc",
    symbols="abc012345",
    longest=5,
    outputs=6,
    result=result,
)
print(f"The program answers abca with {program.write('abca')}.")

compiled = compile_program(program)
run = run_compiled(compiled)
shown = run.attend("abca")
print(f"The compiled model answers {shown.prediction}.\n")
for layer, needed in compiled.circuit.needed.items():
    print(layer, "needs heads", [head for head, truth in enumerate(needed) if truth])
print("\nAttention of the decoder to the text, head 0:")
print(shown.layers["decoder.0.cross"].weights[0].round(2))
