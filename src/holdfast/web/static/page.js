// The page: live, by keyboard, in the theme that was chosen.  It draws nothing itself: when
// something changed it asks for the page again and takes over the parts that are different.
import { act } from "./act.js";
import { steward, undecided } from "./steward.js";
import { talk } from "./talk.js";

const $ = (id) => document.getElementById(id);
const live = $("live");
const CHOSEN = "tr[aria-current=true], [data-row][aria-current=true]";

// --- live ------------------------------------------------------------------------------------

let paused = false;
let due = false;
let busy = false;
let lastSeen = 0;
let outdated = false;

function say(state, words) {
  live.dataset.state = state;
  live.querySelector("b").textContent = words;
}

async function redraw() {
  if (paused || busy) { due = true; return; }
  busy = true; due = false;
  try {
    const answer = await fetch(location.href, { headers: { accept: "text/html" } });
    if (answer.status === 401) { say("lost", "logged out: run `holdfast up`"); return; }
    const fresh = new DOMParser().parseFromString(await answer.text(), "text/html");
    if (answer.ok) takeOver(fresh);
    // What is on the page is no longer so, and nothing newer can be shown.
    if (!answer.ok) say("lost", `out of date: ${fresh.querySelector("main p")?.textContent ?? answer.status}`);
    else if (outdated) say("live", "live");
    outdated = !answer.ok;
    lastSeen = performance.now();
  } catch { /* the stream tells that the server is gone */ } finally {
    busy = false;
    if (due) setTimeout(redraw, 300);
  }
}

function takeOver(fresh) {
  document.title = fresh.title;
  for (const part of document.querySelectorAll("[data-live]")) {
    const next = fresh.getElementById(part.id);
    if (!next || next.innerHTML === part.dataset.drawn) continue;
    if (undecided(part, next)) continue;
    if (part.contains(document.activeElement) && document.activeElement.matches("input, textarea, select")) continue;
    part.dataset.drawn = next.innerHTML;
    const known = new Set([...part.querySelectorAll("tr[id]")].map((row) => row.id));
    const chosen = part.querySelector(CHOSEN)?.id;
    const focused = part.contains(document.activeElement) ? document.activeElement.closest("[data-row], tr[id]")?.id : null;
    const open = [...part.querySelectorAll("details[open]")].map((each) => each.id);
    const begun = [...part.querySelectorAll("[data-row] input")].filter((each) => each.value);
    part.replaceChildren(...next.childNodes);
    for (const each of begun) {
      const field = $(each.closest("[data-row]").id)?.querySelector(`input[name="${each.name}"]`);
      if (field) field.value = each.value;  // half a sentence is not taken from anybody
    }
    for (const row of part.querySelectorAll("tr[id]")) {
      if (known.size && !known.has(row.id)) row.classList.add("new");
    }
    for (const id of open) { const box = $(id); if (box) box.open = true; }
    if (chosen && $(chosen)) choose($(chosen), false);
    if (focused) $(focused)?.focus({ preventScroll: true });
  }
  document.dispatchEvent(new Event("drawn"));
}

let soon = 0;
function changed() {
  if (paused) { due = true; return; }
  if (!soon) soon = setTimeout(() => { soon = 0; redraw(); }, 150);
}

function listen() {
  const stream = new EventSource("/events");
  stream.addEventListener("hello", () => say(paused ? "paused" : "live", paused ? "paused" : "live"));
  stream.addEventListener("stale", changed);
  stream.onopen = changed;  // what happened while nobody listened
  stream.onmessage = (message) => {
    document.dispatchEvent(new CustomEvent("happened", { detail: JSON.parse(message.data) }));
    changed();
  };
  stream.onerror = () => { if (!paused) say("lost", "connection lost, trying again"); };
}

function pause() {
  if (live.dataset.state === "still") return;
  paused = !paused;
  $("pause").setAttribute("aria-pressed", String(paused));
  $("pause").textContent = paused ? "Go on" : "Pause";
  say(paused ? "paused" : "live", paused ? "paused" : "live");
  if (!paused && due) redraw();
}

// Ages grow although nothing happens.
setInterval(() => { if (live.dataset.state !== "still" && !document.hidden && performance.now() - lastSeen > 10_000) changed(); }, 5_000);

// --- rows and keys ---------------------------------------------------------------------------

const rows = () => [...document.querySelectorAll("tr[data-href], [data-row]")].filter((row) => row.checkVisibility());

function choose(row, scroll = true) {
  document.querySelectorAll(CHOSEN).forEach((each) => each.removeAttribute("aria-current"));
  row.setAttribute("aria-current", "true");
  if (scroll) { row.focus({ preventScroll: true }); row.scrollIntoView({ block: "nearest" }); }
}

function step(by) {
  const all = rows();
  if (!all.length) return;
  const at = all.findIndex((row) => row.getAttribute("aria-current") === "true");
  choose(all[Math.min(all.length - 1, Math.max(0, at + by))] ?? all[0]);
}

let leader = "";
document.addEventListener("keydown", (press) => {
  if (press.ctrlKey || press.metaKey || press.altKey) return;
  const typing = press.target.matches("input, textarea, select");
  if (press.key === "Escape") {
    if ($("keys").open) return;
    if (typing) { press.target.blur(); return; }
    const up = document.querySelector("a[rel=up]");
    if (up) location.href = up.href; else if (location.pathname !== "/") location.href = "/";
    return;
  }
  if (typing || $("keys").open) return;
  const said = leader + press.key;
  leader = press.key === "g" ? "g" : "";
  const keys = {
    j: () => step(1), k: () => step(-1), ArrowDown: () => step(1), ArrowUp: () => step(-1),
    p: pause, t: turnTheme, "?": () => $("keys").showModal(),
    "/": () => (document.querySelector(".filter input") ?? document.querySelector("nav a[href='/ledger']")).focus(),
    c: () => document.querySelector("form.talk textarea, form.decide textarea")?.focus(),
    gf: () => { location.href = "/"; }, gl: () => { location.href = "/ledger"; },
    gj: () => { location.href = "/jobs"; }, gd: () => { location.href = "/decisions"; }, gs: () => { location.href = "/swarms"; }, gi: () => { location.href = "/improve"; },
    Enter: () => {
      const row = document.querySelector(CHOSEN);
      if (!row || press.target.matches("a, button, summary")) return false;
      if (row.dataset.href) location.href = row.dataset.href; else row.querySelector("button, summary")?.focus();
    },
  };
  const deed = keys[said] ?? keys[press.key];
  if (deed && deed() !== false) press.preventDefault();
});

document.addEventListener("click", (click) => {
  const row = click.target.closest("tr[data-href]");
  if (row && !click.target.closest("a, button") && !getSelection().toString()) location.href = row.dataset.href;
});

// --- theme -----------------------------------------------------------------------------------

const THEMES = ["", "light", "dark"];
function wear(theme) {
  if (theme) document.documentElement.dataset.theme = theme; else delete document.documentElement.dataset.theme;
  $("theme").textContent = { "": "Auto", light: "Light", dark: "Dark" }[theme];
}
function turnTheme() {
  const next = THEMES[(THEMES.indexOf(localStorage.getItem("theme") ?? "") + 1) % THEMES.length];
  localStorage.setItem("theme", next);
  wear(next);
}
wear(localStorage.getItem("theme") ?? "");
document.querySelectorAll("[data-live]").forEach((part) => { part.dataset.drawn = part.innerHTML; });

$("pause").addEventListener("click", pause);
$("theme").addEventListener("click", turnTheme);
$("help").addEventListener("click", () => $("keys").showModal());
act();
talk();
steward();
document.addEventListener("said", redraw);
// What was derived for this one look, as a replay is, would be derived again with every event.
if (document.querySelector("main [data-live]")) listen(); else say("still", "as it was when opened");
