"""How far what a page prints depends on the seed: `python docs/_extensions/seeds.py docs/tutorial-networks.md 10`.

The page's code is run with `torch.manual_seed(0)` replaced; of each line its numbers' means with standard
deviations over the seeds, of sentences how often each begins so.
"""

import collections
import statistics
import sys
from pathlib import Path

sys.path[:0] = [str(Path(__file__).resolve().parents[2]), str(Path(__file__).parent)]
import pages


def printed(code: str, seed: int) -> list[str]:
    """Lines that the code prints with another seed."""
    with pages._fresh():
        return pages._execute(
            code.replace("torch.manual_seed(0)", f"torch.manual_seed({seed})"), "page", {}
        ).splitlines()


if __name__ == "__main__":
    code, count = "\n".join(block.code for block in pages.blocks(Path(sys.argv[1]).resolve())), int(sys.argv[2])
    groups: dict[str, list[list[float]]] = collections.defaultdict(list)
    for seed in range(count):
        for line in printed(code, seed):
            words = pages._NUMBER.sub("#", line)
            numbers = [float(number.replace("−", "-")) for number in pages._NUMBER.findall(line)]
            groups[words if len(words) < 100 else words[:40] + " …"].append(numbers)
            print(f"{seed}: {line}", flush=True)
    for words, rows in groups.items():
        columns = zip(*rows, strict=True) if len({len(row) for row in rows}) == 1 and len(rows) > 1 else ()
        numbers = ", ".join(f"{statistics.mean(column):.3f} ± {statistics.stdev(column):.3f}" for column in columns)
        print(f"{words} ({len(rows)} of {count}): {numbers}")
