// What HTML cannot do: refresh the live parts of a page, and follow new messages.
"use strict";

const LIVE_MS = 5000;
const ROWS_MAX = 200;

// Tables that scroll sideways can be scrolled by the keyboard; the heads of others stay in view.
function makeScrollable() {
  for (const each of document.querySelectorAll(".scroll")) {
    const isWide = each.scrollWidth > each.clientWidth;
    if (isWide) each.tabIndex = 0;
    else each.removeAttribute("tabindex");
    each.classList.toggle("fits", !isWide);
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

// Show bytes as the macro `bytes` of the templates does.
function showBytes(cell, shown) {
  if (shown.kind === "null" || shown.kind === "empty") {
    const word = document.createElement("em");
    word.className = "dim";
    word.textContent = shown.kind;
    cell.append(word);
    return;
  }
  const text = document.createElement("pre");
  text.className = shown.kind;
  text.tabIndex = 0;
  text.textContent = shown.text;
  cell.append(text);
  if (shown.cut) {
    const tag = document.createElement("span");
    tag.className = "tag warn";
    tag.textContent = `cut, ${shown.size} bytes in all`;
    cell.append(tag);
  }
  if (shown.note) {
    const tag = document.createElement("span");
    tag.className = "tag";
    tag.textContent = shown.note;
    cell.append(tag);
  }
}

function addMessage(message, topic) {
  const rows = document.getElementById("messages");
  const row = document.getElementById("message-row").content.firstElementChild.cloneNode(true);
  const link = row.querySelector("a");
  const place = new URLSearchParams({ topic, partition: message.partition, offset: message.offset });
  link.search = place;
  link.textContent = `${message.partition}:${message.offset}`;
  row.className = "new";
  if (message.timestamp >= 0) {
    row.children[1].textContent = message.time;
  }
  showBytes(row.children[2], message.key);
  showBytes(row.children[3], message.value);
  if (message.headers.length) {
    const list = document.createElement("ul");
    list.className = "headers";
    for (const [name, value] of message.headers) {
      const item = document.createElement("li");
      item.textContent = `${name} ${value}`;
      list.append(item);
    }
    row.children[3].append(list);
  }
  rows.querySelector(".none")?.remove();
  rows.prepend(row);
  while (rows.children.length > ROWS_MAX) rows.lastElementChild.remove();
}

function follow(button) {
  const state = document.getElementById("tail-state");
  const topic = new URL(button.dataset.tail, location.href).searchParams.get("topic");
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
    source.addEventListener("message", (event) => { count += 1; addMessage(JSON.parse(event.data), topic); told(); });
    source.addEventListener("skipped", (event) => { skipped += JSON.parse(event.data).count; told(); });
    source.addEventListener("problem", (event) => stop(JSON.parse(event.data).text));
    source.addEventListener("end", (event) => stop(JSON.parse(event.data).text));
    source.onerror = () => stop("the connection ended");
  });
}

if (document.querySelector("[data-live]")) refreshForever();
document.querySelectorAll("button[data-tail]").forEach(follow);
makeScrollable();
addEventListener("resize", makeScrollable);
