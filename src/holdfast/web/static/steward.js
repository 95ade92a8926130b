// Decisions about jobs.  One is bound to what was shown: so what somebody is deciding about is not
// redrawn under his hands, and when it has changed meanwhile, he is told before and refused after.
import { call, toast } from "./act.js";

// Whether a part is being decided about and has to stay as it is.  `next` is what it would become: a
// form is old if what it is bound to is another one there, not because others came or went.
export function undecided(part, next) {
  if (!("careful" in part.dataset)) return false;
  if ("fresh" in part.dataset) { delete part.dataset.fresh; delete part.dataset.old; return false; }
  const written = [...part.querySelectorAll("textarea, input")].some((field) => field.value !== field.defaultValue);
  const held = written || part.querySelector("button:hover, button:focus-visible, .refused:not([hidden])");
  if (!held) { delete part.dataset.old; return false; }
  part.dataset.old = "";
  for (const form of part.querySelectorAll("form.decide")) {
    const now = next.querySelector(`#${CSS.escape(form.id)}`);
    form.toggleAttribute("data-old", now?.dataset.shown !== form.dataset.shown);
  }
  return true;
}

// What is there now, with what was written kept.
function freshen(part) {
  const written = [...part.querySelectorAll("textarea, input")].filter((field) => field.value !== field.defaultValue);
  part.dataset.fresh = "";
  part.dataset.drawn = "";
  document.addEventListener("drawn", () => {
    for (const field of written) {
      const same = document.getElementById(field.form.id)?.elements[field.name];
      if (same) same.value = field.value;
    }
  }, { once: true });
  document.activeElement?.blur();
  document.dispatchEvent(new Event("said"));
}

function refuse(form, error) {
  const box = form.querySelector(".refused");
  const stale = error.code === "stale_approval";
  const title = document.createElement("b");
  title.textContent = stale ? "Not done: this is not what waits any more." : "Not done.";
  const words = document.createElement("span");
  words.textContent = `${error.message}. ${stale ? "Look at what waits now, then decide again." : error.hint ?? ""}`;
  const look = document.createElement("button");
  look.type = "button";
  look.dataset.look = "";
  look.textContent = "Show what waits now";
  // Whoever mistyped something mends it; what he decides about is still there.
  box.replaceChildren(title, words, ...(error.code === "usage" ? [] : [look]));
  box.hidden = false;
  if (look.isConnected) look.focus();
}

async function decide(button) {
  const form = button.form;
  const body = JSON.parse(button.dataset.body);
  const said = form.elements.guidance?.value.trim();
  if (said && button.dataset.says) body[button.dataset.says] = said;
  for (const field of form.querySelectorAll("input[data-limit]")) {
    if (button.dataset.steward !== "job/resume") continue;
    if (!field.value) { field.focus(); toast("Say how much it may use in all."); return; }
    body[field.name] = field.type === "number" ? Number(field.value) : field.value;
  }
  if ("needs" in button.dataset && !said) { form.elements.guidance.focus(); toast("Say what is wrong: the agent is told."); return; }
  const buttons = [...form.querySelectorAll("button")];
  for (const each of buttons) each.disabled = true;
  try {
    const told = await call(button.dataset.steward, body);
    if (told.error) { refuse(form, told.error); return; }
    toast(told.detail);
    form.reset();
    freshen(form.closest("[data-careful]"));
  } catch { toast("The dashboard does not answer."); } finally {
    for (const each of buttons) each.disabled = false;
  }
}

export function steward() {
  document.addEventListener("submit", (sent) => { if (sent.target.matches("form.decide")) sent.preventDefault(); });
  document.addEventListener("click", (click) => {
    const button = click.target.closest("button");
    if (!button) return;
    if (button.dataset.steward) decide(button);
    if ("look" in button.dataset) freshen(button.closest("[data-careful]"));
  });
  const meant = location.hash.length > 1 && document.getElementById(location.hash.slice(1));
  if (meant) meant.querySelectorAll("details").forEach((each) => { each.open = true; });
}
