"""In a notebook: TAB shows names that load on first use, `?` shows the whole help, and a cell that trains runs."""

from __future__ import annotations

import pytest

nbclient = pytest.importorskip("nbclient")
nbformat = pytest.importorskip("nbformat")
pytest.importorskip("ipykernel")

CELLS = [
    "import flambeau as torch\n"
    "from IPython import get_ipython\n"
    "complete = lambda text: {c.text.lstrip('.') for c in get_ipython().Completer.completions(text, len(text))}",
    "import warnings; warnings.simplefilter('ignore')\n"
    "assert {'nn', 'compile', 'optim'} <= complete('torch.')\n"
    "assert 'softmax' in complete('torch.softm')\n"
    "x = torch.ones(2)\nassert 'unsqueeze' in complete('x.unsq')",
    "told = get_ipython().inspector.info(torch.softmax)['docstring']\nassert 'Example:' in told and '>>> torch.softmax(' in told",
    "layer = torch.nn.Linear(2, 1)\noptimizer = torch.optim.SGD(layer.parameters(), lr=0.1)\n"
    "for _ in range(3):\n    loss = layer(x).square().sum()\n    optimizer.zero_grad()\n    loss.backward()\n    optimizer.step()\nloss",
]


@pytest.mark.timeout(300)
@pytest.mark.filterwarnings("ignore")
def test_a_notebook_runs(tmp_path) -> None:
    book = nbformat.v4.new_notebook(cells=[nbformat.v4.new_code_cell(cell) for cell in CELLS])
    nbclient.NotebookClient(book, timeout=200, kernel_name="python3", resources={"metadata": {"path": str(tmp_path)}}).execute()
    assert "grad_fn" in book.cells[-1].outputs[0]["data"]["text/plain"]
