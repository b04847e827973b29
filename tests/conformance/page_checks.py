"""Checks of a page of the console that Chromium shows: accessibility, layout, and size."""

from __future__ import annotations

import json
from functools import cache
from typing import Any

from conformance.client_packages import node_package
from tools.chromium import Chromium

# HTML uncompressed; style and script as they are sent.
PAGE_BYTES_MAX = 100 * 1024
# The page, its style, its script and its icon.
REQUESTS_MAX = 4

# Texts that cross another text, or whose box hides a part of them, and figures with a broken word;
# links of the current page that are scrolled out of view.
_POOR_LAYOUT = """
(() => {
  const found = [];
  const isText = (node) => node.nodeType === Node.TEXT_NODE && node.textContent.trim();
  const boxes = [];
  const leftOut = "svg, .skip, option, input, select, textarea";
  for (const each of document.querySelectorAll("body *")) {
    if (each.closest(leftOut) || !each.checkVisibility()) continue;
    const style = getComputedStyle(each);
    const hides = style.overflowX === "hidden" || style.overflowX === "clip";
    const isCut = hides && each.scrollWidth > each.clientWidth + 1;
    if (isCut) found.push("cut: " + each.outerHTML.slice(0, 90));
    for (const node of each.childNodes) {
      if (!isText(node)) continue;
      const range = document.createRange();
      range.selectNodeContents(node);
      for (const box of range.getClientRects()) if (box.width > 1) boxes.push([box, each]);
      if (boxes.length > 1500) break;
    }
  }
  const isCovered = (one, other) =>
    Math.min(one.right, other.right) - Math.max(one.left, other.left) > 2 &&
    Math.min(one.bottom, other.bottom) - Math.max(one.top, other.top) > 6;
  boxes.sort(([one], [other]) => one.top - other.top);
  boxes.forEach(([one, element], index) => {
    for (let next = index + 1; next < boxes.length && boxes[next][0].top < one.bottom; next += 1) {
      const [other, second] = boxes[next];
      if (element !== second && isCovered(one, other)) {
        found.push("over: " + [element, second].map((each) => each.textContent.slice(0, 40)));
      }
    }
  });
  for (const each of document.querySelectorAll(".facts dt, .facts dd, .facts span")) {
    for (const node of [...each.childNodes].filter(isText)) {
      for (const word of node.textContent.matchAll(/[A-Za-z]{2,20}/g)) {
        const range = document.createRange();
        range.setStart(node, word.index);
        range.setEnd(node, word.index + word[0].length);
        const tops = [...range.getClientRects()].map((box) => Math.round(box.top));
        if (new Set(tops).size > 1) found.push("broken: " + word[0]);
      }
    }
  }
  for (const link of document.querySelectorAll("header nav a[aria-current]")) {
    const [box, row] = [link, link.closest("ul")].map((each) => each.getBoundingClientRect());
    const isSeen = box.left > row.left - 2 && box.right < row.right + 2;
    if (!isSeen) found.push("hidden link of the current page: " + link.textContent);
  }
  const root = document.documentElement;
  if (root.scrollWidth > root.clientWidth) found.push(`wide: ${root.scrollWidth} pixels`);
  return found;
})()
"""
_SIZES = """
(() => {
  const entries = ["navigation", "resource"].flatMap((kind) => performance.getEntriesByType(kind))
    .filter((each) => each.initiatorType !== "fetch");
  const bytes = entries.reduce((sum, each) => sum + each.encodedBodySize, 0);
  return { requests: entries.length, bytes };
})()
"""
_AXE = """
axe.run(document, { resultTypes: ["violations"] }).then((found) => found.violations.map((each) => {
  const first = each.nodes.slice(0, 3).map((node) => node.html.slice(0, 120));
  return `${each.id}: ${first.join(" | ")}`;
}))
"""


def poor_layout(browser: Chromium) -> list[str]:
    """Return texts that overflow, overlap or are cut, and hidden links of the current page."""
    found: list[str] = browser.run(_POOR_LAYOUT)
    return found


def sizes(browser: Chromium) -> dict[str, Any]:
    """Return the number of requests of the page, and the bytes that were sent for it."""
    found: dict[str, Any] = browser.run(_SIZES)
    return found


def violations(browser: Chromium) -> list[str]:
    """Return the violations that axe-core finds in the page, with the first elements of each."""
    browser.run(f"(0, eval)({json.dumps(_axe())}), 0")
    found: list[str] = browser.run(_AXE)
    return found


@cache
def _axe() -> str:
    return (node_package("axe-core") / "node_modules" / "axe-core" / "axe.min.js").read_text()


def linked_pages(browser: Chromium) -> list[str]:
    """Return path and query of the pages that the rows of links at the top of a page lead to."""
    found: list[str] = browser.run(
        "[...document.querySelectorAll('header nav a')].map((each) => each.pathname + each.search)"
    )
    return found
