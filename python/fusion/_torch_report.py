"""What became of the graphs of torch.compile; without torch itself."""

reports = []


class TorchReport:
    """What became of one graph of torch.compile: `programs`, made when its pieces first ran, and `left`:
    (node, reason) of what PyTorch runs. str() is markdown."""

    def __init__(self):
        self.programs, self.left = [], []

    def __str__(self):
        lines = [f"{len(self.programs)} pieces compiled, {len(self.left)} ops or pieces left to PyTorch"]
        lines += [f"- {where}: {reason}" for where, reason in self.left]
        return "\n".join(lines + [program.report.markdown() for program in self.programs])


def torch_reports(clear=False):
    """The TorchReports of this process, a graph each, in the order in which torch.compile made them."""
    made = list(reports)
    if clear:
        reports.clear()
    return made
