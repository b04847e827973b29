// What HTML cannot do: refresh the live parts of a page, and follow new messages.
"use strict";

const LIVE_MS = 5000;
const ROWS_MAX = 200;
const SEARCH_MS = 700;

// Tables that scroll sideways can be scrolled by the keyboard; the heads of others stay in view.
function makeScrollable() {
  for (const each of document.querySelectorAll(".scroll")) {
    const isWide = each.scrollWidth > each.clientWidth;
    if (isWide) each.tabIndex = 0;
    else each.removeAttribute("tabindex");
    each.classList.toggle("fits", !isWide);
  }
}

// In narrow windows each row of links scrolls sideways: show the link of the current page.
function showCurrentLinks() {
  for (const link of document.querySelectorAll("header nav a[aria-current]")) {
    const row = link.closest("ul");
    const hidden = link.getBoundingClientRect().right - row.getBoundingClientRect().right;
    if (hidden > 0) row.scrollLeft += hidden;
  }
}

const FOCUSABLE = "a, button, input, select, textarea, summary, [tabindex]";

// Replace each element with data-live by its newest version from the server. What the user has
// opened, selected or focused stays.
async function refresh() {
  if (document.hidden || document.querySelector("[data-live] details[open]")) return;
  const response = await fetch(location.href, { headers: { accept: "text/html" } });
  if (!response.ok || response.redirected) return;
  const page = new DOMParser().parseFromString(await response.text(), "text/html");
  for (const old of document.querySelectorAll("[data-live]")) {
    const fresh = page.getElementById(old.id);
    const selection = getSelection();
    if (!fresh || (!selection.isCollapsed && selection.containsNode(old, true))) continue;
    const focused = old.contains(document.activeElement) ? document.activeElement : null;
    const place = [...old.querySelectorAll(FOCUSABLE)].indexOf(focused);
    const target = focused?.getAttribute("href");
    const scrolled = [...old.querySelectorAll(".scroll")].map((each) => each.scrollLeft);
    old.replaceChildren(...fresh.childNodes);
    makeScrollable();
    old.querySelectorAll(".scroll").forEach((each, index) => { each.scrollLeft = scrolled[index] || 0; });
    if (focused) {
      const all = [...old.querySelectorAll(FOCUSABLE)];
      const same = target ? all.find((each) => each.getAttribute("href") === target) : all[place];
      (same || document.getElementById("content")).focus({ preventScroll: true });
    }
  }
}

async function refreshForever() {
  for (;;) {
    await new Promise((done) => setTimeout(done, LIVE_MS));
    try { await refresh(); } catch { /* The server is away; the next round tries again. */ }
  }
}

// Put rows of the server into the list of messages. It has escaped them.
function rowsOf(html) {
  const holder = document.createElement("template");
  holder.innerHTML = `<table><tbody>${html}</tbody></table>`;
  return [...holder.content.querySelectorAll("tr")];
}

function addMessage(html) {
  const rows = document.getElementById("messages");
  for (const row of rowsOf(html)) {
    row.className = "new";
    rows.prepend(row);
  }
  rows.querySelector(".none")?.remove();
  while (rows.children.length > ROWS_MAX) rows.lastElementChild.remove();
  showCopyButtons();
}

function follow(button) {
  const state = document.getElementById("tail-state");
  let source = null, count = 0, skipped = 0;
  const say = (text) => { state.hidden = false; state.textContent = text; };
  const stop = (text) => {
    source?.close();
    source = null;
    button.textContent = "Follow new messages";
    say(text);
  };
  button.hidden = false;
  button.addEventListener("click", () => {
    if (source) { stop("stopped"); return; }
    count = skipped = 0;
    source = new EventSource(button.dataset.tail);
    button.textContent = "Stop following";
    say("connecting");
    const told = () => say(`following: ${count} new` + (skipped ? `, ${skipped} not shown (too fast)` : ""));
    source.addEventListener("ready", told);
    source.addEventListener("message", (event) => { count += 1; addMessage(JSON.parse(event.data).row); told(); });
    source.addEventListener("skipped", (event) => { skipped += JSON.parse(event.data).count; told(); });
    source.addEventListener("problem", (event) => stop(JSON.parse(event.data).text));
    source.addEventListener("end", (event) => stop(JSON.parse(event.data).text));
    source.onerror = () => stop("the connection ended");
  });
}

// Show how far a search is until it ends, and its rows when there are more. Opened values stay open.
async function watchSearch(search) {
  const rows = document.getElementById("messages");
  while (search.dataset.state === "running") {
    await new Promise((done) => setTimeout(done, SEARCH_MS));
    if (document.hidden) continue;
    const address = `${search.dataset.found}&have=${rows.dataset.version}`;
    const response = await fetch(address).catch(() => null);
    if (response?.status === 404) { location.reload(); return; }
    if (!response?.ok || response.redirected) continue;
    const found = new DOMParser().parseFromString(await response.text(), "text/html");
    const fresh = found.getElementById("search");
    if (!fresh) return;
    for (const part of fresh.children) {
      const old = document.getElementById(part.id);
      if (old.innerHTML !== part.innerHTML) {
        const hadFocus = old.contains(document.activeElement);
        old.replaceChildren(...part.childNodes);
        if (hadFocus) (old.querySelector("a") || document.getElementById("content")).focus({ preventScroll: true });
      }
    }
    search.dataset.state = fresh.dataset.state;
    const body = found.getElementById("messages");
    if (body && (body.children.length || fresh.dataset.state !== "running")) {
      const open = new Set([...rows.querySelectorAll("tr:has(details[open])")].map((row) => row.id));
      rows.replaceChildren(...body.children);
      rows.dataset.version = body.dataset.version;
      for (const id of open) document.getElementById(id)?.querySelectorAll("details").forEach((each) => { each.open = true; });
      showCopyButtons();
      makeScrollable();
    }
    document.getElementById("look-again")?.remove();
  }
}

// Buttons that copy the text beside them.
function showCopyButtons() {
  // Browsers have no clipboard for pages without TLS of other machines.
  if (!navigator.clipboard) return;
  for (const button of document.querySelectorAll("button[data-copy][hidden]")) {
    button.hidden = false;
    button.addEventListener("click", async () => {
      const text = button.parentElement.querySelector("pre").textContent;
      try { await navigator.clipboard.writeText(text); button.textContent = "Copied"; } catch { button.textContent = "Not allowed"; }
      setTimeout(() => { button.textContent = "Copy"; }, 1500);
    });
  }
}

if (document.querySelector("[data-live]")) refreshForever();
document.querySelectorAll("#search[data-found]").forEach(watchSearch);
showCopyButtons();
document.querySelectorAll("button[data-tail]").forEach(follow);
for (const fit of [makeScrollable, showCurrentLinks]) {
  fit();
  addEventListener("resize", fit);
}
