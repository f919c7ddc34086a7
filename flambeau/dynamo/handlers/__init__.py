"""One handler for each bytecode instruction, by family. `TABLE` maps the instruction's name to `handler(frame, instruction)`.

The handlers cover 3.11 to 3.14: a name that a version doesn't have is simply never met.
"""

from . import attributes, calls, containers, exceptions, jumps, names, operators, stack

TABLE = {
    **stack.TABLE,
    **names.TABLE,
    **operators.TABLE,
    **jumps.TABLE,
    **containers.TABLE,
    **attributes.TABLE,
    **calls.TABLE,
    **exceptions.TABLE,
}
