"""A PyTorch module compiled by torch.compile(backend="fusion"), compared with PyTorch: compile.py

On the GPU if there is one. Exits with 1 if the results differ by more than 1 %, with 77 where torch is not
installed.
"""

import sys

try:
    import torch
except ImportError:
    print("torch is not installed")
    sys.exit(77)

import fusion


class FeedForward(torch.nn.Module):
    """The second half of a Llama layer."""

    def __init__(self, width=64, inner=160):
        super().__init__()
        self.norm = torch.nn.RMSNorm(width)
        self.gate, self.up = (torch.nn.Linear(width, inner, bias=False) for _ in range(2))
        self.down = torch.nn.Linear(inner, width, bias=False)

    def forward(self, x, residual):
        residual = residual + x
        normed = self.norm(residual)
        return self.down(torch.nn.functional.silu(self.gate(normed)) * self.up(normed)) + residual


def main():
    torch.manual_seed(0)
    device = "cuda" if torch.cuda.is_available() else "cpu"
    module = FeedForward().to(device).eval()
    x, residual = torch.randn(2, 8, 16, 64, device=device)
    with torch.no_grad():
        expected = module(x, residual)
        given = torch.compile(module, backend="fusion")(x, residual)
    for report in fusion.torch_reports():
        print(report)  # what fused, and what was left to PyTorch and why
    error = ((given - expected).norm() / expected.norm()).item()
    print(f"relative L2 error {error:.2e}")
    return 0 if error <= 0.01 else 1


if __name__ == "__main__":
    sys.exit(main())
