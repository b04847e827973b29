"""A user of the console in Chromium, that sees only what the page displays.

The user finds links, buttons and fields by their displayed text: first an equal text, then one that
begins with it. Case does not matter. A control that is hidden or covered cannot be pressed.
"""

from __future__ import annotations

import contextlib
import json
import re
from pathlib import Path
from typing import Any
from urllib.parse import urlencode

from tools.chromium import BrowserError, Chromium
from waiting import eventually

# Functions of the page. `scope` is the element in which the user looks.
_FUNCTIONS = """
const clean = (text) => (text || "").replace(/\\s+/g, " ").trim();
const shown = (e) => e.checkVisibility({ checkVisibilityCSS: true });
const textOf = (e) => clean(e.getAttribute("aria-label") || e.innerText || e.value);
const labelOf = (e) => {
  const given = e.getAttribute("aria-label");
  if (given || !e.labels || !e.labels.length) return clean(given);
  const copy = e.labels[0].cloneNode(true);
  copy.querySelectorAll("input, select, textarea, [id^=problem]").forEach((each) => each.remove());
  return clean(copy.textContent);
};
const pick = (scope, selector, name, text) => {
  const all = [...scope.querySelectorAll(selector)].filter(shown);
  const wanted = name.toLowerCase();
  const found = all.find((e) => text(e).toLowerCase() === wanted)
    || all.find((e) => text(e).toLowerCase().startsWith(wanted));
  if (!found) throw new Error("no " + name + " among: " + all.map(text).join(" | "));
  found.scrollIntoView({ block: "center" });
  return found;
};
const control = (scope, name) => pick(scope, "a, button, summary", name, textOf);
const exit = (scope, name) => pick(scope, "a, button", name, textOf);
const field = (scope, name) => pick(
  scope, "input:not([type=hidden]), select, textarea", name, labelOf);
const press = (e) => {
  const box = [...e.getClientRects()].find((each) => each.width > 0 && each.height > 0);
  const top = document.elementFromPoint(box.left + box.width / 2, box.top + box.height / 2);
  if (!top || !(e.contains(top) || top.contains(e))) throw new Error("covered: " + textOf(e));
  e.click();
  return true;
};
const tableRows = (table) => {
  const heads = [...table.querySelectorAll("thead th")].map(
    (e) => clean(e.innerText.replace(/[×▲▼]/g, "")));
  return [...table.querySelectorAll("tbody tr")].filter(shown).map((row) => Object.fromEntries(
    [...row.children].map((cell, at) => [heads[at] || String(at), clean(cell.innerText)])));
};
"""


class ConsoleUser:
    """A user in front of a browser.

    Args:
        browser: The browser.
        url: The address of the console, without a slash at its end.
        scope: The part of the page in which the user looks, as a JavaScript expression.
    """

    def __init__(self, browser: Chromium, url: str, scope: str = "document.body") -> None:
        self.browser = browser
        self.url = url
        self._scope = scope

    def open(self, path: str, **fields: object) -> None:
        """Open a page."""
        query = f"?{urlencode(fields)}" if fields else ""
        self.browser.open(f"{self.url}{path}{query}")

    def part(self, title: str) -> ConsoleUser:
        """Open the part of the page that unfolds below a title, and return a user of it."""
        details = f"control({self._scope}, {json.dumps(title)}).closest('details')"
        found = self._within(details)
        if not self._run(f"{details}.open"):
            self.click(title)
        return found

    def form_of(self, field: str) -> ConsoleUser:
        """Return a user of the form that has a field with this label."""
        return self._within(f"field({self._scope}, {json.dumps(field)}).closest('form')")

    def group(self, legend: str) -> ConsoleUser:
        """Return a user of the group of fields that has this title."""
        name = json.dumps(legend)
        return self._within(f"pick({self._scope}, 'legend', {name}, textOf).closest('fieldset')")

    def table(self, caption: str) -> ConsoleUser:
        """Return a user of the table that has this title."""
        name = json.dumps(caption)
        return self._within(f"pick({self._scope}, 'caption', {name}, textOf).closest('table')")

    # What the user does

    def click(self, name: str) -> None:
        """Press a link, a button or a summary that leaves the page as it is."""
        self._eventually(f"press(control({self._scope}, {json.dumps(name)}))")

    def press(self, name: str) -> None:
        """Press a link or a button that leads to another page, and wait until that is loaded."""
        self.browser.events.clear()
        self._eventually(f"press(exit({self._scope}, {json.dumps(name)}))")
        self.browser.wait_for_load()

    def fill(self, **texts: str) -> None:
        """Type texts into fields; `_` in a name stands for a space of the label."""
        for name, text in texts.items():
            self.type(name.replace("_", " "), text)

    def type(self, label: str, text: str) -> None:
        """Replace the text of a field by typing."""
        self._eventually(f"(field({self._scope}, {json.dumps(label)}).select(), true)")
        focused = f"document.activeElement === field({self._scope}, {json.dumps(label)})"
        self._eventually(f"(field({self._scope}, {json.dumps(label)}).focus(), {focused})")
        if not text:
            self._run("(document.activeElement.value = '', true)")
        self.browser.send("Input.insertText", text=text)

    def choose(self, label: str, option: str) -> None:
        """Choose an option of a list by its text."""
        self._eventually(f"""((list) => {{
            const wanted = {json.dumps(option.lower())};
            const found = [...list.options].find((e) => clean(e.text).toLowerCase() === wanted)
              || [...list.options].find((e) => clean(e.text).toLowerCase().startsWith(wanted));
            if (!found) throw new Error([...list.options].map((e) => e.text).join(" | "));
            list.value = found.value;
            list.dispatchEvent(new Event("change", {{ bubbles: true }}));
            return true;
        }})(field({self._scope}, {json.dumps(label)}))""")

    def check(self, label: str) -> None:
        """Press a box that is to be checked."""
        self._eventually(f"press(field({self._scope}, {json.dumps(label)}))")

    def choose_file(self, label: str, file: Path) -> None:
        """Choose a file for a field."""
        found = f"field({self._scope}, {json.dumps(label)})"
        self._eventually(f"{found} !== null")
        script = f"(() => {{ {_FUNCTIONS} return {found}; }})()"
        element = self.browser.send("Runtime.evaluate", expression=script)["result"]["objectId"]
        self.browser.send("DOM.setFileInputFiles", files=[str(file)], objectId=element)

    def download(self, name: str, directory: Path) -> bytes:
        """Press a link that downloads, and return the bytes of the file when it is complete."""
        directory.mkdir(parents=True, exist_ok=True)
        self.browser.send(
            "Browser.setDownloadBehavior",
            behavior="allow",
            downloadPath=str(directory),
            eventsEnabled=True,
        )
        self.browser.events.clear()
        self.click(name)

        def is_complete() -> bool:
            # A call receives the events that have arrived.
            self.browser.run("0")
            return any(
                method == "Browser.downloadProgress" and event["state"] == "completed"
                for method, event in self.browser.events
            )

        eventually(is_complete, f"no complete file of {name}")
        [file] = directory.iterdir()
        return file.read_bytes()

    # What the user sees

    def text(self) -> str:
        """Return the displayed text, with single spaces."""
        return str(self._run(f"clean({self._scope}.innerText)"))

    def sees(self, *patterns: str) -> str:
        """Wait until the page displays texts that match all patterns, and return its text."""
        seen = ""

        def is_shown() -> bool:
            nonlocal seen
            with contextlib.suppress(BrowserError):
                seen = self.text()
            return all(re.search(each, seen, re.IGNORECASE) for each in patterns)

        eventually(is_shown, lambda: f"{patterns} are not in: {seen}")
        return seen

    def rows(self, caption: str = "") -> list[dict[str, str]]:
        """Return the displayed rows of all tables, or of those with a title, by their headers."""
        found: list[dict[str, str]] = self._run(f"""
            [...{self._scope}.querySelectorAll("table")].filter((each) => shown(each)
              && clean(each.caption?.textContent).startsWith({json.dumps(caption)}))
              .flatMap(tableRows)
        """)
        return found

    def row(self, key: str, caption: str = "") -> dict[str, str]:
        """Wait for the row of a table whose first cell begins with a text, and return it."""
        rows: list[dict[str, str]] = []

        def found() -> list[dict[str, str]]:
            nonlocal rows
            with contextlib.suppress(BrowserError):
                rows = self.rows(caption)
            return [each for each in rows if next(iter(each.values()), "").startswith(key)]

        return eventually(found, lambda: f"no row {key} among {rows}")[0]

    def finds(self, script: str) -> Any:
        """Wait until a JavaScript expression is true, and return its value."""
        return self._eventually(script)

    def _within(self, element: str) -> ConsoleUser:
        """Wait for an element, which is a JavaScript expression, and return a user of it."""
        self._eventually(f"{element} !== null")
        return ConsoleUser(self.browser, self.url, element)

    def _run(self, expression: str) -> Any:
        return self.browser.run(f"(() => {{ {_FUNCTIONS} return ({expression}); }})()")

    def _eventually(self, expression: str) -> Any:
        """Evaluate an expression until it is true and throws no error; return its value."""
        error = "its value is not true"

        def value() -> Any:
            nonlocal error
            try:
                return self._run(expression)
            except BrowserError as raised:
                error = str(raised)
                return None

        return eventually(value, lambda: f"{expression}: {error}")
