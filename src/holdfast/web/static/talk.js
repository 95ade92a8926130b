// The box in which an agent is asked.  The question goes through the same verb as in a terminal;
// the answer is shown as it comes, until the page is drawn anew and has it.
import { token } from "./act.js";

const TURNS = /[\u061c\u200e\u200f\u202a-\u202e\u2066-\u2069]/g;
const plain = (text) => text.replace(TURNS, (found) => `\\u${found.charCodeAt(0).toString(16).padStart(4, "0")}`);

async function* lines(answer) {
  const pieces = answer.body.pipeThrough(new TextDecoderStream()).getReader();
  let rest = "";
  for (let { value, done } = await pieces.read(); !done; ({ value, done } = await pieces.read())) {
    const whole = (rest + value).split("\n");
    rest = whole.pop();
    yield* whole;
  }
}

export function talk() {
  const form = document.querySelector("form.talk");
  if (!form) return;
  const { text, model } = form.elements;
  const button = form.querySelector("button");
  const going = form.querySelector("[data-going]");
  const wrong = form.querySelector(".wrong");
  const part = (name) => going.querySelector(name);
  let clock = 0;

  function show(state, words) {
    part(".state").dataset.is = state;
    part(".state b").textContent = words;
  }

  function begin(asked) {
    form.setAttribute("aria-busy", "true");
    button.disabled = true;
    wrong.hidden = true;
    going.hidden = false;
    show("going", "under way");
    part(".question").textContent = plain(asked);
    part(".answer").textContent = "";
    const began = performance.now();
    const since = () => { part("[data-since]").textContent = `${Math.round((performance.now() - began) / 1000)} s`; };
    since();
    clock = setInterval(since, 1000);
  }

  function end(error) {
    clearInterval(clock);
    form.removeAttribute("aria-busy");
    button.disabled = false;
    if (error) {
      show("bad", "failed");
      wrong.textContent = plain(`${error.message}. ${error.hint ?? ""}`);
      wrong.hidden = false;
    } else {
      show("good", "answered");
      text.value = "";
    }
    document.addEventListener("drawn", () => { if (!button.disabled) going.hidden = true; }, { once: true });
    document.dispatchEvent(new Event("said"));
  }

  async function ask(body) {
    const answer = await fetch("/api/agent/chat", {
      method: "POST",
      headers: { "content-type": "application/json", accept: "application/x-ndjson", "x-holdfast-token": token() },
      body: JSON.stringify(body),
    });
    if (!answer.ok) return (await answer.json()).error;
    let last = {};
    for await (const line of lines(answer)) {
      last = JSON.parse(line);
      if (last.text !== undefined) part(".answer").append(plain(last.text));
    }
    if (last.error) return last.error;
    return last.data ? null : { message: "The connection broke off", hint: "The answer is on record if it came." };
  }

  form.addEventListener("submit", async (sent) => {
    sent.preventDefault();
    if (button.disabled) return;
    const body = { agent: form.dataset.talk, text: text.value };
    if (model.value) body.model = model.value;
    begin(text.value);
    try { end(await ask(body)); } catch { end({ message: "The dashboard does not answer", hint: "Is it still up?" }); }
  });
  text.addEventListener("keydown", (press) => {
    if (press.key === "Enter" && (press.ctrlKey || press.metaKey)) { press.preventDefault(); form.requestSubmit(); }
  });
}
