#!/usr/bin/env python3
"""Figures from the results of run.py, as SVG: needs nothing but the JSON.

    benchmarks/plot.py benchmark.json [--out=docs] [--all] [--only=REGEX]

bars.svg: how much of the chip's limit ours and the best opponent reach, one case a group (--all: every case)
among those whose limit is 2 us or more; below, launching is the limit. roofline.svg: operations a second over
operations a byte.
"""
import argparse
import json
import math
import os
import re
import sys
from html import escape

OURS, THEIRS, INK, LIGHT = "#1b6ca8", "#b8b8b8", "#333333", "#dddddd"
FAMILIES = (("add+", "norm", "#1b6ca8"), ("GLU", "gated activation", "#2a9d55"), ("RoPE", "heads", "#b8860b"),
            ("attention", "attention", "#a83279"), ("layer", "decoder layer", "#d1495b"),
            ("matmul", "matmul", "#6a4c93"))


class Svg:
    def __init__(self, width, height, title):
        self.parts = [f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" width="{width}" '
                      f'font-family="sans-serif" font-size="12"><title>{escape(title)}</title>',
                      f'<rect width="{width}" height="{height}" fill="white"/>']

    def text(self, x, y, text, anchor="start", color=INK, size=12, turn=False):
        rotate = f' transform="rotate(-90 {x:.1f} {y:.1f})"' if turn else ""
        self.parts.append(f'<text x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}" fill="{color}" font-size="{size}"{rotate}>'
                          f'{escape(text)}</text>')

    def box(self, x, y, width, height, color):
        self.parts.append(f'<rect x="{x:.1f}" y="{y:.1f}" width="{max(width, 0):.1f}" height="{height:.1f}" fill="{color}"/>')

    def line(self, x1, y1, x2, y2, color=LIGHT, width=1, dash=""):
        dashed = f' stroke-dasharray="{dash}"' if dash else ""
        self.parts.append(f'<line x1="{x1:.1f}" y1="{y1:.1f}" x2="{x2:.1f}" y2="{y2:.1f}" stroke="{color}" '
                          f'stroke-width="{width}"{dashed}/>')

    def dot(self, x, y, color, filled=True, name=""):
        fill = color if filled else "none"
        self.parts.append(f'<circle cx="{x:.1f}" cy="{y:.1f}" r="4" fill="{fill}" stroke="{color}" stroke-width="1.5">'
                          f'<title>{escape(name)}</title></circle>')

    def done(self):
        return "\n".join(self.parts + ["</svg>"]) + "\n"


def caption(device):
    return (f"{device['gpu']}, torch {device['torch']}; limits measured in the same run: copy "
            f"{device['copy_tb_per_s']:.2f} TB/s, matmul {device['matmul_tflop_per_s']:.0f} TFLOP/s")


def bars(results, everything):
    rows = [row for row in results["cases"] if "ratio" in row and row["limit"] >= 2]
    if not everything:
        largest = {row["group"]: row for row in sorted(rows, key=lambda row: row["limit"])}
        rows = [row for row in rows if largest[row["group"]] is row]
    left, scale, step, top = 330, 440, 30, 62
    svg = Svg(left + scale + 190, top + step * len(rows) + 30, "Share of the limit")
    svg.text(12, 20, "Share of the limit that the timed kernels reach: ours (blue), best opponent (grey)",
             size=14)
    svg.text(12, 38, caption(results["device"]), color="#777777")
    bottom = top + step * len(rows)
    for percent in range(0, 101, 20):
        x = left + scale * percent / 100
        svg.line(x, top - 6, x, bottom, INK if percent == 100 else LIGHT)
        svg.text(x, bottom + 16, f"{percent} %", "middle")
    for i, row in enumerate(rows):
        y, ours = top + step * i, row["us"]["fusion"]
        best, label = row["us"][row["ratio_to"]], row["ratio_to"]
        svg.text(left - 8, y + 15, f"{row['group']} {row['label']}", "end")
        for offset, us, color, text in ((0, ours, OURS, f"{ours:.1f} us"),
                                        (12, best, THEIRS, f"{best:.1f} {label}")):
            width = min(scale * row["limit"] / us, scale * 1.02)
            svg.box(left, y + offset, width, 11, color)
            svg.text(left + width + 5, y + offset + 10, text, size=10)
    return svg.done()


def color_of(row):
    return next((color for part, _, color in FAMILIES if part in row["group"]), INK)


def roofline(results):
    rows = [row for row in results["cases"] if row.get("flops") and "fusion" in row["us"]
            and row["limit"] >= 0.5]
    device = results["device"]
    copy, peak = device["copy_tb_per_s"], device["matmul_tflop_per_s"]
    width, height, left, bottom, top, right = 760, 480, 70, 430, 60, 740
    low_x, high_x, low_y, high_y = -1.0, 4.0, -1.0, 3.2  # powers of ten
    place_x = lambda value: left + (right - left) * (math.log10(value) - low_x) / (high_x - low_x)
    place_y = lambda value: bottom - (bottom - top) * (math.log10(value) - low_y) / (high_y - low_y)
    svg = Svg(width, height, "Roofline")
    svg.text(12, 20, "Roofline: filled ours, hollow the best opponent", size=14)
    svg.text(12, 38, caption(device), color="#777777")
    for power in range(int(low_x), int(high_x) + 1):
        x = place_x(10.0 ** power)
        svg.line(x, top, x, bottom)
        svg.text(x, bottom + 16, f"{10.0 ** power:g}", "middle")
    for power in range(int(low_y), int(high_y) + 1):
        y = place_y(10.0 ** power)
        svg.line(left, y, right, y)
        svg.text(left - 6, y + 4, f"{10.0 ** power:g}", "end")
    svg.text((left + right) / 2, height - 12, "operations a byte", "middle")
    svg.text(16, (top + bottom) / 2, "TFLOP/s", "middle", turn=True)
    ridge = peak / copy
    svg.line(place_x(10 ** low_x), place_y(copy * 10 ** low_x), place_x(ridge), place_y(peak), INK, 1.5)
    svg.line(place_x(ridge), place_y(peak), right, place_y(peak), INK, 1.5)
    inside = lambda value: min(max(value, 10 ** low_y), 10 ** high_y)
    for row in rows:
        x, color = place_x(min(max(row["flops"] / row["bytes"], 10 ** low_x), 10 ** high_x)), color_of(row)
        if "ratio_to" in row:
            best = row["us"][row["ratio_to"]]
            svg.dot(x, place_y(inside(row["flops"] / best * 1e-6)), color, False,
                    f"{row['name']}: {row['ratio_to']} {best:.2f} us")
        ours = row["us"]["fusion"]
        svg.dot(x, place_y(inside(row["flops"] / ours * 1e-6)), color, True, f"{row['name']}: {ours:.2f} us")
    for i, (_, name, color) in enumerate(FAMILIES):
        svg.dot(left + 14, top + 14 + 17 * i, color)
        svg.text(left + 24, top + 18 + 17 * i, name)
    return svg.done()


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("results", help="the JSON that run.py wrote")
    parser.add_argument("--out", default="docs", help="folder for bars.svg and roofline.svg")
    parser.add_argument("--all", action="store_true", help="every case in bars.svg")
    parser.add_argument("--only", default="", metavar="REGEX", help="cases whose name matches")
    options = parser.parse_args()
    try:
        with open(options.results) as file:
            results = json.load(file)
        results["cases"] = [row for row in results["cases"] if re.search(options.only, row["name"])]
    except (OSError, ValueError, KeyError, TypeError) as error:
        print(f"plot.py: {options.results}: {error}", file=sys.stderr)
        return 2
    for name, text in (("bars.svg", bars(results, options.all)), ("roofline.svg", roofline(results))):
        with open(os.path.join(options.out, name), "w") as file:
            file.write(text)
        print(os.path.join(options.out, name))
    return 0


if __name__ == "__main__":
    sys.exit(main())
